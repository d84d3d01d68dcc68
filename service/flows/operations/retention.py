"""Removes what is older than the operator's settings allow: nightly, and by `advisor admin purge`."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from service.flows.context import Records
from service.settings import Settings
from service.store.operations import retention

_EXPIRED_DAYS = 1  # for sessions and codes, which are useless once they have expired


class Purged(msgspec.Struct, frozen=True):
    """How many rows of one kind were older than `days`, and so removed, or only counted."""

    kind: str
    days: int
    rows: int


def purge(context: Records, settings: Settings, *, dry_run: bool = False) -> list[Purged]:
    """Remove (with `dry_run` only count) rows that are too old, by kind, except kinds that are kept for ever."""
    now, act = context.clock(), retention.count if dry_run else retention.remove
    return [
        Purged(kind.name, days, act(context.engine, kind, now - timedelta(days=days)))
        for kind, days in (
            (retention.ADVICE, settings.keep_advice_days),
            (retention.BODIES, settings.keep_bodies_days),
            (retention.LISTINGS, settings.keep_listings_days),
            (retention.BRANCHES, settings.keep_listings_days),
            (retention.LOGS, settings.keep_logs_days),
            (retention.REPORTS, settings.keep_reports_days),
            (retention.REMOVALS, settings.keep_reports_days),
            (retention.SESSIONS, _EXPIRED_DAYS),
            (retention.CODES, _EXPIRED_DAYS),
        )
        if days
    ]
