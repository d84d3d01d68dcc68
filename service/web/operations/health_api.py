"""`/health`: the process answers. `/ready`: so do the parts it needs."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Response, Router, get
from litestar.di import NamedDependency
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example

from service import __version__
from service.errors import ServiceUnavailable
from service.web.documentation.operations import Documented
from service.web.http.problems import problem_response
from service.web.services import Services
from service.wire.health import Health, NotReady, Readiness
from service.wire.problem import MEDIA_TYPE, problem

_NO_STORE = {"Cache-Control": "no-store"}
_EXAMPLE = msgspec.to_builtins(problem("service-unavailable", "database: does not answer in time"))


@get(
    "/health",
    operation_id="health",
    operation_class=Documented,
    summary="Whether the process answers",
    response_description="It does.",
    sync_to_thread=False,
)
def health() -> Health:
    """Looks at nothing else: for restarting what hangs."""
    return Health("ok", __version__)


@get(
    "/ready",
    operation_id="ready",
    operation_class=Documented,
    summary="Whether requests can be served in full",
    responses={
        200: ResponseSpec(Readiness, description="All parts answer.", generate_examples=False),
        503: ResponseSpec(
            NotReady, description="Some do not.", media_type=MEDIA_TYPE, generate_examples=False,
            examples=[Example("service-unavailable", value=_EXAMPLE)],
        ),
    },
)  # fmt: skip
async def ready(services: NamedDependency[Services]) -> Response[Any]:
    """Database, Redis, workers, disk, and bots where there are any: each is given a second and a half.

    503 where one of them is bad, or the process is ending. The Hub is named too, and is no reason for a 503.
    """
    if services.drain.begun:
        raise ServiceUnavailable("this process is ending: ask another")
    parts = await services.parts()
    bad = "; ".join(f"{part.name}: {part.text}" for part in parts if part.needed and part.state == "bad")
    if not bad:
        return Response(Readiness(parts), headers=_NO_STORE)
    what = problem("service-unavailable", bad)
    return problem_response(NotReady(**msgspec.structs.asdict(what), parts=parts), _NO_STORE)


router = Router("/", route_handlers=[health, ready], tags=["health"])
