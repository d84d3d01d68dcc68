"""HEAD, answered as GET without the body: what monitors and `curl -I` ask."""

from __future__ import annotations

from typing import cast

from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send


def head_as_get(app: ASGIApp) -> ASGIApp:
    """Return `app`, which then answers HEAD wherever it answers GET; event streams, which have no end, excepted."""

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
