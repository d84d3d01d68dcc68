"""Logs one line per request: what was asked, how it ended, how long it took; never bodies, queries or credentials."""

from __future__ import annotations

import re
import secrets
import time
from typing import Any, cast

from litestar.datastructures import MutableScopeHeaders
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from service import logs, metrics
from service.logs import Log

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
