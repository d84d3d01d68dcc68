"""Checks on every request before its handler, the size of its head, and a limit on the time until the answer begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from service.logs import Log
from service.wire.problem import MEDIA_TYPE, Problem, problem

log = Log("web")

MAX_ADDRESS = 8 << 10  # characters of path and query
MAX_HEADER_BYTES = 16 << 10
MAX_HEADERS = 100
MAX_PARAMETERS = 100
ANSWER_SECONDS = 60.0  # until an answer begins: twice the longest `?wait=`
_RETRY_SECONDS = 5


def bounded(app: ASGIApp) -> ASGIApp:
    """Return `app`, which then only gets requests with a head of reasonable size and an uncompressed body.

    An answer that has not begun after ANSWER_SECONDS becomes a 503; the handler's thread runs on to its end.
    """

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        refusal = _refusal(scope)
        if refusal is not None:
            await _answer(send, refusal)
        else:
            await _in_time(app, scope, receive, send)

    return checked


def _refusal(scope: Scope) -> Problem | None:
    """Return the problem with a request's head, if any."""
    headers, query = list(scope["headers"]), scope["query_string"]
    if len(scope["raw_path"]) + len(query) > MAX_ADDRESS:
        return problem("address-too-long", f"path and query have over {MAX_ADDRESS:,} characters")
    if len(headers) > MAX_HEADERS or sum(len(name) + len(value) for name, value in headers) > MAX_HEADER_BYTES:
        return problem("headers-too-large", f"over {MAX_HEADERS} headers, or {MAX_HEADER_BYTES >> 10} KiB of them")
    if query.count(b"&") >= MAX_PARAMETERS:
        return problem("invalid-request", f"the query has over {MAX_PARAMETERS} parameters")
    encodings = [value for name, value in headers if name == b"content-encoding"]
    if encodings and encodings != [b"identity"]:
        return problem("unsupported-media-type", "a body is sent as it is, without Content-Encoding")
    return None


async def _in_time(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    has_begun, refused = False, None

    async def send_in_time(message: Message) -> None:
        nonlocal has_begun
        if refused is None:
            has_begun = True
            await send(message)

    def expire(cancel: Callable[[], bool]) -> None:
        nonlocal refused
        if not has_begun:
            late = problem("service-unavailable", f"there was no answer in {ANSWER_SECONDS:.0f} seconds; ask again")
            refused = asyncio.create_task(_answer(send, late))
            cancel()

    task = asyncio.current_task()
    if task is None:  # never: this is a coroutine
        return
    timer = asyncio.get_running_loop().call_later(ANSWER_SECONDS, expire, task.cancel)
    try:
        await app(scope, receive, send_in_time)
    except asyncio.CancelledError:
        if refused is None:
            raise
        task.uncancel()
    finally:
        timer.cancel()
    if refused is not None:
        log.error("request.overdue", path=scope.get("path_template"), duration_ms=int(ANSWER_SECONDS * 1000))
        await refused


async def _answer(send: Send, what: Problem) -> None:
    if what.status == 503:
        what = msgspec.structs.replace(what, retry_after=_RETRY_SECONDS)
    body = msgspec.json.encode(what)
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    if what.retry_after:
        headers.append((b"retry-after", str(what.retry_after).encode()))
    await send({"type": "http.response.start", "status": what.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
