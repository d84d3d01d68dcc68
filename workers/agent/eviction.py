"""Room for downloads: what was fetched and is used least recently goes first, where the owner's policy says so.

Each revision of a repo is a folder with a mark in it, made by the first download and touched by each run. Folders
without the mark are not this agent's, and are never removed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from service.logs import Log

MARK = ".fetched-by-offload-advisor"
log = Log("agent")


def mark(place: Path) -> None:
    """Note that the folder of a revision is this agent's and is used now."""
    (place / MARK).touch()


def touch(files: Iterable[Path]) -> None:
    """Note that files are used now, where they lie in a folder that was downloaded."""
    for place in {parent for file in files for parent in file.parents if (parent / MARK).is_file()}:
        os.utime(place / MARK)


def make_room(top: Path, wanted: int, keep: Path) -> int:
    """Remove downloads below `top`, those not used for longest first, until `wanted` bytes are gained; `keep` stays.

    Returns the bytes gained: 0, and nothing is removed, where all of them together are fewer than are wanted.
    """
    old = sorted((place for place in _marked(top) if place != keep), key=lambda place: (place / MARK).stat().st_mtime)
    sizes = [bytes_below(place) for place in old]
    if sum(sizes) < wanted:
        return 0
    gained = 0
    for place, size in zip(old, sizes, strict=True):
        if gained >= wanted:
            break
        shutil.rmtree(place)
        gained += size
        log.info("download.evicted", repo=place.parent.name.replace("--", "/"))
    return gained


def _marked(top: Path) -> Iterator[Path]:
    """Yield folders `top`/repo/revision with the mark; no link is followed."""
    for found in top.glob(f"*/*/{MARK}"):
        if not found.parent.is_symlink() and not found.parent.parent.is_symlink():
            yield found.parent


def bytes_below(top: Path) -> int:
    """Return the size of all files in a folder and below it, those that go meanwhile not counted."""
    total = 0
    for where, _, names in os.walk(top):
        for name in names:
            try:
                total += (Path(where) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total
