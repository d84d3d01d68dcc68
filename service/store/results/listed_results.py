"""Results for lists and dumps: newest first or by id, each with its contributor; a page starts after a row."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Engine, Row, Select, case, false, or_, select, tuple_

from service.engine.measured.identity import slug_of
from service.store.queries import converted, rows
from service.store.results.results import StoredResult
from service.store.tables import account, host, result, source
from service.store.viewers import ANYBODY, Viewer, may_see
from service.wire.results.results import ResultQuery

SEEN = ("shown", "quarantined")
_COLUMNS = [column for column in result.c if column.name in StoredResult.__struct_fields__]


class ListedResult(NamedTuple):
    """A result, whether it has a log, and the pseudonyms of its contributor and its public host.

    `owner`: the contributor, if the account is old enough or vouched for. `source`: the address of the service that it
    was imported from.
    """

    result: StoredResult
    has_log: bool
    contributor: str | None
    host: str | None
    owner: str | None
    source: str | None


def read(engine: Engine, result_id: str, viewer: Viewer) -> ListedResult | None:
    """Return the result with this id if it is shown or quarantined and this viewer may see it."""
    wanted = _listed().where(result.c.id == result_id, result.c.state.in_(SEEN), may_see(viewer))
    with engine.connect() as connection:
        row = connection.execute(wanted).one_or_none()
    return None if row is None else _decoded(row)


def page(
    engine: Engine, asked: ResultQuery, after: tuple[datetime, str] | None, limit: int,
    since: datetime | None = None, before: datetime | None = None,
) -> list[ListedResult]:  # fmt: skip
    """Return public results after a position, latest received first.

    `since`, `before`: the range of time in which they were received.
    """
    conditions = _conditions(asked)
    if since is not None:
        conditions.append(result.c.created_at >= since)
    if before is not None:
        conditions.append(result.c.created_at < before)
    if after is not None:
        conditions.append(tuple_(result.c.created_at, result.c.id) < tuple_(*after))
    wanted = _listed().where(*_public(), *conditions)
    wanted = wanted.order_by(result.c.created_at.desc(), result.c.id.desc()).limit(limit)
    return [_decoded(row) for row in rows(engine, wanted)]


def after_id(engine: Engine, last: str, limit: int, old_enough: datetime) -> list[ListedResult]:
    """Return public results after an id, by id, for dumps: none that is cited or imported.

    `old_enough`: accounts made later are never an `owner`.
    """
    made_here = result.c.id > last, result.c.published.is_(None), result.c.source.is_(None)
    wanted = _listed(old_enough).where(*_public(), *made_here).order_by(result.c.id).limit(limit)
    return [_decoded(row) for row in rows(engine, wanted)]


def _listed(old_enough: datetime | None = None) -> Select[Any]:
    named = (account.c.pseudonym.label("contributor"), host.c.pseudonym.label("host"), host.c.visibility)
    known = or_(account.c.created_at <= old_enough, account.c.trusted_at.is_not(None)) if old_enough else false()
    owner, address = case((known, account.c.pseudonym)).label("owner"), source.c.address
    wanted = select(*_COLUMNS, result.c.log.is_not(None).label("has_log"), *named, owner, address)
    wanted = wanted.outerjoin(account, account.c.id == result.c.account_id)
    wanted = wanted.outerjoin(source, source.c.key == result.c.source)
    return wanted.outerjoin(host, host.c.id == result.c.host_id)


def _public() -> list[Any]:
    """Return the conditions for public results: not of private hosts or banned accounts; their tier does not matter."""
    return [result.c.state.in_(SEEN), may_see(ANYBODY), account.c.banned_at.is_(None)]


def _conditions(asked: ResultQuery) -> list[Any]:
    equal = (
        (result.c.variant, asked.variant),
        (result.c.repo, asked.repo),
        (result.c.engine, asked.engine),
        (result.c.tier, asked.tier),
        (result.c.origin, asked.origin),
    )
    named = ((result.c.model_slug, asked.model), (result.c.rig_slug, asked.rig))
    found: list[Any] = [column == value for column, value in equal if value is not None]
    found += [column == slug_of(value) for column, value in named if value is not None]
    if asked.contributor is not None:
        owner = select(account.c.id).where(account.c.pseudonym == asked.contributor).scalar_subquery()
        found.append(result.c.account_id == owner)
    if asked.host is not None:
        found.append(result.c.host_id == select(host.c.id).where(host.c.pseudonym == asked.host).scalar_subquery())
    return found


def _decoded(row: Row[Any]) -> ListedResult:
    known = row.host if row.visibility == "public" else None
    found = converted(row, StoredResult)
    return ListedResult(found, row.has_log, row.contributor, known, row.owner, row.address)
