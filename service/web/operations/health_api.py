"""`/health` says that the process answers, `/ready` that the parts it needs do."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Response, Router, get
from litestar.openapi.spec import Example

from service import __version__
from service.errors import ServiceUnavailable
from service.web.documentation.operations import answer
from service.web.http.problems import problem_response
from service.web.services import AppServices
from service.wire.health import Health, NotReady, Readiness
from service.wire.problem import MEDIA_TYPE, problem

_EXAMPLE = msgspec.to_builtins(problem("service-unavailable", "database: does not answer in time"))


@get(
    "/health",
    summary="Whether the process answers",
    response_description="It does.",
    sync_to_thread=False,
)
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

    503 if one of them is bad, or the process is ending. The Hub is listed too, but never causes a 503.
    """
    if services.drain.begun:
        raise ServiceUnavailable("this process is ending: ask another")
    parts = await services.parts()
    bad = "; ".join(f"{part.name}: {part.text}" for part in parts if part.needed and part.state == "bad")
    if not bad:
        return Response(Readiness(parts))
    what = problem("service-unavailable", bad)
    return problem_response(NotReady(**msgspec.structs.asdict(what), parts=parts))


router = Router("/", route_handlers=[health, ready], tags=["health"])
