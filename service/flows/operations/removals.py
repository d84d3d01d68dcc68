"""Requests to remove a result: stored, listed, and granted or refused by an operator.

A removed result is erased like one that its submitter deletes. Older dumps are deleted once new ones are written, which
a removal makes due at once; backups keep it until the operator deletes them.
"""

from __future__ import annotations

from service.engine.errors import InvalidInput
from service.engine.measured.identity import plain
from service.engine.reduction import reduced
from service.errors import ResultNotFound
from service.flows.accounts import Caller
from service.flows.context import Records
from service.flows.results import trust
from service.flows.results.read_results import require_visible
from service.logs import Log
from service.store.operations import jobs
from service.store.queries import is_id
from service.store.results import moderation, results
from service.store.results.moderation import Act
from service.store.results.trust import writing
from service.wire.results.moderation import OpenRemovalRequest, RemovalAsked, RemovalRequest

log = Log("removals")

REMOVED = "removed by an operator, on request"


def ask_removal(context: Records, caller: Caller | None, result_id: str, said: RemovalRequest) -> RemovalAsked:
    """Store a request to remove a result that the caller may see, or a hidden one. Raises ResultNotFound."""
    row = results.read(context.engine, result_id)
    if row is None or row.state == "deleted":
        raise ResultNotFound("there is no result with this id, or it was deleted", field="id")
    require_visible(context, caller, row)
    text, contact = plain(reduced(said.text))[:1000], plain(said.contact)[:200] if said.contact else None
    about = {"result_id": row.id, "account_id": caller.account_id if caller else None, "created_at": context.clock()}
    kept = moderation.add(context.engine, "removals", **about, text=text, contact=contact)
    log.warning("removal.asked", result_id=row.id)
    return RemovalAsked(kept)


def open_requests(context: Records) -> list[OpenRemovalRequest]:
    """Return the undecided requests, oldest first."""
    return moderation.open_removals(context.engine)


def remove(context: Records, act: Act) -> Act:
    """Erase a result for good, granting every request about it. Raises InvalidInput if there is none."""
    row = results.read(context.engine, act.subject)
    with writing(context.engine) as connection:
        if row is None or results.state_in(connection, row.id) == "deleted":
            raise InvalidInput("no result has this id, or it was deleted before", field="subject")
        results.erase(connection, row.id, REMOVED, edit_key_hash=None)
        moderation.close_removals(connection, act.by, act.at, removed=True, result_id=row.id)
        moderation.note(connection, act)
        trust.settle_in(connection, row.cell, act.at)
    jobs.hasten(context.engine, "dumps", act.at)
    return act


def refuse(context: Records, act: Act) -> Act:
    """Refuse a request: close it and remove nothing. Raises InvalidInput if none open has this id."""
    with writing(context.engine) as connection:
        asked = act.subject if is_id(act.subject) else None
        if not asked or not moderation.close_removals(connection, act.by, act.at, removed=False, request_id=asked):
            raise InvalidInput("no open request for removal has this id", field="subject")
        moderation.note(connection, act)
    return act
