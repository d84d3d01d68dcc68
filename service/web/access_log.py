"""One log line a request: what was asked, how it ended, how long it took. Never bodies, queries or credentials."""

from __future__ import annotations

import re
import secrets
import time

import structlog
from litestar.datastructures import MutableScopeHeaders
from litestar.types import ASGIApp, Message, Receive, Scope, Send

log = structlog.get_logger("access")

_HEADER = b"x-request-id"
_ACCEPTED = re.compile(rb"[A-Za-z0-9._-]{8,64}")


def request_id(scope: Scope) -> str:
    """Return the id that a proxy gave this request when it is a sane one, else a new one."""
    given = next((value for name, value in scope["headers"] if name == _HEADER), b"")
    return given.decode() if _ACCEPTED.fullmatch(given) else secrets.token_hex(8)


def access_log(app: ASGIApp) -> ASGIApp:
    """Return `app` with a log line after each response, and `X-Request-ID` on it."""

    async def logged(scope: Scope, receive: Receive, send: Send) -> None:
        identity, began, status = request_id(scope), time.perf_counter(), 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableScopeHeaders(message)["X-Request-ID"] = identity
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=identity):
            try:
                await app(scope, receive, send_with_id)
            finally:
                milliseconds = round((time.perf_counter() - began) * 1000, 1)
                path = scope.get("path_template") or "-"
                log.info("request", method=scope.get("method"), path=path, status=status, ms=milliseconds)

    return logged
