"""The evidence for trust: the results of a cell with their owners, and the proofs of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime

import msgspec
from sqlalchemy import Connection, Engine, case, delete, func, insert, select

from service.engine.config import Engine as EngineName
from service.engine.measured.rows import MeasuredRow
from service.engine.run_flags import RunFlags
from service.store.engines import locked
from service.store.queries import column, converted
from service.store.results.board import FiledResult
from service.store.results.results import is_known
from service.store.tables import account, host, host_proof
from service.store.tables import result as table
from service.wire.measuring.runs import TrustTier
from service.wire.results.results import ResultOrigin, ResultState

_MOST, _MOST_OF_CELL = 500, 100  # a cell's results are compared pairwise, under a lock
_SETTLING = 7_268_341  # an arbitrary number that no other lock uses


class Witness(FiledResult, frozen=True, kw_only=True):
    """One result of a cell, with its owner's standing (None: no account). `flags`: None if unknown."""

    origin: ResultOrigin
    state: ResultState
    state_reason: str | None
    account_id: str | None
    host_id: str | None
    hardware_key: str | None
    flags: RunFlags | None
    build: str | None
    owner_since: datetime | None
    owner_trusted_at: datetime | None


def writing(engine: Engine) -> AbstractContextManager[Connection]:
    """Begin a transaction of which only one runs at a time, since its writes depend on its reads."""
    return locked(engine, _SETTLING)


def of_cell(connection: Connection, cell: str) -> list[Witness]:
    """Return a cell's results that have rows and are shown or quarantined, oldest first; none of banned accounts.

    Only the newest 100, agents' before others', so that pasted results cannot push those out.
    """
    columns = [table.c[name] for name in Witness.__struct_fields__ if name in table.c]
    owner = (account.c.created_at.label("owner_since"), account.c.trusted_at.label("owner_trusted_at"))
    wanted = select(*columns, *owner).join(account, account.c.id == table.c.account_id, isouter=True)
    wanted = wanted.where(table.c.cell == cell, table.c.state.in_(("shown", "quarantined")), table.c.failure.is_(None))
    pasted = case((table.c.origin == "agent", 0), else_=1)
    order = (pasted, table.c.measured_at.desc(), table.c.id)
    newest = connection.execute(wanted.where(account.c.banned_at.is_(None)).order_by(*order).limit(_MOST_OF_CELL))
    found = [converted(row, Witness) for row in newest]
    return sorted(found, key=lambda one: (one.measured_at, one.id))


def same_model(engine: Engine, model_slug: str, name: EngineName, rows_key: str) -> dict[str, list[MeasuredRow]]:
    """Return the rows of the newest 500 known results of a model with an engine by id, and any with exactly these rows
    (deleted ones are known only if they were hidden before)."""
    wanted = select(table.c.id, table.c.rows)
    wanted = wanted.where(is_known(), table.c.failure.is_(None))
    newest = wanted.where(table.c.model_slug == model_slug, table.c.engine == name)
    newest = newest.order_by(table.c.created_at.desc(), table.c.id).limit(_MOST)
    with engine.connect() as connection:
        found = [*connection.execute(wanted.where(table.c.rows_key == rows_key).limit(1)), *connection.execute(newest)]
    return {row.id: msgspec.convert(row.rows, list[MeasuredRow]) for row in found}


def set_proofs(connection: Connection, cell: str, hosts: Sequence[str], found: Sequence[Witness]) -> set[str]:
    """Store which hosts a cell proves, judging by the results `found`; return the hosts that this may have changed.

    If a cell has more results than were looked at, hosts that were not among them keep their proofs.
    """
    before = set(connection.scalars(select(host_proof.c.host_id).where(host_proof.c.cell == cell)))
    if len(found) == _MOST_OF_CELL:
        before &= {one.host_id or "" for one in found}
    gone, new = before - set(hosts), set(hosts) - before
    if gone:
        connection.execute(delete(host_proof).where(host_proof.c.cell == cell, host_proof.c.host_id.in_(gone)))
    if new:
        connection.execute(insert(host_proof), [{"host_id": host, "cell": cell} for host in sorted(new)])
    return gone | new


def agent_results(connection: Connection, host_id: str, tier: TrustTier) -> list[tuple[str, str | None]]:
    """Return the ids of a host's results of a tier, each with its state's reason."""
    wanted = select(table.c.id, table.c.state_reason)
    wanted = wanted.where(table.c.host_id == host_id, table.c.tier == tier, table.c.origin == "agent")
    return [(row.id, row.state_reason) for row in connection.execute(wanted.order_by(table.c.id))]


def counts_as_agent(connection: Connection, host_id: str) -> bool:
    """Return whether an operator vouches for a host's owner, or the host has a proof: it agreed with a result that
    others replicated without its owner."""
    owner = select(account.c.trusted_at).join(host, host.c.account_id == account.c.id).where(host.c.id == host_id)
    proof = select(host_proof.c.cell).where(host_proof.c.host_id == host_id).limit(1)
    return connection.scalar(owner) is not None or connection.scalar(proof) is not None


def cells_of_account(engine: Engine, account_id: str) -> list[str]:
    wanted = select(table.c.cell).where(table.c.account_id == account_id, table.c.cell.is_not(None)).distinct()
    return [str(cell) for cell in column(engine, wanted.order_by(table.c.cell))]


def cells_that_wait(engine: Engine, since: datetime) -> list[str]:
    """Return cells with agents' results of several owners since then, one of them not replicated: an account may have
    become old enough, which no other event tells."""
    wanted = select(table.c.cell).where(table.c.origin == "agent", table.c.measured_at >= since)
    wanted = wanted.where(table.c.cell.is_not(None), table.c.state == "shown", table.c.failure.is_(None))
    several = func.count(table.c.account_id.distinct()) > 1
    waits = func.sum(case((table.c.tier == "replicated", 0), else_=1)) > 0
    return sorted(map(str, column(engine, wanted.group_by(table.c.cell).having(several).having(waits))))


def hosts_of_account(connection: Connection, account_id: str) -> list[str]:
    wanted = select(table.c.host_id).where(table.c.account_id == account_id, table.c.host_id.is_not(None)).distinct()
    return sorted(str(found) for found in connection.scalars(wanted))
