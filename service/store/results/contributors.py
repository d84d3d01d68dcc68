"""Contributors of results: accounts by pseudonym, and public hosts with their figures."""

from __future__ import annotations

from sqlalchemy import Engine, func, select

from service.store.accounts import StoredAccount
from service.store.queries import is_name, one, shown
from service.store.tables import account, host, result, run
from service.store.viewers import ANYBODY, may_see
from service.wire.results.board import HostFigures

_MOST_HOSTS = 500


def read(engine: Engine, pseudonym: str) -> StoredAccount | None:
    """Return the account with this pseudonym unless it is banned."""
    wanted = select(account).where(account.c.pseudonym == pseudonym, account.c.banned_at.is_(None))
    return one(engine, wanted, StoredAccount) if is_name(pseudonym) else None


def by_tier(engine: Engine, account_id: str) -> dict[str, int]:
    """Return how many of an account's results are public, by tier; none of private hosts."""
    wanted = select(result.c.tier, func.count().label("n")).outerjoin(host, host.c.id == result.c.host_id)
    wanted = wanted.where(result.c.account_id == account_id, result.c.state == "shown", may_see(ANYBODY))
    with engine.connect() as connection:
        rows = connection.execute(wanted.group_by(result.c.tier).order_by(result.c.tier)).all()
    return {row.tier: row.n for row in rows}


def hosts(engine: Engine) -> list[HostFigures]:
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
