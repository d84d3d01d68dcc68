"""Sends HTTP requests from a process of its own: `python -m bench.load` reads a Spec and prints what it Found.

Open loop (with a `rate`): requests start at times fixed in advance, with exponential gaps from a seed, whether or not
earlier ones were answered, and latency counts from those times, so waiting in line is included. Closed loop (no rate):
each connection asks again as soon as it is answered. Connections are kept alive; each request is from a random client,
as named by a trusted proxy.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess
import sys
from collections import Counter
from typing import NamedTuple

import msgspec

_LATE_SECONDS = 30.0  # for requests still unanswered at the end
_HEAD_BYTES = 1 << 16


class Ask(msgspec.Struct, frozen=True):
    """One request. `headers`: besides Host, the client's address and the body's length."""

    method: str
    path: str
    headers: dict[str, str] = {}
    body: bytes = b""


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask: one of `asks` each time, in turn. `rate`: requests a second; None: as many as are answered."""

    host: str
    port: int
    asks: list[Ask]
    seconds: float
    rate: float | None = None
    connections: int = 8
    clients: int = 20_000
    seed: int = 1


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome: ascending milliseconds of the answered requests, statuses, and bytes of all bodies."""

    milliseconds: list[float]
    statuses: dict[int, int]
    failed: int
    n_bytes: int
    seconds: float

    @property
    def rate(self) -> float:
        """Return the answers per second."""
        return len(self.milliseconds) / self.seconds

    def quantile(self, share: float) -> float:
        """Return the milliseconds that `share` of the answers took at most."""
        return self.milliseconds[min(int(len(self.milliseconds) * share), len(self.milliseconds) - 1)]


def generated(spec: Spec) -> Found:
    """Run a load in a process of its own and return what it found."""
    command = [sys.executable, "-m", "bench.load"]
    done = subprocess.run(command, input=msgspec.json.encode(spec), capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.decode(errors="replace"))
    return msgspec.json.decode(done.stdout, type=Found)


class Reply(NamedTuple):
    """Status, head and body of an answer."""

    status: int
    head: bytes
    body: bytes


class Connection:
    """One kept-alive connection, opened when it is first used."""

    def __init__(self, host: str, port: int) -> None:
        self._where = (host, port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, request: bytes) -> Reply:
        """Send a request and return the answer; retry once if the server has just closed an idle connection."""
        fresh = self._streams is None or self._streams[0].at_eof()
        try:
            return await self._exchange(request)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.close()
            if fresh:
                raise
            return await self._exchange(request)

    async def _exchange(self, request: bytes) -> Reply:
        if self._streams is None or self._streams[0].at_eof():
            self.close()
            self._streams = await asyncio.open_connection(*self._where, limit=_HEAD_BYTES)
        reader, writer = self._streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        status, length = int(head[9:12]), _length(head)
        return Reply(status, head, await reader.readexactly(length) if length else b"")

    def close(self) -> None:
        """Close it."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _length(head: bytes) -> int:
    lower = head.lower()
    at = lower.find(b"\r\ncontent-length:")
    return 0 if at < 0 else int(lower[at + 17 : lower.index(b"\r\n", at + 2)])


def as_bytes(spec: Spec, ask: Ask, client: int) -> bytes:
    """Return a request as it is sent, from one of the clients."""
    head = [f"{ask.method} {ask.path} HTTP/1.1", f"Host: {spec.host}:{spec.port}"]
    head += [f"X-Forwarded-For: {address(client)}", *(f"{name}: {value}" for name, value in ask.headers.items())]
    if ask.body:
        head.append(f"Content-Length: {len(ask.body)}")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + ask.body


def address(client: int) -> str:
    """Return a client's address, from a network reserved for benchmarks (RFC 2544)."""
    return f"198.{18 + (client >> 16)}.{client >> 8 & 255}.{client & 255}"


class _Generator:
    def __init__(self, spec: Spec) -> None:
        self.spec, self.random = spec, random.Random(spec.seed)
        self.asks = itertools.cycle(spec.asks)
        self.idle: list[Connection] = []
        self.seconds_of: list[float] = []
        self.statuses = Counter[int]()
        self.failed = self.n_bytes = 0

    async def run(self) -> Found:
        began = asyncio.get_running_loop().time()
        await (self._closed(began) if self.spec.rate is None else self._open(began, self.spec.rate))
        spent = asyncio.get_running_loop().time() - began if self.spec.rate is None else self.spec.seconds
        return Found(
            milliseconds=sorted(round(1000 * one, 3) for one in self.seconds_of),
            statuses=dict(self.statuses),
            failed=self.failed,
            n_bytes=self.n_bytes,
            seconds=spent,
        )

    async def _open(self, due: float, rate: float) -> None:
        loop, end, running = asyncio.get_running_loop(), due + self.spec.seconds, set[asyncio.Task[None]]()
        while (due := due + self.random.expovariate(rate)) < end:
            if (left := due - loop.time()) > 0:
                await asyncio.sleep(left)
            task = loop.create_task(self._pooled(due))
            running.add(task)
            task.add_done_callback(running.discard)
        if running:
            _, late = await asyncio.wait(running, timeout=_LATE_SECONDS)
            self.failed += len(late)
        for connection in self.idle:
            connection.close()

    async def _pooled(self, due: float) -> None:
        connection = self.idle.pop() if self.idle else Connection(self.spec.host, self.spec.port)
        await self._one(connection, due)
        self.idle.append(connection)

    async def _closed(self, began: float) -> None:
        await asyncio.gather(*(self._again(began + self.spec.seconds) for _ in range(self.spec.connections)))

    async def _again(self, end: float) -> None:
        loop, connection = asyncio.get_running_loop(), Connection(self.spec.host, self.spec.port)
        while (now := loop.time()) < end:
            await self._one(connection, now)
        connection.close()

    async def _one(self, connection: Connection, since: float) -> None:
        request = as_bytes(self.spec, next(self.asks), self.random.randrange(self.spec.clients))
        try:
            reply = await connection.send(request)
        except (OSError, asyncio.IncompleteReadError):
            self.failed += 1
            return
        self.seconds_of.append(asyncio.get_running_loop().time() - since)
        self.statuses[reply.status] += 1
        self.n_bytes += len(reply.body)


def main() -> None:
    """Read a Spec from standard input, send the requests, and write what was found."""
    found = asyncio.run(_Generator(msgspec.json.decode(sys.stdin.buffer.read(), type=Spec)).run())
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
