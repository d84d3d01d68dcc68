"""Retries failed advices and runs at an operator's request, once the cause is fixed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from service.engine.errors import InvalidInput
from service.flows.context import Records
from service.store.advice import advices
from service.store.measuring import runs
from service.store.queries import is_id


class Requeued(msgspec.Struct, frozen=True):
    """The ids of what will be retried, which a running service's sweep takes up within half a minute."""

    advice: list[str]
    runs: list[str]


def requeue(context: Records, ids: Sequence[str], since: datetime | None, *, dry_run: bool = False) -> Requeued:
    """Queue the failed advices and runs with these ids, or all that failed since an instant; `dry_run` only finds them.

    Permanent failures are results and are not retried; nor is an advice that somebody has requested again since.
    Raises InvalidInput, naming the id, if one belongs to nothing that failed.
    """
    known = [one for one in ids if is_id(one)]
    found = advices.failed(context.engine, known, since), runs.failed(context.engine, known, since)
    if missing := [one for one in ids if one not in (*found[0], *found[1])]:
        raise InvalidInput(f"no failed advice or run that may be tried again has the id {missing[0][:40]}", field="ID")
    if dry_run:
        return Requeued(*found)
    now = context.clock()
    return Requeued(
        [one for one in found[0] if advices.requeue(context.engine, one, now)],
        [one for one in found[1] if runs.requeue(context.engine, one, now)],
    )
