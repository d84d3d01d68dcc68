"""Rules for every outgoing client: which addresses may be asked, and which replies are accepted. Imports no client.

`Url` is that of httpx or of its fork, which huggingface_hub uses.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi

AGENT = "offload-advisor"
HEADERS = {"accept-encoding": "identity", "user-agent": AGENT}  # compressed data may expand without bound


class Refused(Exception):
    """A request that is not allowed, or a reply that is not accepted. The message names hosts, no paths or queries."""


class Url(Protocol):
    """The parts of an address that rules look at."""

    @property
    def scheme(self) -> str:
        """`https`."""

    @property
    def host(self) -> str:
        """In ASCII, lower case, an IPv6 address without brackets."""

    @property
    def port(self) -> int | None:
        """None: the usual one."""

    @property
    def userinfo(self) -> bytes:
        """`name:password`."""


class Rule(Protocol):
    """The addresses that a client may ask, checked for every request, including each hop of a redirect."""

    def allows(self, url: Url) -> bool:
        """Whether a request may go to `url`."""

    def may_be_private(self, host: str) -> bool:
        """Whether `host`, which the operator named, may have an address that is not public."""


class Origin(NamedTuple):
    """Scheme, host and port of an address, with the default port filled in."""

    scheme: str
    host: str
    port: int | None


class Origins:
    """A rule that allows a few origins, such as `https://slack.com`. Those of `usual`, our defaults, must be public."""

    def __init__(self, addresses: Iterable[str], usual: Iterable[str] = ()) -> None:
        self._origins = {stated_origin(address) for address in addresses}
        public = {stated_origin(address).host for address in usual}
        self._private = {origin.host for origin in self._origins} - public

    def allows(self, url: Url) -> bool:
        """Whether `url` has one of the origins."""
        return origin(url) in self._origins and not url.userinfo

    def may_be_private(self, host: str) -> bool:
        """Whether an operator named `host`."""
        return host in self._private


def origin(url: Url) -> Origin:
    return _origin(url.scheme, url.host, url.port)


def stated_origin(address: str) -> Origin:
    """Return the origin of an address from the settings. Raises ValueError if it is malformed."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    return _origin(parts.scheme, host if host.isascii() else host.encode("idna").decode(), parts.port)


def _origin(scheme: str, host: str, port: int | None) -> Origin:
    return Origin(scheme, host, port or {"http": 80, "https": 443}.get(scheme))


def environments_proxy(address: str) -> str | None:
    """Return the environment's proxy for `address`, as other commands on this machine use it."""
    stated = stated_origin(address)
    return None if proxy_bypass(stated.host) else getproxies().get(stated.scheme)


@cache
def authorities() -> ssl.SSLContext:
    """Return the trusted certificate authorities: those of SSL_CERT_FILE or SSL_CERT_DIR, else certifi's.

    Loaded once.
    """
    if file := os.environ.get("SSL_CERT_FILE"):
        return ssl.create_default_context(cafile=file)
    if folder := os.environ.get("SSL_CERT_DIR"):
        return ssl.create_default_context(capath=folder)
    return ssl.create_default_context(cafile=certifi.where())


def require_allowed(rule: Rule, url: Url) -> None:
    """Raise Refused if `rule` does not allow the address."""
    if not rule.allows(url):
        raise Refused(f"{url.scheme[:20]}://{url.host[:100]} is not among the addresses that are asked")


def require_plain(reply: Any) -> None:
    """Close a compressed reply, although none was asked for, and raise Refused."""
    if reply.headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
        reply.close()
        raise Refused("the reply is compressed, though it was asked for as it is")


class Bounded:
    """A reply's body, up to `max_bytes` and for at most `max_seconds`; then it raises Refused or `too_slow`."""

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
        """Return the connection to its pool."""

        self._pieces.close()
