"""Limits connections in time and number: uvicorn itself waits for ever for slow senders and readers."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from service.web.http.middleware import HEADERS

HEAD_SECONDS = 10.0  # for a request's head, from its first byte or from the opening of the connection
BODY_SECONDS = 60.0  # for a body: 2 MiB at 280 kbit/s
# Between two requests: longer than httpx keeps one (5 s), or its next request meets a connection that is being closed.
IDLE_SECONDS = 10
WRITE_SECONDS = 30.0  # for which a client may leave an answer unread that overflows the connection's buffers
MAX_HEAD_BYTES = 16 << 10
_RESERVED_FILES = 128  # for the database, Redis, the Hub, logs
_MOST_CONNECTIONS = 20_000


def most_connections() -> int:
    """Return how many connections one process may hold, after raising its limit of open files as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_CONNECTIONS + _RESERVED_FILES
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(allowed - _RESERVED_FILES, 16)


class BoundedConnection(H11Protocol):
    """A connection that is closed when its client is too slow, or the process has too many."""

    most = _MOST_CONNECTIONS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for a request's head, unless there are too many connections."""
        super().connection_made(transport)
        self._waits: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._cycle: Any = None
        if len(self.connections) > self.most:
            self._end(503, "Service Unavailable", "Retry-After: 5\r\n")
        else:
            self._wait(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process data, and set the timer for what is still missing."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        cycle = self.cycle
        if cycle is not None and cycle.more_body:
            if cycle is not self._cycle:
                self._cycle = cycle
                self._stop_waiting()
                self._wait(BODY_SECONDS)
        elif cycle is not None and not cycle.response_complete:
            self._stop_waiting()
        elif self._waits is None:
            self._wait(HEAD_SECONDS)

    def pause_writing(self) -> None:
        """Start the timer for a client that does not read."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP."""
        self._end(400, "Bad Request")

    def _wait(self, seconds: float) -> None:
        self._waits = self.loop.call_later(seconds, self._end, 408, "Request Timeout")

    def _stop_waiting(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def _end(self, status: int, phrase: str, headers: str = "") -> None:
        """Send the reason, unless an answer has begun, and close."""
        self._stop_waiting()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            headers += "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
            self.transport.write(
                f"HTTP/1.1 {status} {phrase}\r\nConnection: close\r\nContent-Length: 0\r\n{headers}\r\n".encode()
            )
        self.transport.close()
