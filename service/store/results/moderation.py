"""Rows of `audit`, `abuse_report`, `removal_request`; accounts' standing. Acts are recorded with their change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, Engine, Row, false, func, insert, or_, select, update

from service.store import versions
from service.store.queries import changed, is_name, new_id, shown, value
from service.store.tables import abuse_report, account, audit
from service.store.tables import removal_request as removal
from service.store.tables import result as table
from service.wire.results.moderation import Action, AuditEntry, OpenRemovalRequest, OpenReport, QuarantinedResult
from service.wire.results.results import ResultState

_ABOUT = (table.c.state.label("result_state"), table.c.model_name.label("model"), table.c.gpus)
"""The columns that describe a result in an operator's lists."""
_MOST = 200


class Act(NamedTuple):
    """An operator's act: when, by whom, what, on which subject, and why."""

    at: datetime
    by: str
    action: Action
    subject: str
    reason: str


def note(connection: Connection, act: Act) -> None:
    """Record an operator's act, in the transaction that carries it out."""
    connection.execute(insert(audit).values(id=new_id(), **act._asdict()))


def acts(engine: Engine, subject: str | None = None) -> list[AuditEntry]:
    """Return the newest 200 acts, newest first; with `subject`, those on it."""
    wanted = select(audit).order_by(audit.c.at.desc(), audit.c.id).limit(_MOST)
    if subject is not None:
        wanted = wanted.where(audit.c.subject == subject if is_name(subject) else false())
    return shown(engine, wanted, AuditEntry)


def account_of(connection: Connection, name: str) -> tuple[str, str] | None:
    """Return (id, name) of the account of this name or pseudonym."""
    wanted = select(account.c.id, account.c.name).where(or_(account.c.name == name, account.c.pseudonym == name))
    row = connection.execute(wanted.order_by(account.c.name != name).limit(1)).one_or_none()
    return None if row is None else (row.id, row.name)


def set_standing(connection: Connection, account_id: str, **values: datetime | None) -> None:
    """Set when an account was banned or vouched for."""
    versions.count_change(connection)
    connection.execute(update(account).where(account.c.id == account_id).values(**values))


def results_of(connection: Connection, account_id: str, states: Sequence[ResultState]) -> list[Row[Any]]:
    """Return id and state_reason of an account's results in these states."""
    wanted = select(table.c.id, table.c.state_reason)
    wanted = wanted.where(table.c.account_id == account_id, table.c.state.in_(states)).order_by(table.c.id)
    return list(connection.execute(wanted))


def add(engine: Engine, to: Literal["reports", "removals"], **values: object) -> str:
    """Store a report, or a request to remove a result; return its id."""
    row_id = new_id()
    changed(engine, insert(abuse_report if to == "reports" else removal).values(id=row_id, **values))
    return row_id


def open_reports(engine: Engine) -> list[OpenReport]:
    """Return the oldest 200 open reports."""
    owner = account.alias("owner")
    names = (account.c.pseudonym.label("by"), owner.c.pseudonym.label("of"))
    wanted = select(abuse_report, abuse_report.c.result_id.label("result"), *names, *_ABOUT)
    joined = abuse_report.join(table, table.c.id == abuse_report.c.result_id)
    joined = joined.join(account, account.c.id == abuse_report.c.account_id, isouter=True)
    joined = joined.join(owner, owner.c.id == table.c.account_id, isouter=True)
    wanted = wanted.select_from(joined).where(abuse_report.c.closed_at.is_(None))
    return shown(engine, wanted.order_by(abuse_report.c.created_at, abuse_report.c.id).limit(_MOST), OpenReport)


def quarantined(engine: Engine) -> list[QuarantinedResult]:
    """Return the newest 200 results in quarantine, with the pseudonym of their account."""
    named = table.c.state_reason.label("reason"), account.c.pseudonym.label("of")
    wanted = select(table.c.id, table.c.created_at, *named, *_ABOUT).where(table.c.state == "quarantined")
    wanted = wanted.outerjoin(account, account.c.id == table.c.account_id)
    return shown(engine, wanted.order_by(table.c.created_at.desc(), table.c.id).limit(_MOST), QuarantinedResult)


def close_report(connection: Connection, report_id: str, by: str, now: datetime) -> bool:
    """Close a report; return False if no open one has this id."""
    which = (abuse_report.c.id == report_id, abuse_report.c.closed_at.is_(None))
    change = update(abuse_report).where(*which).values(closed_at=now, closed_by=by)
    return connection.execute(change).rowcount == 1


def open_removals(engine: Engine) -> list[OpenRemovalRequest]:
    """Return the oldest 200 undecided requests."""
    wanted = select(removal, removal.c.result_id.label("result"), table.c.origin, *_ABOUT)
    wanted = wanted.join(table, table.c.id == removal.c.result_id).where(removal.c.closed_at.is_(None))
    return shown(engine, wanted.order_by(removal.c.created_at, removal.c.id).limit(_MOST), OpenRemovalRequest)


def close_removals(
    connection: Connection, by: str, now: datetime, *, removed: bool, result_id: str = "", request_id: str = ""
) -> int:
    """Close a result's open requests, or one by its id, and delete contacts; return how many."""
    which = removal.c.id == request_id if request_id else removal.c.result_id == result_id
    change = update(removal).where(which, removal.c.closed_at.is_(None))
    closed = change.values(closed_at=now, closed_by=by, removed=removed, contact=None)
    return connection.execute(closed).rowcount


def last_removal(engine: Engine) -> datetime | None:
    """Return when an operator last removed a result: earlier dumps may still contain it."""
    return value(engine, select(func.max(audit.c.at)).where(audit.c.action == "remove"))
