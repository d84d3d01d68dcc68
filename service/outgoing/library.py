"""The client that huggingface_hub asks through: it creates one per process, by a factory given to it.

Imported when needed, because the library takes a tenth of a second to import.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import httpcore2
import httpx2
from huggingface_hub import set_client_factory

from service.outgoing.connections import with_checked_addresses
from service.outgoing.rules import HEADERS, Bounded, Refused, Rule, Url, authorities, require_allowed, require_plain

_CONNECTIONS = 10


class TokenRule(Rule, Protocol):
    """A rule that also says which hosts may see our token; targets of redirects may not."""

    def may_see_token(self, url: Url) -> bool:
        """Whether a request to `url` may carry the token."""


class Access:
    """Limits for the library: which addresses it may ask and show the token, and bytes and time per reply."""

    def __init__(self, rule: TokenRule, *, max_bytes: int, max_seconds: float, proxy: str | None = None) -> None:
        self._rule, self._max_bytes, self._max_seconds = rule, max_bytes, max_seconds
        self._transport = httpx2.HTTPTransport(verify=authorities(), proxy=proxy)
        if proxy is None:
            with_checked_addresses(self._transport, rule, _CONNECTIONS, httpcore2)

    @contextmanager
    def given(self) -> Iterator[None]:
        """Let the library ask during the block, in this thread; outside of one everything is refused."""
        token = _given.set(self)
        try:
            yield
        finally:
            _given.reset(token)

    def ask(self, request: httpx2.Request) -> httpx2.Response:
        """Return the reply to one request, possibly one hop of a redirect. Raises Refused, httpx2's errors."""
        require_allowed(self._rule, request.url)
        if not self._rule.may_see_token(request.url):
            request.headers.pop("authorization", None)
        response = self._transport.handle_request(request)
        require_plain(response)
        response.stream = _Body(response.stream, self._max_bytes, self._max_seconds, httpx2.ReadTimeout)
        return response

    def close(self) -> None:
        self._transport.close()


class _Body(Bounded, httpx2.SyncByteStream):
    """Bounded for httpx2."""


class _Transport(httpx2.BaseTransport):
    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        access = _given.get()
        if access is None:
            raise Refused("nobody asked for this")
        return access.ask(request)


def client_within_our_calls() -> httpx2.Client:
    """Return the library's client, which refuses everything outside of `Access.given`."""
    return httpx2.Client(
        transport=_Transport(), headers=HEADERS, follow_redirects=True, trust_env=False, max_redirects=5
    )


_given: ContextVar[Access | None] = ContextVar("given", default=None)
set_client_factory(client_within_our_calls)
