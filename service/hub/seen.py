"""The repos that the command line has listed, a file each: a model file's name alone finds its repo again."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from service.hub.listing import RepoListing

_MOST = 500
_SUFFIX = ".listing"


class SeenRepos:
    """A folder of listings. Files that cannot be written or read are as if they were not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, listing: RepoListing) -> None:
        """Keep what a repo holds, in place of what was kept of it."""
        if not (listing.repo and listing.revision):
            return
        path = self._folder / (quote(listing.repo, safe="") + _SUFFIX)
        written = path.with_suffix(f".{secrets.token_hex(4)}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            written.write_bytes(msgspec.msgpack.encode(listing))
            os.replace(written, path)
        except OSError:
            written.unlink(missing_ok=True)

    def holding(self, file: str) -> Iterator[tuple[str, bytes]]:
        """Yield the repos, and their listings in msgpack, in which `file` occurs: the latest read first."""
        for path in self._files():
            try:
                data = path.read_bytes()
            except OSError:
                continue
            if file.encode() in data:
                yield _repo(path), data

    def repos_like(self, name: str) -> list[str]:
        """Return up to five repos whose id contains `name` (any case), the latest first."""
        return [repo for path in self._files() if name.lower() in (repo := _repo(path)).lower()][:5]

    def _files(self) -> list[Path]:
        try:
            found = [(path.stat().st_mtime, path) for path in self._folder.glob(f"*{_SUFFIX}")]
        except OSError:
            return []
        return [path for _, path in sorted(found, reverse=True)[:_MOST]]


def _repo(path: Path) -> str:
    return unquote(path.name.removesuffix(_SUFFIX))
