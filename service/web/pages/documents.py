"""Documents for whoever programs against this: the API reference, the problems, and files of the site."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from litestar import Request, Response, Router, get
from litestar.di import NamedDependency
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

from service.web.conditional import conditional
from service.web.document import openapi_document, openapi_json
from service.web.pages.render import HTML, STATIC_TYPES, page, rendered, static_files, versioned
from service.web.reference import operations, schemas
from service.web.services import Services
from service.wire.problem import PAGE
from service.wire.problem_types import PROBLEM_TYPES

_FOR_EVER = "public, max-age=31536000, immutable"


@get("/docs", sync_to_thread=True)
def reference(request: Request[Any, Any, Any], services: NamedDependency[Services]) -> Response[bytes]:
    """The API reference, made from the OpenAPI document."""
    return conditional(request, _reference(services.address(request, "/docs")), HTML)


@lru_cache(maxsize=8)  # a tenth of a second each; services that name no address of theirs take it from the request
def _reference(here: str) -> bytes:
    document = openapi_document()
    return rendered("reference.html", here, "/docs", operations=operations(document), schemas=schemas(document))


@get(PAGE, sync_to_thread=False)
def problems(request: Request[Any, Any, Any], services: NamedDependency[Services]) -> Response[bytes]:
    """Every problem, with the way out."""
    return page(request, services, "problems.html", kinds=PROBLEM_TYPES)


@get("/openapi.json", sync_to_thread=True)
def openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The OpenAPI document."""
    return conditional(request, openapi_json(), "application/vnd.oai.openapi+json")


@get("/static/{digest:str}/{name:str}", sync_to_thread=False)
def static(digest: FromPath[str], name: FromPath[str], request: Request[Any, Any, Any]) -> Response[bytes]:
    """A static file under its content's hash."""
    if name not in STATIC_TYPES or versioned(name) != f"/static/{digest}/{name}":
        raise NotFoundException()
    return conditional(request, static_files()[name], STATIC_TYPES[name], cache_control=_FOR_EVER)


@get("/robots.txt", sync_to_thread=False)
def robots() -> Response[str]:
    """What search engines may read: the pages, not the API."""
    return Response("User-agent: *\nDisallow: /v1/\n", media_type="text/plain")


router = Router("/", route_handlers=[reference, problems, openapi, static, robots])
