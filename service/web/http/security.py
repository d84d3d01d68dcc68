"""The security headers of every response."""

from __future__ import annotations

from litestar.datastructures import MutableScopeHeaders
from litestar.types import ASGIApp, Message, Receive, Scope, Send

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
