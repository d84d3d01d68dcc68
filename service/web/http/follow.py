"""Follows an advice, or anything like it, until it is final: as a held request, or as server-sent events.

The database is authoritative. What workers publish is only a hint to look again, so a lost message or a wiped Redis
costs at most one interval.
"""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from typing import TypeVar

import anyio
import msgspec
from litestar.response import Stream

from service.engine.errors import AdvisorError
from service.errors import QueueUnavailable
from service.flows.advice.advise import not_found
from service.queue.progress import channel
from service.web.http.limits import Lease
from service.web.services import Drain, Services
from service.wire.advice.advice import FINAL, AdviceEvent
from service.wire.problem import problem_of

T = TypeVar("T")
PING_SECONDS = 15.0
LOOK_SECONDS = 7.5  # between looks at the database without a hint, since a message may get lost
STREAM_LEASE_SECONDS = 45
_COME_AGAIN_MS = (500, 3000)


def changes(services: Services, advice_id: str, seconds: float | None = None) -> AsyncGenerator[AdviceEvent]:
    """Yield an advice's progress again and again, as `looks`; all followers of any advice share one lookup."""

    async def look(max_age: float) -> AdviceEvent:
        found = await services.progress.of(advice_id, max_age)
        if found is None:
            raise not_found()
        return found

    return looks(
        look, services.listener.listen(channel(advice_id)), lambda event: event.state in FINAL, services.drain, seconds
    )


async def looks(
    look: Callable[[float], Awaitable[T]],
    listening: AbstractAsyncContextManager[AsyncIterator[str]],
    is_final: Callable[[T], bool],
    drain: Drain,
    seconds: float | None = None,
) -> AsyncGenerator[T]:
    """Yield what `look` returns: again at every hint, at least every LOOK_SECONDS, and when the process leaves.

    `look` is told how many seconds old its answer may be: zero after a hint. The last value is final, or the latest
    when `seconds` are over (None: never).
    """
    end, max_age = None if seconds is None else time.monotonic() + seconds, 0.0
    async with listening as hints:
        while True:
            found = await look(max_age)
            yield found
            pause = LOOK_SECONDS * random.uniform(0.7, 1.0)  # noqa: S311 - not all at once
            left = pause if end is None else min(pause, end - time.monotonic())
            if is_final(found) or left <= 0:
                return
            scope = anyio.move_on_after(left)
            max_age = LOOK_SECONDS / 2
            with scope, drain.cutting(scope):
                await anext(hints)
                max_age = 0.0


async def wait_until_final(services: Services, advice_id: str, seconds: float) -> None:
    """Wait until the advice is final, `seconds` are over, or the process leaves."""
    async with aclosing(changes(services, advice_id, seconds)) as found:
        async for _ in found:
            if services.drain.leaving:
                return


async def events(services: Services, advice_id: str, lease: Lease) -> AsyncGenerator[bytes]:
    """Yield server-sent events: the current state, then each change, and a comment every PING_SECONDS.

    An event is named after the state; its id tells what was seen. A final one ends the stream. `lease` is renewed
    with every comment, and closed at the end.
    """
    sent: list[AdviceEvent] = []

    def new(event: AdviceEvent) -> Iterator[bytes]:
        if [event] != sent:
            sent[:] = [event]
            yield sse(event.state, event_id(event), event)

    async with aclosing(stream(changes(services, advice_id), new, lease, services.drain)) as pieces:
        async for piece in pieces:
            yield piece


async def stream(
    found: AsyncGenerator[T], new: Callable[[T], Iterable[bytes]], lease: Lease, drain: Drain
) -> AsyncGenerator[bytes]:
    """Yield what is `new` in each look, and a comment every PING_SECONDS, when the lease is renewed.

    When the process leaves, the last piece tells the client when to reconnect; another process continues from the
    database.
    """
    pinged = time.monotonic()
    async with lease, aclosing(found) as each:
        try:
            async for one in each:
                for piece in new(one):
                    yield piece
                if time.monotonic() - pinged >= PING_SECONDS:
                    pinged = time.monotonic()
                    with suppress(QueueUnavailable):  # without Redis nothing is counted; what is open goes on
                        await lease.renew()
                    yield b": ping\n\n"
                if drain.leaving:
                    yield f"retry: {random.randint(*_COME_AGAIN_MS)}\n\n".encode()  # noqa: S311 - not all at once
                    return
        except AdvisorError as error:
            yield sse("problem", "problem", problem_of(error))


def event_stream(pieces: AsyncGenerator[bytes]) -> Stream:
    """Return the response that sends events immediately, unbuffered by proxies."""
    return Stream(pieces, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def event_id(event: AdviceEvent) -> str:
    """Return the id by which a returning client tells what it saw last; for a final state, its name."""
    step = zlib.crc32((event.progress or "").encode())
    return event.state if event.state in FINAL else f"{event.state}-{step:08x}"


def sse(name: str, identity: str, data: object) -> bytes:
    """Return one server-sent event with `data` as JSON."""
    return f"event: {name}\nid: {identity}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
