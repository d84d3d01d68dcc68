"""Retention: finds rows that are too old, and counts them or removes them in batches, so that nobody waits long.

Results, who sent them, operators' acts, and what was measured for an advice are never too old.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Column, ColumnElement, Engine, Table, delete, func, select, tuple_, update

from service.store.engines import locked
from service.store.queries import value
from service.store.tables import (
    abuse_report,
    advice,
    branch,
    enrolment,
    host_session,
    removal_request,
    repo_listing,
    result,
    validation,
)

_BATCH = 500
_MEASURED = select(validation.c.id).where(validation.c.advice_id == advice.c.id).exists()
Condition: TypeAlias = Callable[[datetime], ColumnElement[bool]]


class Kind(NamedTuple):
    """A kind of rows. `too_old`: the condition, given an instant; `emptied`: columns to clear; none: delete rows."""

    name: str
    table: Table
    too_old: Condition
    emptied: tuple[Column[Any], ...] = ()


def _unmeasured(before: datetime) -> ColumnElement[bool]:
    """Finished advices that nobody had measured; measured ones are needed by their validations."""
    return advice.c.state.in_(("ready", "failed")) & (advice.c.updated_at < before) & ~_MEASURED


def _unread(before: datetime) -> ColumnElement[bool]:
    """Bodies that nobody has read for long and that can be recomputed: not measured, not requested by an account."""
    return (advice.c.read_on < before) & (advice.c.state == "ready") & advice.c.account.is_not(True) & ~_MEASURED


ADVICE = Kind("advice", advice, _unmeasured)
BODIES = Kind("bodies of advice", advice, _unread, (advice.c.packed, advice.c.read_on))
LISTINGS = Kind("listings", repo_listing, lambda before: repo_listing.c.seen_at < before)
BRANCHES = Kind("branches", branch, lambda before: branch.c.seen_at < before)
LOGS = Kind("logs", result, lambda before: result.c.log.is_not(None) & (result.c.created_at < before), (result.c.log,))
REPORTS = Kind("reports", abuse_report, lambda before: abuse_report.c.closed_at < before)
REMOVALS = Kind("removals", removal_request, lambda before: removal_request.c.closed_at < before)
SESSIONS = Kind("sessions", host_session, lambda before: host_session.c.expires_at < before)
CODES = Kind("codes", enrolment, lambda before: (enrolment.c.expires_at < before) & enrolment.c.host_id.is_(None))


def count(engine: Engine, kind: Kind, before: datetime) -> int:
    return value(engine, select(func.count()).select_from(kind.table).where(kind.too_old(before))) or 0


def remove(engine: Engine, kind: Kind, before: datetime) -> int:
    """Remove rows of a kind that are too old, one batch per transaction; return how many."""
    removed = 0
    while batch := _remove_batch(engine, kind, before):
        removed += batch
    return removed


def _remove_batch(engine: Engine, kind: Kind, before: datetime) -> int:
    with locked(engine) as connection:
        key = list(kind.table.primary_key.columns)
        found = connection.execute(select(*key).where(kind.too_old(before)).limit(_BATCH)).all()
        these = tuple_(*key).in_([tuple(row) for row in found]) & kind.too_old(before)
        emptied = update(kind.table).values(dict.fromkeys(kind.emptied)) if kind.emptied else delete(kind.table)
        return int(connection.execute(emptied.where(these)).rowcount)
