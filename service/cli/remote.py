"""The command line's client of a service: https (http on this machine), a token, and bounded answers."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from service.engine.errors import AdvisorError, InvalidInput
from service.wire.loopback import is_loopback
from service.wire.plain_text import clean, plainly
from service.wire.problem import Problem

MAX_REPLY_BYTES = 32 << 20
_MAX_LINE = 1 << 20
PAUSE_SECONDS = 2.0  # before it is tried again
_TIMEOUT = httpx.Timeout(60, connect=10)
_STREAM_TIMEOUT = httpx.Timeout(40, connect=10)  # the service sends a comment every 15 seconds
_ADDRESS = re.compile(r"(?P<prefix>.*?)(?:/v1)?/(?P<kind>advice|validations)/(?P<id>[A-Za-z0-9_-]{1,64})(/events)?/?")
T = TypeVar("T")


class ServiceRefused(AdvisorError):
    """The service refuses a request; `slug` names the heading in docs/problems.md."""

    def __init__(self, problem: Problem) -> None:
        field = problem.field and clean(problem.field)
        super().__init__(clean(problem.detail or problem.title), field=field, choices=tuple(problem.choices or ()))
        self.slug = problem.type.rpartition("#")[2]
        self.status = problem.status


class Unreachable(AdvisorError):
    """The service does not answer, or something else answers."""


def split_address(address: str, kind: str) -> tuple[str, str]:
    """Return (the service's address, id) from the address of an advice or a validation, in the API or as a page.

    Raises InvalidInput.
    """
    try:
        parts = urlsplit(address.strip())
        host, path = parts.hostname, _ADDRESS.fullmatch(parts.path)
    except ValueError:
        parts, host, path = urlsplit(""), None, None
    right = f"https://HOST/v1/{kind}/ID"
    if parts.scheme not in ("http", "https") or not host or path is None or path["kind"] != kind or parts.username:
        raise InvalidInput(f"{address[:200]!r} is not an address such as {right}", field=kind)
    return f"{parts.scheme}://{parts.netloc}{path['prefix']}", path["id"]


class Service:
    """A client of one service. Redirects are not followed, so that the token goes nowhere else."""

    def __init__(self, address: str, token: str | None = None) -> None:
        """Raises InvalidInput for what is no address, or if a token would travel unencrypted over a network."""
        self.address = address
        try:
            parts = urlsplit(address)
            local = is_loopback(parts.hostname or "")
            _ = parts.port  # read, because an impossible one is found only then
        except ValueError as error:
            raise InvalidInput(f"{address[:200]!r} is not an address such as https://HOST", field="service") from error
        if token and parts.scheme != "https" and not local:
            what = f"{address}: a token is sent over https only (http only to a service on this machine)"
            raise InvalidInput(what, field="ADVISOR_TOKEN")
        authorization = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(
            timeout=_TIMEOUT, trust_env=not local, headers={"Accept": "application/json", **authorization}
        )

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, kind: type[T]) -> T:
        """Return the object at a path. Raises ServiceRefused, Unreachable."""
        return _decoded(self._send("GET", path), kind)

    def post(self, path: str, body: object, kind: type[T], headers: Mapping[str, str] | None = None) -> T:
        """Return the answer to a JSON body. Raises ServiceRefused, Unreachable."""
        content = msgspec.json.encode(body)
        return _decoded(
            self._send("POST", path, content, {"Content-Type": "application/json", **(headers or {})}), kind
        )

    def post_once(self, path: str, body: object, kind: type[T]) -> T:
        """Post with an idempotency key, repeating a request that may have been lost without doing its work twice."""
        key = {"Idempotency-Key": secrets.token_urlsafe(16)}
        for _ in range(2):
            with suppress(Unreachable):
                return self.post(path, body, kind, key)
            time.sleep(PAUSE_SECONDS)
        return self.post(path, body, kind, key)

    def delete(self, path: str) -> None:
        """Delete the object at a path. Raises ServiceRefused, Unreachable."""
        self._send("DELETE", path)

    def events(self, path: str, kind: type[T]) -> Iterator[T | None]:
        """Yield a stream's events until it ends, and None for each keep-alive comment.

        Raises ServiceRefused, or Unreachable, also when the connection breaks.
        """
        headers = {"Accept": "text/event-stream"}
        try:
            with self._http.stream("GET", self.address + path, headers=headers, timeout=_STREAM_TIMEOUT) as response:
                if not response.is_success:
                    raise _refusal(self.address, response.status_code, _bounded(response))
                yield from _events(response, kind)
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise Unreachable(f"{self.address}: {plainly(error)}") from None

    def _send(self, method: str, path: str, content: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
        try:
            with self._http.stream(method, self.address + path, content=content, headers=headers) as response:
                data = _bounded(response)
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise Unreachable(f"{self.address}: {plainly(error)}") from None
        if response.is_success:
            return data
        raise _refusal(self.address, response.status_code, data)


def _events(response: httpx.Response, kind: type[T]) -> Iterator[T | None]:
    """Yield the events, each of which has one line of data; a comment begins with a colon."""
    left, is_problem = b"", False
    for piece in response.iter_bytes():
        *lines, left = (left + piece).split(b"\n")
        if len(left) > _MAX_LINE:
            raise Unreachable("the service's events are larger than those of this protocol")
        for line in lines:
            if line.startswith(b"event: "):
                is_problem = line == b"event: problem"
            elif line.startswith(b"data: ") and is_problem:
                raise ServiceRefused(_decoded(line[6:], Problem))
            elif line.startswith(b"data: "):
                yield _decoded(line[6:], kind)
            elif line.startswith(b":"):
                yield None


def _bounded(response: httpx.Response) -> bytes:
    data = bytearray()
    for piece in response.iter_bytes():
        data += piece
        if len(data) > MAX_REPLY_BYTES:
            raise Unreachable(f"the service's answer is larger than {MAX_REPLY_BYTES >> 20} MiB")
    return bytes(data)


def _refusal(address: str, status: int, data: bytes) -> AdvisorError:
    try:
        return ServiceRefused(msgspec.json.decode(data, type=Problem))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Unreachable(f"{address} answers HTTP {status}: it is not an Offload Advisor, or it is down")


def _decoded(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unreachable(f"the service's answer is not what this program expects: {clean(str(error)[:200])}") from None
