"""`/results/{id}` and `/compare`: what was measured, next to what was predicted and next to other results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from litestar import Request, Response, Router, get
from litestar.di import NamedDependency
from litestar.params import FromPath
from markupsafe import Markup

from service.engine.advice import SpeedPoint
from service.engine.check.report import Compared
from service.engine.errors import InvalidInput
from service.engine.hardware_text import to_shorthand
from service.errors import ResultNotFound
from service.flows.results import corrections, leaderboard, read_results
from service.web.pages.forms import Form
from service.web.pages.render import page
from service.web.results.curves import MOST_CURVES, Curve, draw
from service.web.services import Services
from service.wire.results.results import Result

_MOST_LOG = 16_000  # characters of a log that its result's page shows: pages stay small
_PHASES = (("tg", "Token generation (TG), t/s"), ("pp", "Prompt processing (PP), t/s"))

KINDS = [
    ("wrong-figures", "The figures cannot be right"),
    ("not-theirs", "Somebody else measured it"),
    ("private", "It shows something private"),
    ("offensive", "It is offensive"),
    ("spam", "It is spam"),
    ("other", "Something else"),
]


class DepthRow(msgspec.Struct, frozen=True, kw_only=True):
    """Speeds at one depth: measured (None: not), and what was predicted."""

    n_kv: int
    tg: float | None
    pp: float | None
    tg_said: Compared | None
    pp_said: Compared | None


@get("/results/{result_id:str}", sync_to_thread=True)
def show(
    result_id: FromPath[str], request: Request[Any, Any, Any], services: NamedDependency[Services]
) -> Response[bytes]:
    """A result. Raises ResultNotFound."""
    return shown(result_id, request, services, Form(), 200)


def shown(
    result_id: str, request: Request[Any, Any, Any], services: Services, form: Form, status: int
) -> Response[bytes]:
    """Return the page of a result, with what was typed into one of its forms. Raises ResultNotFound."""
    result = read_results.read_result(services.context, result_id[:64])
    log = read_results.read_log(services.context, result.id) if result.has_log else ""
    return page(
        request,
        services,
        "result.html",
        status=status,
        form=form,
        kinds=KINDS,
        history=corrections.history(services.context, result.id),
        result=result,
        rig=to_shorthand(result.hardware),
        rows=depth_rows(result),
        charts=_charts_of(result),
        memory=[c for c in result.outcome.compared if c.what not in ("tg", "pp")],
        log=log[-_MOST_LOG:],
        log_cut=len(log) > _MOST_LOG,
        similar=leaderboard.similar_results(services.context, result.id),
    )


@get("/compare", sync_to_thread=True)
def compare(request: Request[Any, Any, Any], services: NamedDependency[Services]) -> Response[bytes]:
    """Up to six results side by side. Raises ResultNotFound."""
    ids = _ids(request)
    if len(ids) > MOST_CURVES:
        raise InvalidInput(f"{len(ids)} results were chosen; {MOST_CURVES} can be compared at once", field="ids")
    found, missing = _found(services, ids)
    depths = sorted({row.n_kv for result in found for row in depth_rows(result)})
    return page(
        request,
        services,
        "compare.html",
        results=found,
        missing=missing,
        names=[short(result) for result in found],
        depths=depths,
        speeds=[{row.n_kv: row for row in depth_rows(result)} for result in found],
        charts=_charts([(short(result), result.outcome.speed) for result in found]),
    )


def short(result: Result) -> str:
    """Return a result in a few words: what, on what, with what."""
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


def _ids(request: Request[Any, Any, Any]) -> list[str]:
    pairs = parse_qsl(request.scope["query_string"].decode("latin-1")[:4096])
    texts = [text for name, value in pairs if name == "ids" for text in value.split(",")]
    return list(dict.fromkeys(text.strip()[:64] for text in texts if text.strip()))


def _found(services: Services, ids: Sequence[str]) -> tuple[list[Result], list[str]]:
    """The results, and the ids of those that are not there any more."""
    found: list[Result] = []
    missing: list[str] = []
    for result_id in ids:
        try:
            found.append(read_results.read_result(services.context, result_id))
        except ResultNotFound:
            missing.append(result_id)
    return found, missing


def _charts(series: Sequence[tuple[str, Sequence[SpeedPoint]]]) -> list[tuple[str, Markup]]:
    drawn = []
    for phase, title in _PHASES:
        curves = [Curve(name, _points(speed, phase)) for name, speed in series]
        drawn.append((title, draw(curves, phase, f"{title} by depth")))
    return drawn


def _charts_of(result: Result) -> list[tuple[str, Markup]]:
    """What was measured, and the predicted curve with its interval below it."""
    drawn = []
    for phase, title in _PHASES:
        said = sorted((c for c in result.outcome.compared if c.what == phase), key=lambda c: c.n_kv or 0)
        predicted = Curve(
            "predicted",
            [(c.n_kv or 0, c.expected) for c in said],
            [(c.n_kv or 0, c.low, c.high) for c in said],
        )
        curves = [Curve("measured", _points(result.outcome.speed, phase)), predicted]
        drawn.append((title, draw(curves, phase, f"{title} by depth")))
    return drawn


def _points(speed: Sequence[SpeedPoint], phase: str) -> list[tuple[float, float]]:
    tps = {p.n_kv: p.tg_tps if phase == "tg" else p.pp_tps for p in speed}
    return [(n_kv, speed) for n_kv, speed in sorted(tps.items()) if speed > 0]


router = Router("/", route_handlers=[show, compare])
