"""Pages for people: what this is, the API reference, the problems. No script, nothing from outside."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from litestar import Request, Response, Router, get
from litestar.di import NamedDependency
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from markupsafe import Markup, escape

from service import __version__
from service.web.conditional import conditional
from service.web.document import openapi_document, openapi_json
from service.web.examples import REPO, RIG
from service.web.reference import operations, schemas
from service.web.services import Services
from service.wire.problem import PAGE
from service.wire.problem_types import PROBLEM_TYPES

_HTML = "text/html"
_STATIC_TYPES = {"style.css": "text/css", "icon.svg": "image/svg+xml"}
_CODE = re.compile(r"`([^`]{1,200})`")
_FOR_EVER = "public, max-age=31536000, immutable"
_environment = jinja2.Environment(
    loader=jinja2.PackageLoader("service.web"), autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined
)


def _prose(text: str) -> Markup:
    """Return `text` for HTML, with what stands in backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 (escaped before)


_environment.filters["prose"] = _prose


@cache
def static_files() -> dict[str, bytes]:
    """Return the static files by name."""
    folder = resources.files("service.web") / "static"
    return {name: (folder / name).read_bytes() for name in _STATIC_TYPES}


@cache
def versioned(name: str) -> str:
    """Return the path of a static file, which changes with its content."""
    return f"/static/{hashlib.sha256(static_files()[name]).hexdigest()[:12]}/{name}"


def _page(request: Request[Any, Any, Any], template: str, **values: Any) -> Response[bytes]:
    text = _environment.get_template(template).render(versioned=versioned, version=__version__, **values)
    return conditional(request, text.encode(), _HTML)


@get("/", sync_to_thread=False)
def start(request: Request[Any, Any, Any], services: NamedDependency[Services]) -> Response[bytes]:
    """What this is, and the lines to paste."""
    body = json.dumps({"repo": REPO, "hardware": RIG})
    return _page(request, "start.html", address=services.address(request, ""), body=body, repo=REPO, rig=RIG)


@get("/docs", sync_to_thread=False)
def reference(request: Request[Any, Any, Any], services: NamedDependency[Services]) -> Response[bytes]:
    """The API reference, made from the OpenAPI document."""
    document = openapi_document()
    address = services.address(request, "")
    return _page(request, "reference.html", operations=operations(document), schemas=schemas(document), address=address)


@get(PAGE, sync_to_thread=False)
def problems(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Every problem, with the way out."""
    return _page(request, "problems.html", kinds=PROBLEM_TYPES)


@get("/openapi.json", sync_to_thread=False)
def openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The OpenAPI document."""
    return conditional(request, openapi_json(), "application/vnd.oai.openapi+json")


@get("/static/{digest:str}/{name:str}", sync_to_thread=False)
def static(digest: FromPath[str], name: FromPath[str], request: Request[Any, Any, Any]) -> Response[bytes]:
    """A static file under its content's hash."""
    if name not in _STATIC_TYPES or versioned(name) != f"/static/{digest}/{name}":
        raise NotFoundException()
    return conditional(request, static_files()[name], _STATIC_TYPES[name], cache_control=_FOR_EVER)


@get("/robots.txt", sync_to_thread=False)
def robots() -> Response[str]:
    """What search engines may read: the pages, not the API."""
    return Response("User-agent: *\nDisallow: /v1/\n", media_type="text/plain")


router = Router("/", route_handlers=[start, reference, problems, openapi, static, robots])
