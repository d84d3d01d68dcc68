"""Files that are written whole, and temporary folders that always get removed, if need be by the next process."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "advisor-"
_MAX_BYTES = 4096


def write_whole(path: Path, data: bytes) -> None:
    """Write a file in such a way that nobody ever reads a part of it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{secrets.token_hex(8)}")
    try:
        part.write_bytes(data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def new_folder(record: Path) -> Path:
    """Return a new temporary folder that only this user can open, and remove the one that a killed process left.

    Its path is kept in `record`, a file that one process at a time may use.
    """
    remove_left(record)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    record.write_bytes(os.fsencode(folder))
    return folder


def remove_left(record: Path) -> None:
    """Remove the folder that `record` names, if it is one of ours: by its name and user, and not a link."""
    try:
        with record.open("rb") as file:
            folder = Path(os.fsdecode(file.read(_MAX_BYTES)))
        found = folder.lstat()
    except (OSError, ValueError):
        return
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if is_ours and folder.is_absolute() and folder.name.startswith(PREFIX):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def own_scratch(record: Path) -> Iterator[Path]:
    """Make `new_folder(record)` the place of this process's temporary files for the block; yield the folder."""
    before, folder = tempfile.tempdir, new_folder(record)
    tempfile.tempdir = str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = before
        shutil.rmtree(folder, ignore_errors=True)
        record.unlink(missing_ok=True)
