"""`/hosts` and `/contributors/{pseudonym}`: public hosts, an owner's hosts and what they gave and got, contributors."""

from __future__ import annotations

from anyio import to_thread
from litestar import Response, Router, get, post
from litestar.params import FromPath

from service.errors import NotAuthenticated
from service.flows.measuring.hosts import OwnHosts, own_hosts
from service.flows.results import leaderboard
from service.web.http.types import HttpRequest
from service.web.pages.forms import Form, read_form
from service.web.pages.render import page
from service.web.services import AppServices, Services
from service.wire.problem import problem_of


@get("/hosts", sync_to_thread=True)
def hosts(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """The public hosts with their figures."""
    return _shown(request, services, Form())


@post("/hosts", status_code=200)
async def own(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """The same, with the hosts of the account whose token was typed. The token is never put into the page."""
    typed = await read_form(request)
    try:
        caller = await services.identified(typed.value("token"))
    except NotAuthenticated as error:
        wrong = Form().refused(NotAuthenticated(error.detail, field="token"), {"token": "token"})  # nosec B105 (a field)
        return await to_thread.run_sync(_shown, request, services, wrong, None, problem_of(error).status)
    mine = await services.run(own_hosts, caller)
    return await to_thread.run_sync(_shown, request, services, Form(), mine)


def _shown(
    request: HttpRequest, services: Services, form: Form, mine: OwnHosts | None = None, status: int = 200
) -> Response[bytes]:
    public = leaderboard.hosts_figures(services.context)
    return page(request, services, "hosts.html", status=status, hosts=public, form=form, mine=mine)


@get("/contributors/{pseudonym:str}", sync_to_thread=True)
def contributor(pseudonym: FromPath[str], request: HttpRequest, services: AppServices) -> Response[bytes]:
    """A contributor's results and hosts. Raises NotOnBoard."""
    return page(request, services, "contributor.html", found=leaderboard.contributor(services.context, pseudonym[:60]))


router = Router("/", route_handlers=[hosts, own, contributor])
