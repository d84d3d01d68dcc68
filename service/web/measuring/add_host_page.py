"""`/hosts/new`: a form that answers with the command to type on a new host."""

from __future__ import annotations

from litestar import Response, Router, get, post

from service.engine.errors import AdvisorError
from service.errors import NotAuthenticated
from service.flows.measuring import hosts
from service.web.http.types import HttpRequest
from service.web.pages.forms import Form, converted, read_form
from service.web.pages.render import page
from service.web.services import AppServices, Services
from service.wire.measuring.hosts import Enrolment, EnrolmentRequest
from service.wire.problem import problem_of

_FIELDS = {name: name for name in ("token", "visibility")}


@get("/hosts/new", sync_to_thread=False)
def ask(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """The form."""
    return page(request, services, "add_host.html", form=Form(), made=None)


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
        return page(request, services, "add_host.html", status=problem_of(error).status, form=wrong, made=None)
    return page(request, services, "add_host.html", form=kept, made=made)


async def _enrolment(request: HttpRequest, services: Services, typed: Form) -> Enrolment:
    token = typed.value("token")
    if not token:
        raise NotAuthenticated("this needs a token with the scope `host`", field="token")
    caller = await services.identified(token)
    asked = converted({"visibility": typed.value("visibility") or "private"}, EnrolmentRequest)
    address = services.address(request, "")
    return await services.run(hosts.create_enrolment, caller, asked, address)


router = Router("/", route_handlers=[ask, add])
