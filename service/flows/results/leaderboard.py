"""The leaderboard and its pages: the fastest results, and what models, rigs and contributors have."""

from __future__ import annotations

from typing import Any

import msgspec

from service.engine.errors import InvalidInput
from service.engine.measured.classes import DEPTHS, RAM_CLASSES, VRAM_CLASSES
from service.engine.measured.doubts import is_plausible
from service.engine.measured.identity import machine_name
from service.engine.measured.summary import speed_at
from service.engine.units import GIB
from service.errors import NotOnBoard
from service.flows.context import Context, Records
from service.flows.results.read_results import cursor_of, day_of, list_results, position_in, safe
from service.store import versions
from service.store.results import leaderboard as store
from service.store.results.board import Metric
from service.store.results.leaderboard import LeadingResult, Summed
from service.structs import made_from
from service.wire.results.board import (
    PROVEN,
    Board,
    BoardChoices,
    BoardQuery,
    BoardRow,
    Contributor,
    HardwarePage,
    HostFigures,
    ModelPage,
    NamedSlug,
    Share,
)
from service.wire.results.results import ResultQuery

_LEADING = 20  # rows on a model's or rig's page
_NEWEST = 20  # results on a contributor's


def leaderboard(context: Context, query: BoardQuery) -> Board:
    """Return a page of the board. Raises InvalidInput for an invalid date, a class of memory that there is not, or a
    cursor of another order."""
    for field, gib, classes in (("vram", query.vram, VRAM_CLASSES), ("ram", query.ram, (0, *RAM_CLASSES))):
        if gib is not None and gib not in classes:
            raise InvalidInput(f"there is no class of {gib} GiB", field=field, choices=tuple(map(str, classes)))
    since = day_of(query.since, "since") if query.since else None
    by_time = query.sort == "newest"
    after = position_in(query.cursor, query.sort, is_time=by_time) if query.cursor else None
    rows = store.page(context.engine, query, after, query.limit + 1, since)
    shown = rows[: query.limit]
    following = cursor_of(query.sort, shown[-1].position(query.sort)) if len(rows) > query.limit else None
    metric: Metric = "pp" if query.sort == "pp" else "tg"
    return Board(query=query, rows=[_row(row, query.depth, metric) for row in shown], next=following)


def board_version(context: Records) -> str:
    """Return a text that changes whenever `leaderboard` may return something else."""
    return str(versions.of_results(context.engine))


def choices(context: Context) -> BoardChoices:
    """Return the values that the board can be filtered by."""
    engine = context.engine
    variants = {one.slug.lower(): one.slug for one in reversed(store.names(engine, "variant"))}  # `Q4_0` is `q4_0` too
    return BoardChoices(
        models=[NamedSlug(slug=one.slug, name=safe(one.name)) for one in store.names(engine, "model")],
        rigs=[NamedSlug(slug=one.slug, name=safe(one.name)) for one in store.names(engine, "rig")],
        variants=sorted(variants.values(), key=str.lower),
        archs=[one.slug for one in store.names(engine, "arch")],
        depths=list(DEPTHS),
        vram=list(VRAM_CLASSES),
        ram=list(RAM_CLASSES),
    )


def model_page(context: Context, slug: str, depth: int | None = None) -> ModelPage:
    """Return a model's page. `depth` None: the first depth that was measured. Raises NotOnBoard."""
    name = store.named(context.engine, "model", slug)
    if name is None:
        raise NotOnBoard("no result that is shown is of a model of this name", field="model")
    at, rows, found = _measured(context, depth, model=slug)
    variants = store.summed(context.engine, "variant", at, model=slug)
    rigs = store.summed(context.engine, "rig", at, model=slug)
    known = next(iter(rows), None)
    n_params = known.n_params if known else None
    return ModelPage(
        slug=slug,
        name=safe(name.name),
        arch=known.arch or None if known else None,
        n_params=n_params,
        n_active=known.n_active if known else None,
        n_results=sum(one.n_results for one in variants),
        variants=[_share(one, n_params) for one in sorted(variants, key=lambda one: (-one.bpw, one.slug))],
        rigs=[_share(one) for one in rigs],
        **found,
    )


def hardware_page(context: Context, slug: str, depth: int | None = None) -> HardwarePage:
    """Return a rig's page. `depth` None: the first depth that was measured. Raises NotOnBoard."""
    name = store.named(context.engine, "rig", slug)
    if name is None:
        raise NotOnBoard("no result that is shown is from a rig of this name", field="rig")
    at, rows, found = _measured(context, depth, rig=slug)
    models = store.summed(context.engine, "model", at, rig=slug)
    known = next(iter(rows), None)
    return HardwarePage(
        slug=slug,
        name=safe(name.name),
        vram_mib=known.vram_mib if known else None,
        n_results=sum(one.n_results for one in models),
        models=[_share(one) for one in models],
        **found,
    )


def similar_results(context: Context, result_id: str) -> list[BoardRow]:
    """Return results of the same model on the same rig and on similar ones."""
    return [_row(row) for row in store.similar(context.engine, result_id)]


def contributor(context: Context, pseudonym: str) -> Contributor:
    """Return a contributor's page. Raises NotOnBoard for an unknown or banned one."""
    found = store.contributor(context.engine, pseudonym)
    if found is None:
        raise NotOnBoard("nobody of this name has contributed anything", field="pseudonym")
    return Contributor(
        pseudonym=pseudonym,
        since=found.created_at.date().isoformat(),
        n_results=store.by_tier(context.engine, found.id),
        hosts=[host for host in hosts_figures(context) if host.contributor == pseudonym],
        newest=list_results(context, ResultQuery(contributor=pseudonym, limit=_NEWEST)).results,
    )


def hosts_figures(context: Context) -> list[HostFigures]:
    """Return each public host's figures, those with the most results first."""
    return [
        msgspec.structs.replace(one, rig=safe(one.rig) if one.rig else None, gpu_hours=round(one.gpu_hours, 2))
        for one in store.public_hosts(context.engine)
    ]


def _measured(context: Context, asked: int | None, **of: str) -> tuple[int, list[LeadingResult], dict[str, Any]]:
    """Return a depth, the leading rows there for `model=` or `rig=`, and the fields that both kinds of page share.

    Depths are those with proven results, or if there are none, with any. Shown are the fastest proven results, and
    separately those that nothing confirms.
    """
    engine = context.engine
    depths = store.depths_of(engine, PROVEN, **of) or store.depths_of(engine, "self-reported", **of)
    if asked is not None and asked not in DEPTHS:
        raise InvalidInput(f"speeds are compared at {', '.join(map(str, DEPTHS))} tokens", field="depth")
    depth = asked if asked is not None else next(iter(depths), 0)
    leading, rows = (
        store.page(engine, msgspec.convert({"trust": trust, "depth": depth, **of}, BoardQuery), None, _LEADING)
        for trust in (PROVEN, "self-reported")
    )
    unproven = [row for row in rows if row.tier == "self-reported" and row.origin != "published"]
    shown = {name: [_row(row, depth) for row in them] for name, them in (("leading", leading), ("unproven", unproven))}
    return depth, [*leading, *unproven], {"depth": depth, "depths": depths, **shown}


def _predicted(row: LeadingResult, depth: int | None, metric: Metric) -> dict[str, Any]:
    """Return the prediction of a row if it was for this very machine. A cited result is never called implausible."""
    said = row.prediction if row.prediction and row.prediction.own_rig and row.origin != "published" else None
    point = speed_at(said.speed, depth) if said and depth is not None else None
    if point is None:
        return {}
    low, high = (point.pp_low, point.pp_high) if metric == "pp" else (point.tg_low, point.tg_high)
    return {"predicted_low": low, "predicted_high": high, "plausible": is_plausible(row.value, low, high)}


def _row(row: LeadingResult, depth: int | None = None, metric: Metric = "tg") -> BoardRow:
    texts = {name: safe(text) for name in ("variant", "build", "cpu", "arch") if (text := getattr(row, name))}
    return made_from(
        BoardRow,
        row,
        **texts,
        bpw=row.bpw or None,
        result=row.result_id,
        model=safe(row.model_name),
        rig=safe(machine_name(row.gpus, row.cpu)),
        tg_tps=row.tg,
        pp_tps=row.pp,
        **_predicted(row, depth, metric),
    )


def _share(one: Summed, n_params: int | None = None) -> Share:
    size = round(one.bpw * n_params / 8 / GIB, 2) if one.bpw and n_params else None
    name, bpw = safe(one.label), one.bpw or None
    return made_from(Share, one, name=name, best_tps=one.best, low_tps=one.low, bpw=bpw, size_gib=size)
