"""The generator counts from when a request was due, and memory that grows is told from memory that does not."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from bench.footprint import slope_of
from bench.load import Ask, Found, Spec, _Generator, _length, as_bytes

_REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nContent-Length: 2\r\n\r\nok"


async def _asked_of_a_server_that_stalls(seconds: float) -> Found:
    free_at = asyncio.get_running_loop().time() + seconds

    writers = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                await asyncio.sleep(max(free_at - asyncio.get_running_loop().time(), 0))
                writer.write(_REPLY)

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        spec = Spec(host="127.0.0.1", port=port, asks=[Ask("GET", "/")], seconds=0.5, rate=200)
        found = await _Generator(spec).run()
    for writer in writers:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for writer in writers))
    return found


def test_what_waits_while_a_server_stalls_is_counted() -> None:
    found = asyncio.run(_asked_of_a_server_that_stalls(0.3))
    assert found.failed == 0
    assert set(found.statuses) == {200}
    assert found.n_bytes == 2 * len(found.milliseconds)
    assert found.quantile(0.99) > 250
    assert sum(one > 100 for one in found.milliseconds) > 0.2 * len(found.milliseconds)


def test_a_request_names_its_client_and_its_length() -> None:
    spec = Spec(host="a", port=1, asks=[], seconds=1)
    sent = as_bytes(spec, Ask("POST", "/v1/advice", {"Accept": "text/plain"}, b"{}"), 65_536 + 258)
    head, _, body = sent.partition(b"\r\n\r\n")
    assert body == b"{}"
    assert head.split(b"\r\n") == [
        b"POST /v1/advice HTTP/1.1",
        b"Host: a:1",
        b"X-Forwarded-For: 198.19.1.2",
        b"Accept: text/plain",
        b"Content-Length: 2",
    ]
    assert _length(_REPLY[: _REPLY.index(b"ok")]) == 2
    assert _length(b"HTTP/1.1 204 No Content\r\n\r\n") == 0


def test_a_slope_comes_with_its_interval() -> None:
    rising = [(x / 2, 100 + x + (-1) ** x * 0.5) for x in range(40)]
    slope, error = slope_of(rising)
    assert slope == pytest.approx(2, abs=0.05)
    assert 0 < error < 0.1
    slope, error = slope_of([(x / 2, 100 + (-1) ** x) for x in range(40)])
    assert slope - error < 0 < slope + error
