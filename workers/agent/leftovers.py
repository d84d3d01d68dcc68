"""Finds and ends what a killed agent left running, from a record written when it was started.

A process counts as ours only if its pid and start time match the record, or if its environment holds the random mark
that every process of that run inherited. Nothing else is ever ended.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from pathlib import Path

import msgspec
import psutil

from service.scratch import write_whole

MARK = "OFFLOAD_ADVISOR_RUN"
_GRACE_SECONDS = 5.0
_MAX_BYTES = 4096


class Started(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The guard of one run. `started`: clock ticks since the machine's boot `boot`; `mark`: in the environment of the
    engine and of everything it started."""

    pid: int
    started: int
    boot: str
    mark: str


def new_mark() -> str:
    return secrets.token_hex(16)


def note(record: Path | None, pid: int, mark: str) -> None:
    """Record what was just started, so that it can be found if it is left behind."""
    if record is None:
        return
    started = Started(pid=pid, started=_started(pid) or 0, boot=_boot(), mark=mark)
    write_whole(record, msgspec.json.encode(started))


def forget(record: Path | None, mark: str) -> None:
    """Remove the record of a run, unless some of its processes are still there."""
    if record is None or _marked(mark):
        return
    record.unlink(missing_ok=True)


def kill_marked(mark: str) -> None:
    """Kill all processes of a run, and wait until they have really ended."""
    until = time.monotonic() + _GRACE_SECONDS
    while found := [process for process in _marked(mark) if not _has_ended(process)]:
        for process in found:
            _signal(process, kill=True)
        if time.monotonic() > until:
            return
        time.sleep(0.05)


def end_leftovers(record: Path) -> int:
    """End what the recorded run left, and return the number of processes; delete the record once all have ended."""
    left = _read(record)
    if left is None:
        return 0
    found = _ours(left)
    for kill in (False, True):
        for process in _ours(left):
            _signal(process, kill=kill)
        if _wait_until_gone(left):
            record.unlink(missing_ok=True)
            break
    return len(found)


def _wait_until_gone(left: Started) -> bool:
    until = time.monotonic() + _GRACE_SECONDS
    while _ours(left):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def _read(record: Path) -> Started | None:
    try:
        with record.open("rb") as file:
            return msgspec.json.decode(file.read(_MAX_BYTES), type=Started)
    except (OSError, msgspec.DecodeError):
        return None


def _ours(left: Started) -> list[psutil.Process]:
    if left.boot != _boot():
        return []
    found = _marked(left.mark)
    if _started(left.pid) == left.started and left.started:
        with contextlib.suppress(psutil.Error):
            found.append(psutil.Process(left.pid))
    return [process for process in found if not _has_ended(process)]


def _has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended, at most waiting as a zombie for its parent."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return True


def _marked(mark: str) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if _mark_of(process) == mark]


def _mark_of(process: psutil.Process) -> str | None:
    try:
        mark: str | None = process.environ().get(MARK)
    except (psutil.Error, OSError):
        return None
    return mark


def _signal(process: psutil.Process, *, kill: bool) -> None:
    with contextlib.suppress(psutil.Error):
        process.kill() if kill else process.terminate()


def _started(pid: int) -> int | None:
    """Return a process's start in ticks since boot, unaffected by clock changes (proc(5), stat, field 22)."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
