"""What wraps the app: access log, security headers, HEAD and OPTIONS, compression, and limits on every request."""

from __future__ import annotations

import asyncio
import gzip
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import msgspec
from litestar import Litestar
from litestar.datastructures import MutableScopeHeaders
from litestar.types import (
    ASGIApp,
    HTTPResponseBodyEvent,
    HTTPResponseStartEvent,
    HTTPScope,
    Message,
    Receive,
    Scope,
    Send,
)

from service import logs, metrics
from service.logs import Log
from service.web.http.conditional import ResponseCache
from service.wire.problem import MEDIA_TYPE, Problem, problem

log = Log("web")

_HEADER = b"x-request-id"
_ACCEPTED = re.compile(rb"[A-Za-z0-9._-]{8,64}")
_WAITS = "advisor.waits"
_ID = re.compile(r"[A-Za-z0-9_-]{22}")  # the form of our ids; anything else in a path is not logged
_IDS = ("advice_id", "validation_id", "run_id", "host_id", "result_id")


def access_log(app: ASGIApp) -> ASGIApp:
    """Return `app` with a log line after each response, and `X-Request-ID` on it."""

    async def logged(scope: Scope, receive: Receive, send: Send) -> None:
        given = next((value for name, value in scope["headers"] if name == _HEADER), b"")
        identity = given.decode() if _ACCEPTED.fullmatch(given) else secrets.token_hex(8)  # a proxy's, or a new one
        began, status = time.perf_counter(), 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _time(scope, time.perf_counter() - began)
                MutableScopeHeaders(message)["X-Request-ID"] = identity
            await send(message)

        metrics.IN_FLIGHT.only.inc()
        with logs.bound(request_id=identity):
            try:
                await app(scope, receive, send_with_id)
            finally:
                metrics.IN_FLIGHT.only.dec()
                path, ids = _route(scope), _ids(scope)
                metrics.REQUESTS.of(str(scope.get("method")), path, metrics.status_class(status)).inc()
                took = round((time.perf_counter() - began) * 1000, 1)
                log.info("request", method=scope.get("method"), path=path, status=status, duration_ms=took, **ids)

    return logged


def waits(scope: Scope) -> None:
    """Mark a request as held open on purpose, so that it does not count in the latency."""
    cast(dict[str, Any], scope)[_WAITS] = True


def _time(scope: Scope, seconds: float) -> None:
    if not scope.get(_WAITS):
        metrics.LATENCY.of(str(scope.get("method")), _route(scope)).observe(seconds)


def _route(scope: Scope) -> str:
    return scope.get("path_template") or "-"


def _ids(scope: Scope) -> dict[str, str]:
    given = scope.get("path_params") or {}
    return {name: given[name] for name in _IDS if isinstance(given.get(name), str) and _ID.fullmatch(given[name])}


CONTENT_SECURITY_POLICY = (
    "default-src 'none'; base-uri 'none'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "img-src 'self'; script-src 'self'; style-src 'self'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
TRANSPORT_SECURITY = "max-age=31536000"  # a year; without subdomains, which are the operator's to decide on
_UNLISTED = ("/v1/", "/advice/", "/moderation")  # not for search engines: an advice is for those who have its id
UNSAID = "no-store"  # default Cache-Control, for errors and answers made for one caller


def security_headers(app: ASGIApp, *, is_https: bool = False) -> ASGIApp:
    """Return `app` with HEADERS and `Cache-Control` on every response, and `X-Robots-Tag` on unlisted ones.

    `is_https`: the public address is https, so browsers may be told to use nothing else.
    """
    always = HEADERS | ({"Strict-Transport-Security": TRANSPORT_SECURITY} if is_https else {})

    async def with_headers(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableScopeHeaders(message)
                for name, value in always.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", UNSAID)
                if scope["path"].startswith(_UNLISTED):
                    headers["X-Robots-Tag"] = "noindex, nofollow"
            await send(message)

        await app(scope, receive, send_with_headers)

    return with_headers


def head_as_get(app: ASGIApp) -> ASGIApp:
    """Return `app` with HEAD answered wherever GET is, except for event streams, which never end."""

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") != "HEAD" or _is_stream(scope["path"]):
            await app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message["body"] = b""
            await send(message)

        asked = cast(HTTPScope, {**scope, "method": "GET"})
        try:
            await app(asked, receive, send_without_body)
        finally:
            scope["path_template"] = asked.get("path_template", "-")

    return answered


def with_allow(app: ASGIApp, methods: Mapping[str, Iterable[str]]) -> ASGIApp:
    """Return `app` with a correct `Allow` on answers to OPTIONS and on 405. `methods`: by path template.

    The framework's own lists only the methods of the handler registered first, and never HEAD.
    """

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_allow(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers, taken = MutableScopeHeaders(message), methods.get(scope.get("path_template", ""))
                if scope.get("method") == "OPTIONS" and taken:
                    headers["Allow"] = ", ".join(taken)
                elif message["status"] == 405:
                    named = {name.strip() for name in headers.get("Allow", "").split(",") if name.strip()}
                    headers["Allow"] = ", ".join(_with_head(scope["path"], named))
            await send(message)

        await app(scope, receive, send_with_allow)

    return answered


def methods_of(app: Litestar) -> dict[str, list[str]]:
    """Return the methods of each path of `app`, by template."""
    return {
        route.path_format: _with_head(route.path_format, route.methods)
        for route in app.routes
        if hasattr(route, "methods")
    }


def _with_head(path: str, methods: Iterable[str]) -> list[str]:
    """Return methods with HEAD where GET is, except for event streams."""
    named = set(methods)
    return sorted(named | ({"HEAD"} if "GET" in named and not _is_stream(path) else set()))


def _is_stream(path: str) -> bool:
    return path.endswith("/events")


LEAST_BYTES = 1 << 10
LEVEL = (
    5  # an advice of 88 KB in JSON becomes 10.0 KB in 0.65 ms, at level 1 12.7 KB in 0.25, at level 9 9.6 KB in 0.88
)
_TEXT = ("text/", "application/json", "application/jsonl", "application/vnd.oai.openapi+json", "image/svg+xml")
_WEAK = "W/"


def compressed(app: ASGIApp, kept: ResponseCache) -> ASGIApp:
    """Return `app` with its text compressed (gzip) where accepted; compressed bodies are `kept` by ETag.

    Only answers with an ETag and without `no-store` are compressed, so keys and tokens are never in a compressed
    answer, and its length reveals nothing of them (BREACH). There are no cookies and no CSRF tokens either. A
    compressed answer has a weak ETag, as its bytes differ; `If-None-Match` compares weakly (RFC 9110, section 13.1.2).
    """

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        asked = {name: value for name, value in scope["headers"] if name in (b"accept-encoding", b"if-none-match")}
        takes_gzip = _takes_gzip(asked.get(b"accept-encoding", b""))
        start: HTTPResponseStartEvent | None = None

        async def send_compressed(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_shared_text(message):
                start = message
                return
            if start is not None and message["type"] == "http.response.body":
                begun, start = start, None
                message = await packed(begun, message)
                await send(begun)
            await send(message)

        async def packed(begun: HTTPResponseStartEvent, message: HTTPResponseBodyEvent) -> HTTPResponseBodyEvent:
            headers = MutableScopeHeaders(begun)
            headers["Vary"] = ", ".join(filter(None, (headers.get("Vary"), "Accept-Encoding")))
            if begun["status"] == 304:  # its ETag must be the client's
                _weaken(headers, if_named_in=asked.get(b"if-none-match", b"").decode("latin-1"))
            elif takes_gzip and not message.get("more_body") and len(message.get("body", b"")) >= LEAST_BYTES:
                etag, whole = headers["ETag"], message["body"]
                made = await kept.answer(("gzip", etag), etag, lambda: gzip.compress(whole, LEVEL, mtime=0))
                body = made.body
                headers["Content-Encoding"], headers["Content-Length"] = "gzip", str(len(body))
                _weaken(headers)
                return {**message, "body": body}
            return message

        await app(scope, receive, send_compressed)

    return answered


def _takes_gzip(accepted: bytes) -> bool:
    for part in accepted.decode("latin-1").lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _is_shared_text(begun: HTTPResponseStartEvent) -> bool:
    headers = MutableScopeHeaders(begun)
    if "etag" not in headers or "content-encoding" in headers or "no-store" in headers.get("cache-control", ""):
        return False
    kind = headers.get("content-type", "")
    return begun["status"] == 304 or (kind.startswith(_TEXT) and not kind.startswith("text/event-stream"))


def _weaken(headers: MutableScopeHeaders, if_named_in: str | None = None) -> None:
    weak = headers["ETag"] if headers["ETag"].startswith(_WEAK) else _WEAK + headers["ETag"]
    if if_named_in is None or weak in if_named_in:
        headers["ETag"] = weak


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
