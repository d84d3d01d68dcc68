"""Queries of the board: pages of leading results, names to choose from, sums for models and rigs, and contributors.

Every page costs the same: it starts behind the last row of the previous one, in the order of an index. A row is shown
if it is the fastest of its model, rig and engine among the rows asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
from sqlalchemy import ColumnElement, Connection, Engine, Select, and_, false, func, or_, select, tuple_, union

from service.engine.measured.classes import DEPTHS, Platform, vram_class
from service.engine.measured.identity import slug_of
from service.engine.measured.roofline import Prediction
from service.store.accounts import StoredAccount
from service.store.queries import converted, is_name, one, rows, several, shown
from service.store.results.board import NAMED, Metric, NameKind, slice_of
from service.store.results.board_tables import board, board_name, result_speed
from service.store.tables import account, host, result, run
from service.store.viewers import ANYBODY, may_see
from service.wire.measuring.runs import TrustTier
from service.wire.results.board import PROVEN, BoardQuery, BoardTrust, HostFigures, NamedSlug, Sort
from service.wire.results.results import Published, ResultOrigin

Position: TypeAlias = tuple[float | datetime, str]

_COLUMN: dict[Sort, Any] = {
    "tg": board.c.value,
    "pp": board.c.value,
    "newest": board.c.measured_at,
    "bits": board.c.bpw,
}
_Found: TypeAlias = dict[NameKind, list[str]]
_FEW = 1_000  # rows of a slice, which are sorted in milliseconds
_MERGED = 12  # names up to which each one's first rows are merged; of more names, some are fast enough anyway
_MOST_NAMES = 100  # considered for one word of a search
_MOST_WORDS = 6
_MOST_LISTED = 500  # names to choose from
_MOST_ALIKE = 8
_NAMES = select(board_name.c.slug, board_name.c.label.label("name"))


class LeadingResult(msgspec.Struct, frozen=True, kw_only=True):
    """A leading result as the board shows it. `low` to `high`: the spread of `value` over `n_results` like it."""

    result_id: str
    value: float
    tg: float | None
    pp: float | None
    bpw: float
    model_slug: str
    model_name: str
    arch: str
    n_params: int | None
    n_active: int | None
    variant: str
    engine: str
    build: str | None
    rig_slug: str
    gpus: str
    vram_mib: int
    cpu: str | None
    ram_gib: int | None
    platform: Platform
    tier: TrustTier
    origin: ResultOrigin
    published: Published | None
    prediction: Prediction | None
    contributor: str | None
    measured_at: datetime
    n_results: int
    low: float
    high: float

    def position(self, order: Sort) -> Position:
        """Return this row's position in an order."""
        keys: dict[Sort, float | datetime] = {"newest": self.measured_at, "bits": self.bpw}
        return keys.get(order, self.value), self.result_id


class Summed(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over a model's results for a variant or on a rig, or a rig's for a model: the best, the spread, the
    number."""

    slug: str
    label: str
    best: float
    low: float
    n_results: int
    bpw: float


def page(
    engine: Engine, asked: BoardQuery, after: Position | None, limit: int, since: datetime | None = None
) -> list[LeadingResult]:
    """Return the leading rows of a query after a position. `since`: the start of the day asked for."""
    order = asked.sort
    metric: Metric = "pp" if order == "pp" else "tg"
    at = slice_of(metric, asked.depth, asked.trust)
    with engine.connect() as connection:
        words = [_names_with(connection, word) for word in (asked.q or "").split()[:_MOST_WORDS]]
        if asked.variant is not None:
            words.append({"variant": _variants(connection, asked.variant)})
        conditions = [board.c.slice == at, *_of_group(asked), *_of_result(asked, board.c), _leads(asked, words, since)]
        picked = min(words, key=_n_names, default=None)
        picked = picked if picked is not None and _n_names(picked) <= _MERGED else None
        conditions += [_has(names, _Unindexed(board.c)) for names in words if names is not picked]
        if since is not None:
            few = _are_few(connection, at, since)
            conditions.append((board.c.measured_at if few else _by_no_index(board.c.measured_at)) >= since)
        if after is not None:
            conditions.append(tuple_(_COLUMN[order], board.c.result_id) < tuple_(*after))
        found = _first(order, limit, conditions) if picked is None else _merged(order, limit, conditions, picked)
        if found is None:
            return []
        rows = connection.execute(_shown(found, order)).all()
    return [converted(row, LeadingResult) for row in rows]


def _first(order: Sort, limit: int, conditions: Sequence[ColumnElement[bool]]) -> Select[Any]:
    """Return the query for the first rows in an order."""
    return select(board).where(*conditions).order_by(_COLUMN[order].desc(), board.c.result_id.desc()).limit(limit)


def _merged(order: Sort, limit: int, conditions: Sequence[ColumnElement[bool]], names: _Found) -> Select[Any] | None:
    """Return the query for the first rows in an order with one of some names: each name's first rows, merged.

    Each name's rows start an index; among all rows they may lie far behind, as large models are slow. None: no names.
    """
    each = [
        select(_first(order, limit, [*conditions, NAMED[kind] == slug]).subquery())
        for kind, slugs in sorted(names.items())
        for slug in slugs
    ]
    if not each:
        return None
    several = union(*each).subquery("several")
    key = several.c[_COLUMN[order].name]
    return select(several).order_by(key.desc(), several.c.result_id.desc()).limit(limit)


def _of_group(asked: BoardQuery) -> list[ColumnElement[bool]]:
    """Return conditions that hold for all results of a model, rig and engine, or for none."""
    named = ((board.c.model_slug, asked.model), (board.c.rig_slug, asked.rig))
    found = [column == slug_of(value) for column, value in named if value is not None]
    return found if asked.engine is None else [*found, board.c.engine == asked.engine]


def _of_result(asked: BoardQuery, columns: Any) -> list[ColumnElement[bool]]:
    """Return conditions that may distinguish results of one model, rig and engine, except the day and words."""
    wanted = (
        (columns.arch, asked.arch),
        (columns.vram_class, asked.vram),
        (columns.ram_class, asked.ram),
        (columns.platform, asked.platform),
    )
    return [column == value for column, value in wanted if value is not None]


def _has(names: _Found, columns: Any) -> ColumnElement[bool]:
    """Return the condition that a row has one of these names."""
    either = (getattr(columns, NAMED[kind].name).in_(slugs) for kind, slugs in sorted(names.items()))
    return or_(false(), *either)


def _leads(asked: BoardQuery, words: Sequence[_Found], since: datetime | None) -> ColumnElement[bool]:
    """Return the condition that no other result of the model, rig and engine that fits the query is faster.

    It is to be looked up per row by `board_lead`, so no other index may seem better. PostgreSQL estimates that every
    second row passes COALESCE, which it cannot estimate; of a comparison with a subquery it expects one in two hundred,
    and sorts instead.
    """
    other = board.alias("other")
    first = select(other.c.result_id).where(other.c.lead_key == board.c.lead_key, other.c.slice == board.c.slice)
    first = first.where(*_of_result(asked, _Unindexed(other.c)), *(_has(names, _Unindexed(other.c)) for names in words))
    if since is not None:
        first = first.where(_by_no_index(other.c.measured_at) >= since)
    first = first.order_by(other.c.value.desc(), other.c.result_id.desc()).limit(1)
    return func.coalesce(board.c.result_id == first.scalar_subquery(), false())


class _Unindexed:
    """A table's columns, wrapped so that no index is used for them."""

    def __init__(self, columns: Any) -> None:
        self._columns = columns

    def __getattr__(self, name: str) -> Any:
        return _by_no_index(self._columns[name])


def _by_no_index(column: Any) -> Any:
    return func.coalesce(column, column)


def _are_few(connection: Connection, at: int, since: datetime) -> bool:
    """Whether so few rows are that new that sorting them beats looking for them in order of speed."""
    several = select(board.c.slice).where(board.c.slice == at, board.c.measured_at >= since).limit(_FEW + 1)
    return (connection.scalar(select(func.count()).select_from(several.subquery())) or 0) <= _FEW


def _n_names(names: _Found) -> int:
    return sum(map(len, names.values()))


def _names_with(connection: Connection, word: str) -> _Found:
    """Return the names on the board that contain a word, by kind."""
    wanted = select(board_name.c.kind, board_name.c.slug).where(board_name.c.kind != "arch")
    wanted = wanted.where(board_name.c.searched.contains(word.lower(), autoescape=True))
    found: _Found = {}
    for kind, slug in connection.execute(wanted.order_by(board_name.c.kind, board_name.c.slug)):
        several = found.setdefault(kind, [])
        if len(several) < _MOST_NAMES:
            several.append(slug)
    return found


def _variants(connection: Connection, name: str) -> list[str]:
    """Return the variants of this name: `q4_0` and `Q4_0` are one, which repos write either way."""
    wanted = select(board_name.c.slug).where(board_name.c.kind == "variant")
    return list(connection.scalars(wanted.where(func.lower(board_name.c.slug) == name.lower()).order_by("slug")))


def _shown(found: Select[Any], order: Sort) -> Select[Any]:
    """Return the query that joins the other columns shown, once a page's rows are known."""
    few = found.subquery("few")
    of_board = [column for column in few.c if column.name in LeadingResult.__struct_fields__]
    have = {column.name for column in of_board}
    of_result = [c for c in result.c if c.name in LeadingResult.__struct_fields__ and c.name not in have]
    wanted = select(*of_board, *of_result, account.c.pseudonym.label("contributor"))
    wanted = wanted.join(result, result.c.id == few.c.result_id)
    wanted = wanted.outerjoin(account, account.c.id == result.c.account_id)
    return wanted.order_by(few.c[_COLUMN[order].name].desc(), few.c.result_id.desc())


def summed(engine: Engine, by: NameKind, depth: int, **of: str) -> list[Summed]:
    """Return sums over the proven results of `model=` or `rig=` by another name, fastest first."""
    column = NAMED[by]
    where = [NAMED[kind] == slug for kind, slug in of.items()]  # type: ignore[index]
    best = func.max(board.c.value)
    rows = select(
        column.label("slug"),
        best.label("best"),
        func.min(board.c.low).label("low"),
        func.sum(board.c.n_results).label("n_results"),
        func.max(board.c.bpw).label("bpw"),
    ).where(*where, board.c.slice == slice_of("tg", depth, PROVEN), board.c.place == 0)
    few = rows.group_by(column).order_by(best.desc(), column).limit(_MOST_NAMES).subquery("few")
    named = and_(board_name.c.kind == by, board_name.c.slug == few.c.slug)
    wanted = select(few, board_name.c.label).join(board_name, named).order_by(few.c.best.desc(), few.c.slug)
    return several(engine, wanted, Summed)


def depths_of(engine: Engine, trust: BoardTrust, **of: str) -> list[int]:
    """Return the depths at which anything of `model=` or `rig=` was measured."""
    where = [NAMED[kind] == slug for kind, slug in of.items()]  # type: ignore[index]
    with engine.connect() as connection:
        slices = [(depth, slice_of("tg", depth, trust)) for depth in DEPTHS]
        any_of = {d: select(board.c.slice).where(*where, board.c.slice == s).limit(1) for d, s in slices}
        return [depth for depth, wanted in any_of.items() if connection.scalar(wanted) is not None]


def names(engine: Engine, kind: NameKind) -> list[NamedSlug]:
    """Return names on the board, in alphabetical order."""
    wanted = _NAMES.where(board_name.c.kind == kind).order_by(func.lower(board_name.c.label), board_name.c.slug)
    return several(engine, wanted.limit(_MOST_LISTED), NamedSlug)


def named(engine: Engine, kind: NameKind, slug: str) -> NamedSlug | None:
    """Return the name with this slug, None if nothing on the board has it."""
    wanted = _NAMES.where(board_name.c.kind == kind, board_name.c.slug == slug)
    return one(engine, wanted, NamedSlug) if is_name(slug) else None


def similar(engine: Engine, result_id: str) -> list[LeadingResult]:
    """Return the fastest other proven results of the model, first on the same rig, then on as much VRAM."""
    depth = select(func.min(result_speed.c.depth)).where(result_speed.c.result_id == result.c.id).scalar_subquery()
    own = select(result.c.model_slug, result.c.rig_slug, result.c.vram_mib, depth.label("depth"))
    found: dict[str, LeadingResult] = {}
    with engine.connect() as connection:
        mine = connection.execute(own.where(result.c.id == result_id)).one_or_none()
        if mine is None:
            return []
        at = slice_of("tg", mine.depth or 0, PROVEN)
        for near in (board.c.rig_slug == mine.rig_slug, board.c.vram_class == vram_class(mine.vram_mib)):
            wanted = select(board).where(board.c.model_slug == mine.model_slug, board.c.slice == at, near)
            wanted = wanted.where(board.c.place == 0, board.c.result_id != result_id)
            few = _shown(wanted.order_by(board.c.value.desc(), board.c.result_id.desc()).limit(_MOST_ALIKE), "tg")
            for row in connection.execute(few).all():
                found.setdefault(row.result_id, converted(row, LeadingResult))
    return list(found.values())[:_MOST_ALIKE]


_MOST_HOSTS = 500


def contributor(engine: Engine, pseudonym: str) -> StoredAccount | None:
    """Return the account with this pseudonym unless it is banned."""
    wanted = select(account).where(account.c.pseudonym == pseudonym, account.c.banned_at.is_(None))
    return one(engine, wanted, StoredAccount) if is_name(pseudonym) else None


def by_tier(engine: Engine, account_id: str) -> dict[str, int]:
    """Return how many of an account's results are public, by tier; none of private hosts."""
    wanted = select(result.c.tier, func.count().label("n")).outerjoin(host, host.c.id == result.c.host_id)
    wanted = wanted.where(result.c.account_id == account_id, result.c.state == "shown", may_see(ANYBODY))
    wanted = wanted.group_by(result.c.tier).order_by(result.c.tier)
    return {row.tier: row.n for row in rows(engine, wanted)}


def public_hosts(engine: Engine) -> list[HostFigures]:
    """Return public hosts with the numbers of their ended runs and shown results, those with the most results first."""
    done = select(run.c.host_id, func.count().label("runs"), func.sum(run.c.gpu_seconds).label("gpu_seconds"))
    ended = done.where(run.c.state.in_(("succeeded", "failed"))).group_by(run.c.host_id).subquery("ended")
    newest = select(result.c.gpus).where(result.c.host_id == host.c.id, result.c.state == "shown")
    newest = newest.order_by(result.c.created_at.desc()).limit(1)
    counted = select(result.c.host_id, func.count().label("n_results"))
    given = counted.where(result.c.state == "shown", result.c.host_id.is_not(None)).group_by(result.c.host_id)
    gave = given.subquery("gave")
    wanted = (
        select(
            host.c.pseudonym,
            account.c.pseudonym.label("contributor"),
            host.c.state,
            newest.scalar_subquery().label("rig"),
            func.coalesce(ended.c.runs, 0).label("runs"),
            (func.coalesce(ended.c.gpu_seconds, 0.0) / 3600).label("gpu_hours"),
            func.coalesce(gave.c.n_results, 0).label("n_results"),
        )
        .join(account, account.c.id == host.c.account_id)
        .outerjoin(ended, ended.c.host_id == host.c.id)
        .outerjoin(gave, gave.c.host_id == host.c.id)
        .where(host.c.visibility == "public", host.c.state.in_(("active", "paused")), account.c.banned_at.is_(None))
    )
    order = (func.coalesce(gave.c.n_results, 0).desc(), host.c.pseudonym)
    return shown(engine, wanted.order_by(*order).limit(_MOST_HOSTS), HostFigures)
