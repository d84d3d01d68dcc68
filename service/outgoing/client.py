"""The client of everything that goes out: allowed addresses only, no redirect by itself, bytes and time bounded."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Protocol
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from service.outgoing.connections import CheckedBackend

AGENT = "offload-advisor"
HEADERS = {"accept-encoding": "identity", "user-agent": AGENT}  # what is compressed may unfold without end


class Refused(Exception):
    """What was to be asked may not be, or what came is not taken. The message names hosts, never paths or queries."""


class Rule(Protocol):
    """Which addresses a client may ask; held against every request, each hop of a redirect counted."""

    def allows(self, url: httpx.URL) -> bool:
        """Whether a request may go to `url`."""

    def may_be_private(self, host: str) -> bool:
        """Whether `host`, which the operator named, may have an address that is not public."""


class Origins:
    """The rule for a few origins, such as `https://slack.com`. Those of `usual`, our defaults, must be public."""

    def __init__(self, addresses: Iterable[str], usual: Iterable[str] = ()) -> None:
        self._origins = {origin(httpx.URL(address)) for address in addresses}
        public = {httpx.URL(address).host for address in usual}
        self._private = {host for _, host, _ in self._origins} - public

    def allows(self, url: httpx.URL) -> bool:
        """Whether `url` has one of the origins."""
        return origin(url) in self._origins and not url.userinfo

    def may_be_private(self, host: str) -> bool:
        """Whether an operator named `host`."""
        return host in self._private


def origin(url: httpx.URL) -> tuple[str, str, int | None]:
    """Return scheme, host and port of `url`, the usual port filled in."""
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)


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
    """Return a client that asks what `rule` allows, and follows no redirect, keeps no cookie, reads no environment.

    A reply's body is read for `max_seconds` and up to `max_bytes`; beyond them `httpx.ReadTimeout` or Refused is
    raised, as is Refused for what is not allowed. A `proxy` resolves names itself, so it must hold private addresses
    back. `transport`: what asks in place of the network.
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


def environments_proxy(address: str) -> str | None:
    """Return the proxy that the environment names for `address`, as other commands on this machine use it."""
    url = httpx.URL(address)
    return None if proxy_bypass(url.host) else getproxies().get(url.scheme)


@cache
def authorities() -> ssl.SSLContext:
    """Return the certificate authorities that are believed: those of SSL_CERT_FILE, else the usual. Read once."""
    return httpx.create_ssl_context()


def _transport(rule: Rule, limits: httpx.Limits, proxy: str | None) -> httpx.HTTPTransport:
    transport = httpx.HTTPTransport(verify=authorities(), limits=limits, proxy=proxy)
    if proxy is None:
        with_checked_addresses(transport, rule, limits.max_connections, httpcore)
    return transport


def with_checked_addresses(transport: Any, rule: Rule, max_connections: int | None, core: Any) -> None:
    """Make a transport, of httpx or its fork, connect as CheckedBackend does. Neither lets its maker choose that."""
    pool = transport._pool
    if type(pool) is not core.ConnectionPool:
        raise TypeError("this version of httpx keeps its connections elsewhere")
    transport._pool = core.ConnectionPool(
        ssl_context=pool._ssl_context,
        max_connections=max_connections,
        max_keepalive_connections=max_connections,
        keepalive_expiry=5.0,
        network_backend=CheckedBackend(rule.may_be_private, core),
    )


def require_allowed(rule: Rule, url: httpx.URL) -> None:
    """Raise Refused for what `rule` does not allow."""
    if not rule.allows(url):
        raise Refused(f"{url.scheme[:20]}://{url.host[:100]} is not among the addresses that are asked")


def require_plain(headers: Mapping[str, str]) -> None:
    """Raise Refused for a reply that came compressed though it was asked for as it is."""
    if headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
        raise Refused("the reply is compressed, though it was asked for as it is")


class Bounded:
    """The body of a reply: up to `max_bytes`, for at most `max_seconds`, then Refused or `too_slow`."""

    def __init__(self, pieces: Any, max_bytes: int, max_seconds: float, too_slow: type[Exception]) -> None:
        self._pieces, self._left, self._too_slow = pieces, max_bytes, too_slow
        self._end = time.monotonic() + max_seconds

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self._left -= len(piece)
            if self._left < 0:
                raise Refused("the reply is larger than is read")
            yield piece
            if time.monotonic() > self._end:
                raise self._too_slow("the reply takes too long")

    def close(self) -> None:
        """Give the connection back."""
        self._pieces.close()


class _Body(Bounded, httpx.SyncByteStream):
    """Of httpx."""


class _Guarded(httpx.BaseTransport):
    def __init__(self, asks: httpx.BaseTransport, rule: Rule, max_bytes: int, max_seconds: float) -> None:
        self._asks, self._rule, self._max_bytes, self._max_seconds = asks, rule, max_bytes, max_seconds

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        require_allowed(self._rule, request.url)
        response = self._asks.handle_request(request)
        try:
            require_plain(response.headers)
        except Refused:
            response.close()
            raise
        response.stream = _Body(response.stream, self._max_bytes, self._max_seconds, httpx.ReadTimeout)
        return response

    def close(self) -> None:
        self._asks.close()
