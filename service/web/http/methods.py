"""Answers every path gives besides its handlers': HEAD like GET without a body, OPTIONS with the allowed methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from litestar import Litestar
from litestar.datastructures import MutableScopeHeaders
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send


def head_as_get(app: ASGIApp) -> ASGIApp:
    """Return `app` with HEAD answered wherever GET is, except for event streams, which never end."""

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") != "HEAD" or scope["path"].endswith("/events"):
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
                    headers["Allow"] = ", ".join(sorted(named | ({"HEAD"} if "GET" in named else set())))
            await send(message)

        await app(scope, receive, send_with_allow)

    return answered


def methods_of(app: Litestar) -> dict[str, list[str]]:
    """Return the methods of each path of `app`, by template."""
    return {
        route.path_format: sorted({*route.methods, *(["HEAD"] if "GET" in route.methods else [])})
        for route in app.routes
        if hasattr(route, "methods")
    }
