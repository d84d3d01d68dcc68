"""`/results/{id}` and `/compare`: measured figures next to predicted ones and to other results.

`/submit` is the form for a benchmark, previewed before it is stored; `/accuracy` has the errors of all predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from anyio import to_thread
from litestar import Response, Router, get, post
from litestar.params import FromPath
from markupsafe import Markup

from service.engine.check.report import Compared
from service.engine.errors import AdvisorError, InvalidInput
from service.engine.hardware_text.form import to_shorthand
from service.errors import ResultNotFound
from service.flows.results import leaderboard, moderation, read_results, submissions
from service.web.http.limits import MAX_CHECK_BYTES
from service.web.http.types import HttpRequest
from service.web.pages import HTML, FieldError, Form, converted, page, query_of, read_form
from service.web.pictures import MOST_CURVES, Curve, draw
from service.web.services import AppServices, Services
from service.wire.advice.card import fact_of, fact_words
from service.wire.problem import problem_of
from service.wire.results.moderation import AbuseReport
from service.wire.results.results import Result
from service.wire.results.submissions import Correction, Preview, Submission

_MOST_LOG = 16_000  # characters of a log that a result's page shows, to keep it small
_PHASES = (("tg", "Token generation (TG), t/s"), ("pp", "Prompt processing (PP), t/s"))


class DepthRow(msgspec.Struct, frozen=True, kw_only=True):
    """Speeds at one depth: measured (None: not measured), and predicted."""

    n_kv: int
    tg: float | None
    pp: float | None
    tg_said: Compared | None
    pp_said: Compared | None


@get("/results/{result_id:str}", sync_to_thread=True)
def show(result_id: FromPath[str], request: HttpRequest, services: AppServices) -> Response[bytes]:
    """A result. Raises ResultNotFound."""
    return shown(result_id, request, services, Form(), 200)


def shown(result_id: str, request: HttpRequest, services: Services, form: Form, status: int) -> Response[bytes]:
    """Return the page of a result, with the contents of its forms. Raises ResultNotFound."""
    result = read_results.read_result(services.context, result_id[:64])
    log = read_results.read_log(services.context, result.id) if result.has_log else ""
    return page(
        request,
        "result.html",
        status=status,
        form=form,
        history=submissions.history(services.context, result.id),
        result=result,
        rig=to_shorthand(result.hardware),
        rows=depth_rows(result),
        charts=_charts(lambda phase: [_measured("measured", result, phase), _predicted(result, phase)]),
        memory=[c for c in result.outcome.compared if c.what not in ("tg", "pp")],
        log=log[-_MOST_LOG:],
        log_cut=len(log) > _MOST_LOG,
        similar=leaderboard.similar_results(services.context, result.id),
    )


@get("/compare", sync_to_thread=True)
def compare(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """Up to six results side by side. Raises ResultNotFound."""
    ids = _ids(request)
    if len(ids) > MOST_CURVES:
        raise InvalidInput(f"{len(ids)} results were chosen; {MOST_CURVES} can be compared at once", field="ids")
    found, missing = _found(services, ids)
    depths = sorted({row.n_kv for result in found for row in depth_rows(result)})
    return page(
        request,
        "compare.html",
        results=found,
        missing=missing,
        names=[short(result) for result in found],
        depths=depths,
        speeds=[{row.n_kv: row for row in depth_rows(result)} for result in found],
        charts=_charts(lambda phase: [_measured(short(result), result, phase) for result in found]),
    )


def short(result: Result) -> str:
    """Return a result in a few words: the model, the rig and the engine."""
    return f"{result.model.name} {result.model.variant} on {result.rig.name}, {result.engine}"


def depth_rows(result: Result) -> list[DepthRow]:
    """Return the measured speeds by depth, each with the predicted one."""
    said = {(c.what, c.n_kv): c for c in result.outcome.compared}
    return [
        DepthRow(
            n_kv=p.n_kv,
            tg=p.tg_tps or None,
            pp=p.pp_tps or None,
            tg_said=said.get(("tg", p.n_kv)),
            pp_said=said.get(("pp", p.n_kv)),
        )
        for p in result.outcome.speed
    ]


def _ids(request: HttpRequest) -> list[str]:
    pairs = parse_qsl(request.scope["query_string"].decode("latin-1")[:4096])
    texts = [text for name, value in pairs if name == "ids" for text in value.split(",")]
    return list(dict.fromkeys(text.strip()[:64] for text in texts if text.strip()))


def _found(services: Services, ids: Sequence[str]) -> tuple[list[Result], list[str]]:
    """Return the results, and the ids of those that do not exist any more."""
    found: list[Result] = []
    missing: list[str] = []
    for result_id in ids:
        try:
            found.append(read_results.read_result(services.context, result_id))
        except ResultNotFound:
            missing.append(result_id)
    return found, missing


def _charts(curves: Callable[[str], Sequence[Curve]]) -> list[tuple[str, Markup]]:
    return [(title, draw(curves(phase), phase, f"{title} by depth")) for phase, title in _PHASES]


def _measured(name: str, result: Result, phase: str) -> Curve:
    tps = {p.n_kv: p.tg_tps if phase == "tg" else p.pp_tps for p in result.outcome.speed}
    return Curve(name, [(n_kv, speed) for n_kv, speed in sorted(tps.items()) if speed > 0])


def _predicted(result: Result, phase: str) -> Curve:
    said = sorted((c for c in result.outcome.compared if c.what == phase), key=lambda c: c.n_kv or 0)
    points, interval = [(c.n_kv or 0, c.expected) for c in said], [(c.n_kv or 0, c.low, c.high) for c in said]
    return Curve("predicted", points, interval)


_CHANGED = ("remarks", "hardware", "build")
_FIELDS = {"X-Edit-Key": "key", **{name: name for name in ("kind", "text", "key", *_CHANGED)}}


@post("/results/{result_id:str}/reports", status_code=200)
async def report(result_id: FromPath[str], request: HttpRequest, services: AppServices) -> Response[bytes]:
    """Store a reader's report about a result. Raises ResultNotFound or RateLimited."""
    await services.count_report(request)
    typed = await read_form(request)
    try:
        said = converted(typed.filled(("kind", "text")), AbuseReport)
    except InvalidInput as error:
        return await _again(result_id, request, services, typed, error)
    kept = await services.run(moderation.report_abuse, None, result_id[:64], said)
    text = f"Thank you. An operator looks at it; should you ask about it, it is report `{kept.id}`."
    return page(request, "said.html", title="Reported", text=text)


@post("/results/{result_id:str}/changes", status_code=200)
async def change(result_id: FromPath[str], request: HttpRequest, services: AppServices) -> Response[Any]:
    """Correct a result with the key in the form, or delete it; only filled fields change."""
    typed = await read_form(request)
    key, deletes = typed.value("key")[:200], typed.value("do") == "delete"
    try:
        if deletes:
            await services.run(submissions.delete, None, key, result_id[:64])
        else:
            asked = converted(typed.filled(_CHANGED), Correction)
            admit = services.admission(request)
            await services.run_reading(submissions.correct, None, key, result_id[:64], asked, admit)
    except AdvisorError as error:
        return await _again(result_id, request, services, typed, error)
    if deletes:
        text = "Its log, command and remarks are erased; it is shown nowhere and counts for nothing."
        return page(request, "said.html", title="Taken back", text=text)
    return Response(b"", status_code=303, media_type=HTML, headers={"Location": f"/results/{result_id}"})


async def _again(
    result_id: str, request: HttpRequest, services: Services, typed: Form, error: AdvisorError
) -> Response[bytes]:
    """Return the result's page with the error at its field. Raises ResultNotFound."""
    wrong = typed.refused(error, _FIELDS)
    return await to_thread.run_sync(shown, result_id, request, services, wrong, problem_of(error).status)


_SENT = ("text", "command", "hardware", "repo", "revision", "engine", "build", "remarks", "measured_on", "source")


@get("/submit", sync_to_thread=True)
def form(request: HttpRequest) -> Response[bytes]:
    """The form, prefilled from the query."""
    return _form_page(request, Form(query_of(request)), None, 200)


@post("/submit", status_code=200, request_max_body_size=MAX_CHECK_BYTES)
async def submit(request: HttpRequest, services: AppServices) -> Response[Any]:
    """Preview a submission, or with the button `keep`, store it and redirect to the result."""
    typed = await read_form(request)
    admit = services.admission(request)
    try:
        asked = converted(typed.filled(_SENT), Submission)
        if typed.value("do") == "keep":
            await services.count_submission(request, None)
            return await _redirected(services, asked, admit)
        preview = await services.run_reading(submissions.preview, None, asked, admit)
    except AdvisorError as error:
        wrong = typed.refused(error, {name: name for name in _SENT})
        return _form_page(request, wrong, None, problem_of(error).status)
    lacks = tuple(FieldError(one.field if one.field in _SENT else None, one.text) for one in preview.missing)
    return _form_page(request, Form(typed.values, lacks), preview, 200)


async def _redirected(services: Services, asked: Submission, admit: Callable[[], None]) -> Response[Any]:
    kept = await services.run_reading(submissions.submit, None, asked, None, admit)
    key = f"#key={kept.edit_key}" if kept.edit_key else ""  # a fragment appears in no log
    return Response(b"", status_code=303, media_type=HTML, headers={"Location": f"/results/{kept.id}{key}"})


def _form_page(request: HttpRequest, typed: Form, preview: Preview | None, status: int) -> Response[bytes]:
    gpus = preview.hardware.gpus if preview and preview.hardware else ()
    assumed = [fact_words(fact_of(one, gpus)) for one in preview.assumed] if preview else []
    return page(request, "submit.html", status=status, form=typed, preview=preview, assumed=assumed)


@get("/accuracy", sync_to_thread=True)
def accuracy(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """Results compared with the predictions made before them."""
    return page(request, "accuracy.html", found=services.accuracy.read(services.context))


router = Router("/", route_handlers=[show, compare, report, change, form, submit, accuracy])
