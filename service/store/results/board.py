"""Maintains the board's tables: updated in the transaction that changes a result, and rebuildable from results.

A *group* is what the board never mixes: one variant on cards, memory and platform of one kind, with one engine. For
each group, depth and trust, the leading results are kept: the fastest, and slower ones that are newer than every faster
one. So the best since any day, at any trust, is found without looking at the other results.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, TypeAlias

import msgspec
from sqlalchemy import Connection, Engine, Row, Select, and_, delete, insert, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from service.engine.config import Engine as EngineName
from service.engine.hardware import Hardware
from service.engine.measured.classes import DEPTHS, platform_of, ram_class, speeds_by_depth, vram_class
from service.engine.measured.identity import machine_name
from service.engine.measured.rows import MeasuredRow
from service.store import versions
from service.store.engines import exclude, locked
from service.store.queries import converted
from service.store.results.board_tables import board, board_name, result_speed
from service.store.tables import account, host, result
from service.store.viewers import ANYBODY, may_see
from service.wire.measuring.runs import TrustTier
from service.wire.results.board import PROVEN, BoardTrust

Metric: TypeAlias = Literal["tg", "pp"]
NameKind: TypeAlias = Literal["model", "rig", "variant", "arch"]

NAMED: dict[NameKind, Any] = {
    "model": board.c.model_slug,
    "rig": board.c.rig_slug,
    "variant": board.c.variant,
    "arch": board.c.arch,
}
FLOORS: dict[TrustTier, int] = {"self-reported": 0, "agent-run": 1, "replicated": 2}
TRUSTS: dict[BoardTrust, int] = {"self-reported": 0, "agent-run": 1, "replicated": 2, "published": 3}
"""A page's trust: at least a tier; or everything but self-reported results, including published ones."""
_METRICS: tuple[Metric, ...] = ("tg", "pp")
_FILED = (
    result.c.model_slug,
    result.c.model_name,
    result.c.arch,
    result.c.variant,
    result.c.bpw,
    result.c.engine,
    result.c.rig_slug,
    result.c.gpus,
    result.c.vram_mib,
    result.c.ram_gib,
    result.c.origin,
)
_BATCH = 1000
_REBUILDING = 7_268_342  # an arbitrary number that no other lock uses
_FEW = 200


class FiledResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result's classification and figures: columns of `result`."""

    id: str
    tier: TrustTier
    model_slug: str
    model_name: str
    arch: str | None = None
    variant: str
    engine: EngineName
    rig_slug: str
    gpus: str
    vram_mib: int
    cpu: str | None = None
    ram_gib: int | None = None
    hardware: Hardware
    rows: list[MeasuredRow]
    measured_at: datetime


class _Counted(FiledResult, frozen=True, kw_only=True):
    """The part of a result needed to enter it. `counts`: whether it is on the board."""

    counts: bool


def slice_of(metric: Metric, depth: int, trust: BoardTrust) -> int:
    """Return the number of a slice, for a phase, one of DEPTHS, and a minimum trust."""
    return _METRICS.index(metric) * 100 + DEPTHS.index(depth) * 10 + TRUSTS[trust]


def _is_trusted(row: Row[Any], trust: BoardTrust) -> bool:
    if trust == "published":
        return bool(row.origin == "published" or row.floor >= FLOORS["agent-run"])
    return bool(row.floor >= TRUSTS[trust])


def counts() -> Any:
    """Return the condition for being on the board: shown, of a public host or none, of no banned account."""
    shown = result.c.state == "shown", result.c.failure.is_(None)
    return and_(*shown, may_see(ANYBODY), account.c.banned_at.is_(None))


def keep(connection: Connection, *result_ids: str) -> None:
    """Enter results as they are now, or remove them, and update the leaders of their groups.

    Part of the caller's transaction, which on PostgreSQL locks the groups until it ends.
    """
    versions.count_change(connection)
    found = connection.execute(_to_enter().where(result.c.id.in_(result_ids)))
    several = [one for row in found if (one := converted(row, _Counted)).counts]
    entered = [row for one in several for row in _entered(one)]
    its_groups = select(result_speed.c.group_key).where(result_speed.c.result_id.in_(result_ids)).distinct()
    before = connection.scalars(its_groups).all()
    groups = sorted({*before, *(row["group_key"] for row in entered)})
    exclude(connection, *groups)
    known = _known_names(connection, groups)
    connection.execute(delete(result_speed).where(result_speed.c.result_id.in_(result_ids)))
    if entered:
        connection.execute(insert(result_speed), entered)
    for group in groups:
        connection.execute(delete(board).where(board.c.group_key == group))
        rows = connection.execute(_speeds().where(result_speed.c.group_key == group)).all()
        if leads := list(_leads(rows)):
            connection.execute(insert(board), leads)
    # Names that no result on the board has any more go, so that removed results are not found by them.
    for kind, slug in sorted(known):
        if connection.scalar(select(board.c.slice).where(NAMED[kind] == slug).limit(1)) is None:
            connection.execute(delete(board_name).where(board_name.c.kind == kind, board_name.c.slug == slug))
    _add_names(connection, {name for one in several if one.rows for name in _names(one)})


def keep_of(connection: Connection, host_id: str) -> None:
    """Call `keep` for every result of a host, after its visibility changed."""
    versions.count_change(connection)
    ids = connection.scalars(select(result.c.id).where(result.c.host_id == host_id).order_by(result.c.id)).all()
    for first in range(0, len(ids), _FEW):
        keep(connection, *ids[first : first + _FEW])


def bring_up_to_date(engine: Engine) -> None:
    """Rebuild the tables if an older version filled them, which knew fewer kinds of trust."""
    with locked(engine, _REBUILDING) as connection:  # one of several processes that start at once
        led = [slice_of(metric, depth, PROVEN) for metric in _METRICS for depth in DEPTHS]
        proven = or_(result_speed.c.floor >= FLOORS["agent-run"], result.c.origin == "published")
        counted = select(result_speed.c.result_id).join(result, result.c.id == result_speed.c.result_id).where(proven)
        if connection.scalar(counted.limit(1)) is None:
            return
        if connection.scalar(select(board.c.slice).where(board.c.slice.in_(led)).limit(1)) is None:
            rebuild(connection)


def rebuild(connection: Connection) -> int:
    """Rebuild the board's tables from the results, within a transaction of `locked`; return how many count."""
    n_results = 0
    versions.count_change(connection)
    for table in (board, board_name, result_speed):
        connection.execute(delete(table))
    names: set[tuple[str, str, str]] = set()
    for several in _batches(connection):
        n_results += len(several)
        names.update(name for one in several for name in _names(one))
        entered = [row for one in several for row in _entered(one)]
        if entered:
            connection.execute(insert(result_speed), entered)
    _insert(connection, board, _all_leads(connection))
    _insert(connection, board_name, map(_name_row, {name[:2]: name for name in sorted(names)}.values()))
    return n_results


def _to_enter() -> Select[Any]:
    fields = [column for column in result.c if column.name in _Counted.__struct_fields__]
    wanted = select(*fields, counts().label("counts")).outerjoin(host, host.c.id == result.c.host_id)
    return wanted.outerjoin(account, account.c.id == result.c.account_id)


def _batches(connection: Connection) -> Iterator[list[_Counted]]:
    last = ""
    while True:
        wanted = _to_enter().where(result.c.id > last, counts()).order_by(result.c.id).limit(_BATCH)
        rows = connection.execute(wanted).all()
        if not rows:
            return
        yield [converted(row, _Counted) for row in rows]
        last = rows[-1].id


def _entered(one: _Counted) -> list[dict[str, Any]]:
    platform = platform_of(one.hardware)
    key = _key(one.model_slug, one.variant, one.rig_slug, ram_class(one.ram_gib), platform, one.engine)
    shared = {"result_id": one.id, "group_key": key, "platform": platform, "floor": FLOORS[one.tier]}
    return [
        {**shared, "depth": at.depth, "tg": at.tg_tps, "pp": at.pp_tps, "measured_at": one.measured_at}
        for at in speeds_by_depth(one.rows)
    ]


def _key(*parts: str | int) -> int:
    """Return a hash as a 64-bit signed integer, as databases store it."""
    return int.from_bytes(hashlib.sha256(msgspec.json.encode(parts)).digest()[:8], signed=True)


def _speeds() -> Select[Any]:
    return select(result_speed, *_FILED).join(result, result.c.id == result_speed.c.result_id)


def _all_leads(connection: Connection) -> Iterator[dict[str, Any]]:
    wanted = _speeds().order_by(result_speed.c.group_key).execution_options(yield_per=_BATCH)
    rows = connection.execute(wanted)
    for _, several in groupby(rows, key=attrgetter("group_key")):
        yield from _leads(list(several))


def _leads(rows: Sequence[Row[Any]]) -> Iterator[dict[str, Any]]:
    """Yield the board's rows of one group."""
    for depth, metric in ((depth, metric) for depth in DEPTHS for metric in _METRICS):
        measured = [row for row in rows if row.depth == depth and getattr(row, metric) is not None]
        measured.sort(key=lambda row: (getattr(row, metric), row.result_id), reverse=True)
        for trust in TRUSTS:
            trusted = [row for row in measured if _is_trusted(row, trust)]
            values = [getattr(row, metric) for row in trusted]
            for place, row in enumerate(_newer_than_faster(trusted)):
                yield _lead(row, metric, slice_of(metric, depth, trust), place, values)


def _newer_than_faster(rows: Sequence[Row[Any]]) -> Iterator[Row[Any]]:
    newest: datetime | None = None
    for row in rows:
        if newest is None or row.measured_at > newest:
            newest = row.measured_at
            yield row


def _lead(row: Row[Any], metric: Metric, its_slice: int, place: int, values: Sequence[float]) -> dict[str, Any]:
    same = "group_key result_id tg pp measured_at model_slug variant engine rig_slug platform"
    return {
        **{name: getattr(row, name) for name in same.split()},
        "slice": its_slice,
        "place": place,
        "lead_key": _key(row.model_slug, row.rig_slug, row.engine),
        "value": getattr(row, metric),
        "arch": row.arch or "",
        "bpw": row.bpw or 0.0,
        "vram_class": vram_class(row.vram_mib),
        "ram_class": ram_class(row.ram_gib),
        "n_results": len(values),
        "low": values[-1],
        "middle": statistics.median(values),
        "high": values[0],
    }


def _insert(connection: Connection, table: Any, rows: Iterable[dict[str, Any]]) -> None:
    batch: list[dict[str, Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            connection.execute(insert(table), batch)
            batch = []
    if batch:
        connection.execute(insert(table), batch)


def _names(one: _Counted) -> list[tuple[str, str, str]]:
    """Return the names under which a result is found: kind, slug, label."""
    model, rig = ("model", one.model_slug, one.model_name), ("rig", one.rig_slug, machine_name(one.gpus, one.cpu))
    archs = [("arch", one.arch, one.arch)] if one.arch else []
    return [model, rig, ("variant", one.variant, one.variant), *archs]


def _name_row(name: tuple[str, str, str]) -> dict[str, str]:
    kind, slug, label = name
    return {"kind": kind, "slug": slug, "label": label, "searched": f"{label} {slug}".lower()}


def _known_names(connection: Connection, groups: Sequence[int]) -> set[tuple[NameKind, str]]:
    rows = connection.execute(select(*NAMED.values()).where(board.c.group_key.in_(groups)).distinct()).all()
    return {(kind, slug) for row in rows for kind, slug in zip(NAMED, row, strict=True)}


def _add_names(connection: Connection, names: Iterable[tuple[str, str, str]]) -> None:
    for name in sorted(names):
        here = and_(board_name.c.kind == name[0], board_name.c.slug == name[1])
        if connection.scalar(select(board_name.c.slug).where(here)) is None:
            connection.execute(_added(connection, name))


def _added(connection: Connection, name: tuple[str, str, str]) -> Any:
    if connection.dialect.name == "postgresql":
        return postgresql.insert(board_name).values(_name_row(name)).on_conflict_do_nothing()
    return sqlite.insert(board_name).values(_name_row(name)).on_conflict_do_nothing()
