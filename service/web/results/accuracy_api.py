"""`/v1/accuracy`: how far predictions were from what was measured."""

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
    """Each result next to what was predicted of it before it was measured: the newest 2,000, every ten minutes."""
    found = await services.run(services.accuracy.read)
    return conditional(request, msgspec.json.encode(found), "application/json", cache_control="public, max-age=600")


router = Router("/", route_handlers=[read_accuracy], tags=["results"])
