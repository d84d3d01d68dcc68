"""Runs one engine: within limits and time, with bounded output, and leaving nothing behind.

Between the agent and the engine sits guard.py, which sets the limits and ends every process that the engine leaves,
even if the agent itself is killed. Each start is recorded with its start time, so that a later agent can tell what an
earlier one left from a stranger's process with the same pid.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import msgspec
import psutil

from service.engine.errors import AdvisorError
from workers.agent.leftovers import MARK, forget, kill_marked, new_mark, note

_GUARD = Path(__file__).with_name("guard.py")
_POLL_SECONDS = 0.25
_COUNT_SECONDS = 1.0
_CHUNK = 64 << 10
_LATE_SECONDS = 5.0  # for the guard, on top of the engine's grace period
_INHERITED = ("LD_LIBRARY_PATH",)  # this Python may need it to start again

Network: TypeAlias = Literal["namespace", "seccomp"]
OnOutput: TypeAlias = Callable[[bytes], None]
Stop: TypeAlias = Callable[[], str | None]


class CannotStart(AdvisorError):
    """The engine's program could not be started: it is missing, or not for this machine."""

    problem = "engine-missing"


class NotConfined(AdvisorError):
    """The engine was not started, because nothing would have kept it from the network or from other files."""

    problem = "host"


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one engine. `folder`: where it runs, the only one it may write to. `readable`: files and folders it
    may read besides the system's and its program's. `record`: the file that notes what was started.

    `seconds`: of wall clock, including loading. `grace_seconds`: from being asked to end to being killed. `processes`:
    at one time. `network`: ways to cut off the network, tried in this order. `confined`: refuse to start if network or
    files cannot be cut off.
    """

    folder: Path
    seconds: float
    readable: tuple[Path, ...] = ()
    record: Path | None = None
    grace_seconds: float = 5.0
    output_bytes: int = 64 << 20
    tail_bytes: int = 1 << 20
    file_bytes: int = 1 << 30
    processes: int = 64
    network: tuple[Network, ...] = ("namespace", "seccomp")
    confined: bool = True


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps engines from the network and from other files on this machine; None if nothing does."""

    network: Network | None = None
    files: Literal["landlock"] | None = None

    @property
    def missing(self) -> str:
        """What engines are not kept from, in words; empty if they are kept from both."""
        kinds = {"the network": self.network, "other files": self.files}
        return " and ".join(what for what, kept in kinds.items() if kept is None)


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine ended: with `exit_status`, by a `signal`, `timed_out`, or stopped by us (`stopped_why`).

    `tail`: the end of its output, stdout and stderr in the order in which lines came.
    """

    exit_status: int | None = None
    signal: int | None = None
    timed_out: bool = False
    stopped_why: str | None = None
    tail: bytes = b""
    confinement: Confinement = Confinement()


def run_engine(
    words: Sequence[str], environment: Mapping[str, str], limits: ProcessLimits, on_output: OnOutput, stop: Stop
) -> Ended:
    """Run a program until it ends, and return how. No process of it is left when this returns.

    `words[0]` is a path; `environment` is all it gets. `on_output` gets whole lines as they come (a longer line in
    pieces of 64 KiB); `stop` is asked four times a second and ends the run by returning a reason. Both are called in
    this thread. Raises CannotStart, NotConfined; an exception from `on_output` or `stop` ends the run and is raised
    again.
    """
    if sys.platform != "linux":
        raise CannotStart("engines are measured on Linux only: only there can they be confined and ended in this way")
    mark = new_mark()
    run = _Running(words, {**environment, MARK: mark}, limits, on_output)
    note(limits.record, run.process.pid, mark)
    try:
        run.follow(stop)
    finally:
        run.close(mark)
        forget(limits.record, mark)
    return run.ended()


def confinement(folder: Path) -> Confinement:
    """Return how engines are confined on this machine, found by starting a program that does nothing."""
    limits = ProcessLimits(folder=folder, seconds=10, confined=False)
    try:
        return run_engine(("/bin/true",), {}, limits, lambda _: None, lambda: None).confinement
    except CannotStart:
        return Confinement()


def held_by_engine() -> int:
    """Return the resident bytes of all our descendants, including mapped files."""
    total = 0
    for process in _descendants(os.getpid()):
        with contextlib.suppress(psutil.Error):
            total += process.memory_info().rss
    return total


class _Lines:
    """Cuts a stream at line ends, so that lines of two streams never mix."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        whole, end, rest = (self._rest + chunk).rpartition(b"\n")
        if not end and len(rest) >= _CHUNK:
            whole, rest = rest, b""
        self._rest = rest
        return whole + end

    def flush(self) -> bytes:
        rest, self._rest = self._rest, b""
        return rest


class _Running:
    """One run of the guard and the engine below it."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], limits: ProcessLimits, on_output: OnOutput
    ) -> None:
        self.limits, self.on_output = limits, on_output
        self.began = time.monotonic()
        self.printed = 0
        self.tail = bytearray()
        self.said: dict[str, Any] = {}
        self.why: str | None = None
        self.timed_out = False
        self._selector = selectors.DefaultSelector()
        self.process = self._start(words, environment)

    def _start(self, words: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        read_spec, write_spec = os.pipe()
        read_status, write_status = os.pipe()
        try:
            process = subprocess.Popen(
                (sys.executable, "-I", "-S", str(_GUARD), str(read_spec), str(write_status)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(read_spec, write_status),
                env={name: os.environ[name] for name in _INHERITED if name in os.environ},
                cwd=self.limits.folder,
                start_new_session=True,
            )
        finally:
            os.close(read_spec)
            os.close(write_status)
        with os.fdopen(write_spec, "wb") as file:
            file.write(json.dumps(_spec(words, environment, self.limits)).encode())
        self._status: IO[bytes] = os.fdopen(read_status, "rb", buffering=0)
        for stream, lines in ((process.stdout, _Lines()), (process.stderr, _Lines()), (self._status, None)):
            assert stream is not None  # noqa: S101 - for mypy: all three are pipes
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, lines)
        self._heard = _Lines()
        return process

    def follow(self, stop: Stop) -> None:
        """Read until the engine has ended or must be stopped."""
        next_look = next_count = self.began
        while self._selector.get_map() and self.process.poll() is None:
            self._read(_POLL_SECONDS)
            now = time.monotonic()
            if now < next_look:
                continue
            next_look = now + _POLL_SECONDS
            if now >= next_count:
                next_count = now + _COUNT_SECONDS
                if len(_descendants(self.process.pid)) > self.limits.processes:
                    self.why = f"it started more than {self.limits.processes} processes"
            self.timed_out = now > self.began + self.limits.seconds
            self.why = self.why or self._too_much() or stop()
            if self.timed_out or self.why:
                return

    def _read(self, timeout: float) -> bool:
        events = self._selector.select(timeout)
        for key, _ in events:
            chunk = os.read(key.fd, _CHUNK)
            if not chunk:
                self._selector.unregister(key.fileobj)
            if key.data is None:
                self._hear(chunk)
            else:
                self._take(key.data.feed(chunk) if chunk else key.data.flush())
        return bool(events)

    def _hear(self, chunk: bytes) -> None:
        for line in self._heard.feed(chunk).splitlines():
            self.said.update(json.loads(line))

    def _take(self, lines: bytes) -> None:
        self.printed += len(lines)
        self.tail += lines
        if len(self.tail) > 2 * self.limits.tail_bytes:
            del self.tail[: -self.limits.tail_bytes]
        if lines and self.printed <= self.limits.output_bytes:
            self.on_output(lines)

    def _too_much(self) -> str | None:
        if self.printed > self.limits.output_bytes:
            return f"it printed more than {self.limits.output_bytes >> 20} MiB"
        return None

    def close(self, mark: str) -> None:
        """End everything, whatever happened, and read what is left in the pipes."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            until = time.monotonic() + self.limits.grace_seconds + _LATE_SECONDS
            while self.process.poll() is None and time.monotonic() < until:
                self._drain(0.05)
        if self.process.poll() is None:
            for one in (*_descendants(self.process.pid), self.process):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)
        # If a driver keeps it from ending, the record lets a later start end it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_LATE_SECONDS)
        kill_marked(mark)  # where the guard itself was killed
        self._drain(0)
        for stream in (self.process.stdout, self.process.stderr, self._status):
            if stream is not None:
                stream.close()
        self._selector.close()

    def _drain(self, timeout: float) -> None:
        """Read what is left in the pipes for the tail, within the limit of output."""
        while self._selector.get_map() and self.printed <= self.limits.output_bytes + _CHUNK and self._read(timeout):
            pass

    def ended(self) -> Ended:
        """Return how it ended. Raises CannotStart or NotConfined if it never started."""
        if "error" in self.said:
            raise CannotStart(f"the engine's program does not start: {self.said['error']}")
        found = msgspec.convert(self.said.get("confined", {}), Confinement)
        if self.limits.confined and "confined" in self.said and found.missing:
            raise NotConfined(
                f"engines are not kept from {found.missing} on this host, and its policy does not allow that"
            )
        status = self.said.get("status")
        return Ended(
            exit_status=os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
            signal=os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None,
            timed_out=self.timed_out,
            stopped_why=self.why or self._too_much(),
            tail=bytes(self.tail[-self.limits.tail_bytes :]),
            confinement=found,
        )


def _spec(words: Sequence[str], environment: Mapping[str, str], limits: ProcessLimits) -> dict[str, Any]:
    program = Path(words[0])
    own = (program.parent, program.resolve().parent)
    return {
        "words": list(words),
        "environment": dict(environment),
        "parent": os.getpid(),
        "folder": str(limits.folder),
        "readable": [*SYSTEM_FOLDERS, *map(str, own), *_real(limits.readable)],
        "writable": _devices(),
        "network": list(limits.network),
        "confined": limits.confined,
        "grace": limits.grace_seconds,
        "limits": {
            "CORE": 0,
            "FSIZE": limits.file_bytes,
            "CPU": int(limits.seconds * (os.cpu_count() or 1)) + 60,
            "NPROC": 1 << 14,
            "NOFILE": 1 << 16,
        },
    }


# Where a system's programs, libraries and their configuration are: no home, no data, no disks (/dev), no passwords or
# keys (/etc), all of which root could read.
SYSTEM_FOLDERS = (
    *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/nix", "/gnu", "/snap", "/proc", "/sys"),
    *("/run/opengl-driver", "/run/nvidia-persistenced"),
    *(f"/etc/{name}" for name in (
        *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "localtime", "os-release", "locale.alias"),
        *("passwd", "group", "nsswitch.conf", "hosts", "host.conf", "gai.conf", "protocols", "services"),
        *("OpenCL", "vulkan", "glvnd", "drirc", "nvidia", "nccl.conf", "libibverbs.d", "libnl", "libnl-3"),
        *("ssl/openssl.cnf", "ssl/certs", "ca-certificates.conf", "pki/tls/openssl.cnf", "pki/tls/certs"),
    )),
)  # fmt: skip
_DEVICES = ("nvidia*", "nvidia-caps/*", "dri", "kfd", "dxg", "shm", "null", "zero", "full", "random", "urandom", "tty")


def _devices() -> list[str]:
    return [str(path) for pattern in _DEVICES for path in Path("/dev").glob(pattern)]


def _real(paths: Sequence[Path]) -> list[str]:
    """Return paths and what they link to: a snapshot in the Hub's cache consists of links to blobs."""
    return [str(name) for path in paths for name in dict.fromkeys((path, path.resolve()))]


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return []
