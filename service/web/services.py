"""The objects that handlers work with, made once by `create_app`."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Generic, NamedTuple, TypeAlias, TypeVar, TypeVarTuple, Unpack

import msgspec
from anyio import CancelScope, CapacityLimiter, from_thread, to_thread
from litestar import Response
from litestar.di import NamedDependency

from service import logs
from service.engine.errors import AdvisorError
from service.flows import accounts
from service.flows.accounts import Caller
from service.flows.advice.advise import advices_progress
from service.flows.advice.fair_queue import Payer, account_payer, network_payer
from service.flows.context import Context
from service.flows.measuring.runs import hosts_concerned, hosts_with_runs
from service.flows.operations import components
from service.flows.results.accuracy import KeptAccuracy
from service.queue.progress import Listener
from service.settings import Settings
from service.web.http.client import client_of, is_within, networks
from service.web.http.conditional import ResponseCache
from service.web.http.limits import Bucket, Lease, RateLimits
from service.web.http.middleware import waits
from service.web.http.types import Connection, HttpRequest
from service.wire.advice.advice import AdviceEvent
from service.wire.health import Part, PartName

NEEDED: tuple[PartName, ...] = ("database", "redis", "workers", "disk")
_KEPT_SECONDS = 5.0  # the database is asked for the backlog no more often, however many clients scrape it
GATHER_SECONDS = 0.02  # for which the first question waits for others to join it
_MOST_KNOWN = 10_000
WAITING_LOOK = 4  # threads in which everybody who waits, listeners and hosts, looks at the database, after other work
READING = 16  # threads for flows that may read from the Hub, some of which wait there (hub/headers.py)
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
Arguments = TypeVarTuple("Arguments")
_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]{1,255}")


class Services:
    """One app's shared state: the flows' context, limits, settings, cached answers, and its way to end."""

    def __init__(self, settings: Settings, context: Context, listener: Listener, limits: RateLimits) -> None:
        self.settings, self.context, self.listener, self.limits = settings, context, listener, limits
        self.accuracy = KeptAccuracy()
        self.reading = CapacityLimiter(READING)
        self.drain = Drain()
        self.looking = CapacityLimiter(WAITING_LOOK)
        self.kept = ResponseCache()
        self.progress = Coalescer[AdviceEvent](lambda ids: advices_progress(context, ids), self.looking)
        self.hosts_concerned = Coalescer[bool](lambda ids: hosts_concerned(context, ids), self.looking)
        self.hosts_with_runs = Coalescer[bool](lambda ids: hosts_with_runs(context, ids), self.looking)
        names: tuple[PartName, ...] = (*NEEDED, "bots", "hub") if settings.has_bots else (*NEEDED, "hub")
        self._asked = {name: ComponentProbe(partial(components.part, context, name)) for name in names}
        self.backlog = ComponentProbe(lambda: components.backlog(context), keep_seconds=_KEPT_SECONDS)
        self.counts = ComponentProbe(lambda: components.counts(context))
        self.counted = ComponentProbe(lambda: components.send_counts(context.redis))
        self._near = networks(settings.metrics_networks, "ADVISOR_METRICS_NETWORKS")
        self._proxies = networks(settings.trusted_proxies)
        self._requests = Bucket("requests", settings.requests_per_minute, 60, "requests")
        self._submissions = Bucket("submissions", 60, 3600, "results sent")
        self._codes = Bucket("codes", 20, 600, "attempts with an enrolment code")
        self._reports = Bucket("reports", 10, 3600, "reports of results")
        self._new_repos = Bucket("new-repos", settings.new_repos_per_hour, 3600, "requests for repos not yet read here")

    async def run(self, flow: Callable[[Context, Unpack[Arguments]], T], *arguments: *Arguments) -> T:
        """Run a flow in a thread and return its result."""
        return await to_thread.run_sync(flow, self.context, *arguments)

    async def run_reading(self, flow: Callable[[Context, Unpack[Arguments]], T], *arguments: *Arguments) -> T:
        """Run a flow that may read from the Hub, in a thread reserved for such, and return its result."""
        return await to_thread.run_sync(flow, self.context, *arguments, limiter=self.reading)

    async def parts(self) -> tuple[Part, ...]:
        """Return the current state of each part of the service."""
        answers = await asyncio.gather(*(asking.answer() for asking in self._asked.values()))
        return tuple(
            Part(
                name=name, state="bad" if answer.value is None else "good", needed=name != "hub",
                text=answer.value or answer.error or "", ms=round(answer.seconds * 1000, 1),
            )
            for name, answer in zip(self._asked, answers, strict=True)
        )  # fmt: skip

    def is_near(self, request: Connection) -> bool:
        """Return whether a client is in the networks that may read metrics."""
        return is_within(request, self._proxies, self._near)

    def client(self, request: Connection) -> str:
        return client_of(request, self._proxies)

    async def count_request(self, request: Connection) -> None:
        """Count one request of the client. Raises RateLimited."""
        await self.limits.take(self._requests, self.client(request), needs_redis=False)

    async def count_code(self, request: HttpRequest) -> None:
        """Count one attempt with an enrolment code. Raises RateLimited."""
        await self.limits.take(self._codes, self.client(request), needs_redis=False)

    async def count_report(self, request: HttpRequest) -> None:
        """Count one report. Raises RateLimited, or QueueUnavailable if it cannot be counted."""
        await self.limits.take(self._reports, self.client(request), needs_redis=True)

    async def count_submission(self, request: HttpRequest, caller: Caller | None) -> None:
        """Count one submission. Raises RateLimited."""
        who = f"account:{caller.account_id}" if caller else self.client(request)
        await self.limits.take(self._submissions, who, needs_redis=False)

    def payer(self, request: HttpRequest, caller: Caller | None) -> Payer:
        """Return whose share an advice uses."""
        client = self.client(request)
        if caller is None:
            return network_payer(client)
        return account_payer(caller.account_id, client, trusted=caller.trusted)

    async def identified(self, token: str) -> Caller:
        """Return the caller whose token this is, and count the request for its account, wherever it comes from.

        Raises NotAuthenticated or RateLimited.
        """
        now = self.context.clock()
        caller = await to_thread.run_sync(accounts.caller_of, self.context.engine, token, now)
        logs.note(account=caller.account_id)
        await self.limits.take(self._requests, f"account:{caller.account_id}", needs_redis=False)
        return caller

    def authority(self, request: HttpRequest) -> str:
        """Return `host[:port]` of this service as clients name it, and hosts sign it; empty if unknown."""
        if self.settings.public_url:
            scheme, _, rest = self.settings.public_url.partition("://")
            return rest.partition("/")[0].lower().removesuffix(":443" if scheme == "https" else ":80")
        host = request.headers.get("host", "")
        return host.lower() if _HOST.fullmatch(host) else ""

    def admission(self, request: HttpRequest) -> Callable[[], None]:
        """Return the function that a flow calls, in its thread, before it reads a repo that is new here."""
        take = partial(self.limits.take, self._new_repos, self.client(request), needs_redis=True)
        return partial(from_thread.run, take)

    async def hold(self, request: HttpRequest, seconds: int) -> Lease:
        """Return one of the client's streams. Raises TooManyStreams or QueueUnavailable."""
        waits(request.scope)
        kind = "stream" if request.scope["path"].endswith("/events") else "poll"
        return await self.limits.hold(self.client(request), seconds, kind)

    def addressed(self, request: HttpRequest, folder: str, answer: S) -> S:
        """Return an answer with its `url`, made of its `id` in a folder."""
        url = self.address(request, f"{folder}/{answer.id}")  # type: ignore[attr-defined]
        return msgspec.structs.replace(answer, url=url)

    def location(self, path: str) -> str:
        """Return the URL of `path` at the configured address, or only the path if none is configured."""
        return (self.settings.public_url or "").rstrip("/") + path

    def created(self, answer: S, path: str, *, is_new: bool) -> Response[S]:
        """Return the response to a POST whose answer is now at `path`: 201, or 200 if it was there before."""
        headers = {"Location": self.location(path)}
        return Response(answer, status_code=201 if is_new else 200, headers=headers)

    def address(self, request: HttpRequest, path: str) -> str:
        """Return the URL of `path` as the client sees it, or only the path without a credible Host header."""
        if self.settings.public_url:
            return self.location(path)
        host = request.headers.get("host", "")
        return f"{request.url.scheme}://{host}{path}" if _HOST.fullmatch(host) else path


AppServices: TypeAlias = NamedDependency[Services]


class Coalescer(Generic[T]):
    """Joins simultaneous lookups of many keys into one. For the event loop's thread; `ask` runs in one of `limiter`."""

    def __init__(self, ask: Callable[[list[str]], Mapping[str, T]], limiter: CapacityLimiter) -> None:
        self._ask, self._limiter = ask, limiter
        self._wanted = set[str]()
        self._next: asyncio.Task[Mapping[str, T]] | None = None
        self._known: dict[str, tuple[float, T | None]] = {}

    async def of(self, key: str, max_age: float = 0.0) -> T | None:
        """Return the answer for a key, None if there is none. It is looked up after this call, or at most `max_age`
        seconds before it. Raises what `ask` raises."""
        known = self._known.get(key)
        if known is not None and time.monotonic() - known[0] <= max_age:
            return known[1]
        self._wanted.add(key)
        if self._next is None:
            self._next = asyncio.create_task(self._look())
        found = await asyncio.shield(self._next)  # the first caller may be cancelled before the answer
        return found.get(key)

    async def _look(self) -> Mapping[str, T]:
        await asyncio.sleep(GATHER_SECONDS)
        keys, self._wanted, self._next = list(self._wanted), set(), None
        began = time.monotonic()
        found = await to_thread.run_sync(self._ask, keys, limiter=self._limiter)
        if len(self._known) + len(keys) > _MOST_KNOWN:
            self._known.clear()
        self._known.update((key, (began, found.get(key))) for key in keys)
        return found


class Drain:
    """The ending of a process, in irreversible steps. For the event loop's thread.

    `begun`: /ready says so, so that no new requests are sent here; everything is still answered. `leaving`: event
    streams and held requests end, and their clients return to another process.
    """

    def __init__(self) -> None:
        self.begun = self.leaving = False
        self._waits: set[CancelScope] = set()

    def begin(self) -> None:
        """Make /ready answer 503 from now on."""
        self.begun = True

    def leave(self) -> None:
        """End everything that waits, now and from now on."""
        self.begun = self.leaving = True
        for scope in self._waits:
            scope.cancel()

    @contextmanager
    def cutting(self, scope: CancelScope) -> Iterator[None]:
        """Cancel `scope` if the process leaves during the block, or has left already."""
        self._waits.add(scope)
        if self.leaving:
            scope.cancel()
        try:
            yield
        finally:
            self._waits.discard(scope)


ASK_SECONDS = 1.5


class ProbeResult(NamedTuple, Generic[T]):
    """A part's answer (None: it failed), its error, and the seconds it took."""

    value: T | None
    error: str | None
    seconds: float


class ComponentProbe(Generic[T]):
    """A question whose answer concurrent callers share. For the event loop's thread."""

    def __init__(self, ask: Callable[[], T], *, keep_seconds: float = 0.0) -> None:
        """`keep_seconds`: for how long an answer is reused."""
        self._ask, self._keep = ask, keep_seconds
        self._asked: asyncio.Future[ProbeResult[T]] | None = None
        self._began = self._ended = 0.0

    async def answer(self) -> ProbeResult[T]:
        """Return the answer, after ASK_SECONDS at most. Raises nothing."""
        asked = self._asked
        if asked is None or (asked.done() and time.monotonic() - self._ended >= self._keep):
            asked = self._asked = self._begin()
        left = self._began + ASK_SECONDS - time.monotonic()
        await asyncio.wait({asked}, timeout=max(left, 0.0))
        if asked.done():
            return asked.result()
        waited = time.monotonic() - self._began
        return ProbeResult(None, "does not answer in time", waited)

    def _begin(self) -> asyncio.Future[ProbeResult[T]]:
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[ProbeResult[T]] = loop.create_future()
        self._began = time.monotonic()

        def done(answer: ProbeResult[T]) -> None:
            self._ended = time.monotonic()
            asked.set_result(answer)

        def run() -> None:
            answer = self._answered()
            with suppress(RuntimeError):  # the loop is over
                loop.call_soon_threadsafe(done, answer)

        threading.Thread(target=run, name="part", daemon=True).start()
        return asked

    def _answered(self) -> ProbeResult[T]:
        began = time.monotonic()
        try:
            value = self._ask()
        except AdvisorError as error:
            return ProbeResult(None, error.detail, time.monotonic() - began)
        except Exception as error:  # an unexpected failure of the part
            return ProbeResult(None, f"fails: {type(error).__name__}", time.monotonic() - began)
        return ProbeResult(value, None, time.monotonic() - began)
