"""`/leaderboard`, `/models/{slug}` and `/hardware/{slug}`: the fastest results, of a model, or on a rig."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
from litestar import Response, Router, get
from litestar.params import FromPath
from markupsafe import Markup

from service.engine.errors import InvalidInput
from service.flows.results import leaderboard
from service.web.http.types import HttpRequest
from service.web.pages import Form, converted, field_error, page, query_of
from service.web.pictures import Bar, draw_bars
from service.web.services import AppServices
from service.wire.results.board import Board, BoardChoices, BoardQuery, NamedSlug, Share

_NAMES = tuple(field.name for field in msgspec.structs.fields(BoardQuery))
_FIELDS = tuple(name for name in _NAMES if name not in ("limit", "cursor"))
_MORE = ("model", "arch", "variant", "vram", "ram", "platform", "trust", "sort", "since")
_MOST_BARS = 10
_MOST_NAMES = 150  # options of a filter, to keep the page small; the search finds the rest
_SORTS = {"tg": "TG, t/s", "pp": "PP, t/s", "bits": "Bits", "newest": "Measured"}


@get("/leaderboard", sync_to_thread=True)
def read_board(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """The fastest results, filtered and sorted by the query, which is the page's address."""
    typed = {name: text for name, text in query_of(request).items() if name in _NAMES}
    try:
        board, wrong = leaderboard.leaderboard(services.context, converted(typed, BoardQuery)), None
    except InvalidInput as error:
        board, wrong = Board(query=BoardQuery(), rows=[]), field_error(error, {name: name for name in _FIELDS})
    return page(
        request,
        "leaderboard.html",
        status=422 if wrong else 200,
        form=Form(typed, (wrong,) if wrong else ()),
        board=board,
        choices=_choices(leaderboard.choices(services.context), typed),
        sorts=_sorts(typed),
        sort=board.query.sort,
        further=_link({**typed, "cursor": board.next}) if board.next else "",
        unverified=_link({**{name: typed[name] for name in typed if name != "cursor"}, "trust": "self-reported"}),
        api=f"/v1{_link(typed)}",
        more=any(name in typed for name in _MORE),
        filtered=bool(set(typed) - {"sort", "limit", "cursor"}),
    )


@get("/models", sync_to_thread=True)
def models(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """The measured models whose name contains the words of `q`."""
    found = leaderboard.choices(services.context).models
    return _names(request, "Models", "Models that somebody has measured, and what runs them.", found)


@get("/hardware", sync_to_thread=True)
def rigs(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """The measured hardware whose name contains the words of `q`."""
    found = leaderboard.choices(services.context).rigs
    return _names(request, "Hardware", "Hardware that somebody has measured, and what it runs.", found)


def _names(request: HttpRequest, title: str, text: str, names: Sequence[NamedSlug]) -> Response[bytes]:
    q = query_of(request).get("q", "")[:200]
    found = [one for one in names if all(word in one.name.lower() for word in q.lower().split())]
    more = max(len(found) - _MOST_NAMES, 0)
    return page(request, "names.html", title=title, text=text, q=q, found=found[:_MOST_NAMES], more=more)


@get("/models/{slug:str}", sync_to_thread=True)
def model(slug: FromPath[str], request: HttpRequest, services: AppServices) -> Response[bytes]:
    """A model's results. Raises NotOnBoard."""
    found = leaderboard.model_page(services.context, slug[:200], _depth(request))
    return page(request, "model.html", found=found, picture=_speeds(found.rigs, "Fastest TG by rig"))


@get("/hardware/{slug:str}", sync_to_thread=True)
def hardware(slug: FromPath[str], request: HttpRequest, services: AppServices) -> Response[bytes]:
    """A rig's results. Raises NotOnBoard."""
    found = leaderboard.hardware_page(services.context, slug[:200], _depth(request))
    picture, ask = _speeds(found.models, "Fastest TG by model"), f"/?{urlencode({'gpus': found.name})}"
    return page(request, "hardware.html", found=found, ask=ask, picture=picture)


def _speeds(shares: Sequence[Share], title: str) -> Markup:
    """Return bars of the fastest shares, empty if there are fewer than two to compare."""
    fastest = sorted(shares, key=lambda one: -one.best_tps)[:_MOST_BARS]
    if len(fastest) < 2:
        return Markup("")
    most = fastest[0].best_tps
    bars = [Bar(one.name[:60], f"{one.best_tps:,.1f} t/s", [one.best_tps], most) for one in fastest]
    return draw_bars(bars, ["TG, t/s"], "speeds", title)


def _choices(found: BoardChoices, typed: Mapping[str, str]) -> dict[str, list[tuple[str, str]]]:
    """Return each filter's options as (value, text): at most 150 names, always including the chosen one."""
    names = {
        "rig": [(one.slug, one.name) for one in found.rigs],
        "model": [(one.slug, one.name) for one in found.models],
        "variant": [(name, name) for name in found.variants],
        "arch": [(name, name) for name in found.archs],
        "vram": [(str(gib), str(gib)) for gib in found.vram],
        "ram": [(str(gib), str(gib)) for gib in found.ram],
    }
    offered = {"depth": [(str(depth), f"{depth:,}") for depth in found.depths]}
    for name, options in names.items():
        chosen = typed.get(name, "")
        kept = [option for i, option in enumerate(options) if i < _MOST_NAMES or option[0] == chosen]
        unknown = [] if not chosen or chosen in dict(options) else [(chosen, chosen)]
        offered[name] = [("", "Any"), *kept, *unknown]
    return offered


def _depth(request: HttpRequest) -> int | None:
    text = query_of(request).get("depth", "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InvalidInput("a depth is a number of tokens", field="depth")
    return int(text)


def _sorts(typed: dict[str, str]) -> list[tuple[str, str, str]]:
    """Return the columns that the board can be sorted by: (name, title, address)."""
    kept = {name: text for name, text in typed.items() if name not in ("sort", "cursor")}
    return [(name, title, _link({**kept, "sort": name})) for name, title in _SORTS.items()]


def _link(fields: dict[str, Any]) -> str:
    return f"/leaderboard?{urlencode(fields)}" if fields else "/leaderboard"


router = Router("/", route_handlers=[read_board, models, rigs, model, hardware])
