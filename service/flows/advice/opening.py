"""Opens a repo of the Hub, an address elsewhere, or files on this disk, for the command line.

Headers are kept in the same folder as the service's, so that asking again costs one request.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import msgspec

from service.engine.errors import InvalidInput
from service.flows.hub import make_hub
from service.hub.client import Hub
from service.hub.listing import RepoListing
from service.hub.local import local_variants
from service.hub.references import HOSTS as HUB_NAMES
from service.hub.references import RepoReference, is_name_alone, parse_reference
from service.scratch import write_whole
from service.settings import Settings

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")  # of Windows
_ON_DISK = RepoReference("local", "files")


@contextmanager
def opened(settings: Settings, repo: str, revision: str | None) -> Iterator[tuple[Hub, RepoListing, RepoReference]]:
    """Open the Hub for the block and list a repo, an address or the files at a path. Raises AdvisorError."""
    with opened_hub(settings) as hub:
        if _is_elsewhere(repo):
            yield hub, hub.list_address(repo), _ON_DISK
        elif os.path.exists(repo):  # False for an empty name, and for one that is too long for a path
            yield hub, local_variants(Path(repo)), _ON_DISK
        elif (named := _variant_in_folder(repo)) is not None:
            yield hub, local_variants(named[0]), msgspec.structs.replace(_ON_DISK, variant=named[1])
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
    """Return what `repo` refers to; for a name without an owner, the error lists what the Hub's search finds."""
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


def is_on_disk(text: str) -> bool:
    """Whether `text` names a file or folder here, there or not, rather than a repo."""
    return os.path.exists(text) or _is_path(text) or _variant_in_folder(text) is not None


def _variant_in_folder(text: str) -> tuple[Path, str] | None:
    """Return folder and name of `FOLDER:VARIANT`, None if it is no folder here."""
    folder, colon, name = text.rpartition(":")
    return (Path(folder), name) if colon and name and os.path.isdir(folder) else None


def _is_path(text: str) -> bool:
    """Whether `text` can only be a path: a repo's id has one slash, no such beginning, and names no folder here."""
    is_file = text.lower().endswith(".gguf") and ("/" not in text or Path(text).parent.is_dir())
    return text.startswith(("/", "./", "../", "~")) or is_file or _DRIVE.match(text) is not None


@contextmanager
def opened_hub(settings: Settings) -> Iterator[Hub]:
    """Open the Hub for the block, with this machine's cache of headers."""
    hub = make_hub(settings, allow_private=True)
    try:
        yield hub
    finally:
        hub.close()


def repos_seen(settings: Settings) -> SeenRepos:
    """Return the repos that were listed before with these settings."""
    return SeenRepos(settings.headers_dir / "listings")


def _say(step: str) -> None:
    if sys.stderr.isatty():
        print(f"{step} …", file=sys.stderr)


_MOST = 500
_SUFFIX = ".listing"


class SeenRepos:
    """A folder of remembered listings. Files that cannot be written or read are treated as absent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, listing: RepoListing) -> None:
        """Keep a repo's listing, replacing an earlier one."""
        if not (listing.repo and listing.revision):
            return
        path = self._folder / (quote(listing.repo, safe="") + _SUFFIX)
        with suppress(OSError):
            write_whole(path, msgspec.msgpack.encode(listing))

    def holding(self, file: str) -> Iterator[tuple[str, bytes]]:
        """Yield repos whose listing contains `file`, latest read first, each with the listing in msgpack."""
        for path in self._files():
            try:
                data = path.read_bytes()
            except OSError:
                continue
            if file.encode() in data:
                yield _repo(path), data

    def repos_like(self, name: str) -> list[str]:
        """Return up to five repos whose id contains `name` in any case, latest read first."""
        return [repo for path in self._files() if name.lower() in (repo := _repo(path)).lower()][:5]

    def _files(self) -> list[Path]:
        try:
            found = [(path.stat().st_mtime, path) for path in self._folder.glob(f"*{_SUFFIX}")]
        except OSError:
            return []
        return [path for _, path in sorted(found, reverse=True)[:_MOST]]


def _repo(path: Path) -> str:
    return unquote(path.name.removesuffix(_SUFFIX))
