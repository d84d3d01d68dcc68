"""One call to the Hub, for a repo's commit and files, sent and interpreted as huggingface_hub does.

Imported when needed: the parts of the library used here take a tenth of a second to import; its `HfApi` and what that
brings take three times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated
from urllib.parse import quote

import httpx2  # what huggingface_hub speaks through; its errors are not wrapped
import msgspec
from huggingface_hub import constants, get_session, hf_raise_for_status
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils._headers import build_hf_headers
from msgspec import Meta

from service.hub.errors import HubReplyRefused
from service.hub.listing import ListingLimits
from service.hub.refusals import meaning
from service.hub.retry import Transient, count_reply, with_retries
from service.outgoing.rules import Refused

# Otherwise the first call of a process also asks huggingface.co, whatever the endpoint, for /api/agent-harnesses and
# waits up to 3 seconds (huggingface_hub 2.4, utils/_detect_agent.py), which is of no use here.
constants.HF_HUB_DISABLE_TELEMETRY = True


class ListedContent(msgspec.Struct, frozen=True):
    """The hash of a large file's content."""

    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]


class ListedFile(msgspec.Struct, frozen=True):
    """A file as the Hub lists it."""

    rfilename: Annotated[str, Meta(max_length=4096)]
    size: Annotated[int, Meta(ge=0, lt=1 << 50)] | None = None
    lfs: ListedContent | None = None


class RepoInfo(msgspec.Struct, frozen=True):
    """A repo at one commit, as the Hub describes it. `id` may differ from the name asked for: repos get renamed."""

    id: Annotated[str, Meta(max_length=256)]
    sha: Annotated[str, Meta(pattern=r"^[0-9a-f]{40}$")]
    private: bool | None = None
    gated: bool | str | None = None
    tags: list[Annotated[str, Meta(max_length=4096)]] | None = None
    siblings: list[ListedFile] | None = None


def repo_info(
    endpoint: str,
    token: str | None,
    repo: str,
    revision: str | None,
    limits: ListingLimits,
    sleep: Callable[[float], None],
) -> RepoInfo:
    """Return the Hub's description of `repo`, a checked id, at `revision` (None: its main branch).

    Must be called inside `Access.given`. Raises RepoNotFound, RevisionNotFound, RepoGated,
    HubUnavailable, HubRateLimited, HubUnauthorised, HubReplyRefused.
    """
    at = f"/revision/{quote(revision, safe='')}" if revision else ""
    address = f"{endpoint}/api/models/{repo}{at}"
    headers = build_hf_headers(token=token or False, library_name="offload-advisor")

    def attempt() -> RepoInfo:
        try:
            reply = get_session().get(address, headers=headers, params={"blobs": True}, timeout=limits.request_seconds)
            hf_raise_for_status(reply)
            count_reply("listing", 200, {})
            return msgspec.json.decode(reply.content, type=RepoInfo)
        except HfHubHTTPError as error:
            count_reply("listing", error.response.status_code, error.response.headers)
            raise meaning(error, repo, "the listing", revision) from error
        except Refused as error:
            raise HubReplyRefused(str(error)) from error
        except httpx2.TooManyRedirects as error:
            raise HubReplyRefused(f"the Hub redirects the listing of {repo} in a loop") from error
        except (httpx2.HTTPError, OSError) as error:
            count_reply("listing", None, {})
            raise Transient(f"{endpoint} does not answer ({type(error).__name__})") from error
        except ValueError as error:
            raise HubReplyRefused(f"the Hub's description of {repo} cannot be read") from error

    return with_retries(attempt, limits, sleep)
