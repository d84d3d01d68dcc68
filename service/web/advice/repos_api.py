"""`/v1/repos`: a repo's variants and the contents of a header.

A repo is read within the request, in a thread. A process reads four repos from the Hub at once; other requests wait a
few seconds and are then refused with 503 (hub/headers.py). Cached headers need none of this; the flow makes sure that
one repo and commit is read once for all who ask.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response, Router, get
from litestar.params import FromPath, QueryParameter

from service.flows.advice import repos
from service.web.documentation.operations import answers
from service.web.http.conditional import conditional
from service.web.http.problems import HUB_PROBLEMS
from service.web.http.types import HttpRequest
from service.web.services import AppServices
from service.wire.advice.advice import REVISION_PATTERN
from service.wire.advice.repo import RepoView

VariantName = Annotated[
    str | None, QueryParameter(max_length=200, description="The variant whose model is shown; by default the smallest.")
]
Revision = Annotated[
    str | None,
    QueryParameter(
        max_length=200,
        description="Branch, tag or commit; by default main.",
        schema_extra={"pattern": REVISION_PATTERN},
    ),
]


@get(
    "/v1/repos/{owner:str}/{name:str}",
    summary="A repo's variants, and the model of one of them",
    responses=answers(
        200, RepoView, "The repo at one commit.", *("invalid-request", *HUB_PROBLEMS, "service-unavailable")
    ),
)
async def inspect_repo(
    owner: FromPath[str],
    name: FromPath[str],
    request: HttpRequest,
    services: AppServices,
    variant: VariantName = None,
    revision: Revision = None,
) -> Response[Any]:
    """Files, metadata, layers, bytes by role and type, the size of each layer, and cache per token."""
    admit = services.admission(request)
    view = await services.run_reading(repos.inspect, f"{owner}/{name}", revision, variant, admit)
    return conditional(request, msgspec.json.encode(view), "application/json")


router = Router("/", route_handlers=[inspect_repo], tags=["repos"])
