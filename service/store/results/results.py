"""Rows of `result`: what was measured. Each function is one transaction."""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Select,
    and_,
    case,
    delete,
    false,
    func,
    insert,
    or_,
    select,
    update,
)

from service.engine.config import Engine as EngineName
from service.engine.measured.classify import Failure
from service.engine.measured.identity import ModelIdentity, RigIdentity
from service.engine.measured.roofline import Prediction
from service.engine.measured.rows import MeasuredRow, merged
from service.engine.run_flags import RunFlags
from service.store.queries import by_id, converted, new_id, one, rows, shown, value
from service.store.results import board
from service.store.results.board import FiledResult
from service.store.tables import account, host, result_change
from service.store.tables import result as table
from service.store.viewers import Viewer, is_proven_to, may_see
from service.wire.results.results import Published, ResultModel, ResultOrigin, ResultState, Seen
from service.wire.results.submissions import ResultChange

MOST_LOG = 1 << 20  # characters of a log that are read back
OPERATOR = "an operator "  # begins the reason of a state that an operator set, which no rule changes
DELETED_HIDDEN = "deleted by its submitter while it was hidden"
_MOST, _MOST_NEAR, _MOST_OF_OWNER, _LOOKED_AT = 200, 50, 10, 1_000
_MOST_OF_CARDS, _MOST_OF_CARDS_OWNER = 40, 3
_MANY = 500  # results changed by one statement
_COLUMNS = [column for column in table.c if column.name != "log"]


class StoredResult(FiledResult, frozen=True, kw_only=True):
    """One result without its log; service.store.tables explains the columns."""

    origin: ResultOrigin
    state: ResultState = "shown"
    state_reason: str | None = None
    account_id: str | None = None
    host_id: str | None = None
    cell: str | None = None
    hardware_key: str | None = None
    build: str | None = None
    repo: str | None = None
    model: ResultModel | None = None
    flags: RunFlags | None = None
    n_params: int | None = None
    n_active: int | None = None
    bpw: float | None = None
    rows_key: str
    failure: Failure | None = None
    seen: Seen = Seen()
    prediction: Prediction | None = None
    command: str | None = None
    remarks: str | None = None
    published: Published | None = None
    confirmed: bool = False
    source: str | None = None
    source_owner: str | None = None
    edit_key_hash: str | None = None
    submission_key: str | None = None
    submission_body: str | None = None
    created_at: datetime


def filed_under(model: ModelIdentity, rig: RigIdentity) -> dict[str, Any]:
    """Return the columns that name a result's model and machine."""
    named = {"model_name": model.name, "model_slug": model.slug, "gpus": rig.gpus, "rig_slug": rig.slug}
    of_model = {name: getattr(model, name) for name in ("arch", "n_params", "n_active", "bpw")}
    return {**named, **of_model, "vram_mib": rig.vram_mib, "cpu": rig.cpu, "ram_gib": rig.ram_gib}


def rows_key_of(model_slug: str, engine: EngineName, rows: Sequence[MeasuredRow]) -> str:
    """Return the hash that identifies a measurement, should it be sent again."""
    return hashlib.sha256(msgspec.json.encode((model_slug, engine, merged(rows)), order="sorted")).hexdigest()


def insert_in(connection: Connection, row: StoredResult, log: str) -> None:
    """Add a result within a transaction, its log compressed, and enter it on the board if it counts."""
    packed = zlib.compress(log.encode()) if log else None
    connection.execute(insert(table).values(**msgspec.structs.asdict(row), log=packed))
    board.keep(connection, row.id)


def insert_missing(connection: Connection, rows: Sequence[StoredResult]) -> int:
    """Add the results whose ids are unknown, without logs; return how many. A deleted one stays deleted."""
    ids = [row.id for row in rows]
    known = set(connection.scalars(select(table.c.id).where(table.c.id.in_(ids))))
    new = [msgspec.structs.asdict(row) for row in rows if row.id not in known]
    if new:
        connection.execute(insert(table), new)
        board.keep(connection, *(row["id"] for row in new))
    return len(new)


def change(connection: Connection, result_id: str, **values: object) -> bool:
    """Change a result within a transaction: its state, tier, or submitter's corrections; the board is updated.

    Return False if there is none with this id.
    """
    changed = connection.execute(update(table).where(table.c.id == result_id).values(**values)).rowcount == 1
    board.keep(connection, result_id)
    return changed


def hide(connection: Connection, result_ids: Sequence[str], reason: str) -> None:
    """Hide results within a transaction; the board is updated for many at a time."""
    for first in range(0, len(result_ids), _MANY):
        these = result_ids[first : first + _MANY]
        connection.execute(update(table).where(table.c.id.in_(these)).values(state="hidden", state_reason=reason))
        board.keep(connection, *these)


def state_in(connection: Connection, result_id: str) -> ResultState | None:
    """Return a result's state within a transaction, None if there is none."""
    found: ResultState | None = connection.scalar(select(table.c.state).where(table.c.id == result_id))
    return found


def insert_once(connection: Connection, row: StoredResult, log: str) -> StoredResult:
    """Add a result, or return the oldest undeleted one with the same rows, within a transaction of
    `store.trust.writing`, of which only one runs at a time.

    Raises IntegrityError if its submission key was used before.
    """
    same = _with_rows(connection, row.rows_key)
    if same is None:
        insert_in(connection, row, log)
    return same or row


def with_rows(engine: Engine, rows_key: str) -> StoredResult | None:
    """Return the oldest known result with these rows."""
    with engine.connect() as connection:
        return _with_rows(connection, rows_key)


def is_known() -> ColumnElement[bool]:
    """Return the condition that a result is recognised when sent again: not deleted, unless hidden before that."""
    return or_(table.c.state != "deleted", table.c.state_reason == DELETED_HIDDEN)


def _with_rows(connection: Connection, rows_key: str) -> StoredResult | None:
    same = select(*_COLUMNS).where(table.c.rows_key == rows_key, is_known())
    row = connection.execute(same.order_by(table.c.created_at, table.c.id).limit(1)).one_or_none()
    return None if row is None else converted(row, StoredResult)


def with_submission_key(engine: Engine, key: str) -> StoredResult | None:
    return one(engine, select(*_COLUMNS).where(table.c.submission_key == key), StoredResult)


def read(engine: Engine, result_id: str) -> StoredResult | None:
    return by_id(engine, select(*_COLUMNS), table.c.id, result_id, StoredResult)


def read_log(engine: Engine, result_id: str) -> str:
    """Return the log of a result, empty if there is none."""
    packed = value(engine, select(table.c.log).where(table.c.id == result_id))
    return zlib.decompressobj().decompress(packed, 4 * MOST_LOG).decode(errors="replace")[:MOST_LOG] if packed else ""


def of_ids(engine: Engine, ids: Sequence[str]) -> dict[str, StoredResult]:
    with engine.connect() as connection:
        return of_ids_in(connection, ids)


def of_ids_in(connection: Connection, ids: Sequence[str]) -> dict[str, StoredResult]:
    """Return the same within a transaction."""
    rows = connection.execute(select(*_COLUMNS).where(table.c.id.in_(ids))).all() if ids else []
    return {row.id: converted(row, StoredResult) for row in rows}


def of_cells(engine: Engine, cells: Sequence[str], since: datetime, viewer: Viewer) -> list[StoredResult]:
    """Return hosts' results of these cells since then that are proven to `viewer`, newest first; none of banned
    ones."""
    wanted = select(*_COLUMNS).join(host, host.c.id == table.c.host_id).join(account, account.c.id == host.c.account_id)
    wanted = wanted.where(table.c.cell.in_(cells), table.c.measured_at >= since, account.c.banned_at.is_(None))
    wanted = wanted.where(table.c.state == "shown", may_see(viewer), is_proven_to(viewer))
    newest = wanted.order_by(table.c.measured_at.desc(), table.c.id).limit(_MOST)
    return [converted(row, StoredResult) for row in rows(engine, newest)] if cells else []


def any_of(engine: Engine, repo: str) -> bool:
    """Return whether there are results of a repo."""
    return value(engine, select(table.c.id).where(table.c.repo == repo).limit(1)) is not None


def near(engine: Engine, model_slug: str | None, rig_slug: str, viewer: Viewer) -> list[StoredResult]:
    """Return the newest 50 results of a model (None: of any) on these cards that were predicted before they were
    measured, at most ten per owner, so that nobody's many results displace other people's.

    They are hosts' results that are proven to `viewer`, and whatever their own account measured or sent.
    Nothing of banned accounts.
    """
    own = table.c.account_id == viewer.account_id if viewer.account_id is not None else false()
    wanted = _predicted_on(select(table.c.id, account.c.id.label("account_id")), rig_slug, viewer)
    if model_slug is not None:
        wanted = wanted.where(table.c.model_slug == model_slug)
    wanted = wanted.where(or_(and_(table.c.host_id.is_not(None), is_proven_to(viewer)), own))
    with engine.connect() as connection:
        newest = connection.execute(wanted.order_by(table.c.measured_at.desc(), table.c.id).limit(_LOOKED_AT)).all()
        ids = _of_each_owner(newest)
        found = of_ids_in(connection, ids)
    return [found[one] for one in ids if one in found]


def _predicted_on(wanted: Select[Any], rig_slug: str, viewer: Viewer) -> Select[Any]:
    """Narrow a query to results on these cards that have a prediction, joining `host` and the owner's `account`."""
    wanted = wanted.outerjoin(host, host.c.id == table.c.host_id)
    wanted = wanted.outerjoin(account, account.c.id == func.coalesce(host.c.account_id, table.c.account_id))
    wanted = wanted.where(table.c.rig_slug == rig_slug, table.c.state == "shown", may_see(viewer))
    return wanted.where(table.c.prediction.is_not(None), table.c.failure.is_(None), account.c.banned_at.is_(None))


def on_cards(
    engine: Engine, rig_slug: str, viewer: Viewer, since: datetime, old_enough: datetime
) -> list[tuple[str, StoredResult]]:
    """Return other people's results on these cards since then, each with its owner: three per owner, 40 in all, from as
    many owners as possible, newest first.

    All results without an account, or with one made after `old_enough` that no operator vouches for, share the owner
    "". Imported results have the owners of their source. Nothing of banned accounts.
    """
    known = or_(account.c.created_at <= old_enough, account.c.trusted_at.is_not(None))
    there = table.c.source + ":" + table.c.source_owner
    owner = case((known, account.c.id), (table.c.source_owner.is_not(None), there), else_="")
    newest = table.c.measured_at.desc(), table.c.id
    number = func.row_number().over(partition_by=owner, order_by=newest)
    wanted = _predicted_on(select(table.c.id, owner.label("owner"), number.label("number")), rig_slug, viewer)
    wanted = wanted.where(table.c.measured_at >= since)
    if viewer.account_id is not None:
        wanted = wanted.where(or_(account.c.id.is_(None), account.c.id != viewer.account_id))
    numbered = wanted.subquery()
    few = select(numbered.c.owner, *_COLUMNS).join(numbered, numbered.c.id == table.c.id)
    few = few.where(numbered.c.number <= _MOST_OF_CARDS_OWNER).order_by(numbered.c.number, *newest)
    return [(row.owner, converted(row, StoredResult)) for row in rows(engine, few.limit(_MOST_OF_CARDS))]


def _of_each_owner(newest: Sequence[Any]) -> list[str]:
    """Return the ids of the first _MOST_NEAR rows (id, account_id), with at most _MOST_OF_OWNER per owner."""
    count, ids = Counter[str](), list[str]()
    for row in newest:
        count[row.account_id] += 1
        if count[row.account_id] <= _MOST_OF_OWNER:
            ids.append(row.id)
    return ids[:_MOST_NEAR]


MOST_CHANGES = 100
"""The limit of changes to one result; after that it must be sent again."""


def add_change(connection: Connection, result_id: str, at: datetime, what: str, before: dict[str, str]) -> None:
    """Add a change within a transaction; `before` has the changed fields as they were, in words."""
    row = {"id": new_id(), "result_id": result_id, "at": at, "what": what, "before": before}
    connection.execute(insert(result_change).values(row))


def erase(connection: Connection, result_id: str, reason: str, **more: object) -> None:
    """Mark a result deleted within a transaction: without its text and changes, and with `more` set."""
    gone = dict.fromkeys(("log", "command", "remarks", "submission_key", "submission_body"))
    change(connection, result_id, state="deleted", state_reason=reason, **gone, **more)
    connection.execute(delete(result_change).where(result_change.c.result_id == result_id))


def changes_of(engine: Engine, result_id: str) -> list[ResultChange]:
    """Return the changes of a result, oldest first."""
    table_of = result_change.c
    wanted = select(result_change).where(table_of.result_id == result_id).order_by(table_of.at, table_of.id)
    return shown(engine, wanted.limit(MOST_CHANGES), ResultChange)
