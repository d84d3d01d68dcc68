"""The headers that every response carries, in one place."""

from __future__ import annotations

from litestar.datastructures import MutableScopeHeaders
from litestar.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "base-uri 'none'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "img-src 'self'",
        "script-src 'self'",
        "style-src 'self'",
    )
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
TRANSPORT_SECURITY = "max-age=31536000"  # a year; the operator's other hosts are his to decide on
UNSAID = "no-store"  # Cache-Control of an answer that does not say: errors, and what is made for one caller


def is_unlisted(path: str) -> bool:
    """Return whether search engines must not list `path`: advice is reachable for anyone who has its id, not found."""
    return path.startswith(("/v1/", "/advice/", "/moderation"))


def security_headers(app: ASGIApp, *, is_https: bool = False) -> ASGIApp:
    """Return `app` with HEADERS on every response, `X-Robots-Tag` on what is unlisted, `Cache-Control` on all.

    `is_https`: the public address is, so that browsers may be told to use nothing else.
    """
    always = HEADERS | ({"Strict-Transport-Security": TRANSPORT_SECURITY} if is_https else {})

    async def with_headers(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableScopeHeaders(message)
                for name, value in always.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", UNSAID)
                if is_unlisted(scope["path"]):
                    headers["X-Robots-Tag"] = "noindex, nofollow"
            await send(message)

        await app(scope, receive, send_with_headers)

    return with_headers
