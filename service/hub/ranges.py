"""Reads byte ranges of files on the Hub, following redirects by hand and checking every reply against the request.

`/resolve/` redirects to a signed address on another host that is valid for about an hour. It is reused for further
ranges of the same file; when it answers 403 it has expired, and `/resolve/` is asked again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TypeAlias

import httpx

from service.counting import count
from service.engine.errors import TruncatedHeader
from service.hub.addresses import Addresses
from service.hub.errors import HubReplyRefused, HubUnavailable
from service.hub.listing import Cost, ListingLimits
from service.hub.retry import Transient, count_reply, with_retries
from service.outgoing.client import new_client
from service.outgoing.rules import Refused

_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})", re.ASCII)
_MAX_REDIRECTS = 5
_LONGEST_CHUNK = 1 << 20  # surplus bytes that may arrive with the last wanted ones
_WORTH_A_CONNECTION = 128 << 10  # bytes that arrive in the time that opening another connection takes
Take: TypeAlias = Callable[[bytes], bool]


class RemoteFile:
    """One file at one commit: its address, its size as listed, and its signed address once known."""

    def __init__(self, repo: str, path: str, n_bytes: int | None, address: str) -> None:
        self.repo, self.path, self.n_bytes = repo, path, n_bytes
        self.address = httpx.URL(address)
        self.ignores_ranges = False  # set once a reply was the whole file
        self.signed: httpx.URL | None = None


class Ranges:
    """Reads ranges with one pool of connections. Safe to use from several threads."""

    def __init__(
        self,
        endpoint: str,
        addresses: Addresses,
        token: str | None,
        limits: ListingLimits,
        *,
        proxy: str | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        timeout = httpx.Timeout(
            limits.request_seconds, connect=min(5.0, limits.request_seconds), pool=limits.file_seconds
        )
        self._client = new_client(
            addresses,
            timeout=timeout,
            max_bytes=limits.header_bytes + _LONGEST_CHUNK,
            max_seconds=limits.file_seconds,
            max_connections=limits.parallel,
            proxy=proxy,
            transport=transport,
        )
        self._endpoint = httpx.URL(endpoint)
        self._addresses, self._token, self._limits, self._sleep = addresses, token, limits, sleep
        self.cost = Cost()
        self._lock = Lock()

    def close(self) -> None:
        self._client.close()

    def stream(self, file: RemoteFile, start: int, stop: int, deadline: float, take: Take) -> int:
        """Pass bytes `start` to `stop` (exclusive) of `file` to `take` as they arrive, until it has enough.

        Return the position of the next byte. `deadline` is a time of `time.monotonic`. A broken connection is resumed
        where it ended. Raises HubUnavailable, HubRateLimited, HubUnauthorised, HubReplyRefused, RepoGated,
        RepoNotFound, what `take` raises, and TruncatedHeader when the file ends before `start`.
        """
        reading = _Reading(file, start, stop, deadline, take)
        with_retries(lambda: self._read_on(reading), self._limits, self._sleep)
        return reading.position

    def get_json(self, path: str, parameters: list[tuple[str, str]], max_bytes: int) -> bytes:
        """Return at most `max_bytes` of the body of an API call on the endpoint. Raises as `stream` does."""
        url = self._endpoint.join(self._endpoint.path.rstrip("/") + path)
        url = url.copy_with(params=parameters)
        deadline = time.monotonic() + self._limits.request_seconds

        def attempt() -> bytes:
            with self._answer(url, {}, deadline, path) as response:
                if response.status_code != 200:
                    raise _refused(response, "the Hub", path)
                return self._body(response, max_bytes, deadline)

        return with_retries(attempt, self._limits, self._sleep)

    def _read_on(self, reading: _Reading) -> None:
        if reading.has_enough:
            return  # the connection broke when nothing more was wanted
        file = reading.file
        asked = {"range": f"bytes={reading.position}-{reading.stop - 1}"}
        if file.signed is not None:
            with self._send(file.signed, asked, reading.deadline) as response:
                if response.status_code != 403:
                    self._take_in(response, reading)
                    return
            file.signed = None
        with self._answer(file.address, asked, reading.deadline, file.path) as response:
            url = response.url
            file.signed = None if self._addresses.is_endpoint(url) or url == file.address else url
            self._take_in(response, reading)

    @contextmanager
    def _answer(self, url: httpx.URL, headers: dict[str, str], deadline: float, what: str) -> Iterator[httpx.Response]:
        """Follow redirects from `url` to the answer. Raises HubReplyRefused, naming `what`, if there are too many."""
        for _ in range(_MAX_REDIRECTS):
            with self._send(url, headers, deadline) as response:
                if not response.has_redirect_location:
                    yield response
                    return
                url = self._addresses.after_redirect(url, response.headers["location"])
        raise HubReplyRefused(f"{what}: more than {_MAX_REDIRECTS} redirects")

    @contextmanager
    def _send(self, url: httpx.URL, headers: dict[str, str], deadline: float) -> Iterator[httpx.Response]:
        """Send one GET; the token goes to the endpoint's origin only."""
        if time.monotonic() > deadline:
            raise _too_slow()
        sent = {**headers}
        if self._token and self._addresses.is_endpoint(url):
            sent["authorization"] = f"Bearer {self._token}"
        with self._lock:
            self.cost.requests += 1
        try:
            with self._client.stream("GET", url, headers=sent) as response:
                count_reply("read", response.status_code, response.headers)
                yield response
        except (httpx.TimeoutException, httpx.TransportError) as error:
            count_reply("read", None, {})
            raise Transient(f"{url.host} does not answer ({type(error).__name__})") from error
        except Refused as error:
            raise HubReplyRefused(str(error)) from error

    def _take_in(self, response: httpx.Response, reading: _Reading) -> None:
        """Pass on the reply's body: the range, or the whole file if the server ignores ranges."""
        file, unwanted = reading.file, 0
        if response.status_code == 206:
            stop = _range_stop(response, file, reading.position, reading.stop)
        elif response.status_code == 200:  # read up to the range's end, no further
            stop, unwanted = min(reading.stop, file.n_bytes or reading.stop), reading.position
            file.ignores_ranges = True
        elif response.status_code == 416:
            raise TruncatedHeader(f"the file ends before byte {reading.position}, inside its header: upload it again")
        else:
            raise _refused(response, file.repo, file.path)
        is_whole = response.status_code == 200
        for chunk in self._chunks(response, reading.deadline):
            wanted, unwanted = chunk[unwanted:], max(0, unwanted - len(chunk))
            too_much = len(wanted) > stop - reading.position
            reading.take_in(wanted[: stop - reading.position])
            left = stop - reading.position
            if too_much or (is_whole and not left):
                return
            if reading.has_enough and (is_whole or left > _WORTH_A_CONNECTION):
                return  # a short rest is read instead, so that the connection can be reused
        if not reading.has_enough and reading.position < min(reading.stop, file.n_bytes or reading.stop):
            raise Transient(f"{file.path}: the connection was interrupted")

    def _body(self, response: httpx.Response, limit: int, deadline: float) -> bytes:
        """Return at most `limit` bytes of the body; the rest is left unread and its connection closed."""
        data = bytearray()
        for chunk in self._chunks(response, deadline):
            data += chunk
            if len(data) >= limit:
                break
        return bytes(data[:limit])

    def _chunks(self, response: httpx.Response, deadline: float) -> Iterator[bytes]:
        for chunk in response.iter_raw():  # unbuffered: gathering larger chunks, a slow drip would outlast the deadline
            with self._lock:
                self.cost.n_bytes += len(chunk)
            count("received", len(chunk))
            yield chunk
            if time.monotonic() > deadline:
                raise _too_slow()


class _Reading:
    """A range being read, and how far it has been passed on."""

    def __init__(self, file: RemoteFile, start: int, stop: int, deadline: float, take: Take) -> None:
        self.file, self.position, self.stop, self.deadline, self._take = file, start, stop, deadline, take
        self.has_enough = False

    def take_in(self, data: bytes) -> None:
        """Pass `data` on while more is wanted."""
        self.position += len(data)
        if data and not self.has_enough:
            self.has_enough = self._take(data)


def _range_stop(response: httpx.Response, file: RemoteFile, start: int, stop: int) -> int:
    """Return where the received range really ends; learn the file's size from it if the listing had none."""
    match = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
    if match is None:
        raise HubReplyRefused(f"{file.path}: a partial reply that does not say which part it is")
    first, last, total = (int(n) for n in match.groups())
    if first != start or not start <= last < min(stop, total):
        raise HubReplyRefused(f"{file.path}: asked for bytes {start} to {stop - 1}, got {first} to {last}")
    if file.n_bytes is not None and total != file.n_bytes:
        raise HubReplyRefused(f"{file.path}: listed with {file.n_bytes} bytes, served with {total}")
    file.n_bytes = total
    return last + 1


def _too_slow() -> HubUnavailable:
    return HubUnavailable("the Hub is too slow: reading one file timed out", retry_after=30)


def _refused(reply: httpx.Response, repo: str, what: str) -> Exception:
    from service.hub.info import refusal_of  # huggingface_hub takes a tenth of a second to import

    return refusal_of(reply, repo, what)
