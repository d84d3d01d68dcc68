"""The documentation (guides, API reference, problems, a search over all of it), and static files."""

from __future__ import annotations

from litestar import Response, Router, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

from service.web.documentation import guides
from service.web.documentation.document import openapi_json
from service.web.http.conditional import conditional
from service.web.http.types import HttpRequest
from service.web.pages import STATIC_TYPES, page, query_of, static_files, versioned
from service.wire.problem import PAGE, PROBLEM_TYPES

_FOR_EVER = "public, max-age=31536000, immutable"


# The index in groups; pages in no group are added to the last one.
GROUPS = {
    "Use it": "quickstart pick-a-quant check what-if commands up validation submitting launchers discord slack",
    "Understand it": "offloading memory speed quality planner measuring trust moderation headers recordings rig",
    "Run it": "self-hosting hosts accounts operating scaling runbook security architecture",
    "Look it up": "cli api shapes clients problems rules settings metrics logs data glossary speed-parameters",
}


@get("/docs", sync_to_thread=True)
def index(request: HttpRequest) -> Response[bytes]:
    """All pages of the documentation, or the results of a search."""
    q = query_of(request).get("q", "")[:200].strip()
    return page(request, "docs.html", q=q, found=guides.search(q), groups=_groups(), guides=guides.guides())


def _groups() -> list[tuple[str, list[str]]]:
    """Return the groups, with the pages that this installation has."""
    named = {heading: names.split() for heading, names in GROUPS.items()}
    others = set(guides.guides()) - {"index", *(name for names in named.values() for name in names)}
    named["Look it up"] += sorted(others)
    return [(heading, [name for name in names if name in guides.guides()]) for heading, names in named.items()]


@get("/docs/{name:str}", sync_to_thread=True)
def guide(name: FromPath[str], request: HttpRequest) -> Response[bytes]:
    """A page of the documentation, or a picture on one."""
    drawn = guides.picture(name)
    return conditional(request, drawn, "image/svg+xml") if drawn else _shown(request, name, "")


@get("/docs/{name:str}/{part:str}", sync_to_thread=True)
def guide_part(name: FromPath[str], part: FromPath[str], request: HttpRequest) -> Response[bytes]:
    """One section of a long page."""
    return _shown(request, name, part)


def _shown(request: HttpRequest, name: str, part: str) -> Response[bytes]:
    found = guides.guides().get(name)
    if found is None or not (sections := guides.on_page(found, part)):
        raise NotFoundException()
    return page(
        request,
        "guide.html",
        title=f"{sections[0].heading} – {found.title}" if part else found.title,
        text=guides.html_of(name, part),
        up=(f"/docs/{name}", found.title) if part else None,
        parts=[] if part else guides.parts(found),
    )


@get(PAGE, sync_to_thread=False)
def problems(request: HttpRequest) -> Response[bytes]:
    """Every type of problem, with its remedy."""
    return page(request, "problems.html", kinds=PROBLEM_TYPES)


@get("/openapi.json", sync_to_thread=True)
def openapi(request: HttpRequest) -> Response[bytes]:
    """The OpenAPI document."""
    return conditional(request, openapi_json(), "application/vnd.oai.openapi+json")


@get("/static/{digest:str}/{name:str}", sync_to_thread=False)
def static(digest: FromPath[str], name: FromPath[str], request: HttpRequest) -> Response[bytes]:
    """A static file, under the hash of its content."""
    if name not in STATIC_TYPES or versioned(name) != f"/static/{digest}/{name}":
        raise NotFoundException()
    return conditional(request, static_files()[name], STATIC_TYPES[name], cache_control=_FOR_EVER)


@get("/robots.txt", sync_to_thread=False)
def robots() -> Response[str]:
    """The rules for search engines: pages yes, API no."""
    return Response("User-agent: *\nDisallow: /v1/\n", media_type="text/plain")


router = Router("/", route_handlers=[index, guide, guide_part, problems, openapi, static, robots])
