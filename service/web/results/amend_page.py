"""The forms on a result's page: readers say what is wrong with it, its submitter corrects it or takes it back."""

from __future__ import annotations

from typing import Any

from anyio import to_thread
from litestar import Request, Response, Router, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from service.engine.errors import AdvisorError, InvalidInput
from service.flows.results import corrections, moderation
from service.web.pages.forms import Form, converted, field_error, read_form
from service.web.pages.render import HTML, page
from service.web.results.results_page import shown
from service.web.services import Services
from service.wire.problem import problem_of
from service.wire.results.moderation import AbuseReport
from service.wire.results.submissions import Correction

_CHANGED = ("remarks", "hardware", "build")
_FIELDS = {"X-Edit-Key": "key", **{name: name for name in ("kind", "text", "key", *_CHANGED)}}


@post("/results/{result_id:str}/reports", status_code=200)
async def report(
    result_id: FromPath[str], request: Request[Any, Any, Any], services: NamedDependency[Services]
) -> Response[bytes]:
    """Keep what a reader says is wrong with a result. Raises ResultNotFound or RateLimited."""
    await services.count_report(request)
    typed = await read_form(request)
    try:
        said = converted({name: typed.value(name) for name in ("kind", "text") if typed.value(name)}, AbuseReport)
    except InvalidInput as error:
        return await _again(result_id, request, services, typed, error)
    kept = await to_thread.run_sync(moderation.report_abuse, services.context, None, result_id[:64], said)
    text = f"Thank you. An operator looks at it; should you ask about it, it is report `{kept.id}`."
    return page(request, services, "said.html", title="Reported", text=text)


@post("/results/{result_id:str}/changes", status_code=200)
async def change(
    result_id: FromPath[str], request: Request[Any, Any, Any], services: NamedDependency[Services]
) -> Response[Any]:
    """Correct a result with the key in the form, or take it back; only what was typed is changed."""
    typed = await read_form(request)
    key, deletes = typed.value("key")[:200], typed.value("do") == "delete"
    try:
        if deletes:
            await to_thread.run_sync(corrections.delete, services.context, None, key, result_id[:64])
        else:
            asked = converted({name: typed.value(name) for name in _CHANGED if typed.value(name)}, Correction)
            admit = services.admission(request)
            await services.run_reading(corrections.correct, services.context, None, key, result_id[:64], asked, admit)
    except AdvisorError as error:
        return await _again(result_id, request, services, typed, error)
    if deletes:
        text = "Its log, command and remarks are erased; it is shown nowhere and counts for nothing."
        return page(request, services, "said.html", title="Taken back", text=text)
    return Response(b"", status_code=303, media_type=HTML, headers={"Location": f"/results/{result_id}"})


async def _again(
    result_id: str, request: Request[Any, Any, Any], services: Services, typed: Form, error: AdvisorError
) -> Response[bytes]:
    """The page of the result with the error next to its field. Raises ResultNotFound where there is no result."""
    wrong = Form(typed.values, (field_error(error, _FIELDS),))
    return await to_thread.run_sync(shown, result_id, request, services, wrong, problem_of(error).status)


router = Router("/", route_handlers=[report, change])
