"""`/health`: the process answers. `/ready`: so do the parts it needs."""

from __future__ import annotations

from anyio import to_thread
from litestar import Router, get
from litestar.di import NamedDependency
from litestar.openapi.datastructures import ResponseSpec

from service import __version__
from service.errors import ServiceUnavailable
from service.web.operations import Documented
from service.web.problems import problem_responses
from service.web.services import Services
from service.wire.health import Health, Readiness

_MISSING = {
    "database": "the database does not answer",
    "redis": "Redis does not answer",
    "worker": "no worker has been seen lately",
}


@get(
    "/health",
    operation_id="health",
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
        **problem_responses("service-unavailable"),
    },
)
async def ready(services: NamedDependency[Services]) -> Readiness:
    """The database, Redis, and at least one worker; 503 names what is missing, or says that the process is ending."""
    if services.drain.begun:
        raise ServiceUnavailable("this process is ending: ask another")
    found = await to_thread.run_sync(services.flows.readiness)
    missing = [text for part, text in _MISSING.items() if not getattr(found, part)]
    if missing:
        raise ServiceUnavailable("; ".join(missing))
    return found


router = Router("/", route_handlers=[health, ready], tags=["health"])
