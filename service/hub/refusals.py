"""Interprets refusals of the Hub, for listings and files alike, as huggingface_hub itself reads them.

Imported only after a refusal: the library takes a tenth of a second to import. What it raises for which status, code
and message: huggingface_hub 2.4, utils/_http.py; recorded replies of each kind: tests/recorded/hub.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
from huggingface_hub import hf_raise_for_status
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from service.hub.errors import HubReplyRefused, HubUnauthorised, RepoGated, RepoNotFound, RevisionNotFound
from service.hub.retry import Transient, seconds_asked

if TYPE_CHECKING:
    import httpx


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
