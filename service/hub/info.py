"""One call to the Hub, for a repo's commit and files, sent as huggingface_hub does; and refusals of listings and files,
interpreted as it does.

Imported when needed: the parts of the library used here take a tenth of a second to import; its `HfApi` and what that
brings take three times as long. What it raises for which status, code and message: huggingface_hub 2.4,
utils/_http.py; recorded replies of each kind: tests/recorded/hub.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import httpx2  # what huggingface_hub speaks through; its errors are not wrapped
import msgspec
from huggingface_hub import constants, get_session, hf_raise_for_status
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils._headers import build_hf_headers
from msgspec import Meta

from service.hub.errors import HubReplyRefused, HubUnauthorised, RepoGated, RepoNotFound, RevisionNotFound
from service.hub.listing import ListingLimits
from service.hub.retry import Transient, count_reply, seconds_asked, with_retries
from service.outgoing.rules import Refused

if TYPE_CHECKING:
    import httpx

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


def refusal_of(reply: httpx.Response, repo: str, what: str) -> Exception:
    """Return our error for a refusal of one of our own requests. `what`: the file or path that was asked for."""
    request = httpx2.Request("GET", str(reply.request.url.copy_with(query=None)))
    kept = {name: value for name, value in reply.headers.items() if name.startswith(("x-error", "retry", "ratelimit"))}
    try:
        hf_raise_for_status(httpx2.Response(reply.status_code, headers=kept, request=request))
    except HfHubHTTPError as error:
        return meaning(error, repo, what)
    return HubReplyRefused(f"{what}: unexpected status {reply.status_code}")


def meaning(error: HfHubHTTPError, repo: str, what: str, revision: str | None = None) -> Exception:
    """Return our error for one of the library's. `what`: a file, or `the listing`."""
    status, headers = error.response.status_code, error.response.headers
    said = headers.get("x-error-message", "")
    if status == 429 or status >= 500:
        return Transient(f"status {status} for {what} of {repo}", status, seconds_asked(headers))
    if isinstance(error, GatedRepoError):  # tested first, as it is a RepositoryNotFoundError too
        return gated(repo)
    if isinstance(error, DisabledRepoError):
        return RepoNotFound(f"the Hub has disabled {repo}: nobody can read it, with any token", field="repo")
    if isinstance(error, RevisionNotFoundError):
        return RevisionNotFound(f"{repo} has no branch, tag or commit {revision!r}", field="revision")
    if isinstance(error, EntryNotFoundError):
        return RepoNotFound(f"{what} of {repo} is not there", field="repo")
    if isinstance(error, RepositoryNotFoundError) or status == 404 or (status == 401 and not _names_token(said)):
        return unknown(repo)
    if status == 403 and "fine-grained" in said:
        return HubUnauthorised(
            f"the service's token may not read {repo}: it is fine-grained; its operator must change its settings on "
            "the Hub (read access to public gated repos, or to this one)"
        )
    if status in (401, 403):
        return HubUnauthorised(f"the Hub refuses {what} of {repo} to this service: its operator must renew HF_TOKEN")
    return HubReplyRefused(f"{what} of {repo}: unexpected status {status}")


def _names_token(said: str) -> bool:
    """Whether a 401 concerns the token itself; without one, the Hub answers 401 also for hidden and missing repos."""
    return said.startswith(("Invalid credentials", "User Access Token"))


def gated(repo: str) -> RepoGated:
    """Return the error for a repo whose terms were not accepted, with the remedy."""
    return RepoGated(
        f"{repo} is gated: accept its terms on its page on the Hub, then ask on your own machine with a token of that "
        f"account: {own_machine(repo)}",
        field="repo",
    )


def unknown(repo: str) -> RepoNotFound:
    """Return the error for a repo that does not exist, or whose existence we may not reveal."""
    return RepoNotFound(
        f"the Hub has no {repo}, or it is private; if you have access, ask on your own machine: {own_machine(repo)}",
        field="repo",
    )


def own_machine(repo: str) -> str:
    """Return the command by which somebody with access to a repo gets advice; a service takes no caller's token."""
    return f'HF_TOKEN=hf_... advisor advise {repo} -H "$(advisor hardware --json)"'
