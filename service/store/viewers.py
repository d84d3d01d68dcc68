"""Who may see which results, and which of them may change their answers."""

from __future__ import annotations

import msgspec
from sqlalchemy import ColumnElement, and_, false, or_, select, true

from service.store.tables import host, run
from service.store.tables import result as table
from service.wire.measuring.runs import TrustTier

BELIEVED: tuple[TrustTier, ...] = ("agent-run", "replicated")
"""Tiers whose results may change other people's answers."""


class Viewer(msgspec.Struct, frozen=True):
    """Who reads: an account (None: anybody), and whether it is an operator's."""

    account_id: str | None
    is_operator: bool = False


ANYBODY = Viewer(None)


def may_see(viewer: Viewer) -> ColumnElement[bool]:
    """Return the condition that a viewer may see a result, in a query that has `host` joined (outer).

    A private host's results are for its owner, for whoever asked for them, and for operators.
    """
    if viewer.is_operator:
        return true()
    public = or_(table.c.host_id.is_(None), host.c.visibility == "public")
    if viewer.account_id is None:
        return public
    asked = select(run.c.result_id).where(run.c.account_id == viewer.account_id, run.c.result_id.is_not(None))
    return or_(public, host.c.account_id == viewer.account_id, table.c.id.in_(asked))


def is_proven_to(viewer: Viewer) -> ColumnElement[bool]:
    """Return the condition that a result may change a viewer's answers, in a query that has `host` joined.

    That takes a tier of BELIEVED that anybody may see, or a host of the viewer's own.
    """
    own = host.c.account_id == viewer.account_id if viewer.account_id is not None else false()
    return or_(and_(table.c.tier.in_(BELIEVED), may_see(ANYBODY)), own)
