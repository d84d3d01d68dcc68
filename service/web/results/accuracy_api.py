"""`/v1/accuracy`: the errors of predictions."""

from __future__ import annotations

import msgspec
from litestar import Response, Router, get

from service.web.documentation.operations import answers
from service.web.http.conditional import conditional
from service.web.http.types import HttpRequest
from service.web.services import AppServices
from service.wire.results.accuracy import Accuracy


@get(
    "/v1/accuracy",
    summary="How good predictions are",
    responses=answers(200, Accuracy, "Errors by class and month, and the worst.", "database-unavailable"),
)
async def read_accuracy(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """Errors of predictions made before the results: the newest 2,000 results, updated every ten minutes."""
    found = await services.run(services.accuracy.read)
    return conditional(request, msgspec.json.encode(found), "application/json", cache_control="public, max-age=600")


router = Router("/", route_handlers=[read_accuracy], tags=["results"])
