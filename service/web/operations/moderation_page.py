"""`/moderation`: an operator's open work and acts, with their token in the form of each request."""

from __future__ import annotations

from typing import NamedTuple

from litestar import Response, Router, get, post

from service.engine.errors import AdvisorError
from service.errors import NotAllowed, NotAuthenticated
from service.flows.context import Records
from service.flows.results import moderation
from service.web.http.types import HttpRequest
from service.web.pages import Form, converted, page, read_form
from service.web.services import AppServices
from service.wire.problem import problem_of
from service.wire.results.moderation import AuditEntry, Moderation, OpenRemovalRequest, OpenReport, QuarantinedResult

_FIELDS = {name: name for name in ("action", "reason", "token")} | {"subject": "named"}


class Queue(NamedTuple):
    """An operator's open work, and past acts."""

    removals: list[OpenRemovalRequest]
    reports: list[OpenReport]
    quarantined: list[QuarantinedResult]
    audit: list[AuditEntry]


@get("/moderation", sync_to_thread=False)
def ask(request: HttpRequest) -> Response[bytes]:
    """The form for an operator's token, without which nothing else is shown."""
    return _shown(request, Form())


@post("/moderation", status_code=200)
async def act(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """Carry out an operator's act, and show the open work. The token is never put into the page."""
    typed = await read_form(request)
    kept = Form({name: value for name, value in typed.values.items() if name != "token"})
    try:
        caller = await services.identified(typed.value("token"))
        caller.require("operator")
    except (NotAuthenticated, NotAllowed) as error:
        wrong = kept.refused(type(error)(error.detail, field="token"), _FIELDS)
        return _shown(request, wrong, status=problem_of(error).status)
    done, status, form = None, 200, Form()
    if typed.value("action"):
        asked = kept.filled(("action", "reason")) | {"subject": kept.value("named") or kept.value("subject")}
        try:
            wanted = converted(asked, Moderation)
            done = await services.run(moderation.moderate, caller.name, wanted)
        except AdvisorError as error:
            form, status = kept.refused(error, _FIELDS), problem_of(error).status
    queue = await services.run(_queue)
    return _shown(request, form, status=status, queue=queue, done=done)


def _queue(context: Records) -> Queue:
    return Queue(
        removals=moderation.open_requests(context),
        reports=moderation.open_reports(context),
        quarantined=moderation.quarantined(context),
        audit=moderation.audit(context),
    )


def _shown(
    request: HttpRequest, form: Form, *, status: int = 200,
    queue: Queue | None = None, done: AuditEntry | None = None,
) -> Response[bytes]:  # fmt: skip
    return page(request, "moderation.html", status=status, form=form, queue=queue, done=done)


router = Router("/", route_handlers=[ask, act])
