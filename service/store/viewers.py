"""Who reads results, and how far what is read must be borne out. No function that reads results assumes either."""

from __future__ import annotations

from enum import Enum

import msgspec
from sqlalchemy import ColumnElement, and_, false, or_, select, true

from service.store.tables import host, run
from service.store.tables import result as table
from service.wire.measuring.runs import TrustTier

BELIEVED: tuple[TrustTier, ...] = ("agent-run", "replicated")
"""Tiers whose results change what others are told."""


class Viewer(msgspec.Struct, frozen=True):
    """Who reads: an account (None: anybody), and whether it operates the service."""

    account_id: str | None
    is_operator: bool = False


ANYBODY = Viewer(None)


class Trust(Enum):
    """How far results must be borne out for what they are read for."""

    PROVEN = "proven"
    """For what changes an answer: of the tiers BELIEVED, and what the viewer's own hosts measured."""
    UNPROVEN_TOO = "unproven too"
    """To be shown with its tier, and to change nothing."""


def may_see(viewer: Viewer) -> ColumnElement[bool]:
    """Return the condition that a viewer may see a result, in a query that has `host` joined (outer).

    What a private host measured is its owner's, of anyone who had asked for it, and for operators.
    """
    if viewer.is_operator:
        return true()
    public = or_(table.c.host_id.is_(None), host.c.visibility == "public")
    if viewer.account_id is None:
        return public
    asked = select(run.c.result_id).where(run.c.account_id == viewer.account_id, run.c.result_id.is_not(None))
    return or_(public, host.c.account_id == viewer.account_id, table.c.id.in_(asked))


def is_trusted(trust: Trust, viewer: Viewer) -> ColumnElement[bool]:
    """Return the condition that a result is as well borne out as `trust` says, in a query that has `host` joined."""
    if trust is Trust.UNPROVEN_TOO:
        return true()
    own = host.c.account_id == viewer.account_id if viewer.account_id is not None else false()
    return or_(and_(table.c.tier.in_(BELIEVED), may_see(ANYBODY)), own)
