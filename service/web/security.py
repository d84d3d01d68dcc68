"""The headers that every response carries, in one place."""

from __future__ import annotations

from litestar.datastructures import MutableScopeHeaders
from litestar.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "object-src 'none'",
        "script-src 'self'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def is_unlisted(path: str) -> bool:
    """Return whether search engines must not list `path`: advice is reachable for whoever has its id, not found."""
    return path.startswith(("/v1/", "/advice/"))


def security_headers(app: ASGIApp) -> ASGIApp:
    """Return `app` with HEADERS on every response, and `X-Robots-Tag` on what is unlisted."""

    async def with_headers(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableScopeHeaders(message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if is_unlisted(scope["path"]):
                    headers["X-Robots-Tag"] = "noindex, nofollow"
            await send(message)

        await app(scope, receive, send_with_headers)

    return with_headers
