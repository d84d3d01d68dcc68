"""Compresses text with gzip for clients that accept it, if it is the same for everybody who asks.

Only answers with an ETag and without `no-store` are compressed, so keys and tokens are never in a compressed answer,
and its length reveals nothing of them (BREACH). There are no cookies and no CSRF tokens either. A compressed answer has
a weak ETag, as its bytes differ; `If-None-Match` compares weakly (RFC 9110, section 13.1.2).
"""

from __future__ import annotations

import gzip

from litestar.datastructures import MutableScopeHeaders
from litestar.types import ASGIApp, HTTPResponseBodyEvent, HTTPResponseStartEvent, Message, Receive, Scope, Send

from service.web.http.response_cache import ResponseCache

LEAST_BYTES = 1 << 10
LEVEL = (
    5  # an advice of 88 KB in JSON becomes 10.0 KB in 0.65 ms, at level 1 12.7 KB in 0.25, at level 9 9.6 KB in 0.88
)
_TEXT = ("text/", "application/json", "application/jsonl", "application/vnd.oai.openapi+json", "image/svg+xml")
_WEAK = "W/"


def compressed(app: ASGIApp, kept: ResponseCache) -> ASGIApp:
    """Return `app` with its text compressed where accepted; compressed bodies are `kept` by ETag."""

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
