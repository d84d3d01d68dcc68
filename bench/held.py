"""Holds connections of listeners and agents open, in a process of its own: `python -m bench.held`.

They connect one by one, spread over a long poll. It reads a Spec, one line of JSON, prints `held` once each listener
has its first event and each agent has asked, and at the end of its input prints what it Saw.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import msgspec
from nacl.signing import SigningKey

from bench.load import Connection, address
from tests.hosts import Signer

WAIT_SECONDS = 25  # of one long poll, the longest allowed
OPENED_SECONDS = 120
_LEASES, _SESSIONS = "/v1/agent/leases", "/v1/agent/sessions"


class Machine(msgspec.Struct, frozen=True):
    """A host that polls: its id and the seed of its key, in hexadecimal."""

    host: str
    key: str


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What to hold. `streams`: the paths that listeners follow, one each."""

    host: str
    port: int
    streams: list[str]
    machines: list[Machine]


class Saw(msgspec.Struct, kw_only=True):
    """What they saw: delays of events since publication, comments, ended streams, answered polls, and anything else by
    name."""

    delays_ms: list[float] = []
    comments: int = 0
    ended: int = 0
    polls: int = 0
    failures: dict[str, int] = {}

    def fail(self, what: str) -> None:
        """Count a failure."""
        self.failures[what] = self.failures.get(what, 0) + 1


class Held:
    """A running process of listeners and agents."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def release(self) -> Saw:
        """End them, and return what they saw."""
        said, _ = self._process.communicate(timeout=60)
        return msgspec.json.decode(said, type=Saw)


@contextmanager
def holding(spec: Spec) -> Iterator[Held]:
    """Hold connections for the length of a block, from when all of them are open."""
    command = [sys.executable, "-m", "bench.held"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(spec) + b"\n")
        process.stdin.flush()
        said = process.stdout.readline()
        if said != b"held\n":
            raise SystemExit(f"not everything could be held: {said!r}")
        yield Held(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


class _Holder:
    def __init__(self, spec: Spec) -> None:
        self.spec, self.saw = spec, Saw()
        self.base = httpx.Client(base_url=f"http://{spec.host}:{spec.port}", trust_env=False)
        self.to_open = len(spec.streams) + len(spec.machines)
        self.all_open = asyncio.Event()

    def opened(self) -> None:
        self.to_open -= 1
        if not self.to_open:
            self.all_open.set()

    async def run(self) -> None:
        tasks = [asyncio.create_task(self.listen(i, path)) for i, path in enumerate(self.spec.streams)]
        tasks += [asyncio.create_task(self.poll(i, one)) for i, one in enumerate(self.spec.machines)]
        await asyncio.wait_for(self.all_open.wait(), OPENED_SECONDS)
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.buffer.read)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        sys.stdout.buffer.write(msgspec.json.encode(self.saw))

    async def listen(self, number: int, path: str) -> None:
        """Follow one stream to its end."""
        await asyncio.sleep(random.uniform(0, WAIT_SECONDS))
        reader, writer = await asyncio.open_connection(self.spec.host, self.spec.port)
        head = [f"GET {path} HTTP/1.1", f"Host: {self.spec.host}:{self.spec.port}"]
        head += [f"X-Forwarded-For: {address(60_000 + number)}", "Accept: text/event-stream", "", ""]
        writer.write("\r\n".join(head).encode())
        reply = await reader.readuntil(b"\r\n\r\n")
        if not reply.startswith(b"HTTP/1.1 200 "):
            self.saw.fail(reply.partition(b"\r\n")[0].decode())
            return
        first = True
        async for line in reader:
            if line.startswith(b"data: "):
                self._event(line[6:], first)
                if first:
                    self.opened()
                    first = False
            self.saw.comments += line.startswith(b": ping")
        self.saw.ended += 1

    def _event(self, data: bytes, first: bool) -> None:
        said = str(msgspec.json.decode(data).get("progress"))
        if not first and said.startswith("at "):
            self.saw.delays_ms.append(round(1000 * (time.time() - float(said[3:])), 2))

    async def poll(self, number: int, machine: Machine) -> None:
        """Ask for a run again and again; there never is one."""
        await asyncio.sleep(random.uniform(0, WAIT_SECONDS))
        signer = Signer(self.base, machine.host, SigningKey(bytes.fromhex(machine.key)), time.time_ns())
        connection = Connection(self.spec.host, self.spec.port)
        reply = await connection.send(self._signed(number, signer, _SESSIONS, {}))
        if reply.status != 201:
            self.saw.fail(f"a session: {reply.status}")
            return
        signer.token = msgspec.json.decode(reply.body)["token"]
        is_first = True
        while True:
            asked = asyncio.ensure_future(
                connection.send(self._signed(number, signer, _LEASES, {"wait": WAIT_SECONDS}))
            )
            if is_first:
                self.opened()
                is_first = False
            reply = await asked
            self.saw.polls += 1
            if reply.status != 204:
                self.saw.fail(f"a poll: {reply.status}")
                return

    def _signed(self, number: int, signer: Signer, path: str, body: dict[str, int]) -> bytes:
        content = msgspec.json.encode(body)
        head = [f"POST {path} HTTP/1.1", f"Host: {self.spec.host}:{self.spec.port}", f"Content-Length: {len(content)}"]
        head += [f"X-Forwarded-For: {address(61_000 + number)}"]
        head += [f"{name}: {value}" for name, value in signer.headers(path, content).items()]
        return "\r\n".join(head).encode() + b"\r\n\r\n" + content


def main() -> None:
    """Hold what a line on standard input specifies."""
    asyncio.run(_Holder(msgspec.json.decode(sys.stdin.buffer.readline(), type=Spec)).run())


if __name__ == "__main__":
    main()
