"""What every handler works with, made once by `create_app`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from anyio import CapacityLimiter, Semaphore, WouldBlock, from_thread, to_thread
from litestar import Request
from litestar.connection import ASGIConnection

from service.errors import NotAuthenticated, ServiceUnavailable
from service.flows.accounts import Caller
from service.settings import Settings
from service.web.access_log import waits
from service.web.client import client_of, is_within, networks
from service.web.drain import Drain
from service.web.kept import KeptAnswers
from service.web.limits import Bucket, Lease, Limits
from service.web.parts import Asking
from service.web.use_cases import Flows
from service.wire.health import Part, PartName

NEEDED: tuple[PartName, ...] = ("database", "redis", "workers", "disk")
_KEPT_SECONDS = 5.0  # what waits is asked of the database no more often, however many scrape
WAITING_LOOK = 4  # threads in which all who wait, listeners and hosts, look at the database: others go before them
READS = 4  # repos that one process reads at once for `/v1/repos`
T = TypeVar("T")
_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]{1,255}")


class Services:
    """The flows, limits, settings and kept answers of one app, and how far it is on its way out."""

    def __init__(self, settings: Settings, flows: Flows, limits: Limits) -> None:
        self.settings, self.flows, self.limits = settings, flows, limits
        self.reads = Semaphore(READS)
        self.drain = Drain()
        self.looking = CapacityLimiter(WAITING_LOOK)
        self.kept = KeptAnswers()
        names: tuple[PartName, ...] = (*NEEDED, "bots", "hub") if settings.has_bots else (*NEEDED, "hub")
        self._asked = {name: Asking(partial(self._part, name)) for name in names}
        self.backlog = Asking(lambda: flows.backlog(), keep_seconds=_KEPT_SECONDS)
        self.counts = Asking(lambda: flows.counts())
        self.counted = Asking(lambda: flows.send_counts())
        self._near = networks(settings.metrics_networks, "ADVISOR_METRICS_NETWORKS")
        self._proxies = networks(settings.trusted_proxies)
        self._requests = Bucket("requests", settings.requests_per_minute, 60, "requests")
        self._submissions = Bucket("submissions", 60, 3600, "results sent")
        self._codes = Bucket("codes", 20, 600, "attempts with an enrolment code")
        self._reports = Bucket("reports", 10, 3600, "reports of results")
        self._new_repos = Bucket("new-repos", settings.new_repos_per_hour, 3600, "requests for repos not yet read here")

    async def run_reading(self, flow: Callable[..., T], *arguments: object) -> T:
        """Return what a flow returns that may read a header, in a thread. Raises ServiceUnavailable beyond READS."""
        try:
            self.reads.acquire_nowait()
        except WouldBlock as error:
            raise ServiceUnavailable(f"{READS} repos are being read at this moment; ask again") from error
        try:
            return await to_thread.run_sync(flow, *arguments)
        finally:
            self.reads.release()

    def _part(self, name: PartName) -> str:
        return self.flows.part(name)

    async def parts(self) -> tuple[Part, ...]:
        """Return how each part of the service is at this moment."""
        answers = await asyncio.gather(*(asking.answer() for asking in self._asked.values()))
        return tuple(
            Part(
                name=name, state="bad" if answer.value is None else "good", needed=name != "hub",
                text=answer.value or answer.error or "", ms=round(answer.seconds * 1000, 1),
            )
            for name, answer in zip(self._asked, answers, strict=True)
        )  # fmt: skip

    def is_near(self, request: ASGIConnection[Any, Any, Any, Any]) -> bool:
        """Return whether a client is in the networks that may read metrics."""
        return is_within(request, self._proxies, self._near)

    def client(self, request: ASGIConnection[Any, Any, Any, Any]) -> str:
        """Return who asks."""
        return client_of(request, self._proxies)

    async def count_request(self, request: ASGIConnection[Any, Any, Any, Any]) -> None:
        """Count one request of the client. Raises RateLimited."""
        await self.limits.take(self._requests, self.client(request), needs_redis=False)

    async def count_caller(self, caller: Caller) -> None:
        """Count one request of an account, wherever it comes from. Raises RateLimited."""
        await self.limits.take(self._requests, f"account:{caller.account_id}", needs_redis=False)

    async def count_code(self, request: Request[Any, Any, Any]) -> None:
        """Count one attempt with an enrolment code. Raises RateLimited."""
        await self.limits.take(self._codes, self.client(request), needs_redis=False)

    async def count_report(self, request: Request[Any, Any, Any]) -> None:
        """Count one report of abuse. Raises RateLimited, or QueueUnavailable where nothing can be counted."""
        await self.limits.take(self._reports, self.client(request), needs_redis=True)

    async def count_submission(self, request: Request[Any, Any, Any], caller: Caller | None) -> None:
        """Count one result that somebody sends. Raises RateLimited."""
        who = f"account:{caller.account_id}" if caller else self.client(request)
        await self.limits.take(self._submissions, who, needs_redis=False)

    def known(self, caller: Caller | None) -> Caller:
        """Return the caller. Raises NotAuthenticated for somebody without a token."""
        if caller is None:
            raise NotAuthenticated("this needs a token: `Authorization: Bearer …`")
        return caller

    def authority(self, request: Request[Any, Any, Any]) -> str:
        """Return `host[:port]` of this service as clients name it, which hosts sign. Empty: it cannot be told."""
        if self.settings.public_url:
            scheme, _, rest = self.settings.public_url.partition("://")
            return rest.partition("/")[0].lower().removesuffix(":443" if scheme == "https" else ":80")
        host = request.headers.get("host", "")
        return host.lower() if _HOST.fullmatch(host) else ""

    def admission(self, request: Request[Any, Any, Any]) -> Callable[[], None]:
        """Return what a flow calls, in its thread, before it begins with a repo that was not read here yet."""
        client = self.client(request)

        def admit_new_repo() -> None:
            from_thread.run(self._count_new_repo, client)

        return admit_new_repo

    async def _count_new_repo(self, client: str) -> None:
        await self.limits.take(self._new_repos, client, needs_redis=True)

    async def hold(self, request: Request[Any, Any, Any], seconds: int) -> Lease:
        """Return one of the client's streams. Raises TooManyStreams or QueueUnavailable."""
        waits(request.scope)
        kind = "stream" if request.scope["path"].endswith("/events") else "poll"
        return await self.limits.hold(self.client(request), seconds, kind)

    def address(self, request: Request[Any, Any, Any], path: str) -> str:
        """Return the URL of `path` as the client sees this service; without a believable Host header only the path."""
        if self.settings.public_url:
            return self.settings.public_url.rstrip("/") + path
        host = request.headers.get("host", "")
        return f"{request.url.scheme}://{host}{path}" if _HOST.fullmatch(host) else path
