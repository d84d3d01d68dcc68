"""Rows of `comparison`: buffers printed in results' logs, compared with their prediction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Connection, Engine, case, delete, func, insert, or_, select, update

from service.engine.check.learning import Difference, Lesson, Subject
from service.store import versions
from service.store.engines import locked
from service.store.queries import column, rows
from service.store.results.results import StoredResult, of_ids_in
from service.store.tables import account, audit, host, result
from service.store.tables import comparison as table
from service.store.viewers import ANYBODY, may_see

_MOST_SUBJECTS, _MOST, _MOST_OF_OWNER = 50, 1_000, 20


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The lesson from a shown result's log. `owner`: "" for everybody who has not been known for long enough."""

    result: str
    owner: str
    received_at: datetime
    lesson: Lesson


def waiting(engine: Engine, version: int, most: int) -> list[StoredResult]:
    """Return at most `most` results with buffers that no engine model since `version` has compared, newest first."""
    wanted = select(result.c.id).outerjoin(table, table.c.result_id == result.c.id)
    wanted = wanted.where(or_(table.c.version.is_(None), table.c.version < version), result.c.state != "deleted")
    wanted = wanted.where(result.c.build.is_not(None), result.c.model.is_not(None), result.c.failure.is_(None))
    wanted = wanted.where(result.c.seen["buffers", 0, "device"].as_string().is_not(None))
    with engine.connect() as connection:
        newest = wanted.order_by(result.c.created_at.desc(), result.c.id).limit(most)
        ids = [str(found) for found in connection.scalars(newest)]
        found = of_ids_in(connection, ids)
    return [found[one] for one in ids if one in found]


def keep(engine: Engine, result_id: str, version: int, lesson: Lesson | None) -> None:
    """Store an engine model's comparison of a result, replacing an older one's."""
    row = {} if lesson is None else _row(lesson)
    with locked(engine) as connection:
        if lesson is not None or _says_something(connection, result_id):
            versions.count_change(connection)
        connection.execute(delete(table).where(table.c.result_id == result_id))
        still_there = select(result.c.id).where(result.c.id == result_id)
        if connection.scalar(still_there) is not None:
            connection.execute(insert(table).values(result_id=result_id, version=version, **row))


def leave(engine: Engine, result_id: str, version: int) -> None:
    """Record that an engine model looked at a result without comparing it; an older comparison stays."""
    with locked(engine) as connection:
        stays = update(table).where(table.c.result_id == result_id).values(version=version)
        if connection.execute(stays).rowcount == 0:
            connection.execute(insert(table).values(result_id=result_id, version=version))


def forget(connection: Connection, result_id: str) -> None:
    """Delete the comparison of a corrected result within a transaction, so that it is made again."""
    connection.execute(delete(table).where(table.c.result_id == result_id))


def architectures_that_differ(engine: Engine) -> list[str]:
    """Return the first 50 architectures with a log that differs."""
    wanted = select(table.c.architecture).where(table.c.part.is_not(None)).distinct()
    return [str(name) for name in column(engine, wanted.order_by(table.c.architecture).limit(_MOST_SUBJECTS))]


def of_architecture(engine: Engine, architecture: str, old_enough: datetime) -> list[Shown]:
    """Return the lessons of an architecture's logs, newest first: at most 20 per owner and 1,000 in all.

    Only of shown results; nothing of banned accounts or private hosts. Known owners: accounts made by `old_enough`,
    or that an operator vouches for.
    """
    known = or_(account.c.created_at <= old_enough, account.c.trusted_at.is_not(None))
    owner = case((known, account.c.id), else_="")
    newest = result.c.created_at.desc(), result.c.id
    number = func.row_number().over(partition_by=owner, order_by=newest)
    wanted = select(table, result.c.created_at, owner.label("owner"), number.label("number"))
    wanted = wanted.join(result, result.c.id == table.c.result_id)
    wanted = wanted.outerjoin(account, account.c.id == result.c.account_id)
    wanted = wanted.outerjoin(host, host.c.id == result.c.host_id)
    wanted = wanted.where(table.c.architecture == architecture, result.c.state == "shown")
    wanted = wanted.where(account.c.banned_at.is_(None), may_see(ANYBODY))
    numbered = wanted.subquery()
    few = select(numbered).where(numbered.c.number <= _MOST_OF_OWNER)
    few = few.order_by(numbered.c.created_at.desc(), numbered.c.result_id).limit(_MOST)
    return [
        Shown(result=row.result_id, owner=row.owner, received_at=row.created_at, lesson=_lesson(row))
        for row in rows(engine, few)
    ]


def settled(engine: Engine, names: Sequence[str]) -> dict[str, datetime]:
    """Return when an operator last settled each difference, by its name; unsettled ones are left out."""
    wanted = select(audit.c.subject, func.max(audit.c.at).label("at"))
    wanted = wanted.where(audit.c.action == "settle", audit.c.subject.in_(names)).group_by(audit.c.subject)
    return {str(row.subject): row.at for row in rows(engine, wanted)} if names else {}


def _says_something(connection: Connection, result_id: str) -> bool:
    said = select(table.c.architecture).where(table.c.result_id == result_id)
    return connection.scalar(said) is not None


def _row(lesson: Lesson) -> dict[str, object]:
    of, difference = lesson.subject, lesson.difference
    row = {**msgspec.structs.asdict(of), "agrees": list(lesson.agrees)}
    return row | (msgspec.structs.asdict(difference) if difference else {})


def _lesson(row: object) -> Lesson:
    differs = getattr(row, "part", None) is not None
    return Lesson(
        subject=msgspec.convert(row, Subject, from_attributes=True),
        agrees=tuple(getattr(row, "agrees", ())),
        difference=msgspec.convert(row, Difference, from_attributes=True) if differs else None,
    )
