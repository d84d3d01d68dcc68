"""Reads results that were predicted before they were measured."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Engine, or_, select

from service.engine.measured.roofline import Prediction
from service.engine.run_flags import RunFlags
from service.store.queries import several
from service.store.results.board import FiledResult
from service.store.tables import account, host
from service.store.tables import result as table
from service.store.viewers import ANYBODY, is_proven_to, may_see
from service.wire.measuring.runs import TrustTier
from service.wire.results.results import ResultModel, ResultOrigin, Seen


class Predicted(FiledResult, frozen=True, kw_only=True):
    """A result with its prediction."""

    origin: ResultOrigin
    n_params: int | None
    n_active: int | None
    seen: Seen
    prediction: Prediction


def predicted(engine: Engine, most: int) -> list[Predicted]:
    """Return the newest shown results that have rows and a prediction and are proven or published; nothing of banned
    accounts or private hosts."""
    wanted = select(*(table.c[name] for name in Predicted.__struct_fields__))
    wanted = wanted.join(account, account.c.id == table.c.account_id, isouter=True)
    wanted = wanted.where(table.c.state == "shown", table.c.failure.is_(None), table.c.prediction.is_not(None))
    wanted = wanted.join(host, host.c.id == table.c.host_id, isouter=True)
    wanted = wanted.where(or_(account.c.id.is_(None), account.c.banned_at.is_(None)), may_see(ANYBODY))
    wanted = wanted.where(or_(table.c.origin == "published", is_proven_to(ANYBODY)))
    newest = wanted.order_by(table.c.measured_at.desc(), table.c.id).limit(most)
    return several(engine, newest, Predicted)


class BelievedResult(FiledResult, frozen=True, kw_only=True):
    """A believed result, with what is needed to predict it again."""

    account_id: str
    build: str | None
    model: ResultModel
    flags: RunFlags
    prediction: Prediction


def accepted(engine: Engine, tiers: Sequence[TrustTier], most: int) -> list[BelievedResult]:
    """Return the newest shown results of these tiers whose model, flags and prediction are known, newest first; nothing
    of banned accounts or private hosts."""
    wanted = select(*(table.c[name] for name in BelievedResult.__struct_fields__))
    wanted = wanted.join(account, account.c.id == table.c.account_id)
    wanted = wanted.join(host, host.c.id == table.c.host_id, isouter=True).where(may_see(ANYBODY))
    wanted = wanted.where(table.c.state == "shown", table.c.failure.is_(None), table.c.tier.in_(tiers))
    wanted = wanted.where(table.c.model.is_not(None), table.c.flags.is_not(None), table.c.prediction.is_not(None))
    newest = wanted.where(account.c.banned_at.is_(None)).order_by(table.c.measured_at.desc(), table.c.id).limit(most)
    return several(engine, newest, BelievedResult)
