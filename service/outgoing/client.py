"""The HTTP client for outgoing requests: allowed addresses only, no automatic redirects, bounded bytes and time."""

from __future__ import annotations

from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpcore
import httpx

from service.outgoing.connections import with_checked_addresses
from service.outgoing.rules import HEADERS, Bounded, Rule, authorities, require_allowed, require_plain


def new_client(
    rule: Rule,
    *,
    timeout: httpx.Timeout,
    max_bytes: int,
    max_seconds: float,
    max_connections: int = 10,
    proxy: str | None = None,
    transport: httpx.BaseTransport | None = None,
) -> httpx.Client:
    """Return a client that may ask only what `rule` allows, and follows no redirects, keeps no cookies, and ignores the
    environment.

    A reply's body is read for `max_seconds` and up to `max_bytes`; beyond them `httpx.ReadTimeout` or Refused is
    raised, and Refused for a forbidden address. A `proxy` resolves names itself, so it must block private addresses.
    `transport` replaces the network.
    """
    limits = httpx.Limits(max_connections=max_connections)
    asks = transport or _transport(rule, limits, proxy)
    return httpx.Client(
        transport=_Guarded(asks, rule, max_bytes, max_seconds),
        timeout=timeout,
        follow_redirects=False,
        trust_env=False,
        headers=HEADERS,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    )


def _transport(rule: Rule, limits: httpx.Limits, proxy: str | None) -> httpx.HTTPTransport:
    transport = httpx.HTTPTransport(verify=authorities(), limits=limits, proxy=proxy)
    if proxy is None:
        with_checked_addresses(transport, rule, limits.max_connections, httpcore)
    return transport


class _Body(Bounded, httpx.SyncByteStream):
    """Bounded for httpx."""


class _Guarded(httpx.BaseTransport):
    def __init__(self, asks: httpx.BaseTransport, rule: Rule, max_bytes: int, max_seconds: float) -> None:
        self._asks, self._rule, self._max_bytes, self._max_seconds = asks, rule, max_bytes, max_seconds

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        require_allowed(self._rule, request.url)
        response = self._asks.handle_request(request)
        require_plain(response)
        response.stream = _Body(response.stream, self._max_bytes, self._max_seconds, httpx.ReadTimeout)
        return response

    def close(self) -> None:
        self._asks.close()
