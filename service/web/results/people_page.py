"""`/hosts` and `/contributors/{pseudonym}`: public hosts, an owner's hosts and what they gave and got, contributors.

`/hosts/new` is a form that answers with the command to type on a new host.
"""

from __future__ import annotations

from anyio import to_thread
from litestar import Response, Router, get, post
from litestar.params import FromPath

from service.engine.errors import AdvisorError
from service.errors import NotAuthenticated
from service.flows.measuring.hosts import OwnHosts, create_enrolment, own_hosts
from service.flows.results import leaderboard
from service.web.http.types import HttpRequest
from service.web.pages import Form, converted, page, read_form
from service.web.services import AppServices, Services
from service.wire.measuring.hosts import Enrolment, EnrolmentRequest
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
    return page(request, "hosts.html", status=status, hosts=public, form=form, mine=mine)


@get("/contributors/{pseudonym:str}", sync_to_thread=True)
def contributor(pseudonym: FromPath[str], request: HttpRequest, services: AppServices) -> Response[bytes]:
    """A contributor's results and hosts. Raises NotOnBoard."""
    return page(request, "contributor.html", found=leaderboard.contributor(services.context, pseudonym[:60]))


_FIELDS = {name: name for name in ("token", "visibility")}


@get("/hosts/new", sync_to_thread=False)
def ask(request: HttpRequest) -> Response[bytes]:
    """The form."""
    return page(request, "add_host.html", form=Form(), made=None)


@post("/hosts/new", status_code=200)
async def add(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """The command to type on the new machine. The token in the form serves this request and is never put into a
    page."""
    typed = await read_form(request)
    kept = Form({name: value for name, value in typed.values.items() if name != "token"})
    try:
        made = await _enrolment(request, services, typed)
    except AdvisorError as error:
        field = "token" if isinstance(error, NotAuthenticated) else error.field
        wrong = kept.refused(type(error)(error.detail, field=field), _FIELDS)
        return page(request, "add_host.html", status=problem_of(error).status, form=wrong, made=None)
    return page(request, "add_host.html", form=kept, made=made)


async def _enrolment(request: HttpRequest, services: Services, typed: Form) -> Enrolment:
    token = typed.value("token")
    if not token:
        raise NotAuthenticated("this needs a token with the scope `host`", field="token")
    caller = await services.identified(token)
    asked = converted({"visibility": typed.value("visibility") or "private"}, EnrolmentRequest)
    address = services.address(request, "")
    return await services.run(create_enrolment, caller, asked, address)


router = Router("/", route_handlers=[hosts, own, contributor, ask, add])
