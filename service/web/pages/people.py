"""`/hosts` and `/contributors/{pseudonym}`: who measures, and thanks."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, Router, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from service.web.pages.render import page
from service.web.services import Services


@get("/hosts", sync_to_thread=True)
def hosts(request: Request[Any, Any, Any], services: NamedDependency[Services]) -> Response[bytes]:
    """The public hosts, and what each has done."""
    return page(request, services, "hosts.html", hosts=services.flows.hosts_figures())


@get("/contributors/{pseudonym:str}", sync_to_thread=True)
def contributor(
    pseudonym: FromPath[str], request: Request[Any, Any, Any], services: NamedDependency[Services]
) -> Response[bytes]:
    """What somebody gave. Raises NotOnBoard."""
    return page(request, services, "contributor.html", found=services.flows.contributor(pseudonym[:60]))


router = Router("/", route_handlers=[hosts, contributor])
