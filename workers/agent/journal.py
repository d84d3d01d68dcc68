"""The owner's journal of what ran here: JSON lines, of which the newest megabytes are kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from workers.agent.errors import naming

MAX_BYTES = 8 << 20
_MAX_LAST_BYTES = 256 << 10


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `words`: its command, empty if none was started; `outcome`: `measured N rows`, or why not."""

    at: str
    run: str
    repo: str
    file: str
    words: tuple[str, ...]
    outcome: str
    seconds: float


def utc_now() -> str:
    """Return the time in the journal's format: ISO 8601, UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write(path: Path, ran: Ran) -> None:
    """Append a line. A journal over MAX_BYTES is moved to `….1` first. Raises HostError if that fails: nothing runs
    that is not written down."""
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            if path.stat().st_size > MAX_BYTES:
                path.replace(path.with_name(path.name + ".1"))
        line = msgspec.json.encode(ran) + b"\n"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
            file.write(line)


def last(path: Path, count: int) -> Sequence[Ran]:
    """Return the last lines that can be read, newest last."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _MAX_LAST_BYTES))
            lines = file.read(_MAX_LAST_BYTES).splitlines()
    except OSError:
        return ()
    found = []
    for line in lines[-count:]:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            found.append(msgspec.json.decode(line, type=Ran))
    return tuple(found)
