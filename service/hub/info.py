"""One call to the Hub: a repo's commit and files, asked for and refusals read as huggingface_hub does.

Imported when needed: what of the library is used takes a tenth of a second, its `HfApi` and all that comes with it
three times that.
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

# Else the first call of a process asks huggingface.co, whatever the endpoint, for /api/agent-harnesses as well, and
# waits up to 3 seconds (huggingface_hub 2.4, utils/_detect_agent.py): neither asked for nor of use here.
constants.HF_HUB_DISABLE_TELEMETRY = True


class ListedContent(msgspec.Struct, frozen=True):
    """What a large file is known by."""

    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]


class ListedFile(msgspec.Struct, frozen=True):
    """A file as the Hub lists it."""

    rfilename: Annotated[str, Meta(max_length=4096)]
    size: Annotated[int, Meta(ge=0, lt=1 << 50)] | None = None
    lfs: ListedContent | None = None


class RepoInfo(msgspec.Struct, frozen=True):
    """A repo at one commit, as the Hub describes it. `id` may be another name than was asked for: repos move."""

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
    """Return what the Hub says of `repo`, which `checked_repo` let pass, at `revision` (None: its main branch).

    To be called while the library may ask (`Access.given`). Raises RepoNotFound, RevisionNotFound, RepoGated,
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
            raise HubReplyRefused(f"the Hub redirects the listing of {repo} without end") from error
        except (httpx2.HTTPError, OSError) as error:
            count_reply("listing", None, {})
            raise Transient(f"{endpoint} does not answer ({type(error).__name__})") from error
        except ValueError as error:
            raise HubReplyRefused(f"the Hub's description of {repo} cannot be read") from error

    return with_retries(attempt, limits, sleep)
