"""What huggingface_hub asks through: it makes its client once a process, by a function that it is given.

Imported when needed, as the library is: it takes a tenth of a second.
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
    """A rule that also says who may see our token: hosts that are redirected to do not."""

    def may_see_token(self, url: Url) -> bool:
        """Whether a request to `url` may carry the token."""


class Access:
    """Where the library may ask, who sees its token, how many bytes a reply has and how long it takes; connections."""

    def __init__(self, rule: TokenRule, *, max_bytes: int, max_seconds: float, proxy: str | None = None) -> None:
        self._rule, self._max_bytes, self._max_seconds = rule, max_bytes, max_seconds
        self._transport = httpx2.HTTPTransport(verify=authorities(), proxy=proxy)
        if proxy is None:
            with_checked_addresses(self._transport, rule, _CONNECTIONS, httpcore2)

    @contextmanager
    def given(self) -> Iterator[None]:
        """Let the library ask for the length of a block, in this thread. Outside of one it is refused everything."""
        token = _given.set(self)
        try:
            yield
        finally:
            _given.reset(token)

    def ask(self, request: httpx2.Request) -> httpx2.Response:
        """Return the reply to one request, which may be a hop of a redirect. Raises Refused, httpx2's errors."""
        require_allowed(self._rule, request.url)
        if not self._rule.may_see_token(request.url):
            request.headers.pop("authorization", None)
        response = self._transport.handle_request(request)
        try:
            require_plain(response.headers)
        except Refused:
            response.close()
            raise
        response.stream = _Body(response.stream, self._max_bytes, self._max_seconds, httpx2.ReadTimeout)
        return response

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()


class _Body(Bounded, httpx2.SyncByteStream):
    """Of httpx2."""


class _Transport(httpx2.BaseTransport):
    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        access = _given.get()
        if access is None:
            raise Refused("nobody asked for this")
        return access.ask(request)


def client_within_our_calls() -> httpx2.Client:
    """Return the client that the library asks with: it is refused everything outside of `Access.given`."""
    return httpx2.Client(
        transport=_Transport(), headers=HEADERS, follow_redirects=True, trust_env=False, max_redirects=5
    )


_given: ContextVar[Access | None] = ContextVar("given", default=None)
set_client_factory(client_within_our_calls)
