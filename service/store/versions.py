"""A counter of changes to results, in one row: cached answers stay valid while it stays the same.

Code that changes the board or a measured advice increments it in the same transaction, before touching anything that
other writers could wait for, so that writers always wait for each other in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy import Connection, Engine, bindparam, select, true, update

from service.store.advice.advices import READY
from service.store.engines import glance
from service.store.queries import is_id
from service.store.results.calibrations import VERSION_IN_FORCE
from service.store.tables import advice
from service.store.tables import results_version as table

_COUNTED = update(table).values(changes=table.c.changes + 1)
# Built once, because they run with every answer.
_CHANGES = select(table.c.changes)
_CALIBRATION = select(VERSION_IN_FORCE)
_OF_READY = READY.add_columns(table.c.changes).join_from(advice, table, true())
_KEPT = (advice.c.packed.is_not(None) | advice.c.body.is_not(None)).label("kept")
_OF_ADVICE = (
    select(advice.c.state, table.c.changes, VERSION_IN_FORCE.label("calibration"), _KEPT)
    .join(table, true())
    .where(advice.c.id == bindparam("asked"))
)


class AdviceVersion(NamedTuple):
    """An advice: its id, its state, the version of the results and the calibration that it shows, whether its body is
    stored."""

    id: str
    state: str
    version: str
    kept: bool


def count_change(connection: Connection) -> None:
    """Count a change of results, or of whose results are shown."""
    connection.execute(_COUNTED)


def of_results(engine: Engine) -> int:
    """Return how often results have changed."""
    with glance(engine) as connection:
        return connection.scalar(_CHANGES) or 0


def of_ready(engine: Engine, key: Callable[[str | None], str]) -> AdviceVersion | None:
    """Return the finished advice under the key that `key` makes of the calibration's version, None if there is none.

    It uses one connection, since every repeated question asks this.
    """
    with glance(engine) as connection:
        calibration = connection.scalar(_CALIBRATION)
        row = connection.execute(_OF_READY, {"asked": key(calibration)}).one_or_none()
    return None if row is None else AdviceVersion(row.id, "ready", f"{row.changes} {calibration}", kept=True)


def of_advice(engine: Engine, advice_id: str) -> AdviceVersion | None:
    """Return the version of an advice, None if there is none."""
    if not is_id(advice_id):
        return None
    with glance(engine) as connection:
        row = connection.execute(_OF_ADVICE, {"asked": advice_id}).one_or_none()
    if row is None:
        return None
    return AdviceVersion(advice_id, row.state, f"{row.changes} {row.calibration}", bool(row.kept))
