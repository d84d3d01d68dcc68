"""Following an advice until it is final: as a held request, and as server-sent events.

The database is the truth. What workers publish is only a hint to look again, so a lost message or a wiped Redis costs
at most one interval.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import anyio
import msgspec
from anyio import to_thread

from service.engine.errors import AdvisorError
from service.web.limits import Lease
from service.web.use_cases import Flows
from service.wire.advice import Advice, AdviceEvent
from service.wire.problem import problem_of

FINAL = ("ready", "failed")
PING_SECONDS = 15.0
LOOK_SECONDS = 2.0  # between looks at the database when nothing is published
STREAM_LEASE_SECONDS = 45


async def read(flows: Flows, advice_id: str) -> Advice:
    """Return the advice as it is now. Raises AdviceNotFound."""
    return await to_thread.run_sync(flows.read_advice, advice_id)


async def changes(flows: Flows, advice_id: str, seconds: float | None = None) -> AsyncGenerator[Advice]:
    """Return the advice as it is, again at every hint and at least every LOOK_SECONDS.

    The last one is final, or what there is when `seconds` are over (None: never).
    """
    end = None if seconds is None else time.monotonic() + seconds
    async with _hints(flows, advice_id) as hints:
        while True:
            advice = await read(flows, advice_id)
            yield advice
            left = LOOK_SECONDS if end is None else min(LOOK_SECONDS, end - time.monotonic())
            if advice.state in FINAL or left <= 0:
                return
            await hints.next(left)


class _Hints:
    """Messages, of which there is no end, with a time limit; one that comes after the limit is the next."""

    def __init__(self, messages: AsyncIterator[str]) -> None:
        self._messages = messages
        self._awaited: asyncio.Future[str] | None = None

    async def next(self, seconds: float) -> None:
        """Return at the next message, at the latest after `seconds`."""
        if self._awaited is None:
            self._awaited = asyncio.ensure_future(anext(self._messages))
        await asyncio.wait({self._awaited}, timeout=seconds)
        if self._awaited.done():
            self._awaited.result()
            self._awaited = None

    async def close(self) -> None:
        """Stop listening."""
        if self._awaited is not None:
            self._awaited.cancel()
            await asyncio.wait({self._awaited})


@asynccontextmanager
async def _hints(flows: Flows, advice_id: str) -> AsyncGenerator[_Hints]:
    listening = flows.progress(advice_id)
    hints = _Hints(await listening.__aenter__())
    try:
        yield hints
    finally:
        # A client that goes away cancels everything here; the connection to Redis must be given back all the same.
        with anyio.CancelScope(shield=True):
            await hints.close()
            await listening.__aexit__(None, None, None)


async def wait_until_final(flows: Flows, advice: Advice, seconds: float) -> Advice:
    """Return the advice once it is final, or as it is when `seconds` are over."""
    if advice.state in FINAL:
        return advice
    async with aclosing(changes(flows, advice.id, seconds)) as found:
        async for latest in found:
            advice = latest
    return advice


async def events(flows: Flows, advice_id: str, lease: Lease) -> AsyncGenerator[bytes]:
    """Return server-sent events: the state at once, then each change, and a comment every PING_SECONDS.

    An event is named after the state; its id tells what was seen. The stream ends after a final one. `lease` is renewed
    with every comment, and closed at the end.
    """
    sent, pinged = None, time.monotonic()
    async with lease, aclosing(changes(flows, advice_id)) as found:
        try:
            async for advice in found:
                event = AdviceEvent(advice.id, advice.state, advice.progress)
                if event != sent:
                    sent = event
                    yield _event(event.state, event_id(event), msgspec.json.encode(event))
                if time.monotonic() - pinged >= PING_SECONDS:
                    pinged = time.monotonic()
                    await lease.renew()
                    yield b": ping\n\n"
        except AdvisorError as error:
            yield _event("problem", "problem", msgspec.json.encode(problem_of(error)))


def event_id(event: AdviceEvent) -> str:
    """Return the id by which a client that comes back says what it saw last; that of a final state is its name."""
    step = zlib.crc32((event.progress or "").encode())
    return event.state if event.state in FINAL else f"{event.state}-{step:08x}"


def _event(name: str, identity: str, data: bytes) -> bytes:
    return f"event: {name}\nid: {identity}\ndata: ".encode() + data + b"\n\n"
