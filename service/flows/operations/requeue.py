"""Having failed advice and runs tried again, as an operator asks once the cause is fixed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from service.engine.errors import InvalidInput
from service.flows.context import Records
from service.store.advice import advices
from service.store.ids import is_id
from service.store.measuring import runs


class Requeued(msgspec.Struct, frozen=True):
    """What will be tried again. The sweep of a running service takes it up within half a minute."""

    advice: list[str]
    runs: list[str]


def requeue(context: Records, ids: Sequence[str], since: datetime | None, *, dry_run: bool = False) -> Requeued:
    """Queue what failed and has one of `ids`, or all that failed since an instant; `dry_run`: only find it.

    A failure that would come again is a result, and is not tried again; nor is what somebody asked again meanwhile.
    Raises InvalidInput for an id of nothing that failed, naming it.
    """
    known = [one for one in ids if is_id(one)]
    found = advices.failed(context.engine, known, since), runs.failed(context.engine, known, since)
    if missing := [one for one in ids if one not in (*found[0], *found[1])]:
        raise InvalidInput(
            f"no advice or run that failed, and may be tried again, has the id {missing[0][:40]}", field="ID"
        )
    if dry_run:
        return Requeued(*found)
    now = context.clock()
    return Requeued(
        [one for one in found[0] if advices.requeue(context.engine, one, now)],
        [one for one in found[1] if runs.requeue(context.engine, one, now)],
    )
