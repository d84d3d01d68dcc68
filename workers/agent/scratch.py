"""Where an agent's temporary folders lie: one folder of its own, removed with all in it, also after it was killed."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "advisor-"
_MAX_BYTES = 4096


@contextmanager
def own_scratch(record: Path) -> Iterator[Path]:
    """Let temporary folders of this process be made in a new one for the block; the value is that folder.

    Its path is written to `record` first, by which the next agent removes what this one leaves when it is killed.
    """
    remove_left(record)
    before, folder = tempfile.tempdir, Path(tempfile.mkdtemp(prefix=PREFIX))
    record.write_bytes(os.fsencode(folder))
    tempfile.tempdir = str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = before
        shutil.rmtree(folder, ignore_errors=True)
        record.unlink(missing_ok=True)


def remove_left(record: Path) -> None:
    """Remove the folder that `record` names, where it is one of ours: of this name and user, and no link."""
    try:
        with record.open("rb") as file:
            folder = Path(os.fsdecode(file.read(_MAX_BYTES)))
        found = folder.lstat()
    except (OSError, ValueError):
        return
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if is_ours and folder.is_absolute() and folder.name.startswith(PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
