"""The agent's calls to the service: https only, signed, one at a time; answers must decode as the protocol says.

No redirect is followed, and no proxy, netrc or cookie of the machine is used.
"""

from __future__ import annotations

import random
import re
import ssl
import threading
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from service.engine.decoding import wrong_value
from service.wire.loopback import is_loopback
from service.wire.measuring.agent import (
    COUNTER_HEADER,
    HOST_HEADER,
    POLL_SECONDS,
    SIGNATURE_HEADER,
    Accepted,
    EnrolledHost,
    Greeted,
    Greeting,
    LeasedRun,
    LeaseRequest,
    NewHost,
    Progress,
    Renewed,
    Report,
    Session,
)
from service.wire.measuring.hosts import Probe
from service.wire.problem import Problem
from workers.agent.errors import HostError, ServiceError, ServiceUnreachable
from workers.agent.state import HostKey, State

MAX_REPLY_BYTES = 1 << 20
ATTEMPTS = 3
_MAX_REPLY_SECONDS = 30
_TIMEOUT = httpx.Timeout(15, connect=10)
_POLL_TIMEOUT = httpx.Timeout(POLL_SECONDS + 20, connect=10)
_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}
T = TypeVar("T")


@cache
def authorities() -> ssl.SSLContext:
    """Return the certificate authorities that the system trusts, loaded once: that takes some 50 ms."""
    return ssl.create_default_context()


class Client:
    """A client of one service, over https. Calls of several threads wait for each other."""

    def __init__(self, address: str, agent: str, *, wait: threading.Event | None = None) -> None:
        """`agent`: what this program calls itself. `wait`: an event that cuts short the pauses between attempts.

        Raises HostError for an address that is not https (http only on this machine) or has more than a host and port.
        """
        self.address, self.authority = service_address(address)
        self._lock = threading.RLock()
        self._ending = wait or threading.Event()
        self._signer: tuple[str, HostKey, State] | None = None
        self._token = ""  # nosec B105 (no password)
        self.request_id: str | None = None  # of the request behind the current run, sent with all calls about it
        self._http = httpx.Client(
            base_url=self.address, timeout=_TIMEOUT, follow_redirects=False, trust_env=False,
            verify=authorities(), headers={"User-Agent": agent, **_HEADERS},
        )  # fmt: skip

    def close(self) -> None:
        self._http.close()

    def sign_as(self, host: str, key: HostKey, state: State) -> None:
        """Sign all further calls as `host`, with a counter kept in `state`."""
        self._signer = host, key, state

    def greet(self, code: str) -> Greeted:
        """Return whose code this is, before anything else is sent."""
        return self._plain("/v1/agent/greeting", _checked(Greeting(code=code)), Greeted)

    def enrol(self, code: str, key: HostKey, agent: str) -> EnrolledHost:
        signature = key.sign_enrolment(self.authority, code)
        new = NewHost(code=code, public_key=key.public, signature=signature, agent=agent)
        return self._plain("/v1/agent/hosts", _checked(new), EnrolledHost)

    def open_session(self) -> Session:
        """Begin a session of an hour, which further calls use."""
        with self._lock:
            session = self._signed("/v1/agent/sessions", b"{}", Session, session=False)
            assert session is not None  # noqa: S101 - only a lease may be answered by nothing
            self._token = session.token
            return session

    def probe(self, probe: Probe) -> None:
        """Send what this machine is and has."""
        self._signed("/v1/agent/probe", _checked(probe), None)

    def lease(self, wait: int = POLL_SECONDS) -> LeasedRun | None:
        """Return a run, waiting up to `wait` seconds for one; None if there is none."""
        body = _checked(LeaseRequest(wait=wait))
        return self._signed("/v1/agent/leases", body, LeasedRun, timeout=_POLL_TIMEOUT)

    def progress(self, run: str, progress: Progress) -> Renewed:
        """Renew the lease of a run, sending what is new."""
        return self._certain(f"/v1/agent/runs/{_run(run)}/progress", _checked(progress), Renewed)

    def report(self, run: str, report: Report) -> Accepted:
        """Send a run's final report. The same report may be sent again."""
        return self._certain(f"/v1/agent/runs/{_run(run)}/report", _checked(report), Accepted)

    def leave(self) -> None:
        self._signed("/v1/agent/leave", b"{}", None)

    def _plain(self, path: str, body: bytes, kind: type[T]) -> T:
        return _decode(self._send(path, body, {}, _TIMEOUT), kind)

    def _certain(self, path: str, body: bytes, kind: type[T]) -> T:
        answer = self._signed(path, body, kind)
        if answer is None:
            raise ServiceError(f"{self.address}{path}: an empty answer")
        return answer

    def _signed(
        self, path: str, body: bytes, kind: type[T] | None, *, session: bool = True,
        timeout: httpx.Timeout = _TIMEOUT,
    ) -> T | None:  # fmt: skip
        """Make a signed call; catch up if our counter is behind, and start a new session if the old one has ended."""
        with self._lock:
            for attempt in range(ATTEMPTS):
                if session and not self._token:
                    self.open_session()
                try:
                    data = self._send(path, body, self._headers(path, body, session), timeout)
                    return None if kind is None or not data else _decode(data, kind)
                except ServiceUnreachable as error:
                    if error.status == 429 or attempt == ATTEMPTS - 1 or self._ends_within(2**attempt):
                        raise
                except ServiceError as error:
                    if attempt == ATTEMPTS - 1 or not self._recovers(error, session):
                        raise
        raise ServiceUnreachable(f"{self.address} did not answer")

    def _ends_within(self, seconds: float) -> bool:
        """Wait about that long; return whether the agent is to end."""
        return self._ending.wait(seconds * random.uniform(0.5, 1.5))  # noqa: S311 - so that hosts do not come at once

    def _headers(self, path: str, body: bytes, session: bool) -> dict[str, str]:
        if self._signer is None:
            raise HostError("this machine is not enrolled")
        host, key, state = self._signer
        counter = state.next_counter()
        signature = key.sign_call(self.authority, path, host, counter, body)
        headers = {HOST_HEADER: host, COUNTER_HEADER: str(counter), SIGNATURE_HEADER: signature}
        return headers | ({"Authorization": f"Bearer {self._token}"} if session else {})

    def _recovers(self, error: ServiceError, session: bool) -> bool:
        """Adapt to an error, and return whether it is worth trying the same call again."""
        if error.slug == "counter-too-small" and self._signer is not None:
            if len(error.choices) != 1 or not re.fullmatch(r"\d{1,18}", error.choices[0]):
                return False  # the service named no counter to go on from
            self._signer[2].raise_counter(int(error.choices[0]))
            return True
        if error.status == 401 and session and self._token:
            self._token = ""  # nosec B105 (no password)
            return True
        return False

    def _send(self, path: str, body: bytes, headers: Mapping[str, str], timeout: httpx.Timeout) -> bytes:
        """Return the body of a 2xx answer, limited in size. Raises ServiceError, ServiceUnreachable."""
        headers = {"Content-Type": "application/json", **headers}
        if self.request_id:
            headers["X-Request-ID"] = self.request_id
        try:
            with self._http.stream("POST", path, content=body, headers=headers, timeout=timeout) as response:
                data = _bounded(response)
        except (httpx.TransportError, httpx.StreamError) as error:
            raise ServiceUnreachable(f"{self.address}: {_plainly(error)}") from None
        except httpx.HTTPError as error:
            raise ServiceError(f"{self.address}: {_plainly(error)}") from None
        if response.is_success:
            return data
        raise _problem(self.address, path, response, data)


def service_address(address: str) -> tuple[str, str]:
    """Return (origin, authority for signatures: host[:port]) of a service's address. Raises HostError."""
    try:
        parts = urlsplit(address.strip())
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    if not re.fullmatch(r"[a-z0-9.:-]{1,253}", host) or parts.path not in ("", "/") or parts.query or parts.username:
        raise HostError(f"{address}: give the service's address as https://HOST or https://HOST:PORT")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise HostError(f"{address}: only https is used (http only with a service on this machine)")
    name = f"[{host}]" if ":" in host else host
    default = 443 if parts.scheme == "https" else 80
    authority = name if port in (None, default) else f"{name}:{port}"
    return f"{parts.scheme}://{authority}", authority


def _bounded(response: httpx.Response) -> bytes:
    data, deadline = bytearray(), time.monotonic() + _MAX_REPLY_SECONDS
    for piece in response.iter_raw():
        data += piece
        if len(data) > MAX_REPLY_BYTES:
            raise ServiceError(f"the service's answer is larger than {MAX_REPLY_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise ServiceUnreachable("the service's answer is too slow")
    return bytes(data)


def _problem(address: str, path: str, response: httpx.Response, data: bytes) -> ServiceError:
    """Return the error that an answer reports."""
    status = response.status_code
    if response.is_redirect:
        return ServiceError(f"{address}{path} redirects elsewhere: redirects are not followed", status=status)
    try:
        problem = msgspec.json.decode(data, type=Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        problem = Problem(type="", title="", status=status, detail=f"HTTP {status}")
    kind = ServiceUnreachable if status in (429, 502, 503, 504) or status >= 500 else ServiceError
    choices = tuple(problem.choices or ())[:8]
    text = _printable(problem.detail or problem.title)
    return kind(f"{address}: {text}", status=status, slug=problem.type.rpartition("#")[2], choices=choices)


def _plainly(error: Exception) -> str:
    return re.sub(r"^\[Errno -?\d+\] ", "", _printable(str(error))) or type(error).__name__


def _printable(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text)[:500].strip()


def _checked(value: Any) -> bytes:
    """Encode a message. Raises HostError, before anything leaves, if it is not valid by the protocol."""
    data = msgspec.json.encode(value)
    try:
        msgspec.json.decode(data, type=type(value))
    except msgspec.ValidationError as error:
        what, field, _ = wrong_value(error, type(value))
        raise HostError(f"not sent: {field}: {what}") from None
    return data


def _decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ServiceError(f"the service's answer is not of this protocol: {_plainly(error)}") from None


def _run(run: str) -> str:
    if not _RUN_ID.fullmatch(run):
        raise ServiceError("the service's answer is not of this protocol: a run's id")
    return run
