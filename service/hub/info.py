"""One call of huggingface_hub: a repo's commit and files. Imported when needed: it takes a third of a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import httpx2  # what huggingface_hub speaks through; its errors are not wrapped
import msgspec
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from msgspec import Meta

from service.engine.errors import InvalidInput
from service.hub.errors import HubReplyRefused, HubUnavailable
from service.hub.listing import ListingLimits
from service.hub.refusals import meaning
from service.hub.retry import Transient, count_reply, with_retries
from service.outgoing import Refused

# Else the first call of a process asks huggingface.co, whatever the endpoint, for /api/agent-harnesses as well, and
# waits up to 3 seconds (huggingface_hub 2.4, utils/_detect_agent.py): neither asked for nor of use here.
constants.HF_HUB_DISABLE_TELEMETRY = True


class ListedFile(msgspec.Struct, frozen=True):
    """A file as the Hub lists it."""

    path: Annotated[str, Meta(max_length=4096)]
    n_bytes: Annotated[int, Meta(ge=0, lt=1 << 50)] | None
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")] | None


class RepoInfo(msgspec.Struct, frozen=True):
    """A repo at one commit, as the Hub describes it. `id` may be another name than was asked for: repos move."""

    id: Annotated[str, Meta(max_length=256)]
    commit: Annotated[str, Meta(pattern=r"^[0-9a-f]{40}$")]
    private: bool
    gated: bool
    tags: list[Annotated[str, Meta(max_length=4096)]]
    files: list[ListedFile]


def repo_info(
    endpoint: str,
    token: str | None,
    repo: str,
    revision: str | None,
    limits: ListingLimits,
    sleep: Callable[[float], None],
) -> RepoInfo:
    """Return what the Hub says of `repo` at `revision` (None: its main branch), while it may ask (`Access.given`).

    Raises RepoNotFound, RevisionNotFound, RepoGated, HubUnavailable, HubRateLimited, HubUnauthorised, HubReplyRefused,
    InvalidInput.
    """
    api = HfApi(endpoint=endpoint, token=token or False, library_name="offload-advisor")

    def attempt() -> RepoInfo:
        try:
            found = api.model_info(repo, revision=revision, files_metadata=True, timeout=limits.request_seconds)
            count_reply("listing", 200, {})
            return _checked(found)
        except HFValidationError as error:
            raise InvalidInput(f"{repo!r} is no repo id: {str(error)[:200]}", field="repo") from error
        except HfHubHTTPError as error:
            count_reply("listing", error.response.status_code, error.response.headers)
            raise meaning(error, repo, "the listing", revision) from error
        except OfflineModeIsEnabled as error:
            raise HubUnavailable("HF_HUB_OFFLINE is set for this service", retry_after=300) from error
        except Refused as error:
            raise HubReplyRefused(str(error)) from error
        except httpx2.TooManyRedirects as error:
            raise HubReplyRefused(f"the Hub redirects the listing of {repo} without end") from error
        except (httpx2.HTTPError, OSError) as error:
            count_reply("listing", None, {})
            raise Transient(f"{endpoint} does not answer ({type(error).__name__})") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:  # the library believes what it is sent
            raise HubReplyRefused(f"the Hub's description of {repo} cannot be read") from error

    return with_retries(attempt, limits, sleep)


def _checked(found: Any) -> RepoInfo:
    """The library's object with every field of the type and size that we rely on."""
    raw = {
        "id": found.id,
        "commit": found.sha,
        "private": bool(found.private),
        "gated": bool(found.gated),
        "tags": found.tags or [],
        "files": [
            {"path": file.rfilename, "n_bytes": file.size, "sha256": file.lfs.sha256 if file.lfs else None}
            for file in found.siblings or []
        ],
    }
    return msgspec.convert(raw, RepoInfo)
