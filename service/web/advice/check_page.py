"""`/check`: checks a user's command: its memory, and what is wrong with it."""

from __future__ import annotations

from litestar import Response, Router, get, post

from service.engine.errors import AdvisorError, InvalidInput
from service.flows.advice import check
from service.web.documentation.operations import RIG
from service.web.http.types import HttpRequest
from service.web.pages import Form, converted, page, query_of, read_form
from service.web.pictures import memory_bars
from service.web.services import AppServices
from service.wire.advice.card import fact_of, fact_words
from service.wire.advice.check import Checked, CheckRequest
from service.wire.advice.check_text import fixed_words
from service.wire.problem import problem_of

_FIELDS = {"command": "command", "hardware": "hardware", "repo": "repo", "model": "repo", "build": "build"}


@get("/check", sync_to_thread=True)
def ask(request: HttpRequest) -> Response[bytes]:
    """The form, prefilled from the query."""
    return _page(request, Form(query_of(request)), None, 200)


@post("/check", status_code=200)
async def answer(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """The form with the check below it, or with an error at its field; what was typed is kept."""
    form = await read_form(request)
    try:
        admit = services.admission(request)
        checked = await services.run_reading(check.check_command, _request(form), admit)
    except AdvisorError as error:
        return _page(request, form.refused(error, _FIELDS), None, problem_of(error).status)
    return _page(request, form, checked, 200)


def _request(form: Form) -> CheckRequest:
    for name, what in (("command", "paste the command you use"), ("hardware", "say what it runs on")):
        if not form.value(name):
            raise InvalidInput(what, field=name)
    return converted(form.filled(_FIELDS), CheckRequest)


def _page(request: HttpRequest, form: Form, checked: Checked | None, status: int) -> Response[bytes]:
    picture = memory_bars(checked.memory.devices) if checked else ""
    assumed = [fact_words(fact_of(one, ())) for one in checked.assumed] if checked else []
    gives = fixed_words(checked) if checked else ""
    return page(
        request, "check.html", status=status, form=form, checked=checked, picture=picture, rig=RIG, assumed=assumed,
        gives=gives,
    )  # fmt: skip


router = Router("/", route_handlers=[ask, answer])
