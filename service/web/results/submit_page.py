"""`/submit`: a form for a benchmark, previewed before it is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from litestar import Response, Router, get, post

from service.engine.errors import AdvisorError
from service.flows.results import submissions
from service.web.http.limits import MAX_CHECK_BYTES
from service.web.http.types import HttpRequest
from service.web.pages.forms import FieldError, Form, converted, query_of, read_form
from service.web.pages.render import HTML, page
from service.web.services import AppServices, Services
from service.wire.problem import problem_of
from service.wire.results.submissions import Preview, Submission

_FIELDS = ("text", "command", "hardware", "repo", "revision", "engine", "build", "remarks", "measured_on", "source")


@get("/submit", sync_to_thread=True)
def form(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """The form, prefilled from the query."""
    return _shown(request, services, Form(query_of(request)), None, 200)


@post("/submit", status_code=200, request_max_body_size=MAX_CHECK_BYTES)
async def submit(request: HttpRequest, services: AppServices) -> Response[Any]:
    """Preview a submission, or with the button `keep`, store it and redirect to the result."""
    typed = await read_form(request)
    admit = services.admission(request)
    try:
        asked = converted(typed.filled(_FIELDS), Submission)
        if typed.value("do") == "keep":
            await services.count_submission(request, None)
            return await _kept(services, asked, admit)
        preview = await services.run_reading(submissions.preview, None, asked, admit)
    except AdvisorError as error:
        wrong = typed.refused(error, {name: name for name in _FIELDS})
        return _shown(request, services, wrong, None, problem_of(error).status)
    lacks = tuple(FieldError(one.field if one.field in _FIELDS else None, one.text) for one in preview.missing)
    return _shown(request, services, Form(typed.values, lacks), preview, 200)


async def _kept(services: Services, asked: Submission, admit: Callable[[], None]) -> Response[Any]:
    kept = await services.run_reading(submissions.submit, None, asked, None, admit)
    key = f"#key={kept.edit_key}" if kept.edit_key else ""  # a fragment appears in no log
    return Response(b"", status_code=303, media_type=HTML, headers={"Location": f"/results/{kept.id}{key}"})


def _shown(
    request: HttpRequest, services: Services, typed: Form, preview: Preview | None, status: int
) -> Response[bytes]:
    return page(request, services, "submit.html", status=status, form=typed, preview=preview)


router = Router("/", route_handlers=[form, submit])
