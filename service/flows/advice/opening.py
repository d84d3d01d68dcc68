"""A repo of the Hub, an address elsewhere or files on this disk, listed for who asks without a server.

Headers are kept in the same folder as the service's, so that the second question costs one request.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from service.engine.errors import InvalidInput
from service.flows.hub import make_hub
from service.hub import Hub, RepoListing, RepoReference, local_variants
from service.hub.references import HOSTS as HUB_NAMES
from service.hub.references import is_name_alone, parse_reference
from service.hub.seen import SeenRepos
from service.settings import Settings

_ON_DISK = RepoReference("local", "files")


@contextmanager
def opened(settings: Settings, repo: str, revision: str | None) -> Iterator[tuple[Hub, RepoListing, RepoReference]]:
    """Open the Hub for the block and list a repo, or the files at a path. Raises AdvisorError."""
    with opened_hub(settings) as hub:
        if _is_elsewhere(repo):
            yield hub, hub.list_address(repo), _ON_DISK
        elif Path(repo).exists():
            yield hub, local_variants(Path(repo)), _ON_DISK
        elif _is_path(repo):
            raise InvalidInput(
                f"no such file or folder: {repo[:200]}; name a GGUF file or a folder of them on this machine, "
                "or a repo of the Hub as OWNER/NAME",
                field="repo",
            )
        else:
            reference = _reference(hub, repo, revision)
            _say(f"listing {reference.repo}")
            listing = hub.list_repo(reference)
            if settings.cache_mib:
                repos_seen(settings).keep(listing)
            yield hub, listing, reference


def _reference(hub: Hub, repo: str, revision: str | None) -> RepoReference:
    """Return what `repo` refers to; of a name without an owner the error has what the Hub's search finds."""
    try:
        return parse_reference(repo, revision)
    except InvalidInput as error:
        if not is_name_alone(repo):
            raise
        raise hub.with_nearest(error, repo.strip()) from error


def _is_elsewhere(text: str) -> bool:
    """Whether `text` is an address outside the Hub."""
    try:
        return text.startswith(("http://", "https://")) and urlsplit(text).hostname not in HUB_NAMES
    except ValueError:
        return False


def _is_path(text: str) -> bool:
    """Whether `text` can only be meant as a path: a repo's id has one slash, no such beginning, and no folder here."""
    is_file = text.lower().endswith(".gguf") and ("/" not in text or Path(text).parent.is_dir())
    return text.startswith(("/", "./", "../", "~")) or is_file


@contextmanager
def opened_hub(settings: Settings) -> Iterator[Hub]:
    """Open the Hub for the block, with the headers that this machine has read before."""
    hub = make_hub(settings, allow_private=True)
    try:
        yield hub
    finally:
        hub.close()


def repos_seen(settings: Settings) -> SeenRepos:
    """Return the repos that were listed with these settings."""
    return SeenRepos(settings.headers_dir / "listings")


def _say(step: str) -> None:
    if sys.stderr.isatty():
        print(f"{step} …", file=sys.stderr)
