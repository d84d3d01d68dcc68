"""`/health` says that the process answers, `/ready` that the parts it needs do; `/metrics` is for Prometheus."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from litestar import Response, Router, get
from litestar.openapi.spec import Example
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from service import __version__, metrics
from service.errors import ServiceUnavailable
from service.flows.operations.components import QueueLengths, database_connections
from service.web.documentation.operations import answer
from service.web.http.callers import PROBLEMS, SECURITY, operators_and_near
from service.web.http.problems import problem_response, problem_responses
from service.web.services import AppServices
from service.wire.health import Health, NotReady, Readiness
from service.wire.problem import MEDIA_TYPE, problem

_EXAMPLE = msgspec.to_builtins(problem("service-unavailable", "database: does not answer in time"))


@get("/health", summary="Whether the process answers", response_description="It does.", sync_to_thread=False)
def health() -> Health:
    """Checks nothing else; for restarting a process that hangs."""
    return Health("ok", __version__)


@get(
    "/ready",
    summary="Whether requests can be served in full",
    responses={
        200: answer(Readiness, "All parts answer."),
        503: answer(NotReady, "Some do not.", Example("service-unavailable", value=_EXAMPLE), media_type=MEDIA_TYPE),
    },
)  # fmt: skip
async def ready(services: AppServices) -> Response[Any]:
    """Checks database, Redis, workers, disk, and bots if configured, each within a second and a half.

    503 if one of them is bad, or the process is shutting down. The Hub is listed too, but never causes a 503.
    """
    if services.drain.begun:
        raise ServiceUnavailable("this process is ending: ask another")
    parts = await services.parts()
    bad = "; ".join(f"{part.name}: {part.text}" for part in parts if part.needed and part.state == "bad")
    if not bad:
        return Response(Readiness(parts))
    what = problem("service-unavailable", bad)
    return problem_response(NotReady(**msgspec.structs.asdict(what), parts=parts))


@get(
    "/metrics",
    guards=[operators_and_near],
    security=[{}, *SECURITY],  # none from the machine itself
    operation_id="metrics",
    summary="What is counted and timed",
    responses={200: answer(str, "Metrics.", media_type="text/plain"), **problem_responses(*PROBLEMS)},
)
async def read_metrics(services: AppServices) -> Response[bytes]:
    """For networks that the operator named, and for operators; docs/metrics.md lists the metrics."""
    found, backlog, counts = await asyncio.gather(services.parts(), services.backlog.answer(), services.counts.answer())
    for part in found:
        if part.needed:
            metrics.PART_UP.of(part.name).set(part.state == "good")
    for state, n in zip(("used", "idle"), database_connections(services.context), strict=True):
        metrics.POOL.of(state).set(n)
    text = generate_latest(metrics.REGISTRIES["own"]) + (counts.value or b"")
    if backlog.value is not None:
        _set(backlog.value)
        text += generate_latest(metrics.REGISTRIES["asked"])
    return Response(text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


def _set(found: QueueLengths) -> None:
    work = found.work
    for state in ("queued", "running"):
        metrics.ADVICES.of(state).set(work.advices.get(state, 0))
    for lane, n in work.lanes.items():
        metrics.ADVICE_LANES.of(lane).set(n)
    for state in ("queued", "leased", "running"):
        metrics.RUNS.of(state).set(work.runs.get(state, 0))
    metrics.ADVICE_AGE.only.set(work.oldest_advice_seconds)
    metrics.RUN_AGE.only.set(work.oldest_run_seconds)
    metrics.HOSTS_ONLINE.only.set(work.hosts_online)
    metrics.QUESTIONS.only.set(work.questions)
    metrics.QUESTION_LATE.only.set(work.question_overdue_seconds)
    metrics.REMOVALS.only.set(work.removal_requests)
    metrics.REMOVAL_AGE.only.set(work.oldest_removal_request_seconds)
    for state in metrics.DIFFERENCES.labels["state"]:
        metrics.DIFFERENCES.of(state).set(found.differences.get(state, 0))
    metrics.WORKERS.only.set(found.n_workers or 0)


router = Router("/", route_handlers=[health, ready, read_metrics], tags=["health"])
