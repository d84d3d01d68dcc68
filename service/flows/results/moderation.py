"""Operators' acts on results and accounts, each recorded with who, when and why; reports of abuse; and requests for
removal.

A removed result is erased like one that its submitter deletes. Older dumps are deleted once new ones are written, which
a removal makes due at once; backups keep it until the operator deletes them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from sqlalchemy import Connection

from service.engine.errors import InvalidInput
from service.engine.measured.identity import plain
from service.engine.reduction import reduced
from service.errors import ResultNotFound
from service.flows.accounts import Caller
from service.flows.context import Records
from service.flows.results import trust
from service.flows.results.differences import open_differences
from service.flows.results.read_results import read_result, require_visible
from service.logs import Log
from service.store import versions
from service.store.measuring import hosts
from service.store.operations import jobs
from service.store.queries import is_id, is_name
from service.store.results import moderation as store
from service.store.results import results
from service.store.results.moderation import Act
from service.store.results.results import OPERATOR
from service.store.results.trust import writing
from service.structs import made_from
from service.wire.results.moderation import (
    AbuseReport,
    AuditEntry,
    Moderation,
    OpenRemovalRequest,
    OpenReport,
    QuarantinedResult,
    RemovalAsked,
    RemovalRequest,
    Reported,
)
from service.wire.results.results import ResultState

log = Log("removals")

ON_THE_MACHINE = "operator on the service's machine"
BANNED = "its account was banned"
REMOVED = "removed by an operator, on request"
_UP: tuple[ResultState, ...] = ("shown", "quarantined")


def moderate(context: Records, by: str, asked: Moderation) -> AuditEntry:
    """Carry out an operator's act and record it. `by`: the name of the operator's account, or ON_THE_MACHINE.

    Raises InvalidInput if nothing has that id or name, or it is in that state already.
    """
    now = context.clock()
    reason = plain(asked.reason)
    acts: dict[str, Callable[[Records, Act], Act]] = {
        "hide": partial(_set_state, state="hidden", reason=f"{OPERATOR}hid it: {reason}"),
        "show": partial(_set_state, state="shown", reason=f"{OPERATOR}looked at it: {reason}"),
        "trust": partial(_trust, since=now), "distrust": partial(_trust, since=None),
        "ban": _ban, "unban": _unban, "close": _close,
        "revoke": _revoke, "remove": _remove, "refuse": _refuse, "settle": _settle,
    }  # fmt: skip
    return made_from(AuditEntry, acts[asked.action](context, Act(now, by, asked.action, asked.subject, reason)))


def audit(context: Records, subject: str | None = None) -> list[AuditEntry]:
    """Return operators' latest 200 acts, newest first."""
    return store.acts(context.engine, subject)


def report_abuse(context: Records, caller: Caller | None, result_id: str, said: AbuseReport) -> Reported:
    """Store a report of what is wrong with a result. Raises ResultNotFound."""
    row = read_result(context, result_id, caller)
    text = plain(reduced(said.text))[:1000]
    who, now = caller.account_id if caller else None, context.clock()
    about = {"result_id": row.id, "account_id": who, "created_at": now}
    return Reported(store.add(context.engine, "reports", **about, kind=said.kind, text=text))


def open_reports(context: Records) -> list[OpenReport]:
    """Return the open reports, oldest first."""
    return store.open_reports(context.engine)


def quarantined(context: Records) -> list[QuarantinedResult]:
    """Return the quarantined results, newest first."""
    return store.quarantined(context.engine)


def _set_state(context: Records, act: Act, state: ResultState, reason: str) -> Act:
    row = results.read(context.engine, act.subject)
    with writing(context.engine) as connection:
        # Checked inside the transaction, because its submitter may be deleting it for good right now.
        if row is None or results.state_in(connection, row.id) == "deleted":
            raise InvalidInput("no result has this id, or its submitter has deleted it", field="subject")
        results.change(connection, row.id, state=state, state_reason=reason)
        store.note(connection, act)
        trust.settle_in(connection, row.cell, act.at)
    return act


def _ban(context: Records, act: Act) -> Act:
    """Refuse the account's tokens and hosts from now on, and hide its results."""

    def change(connection: Connection, account_id: str) -> None:
        store.set_standing(connection, account_id, banned_at=act.at)
        results.hide(connection, [row.id for row in store.results_of(connection, account_id, _UP)], BANNED)

    return _change_account(context, act, change)


def _unban(context: Records, act: Act) -> Act:
    """Lift a ban; the account's results are judged again, except those that an operator hid."""
    hidden: list[str] = []

    def change(connection: Connection, account_id: str) -> None:
        store.set_standing(connection, account_id, banned_at=None)
        hidden.extend(
            row.id for row in store.results_of(connection, account_id, ("hidden",)) if row.state_reason == BANNED
        )

    done = _change_account(context, act, change)
    for row in results.of_ids(context.engine, hidden).values():
        trust.judge_again(context, row)
    return done


def _trust(context: Records, act: Act, since: datetime | None) -> Act:
    return _change_account(context, act, lambda c, account_id: store.set_standing(c, account_id, trusted_at=since))


def _change_account(context: Records, act: Act, change: Callable[[Connection, str], None]) -> Act:
    with writing(context.engine) as connection:
        found = store.account_of(connection, act.subject)
        if found is None:
            raise InvalidInput("no account has this name or pseudonym", field="subject")
        account_id, name = found
        if (act.action, act.by) == ("ban", name):
            raise InvalidInput(
                "this is your own account: a ban would revoke the token that could lift it", field="subject"
            )
        change(connection, account_id)
        act = act._replace(subject=name)
        store.note(connection, act)
    trust.settle_account(context, account_id)
    return act


def _close(context: Records, act: Act) -> Act:
    with writing(context.engine) as connection:
        if not is_id(act.subject) or not store.close_report(connection, act.subject, act.by, act.at):
            raise InvalidInput("no open report has this id", field="subject")
        store.note(connection, act)
    return act


def _revoke(context: Records, act: Act) -> Act:
    with writing(context.engine) as connection:
        host_id = hosts.named(connection, act.subject) if is_name(act.subject) else None
        if host_id is None:
            raise InvalidInput("no host has this pseudonym or id, or it has already been revoked", field="subject")
        hosts.change_in(connection, host_id, act.at, state="revoked")
        act = act._replace(subject=host_id)
        store.note(connection, act)
    return act


def _settle(context: Records, act: Act) -> Act:
    """Mark a difference as explained by what logs showed so far; later results that show it count anew."""
    if all(one.reported.name != act.subject for one in open_differences(context)):
        raise InvalidInput("no unsettled difference has this name: /v1/accuracy lists them", field="subject")
    with writing(context.engine) as connection:
        versions.count_change(connection)
        store.note(connection, act)
    return act


def ask_removal(context: Records, caller: Caller | None, result_id: str, said: RemovalRequest) -> RemovalAsked:
    """Store a request to remove a result that the caller may see, or a hidden one. Raises ResultNotFound."""
    row = results.read(context.engine, result_id)
    if row is None or row.state == "deleted":
        raise ResultNotFound("there is no result with this id, or it was deleted", field="id")
    require_visible(context, caller, row)
    text, contact = plain(reduced(said.text))[:1000], plain(said.contact)[:200] if said.contact else None
    about = {"result_id": row.id, "account_id": caller.account_id if caller else None, "created_at": context.clock()}
    kept = store.add(context.engine, "removals", **about, text=text, contact=contact)
    log.warning("removal.asked", result_id=row.id)
    return RemovalAsked(kept)


def open_requests(context: Records) -> list[OpenRemovalRequest]:
    """Return the undecided requests, oldest first."""
    return store.open_removals(context.engine)


def _remove(context: Records, act: Act) -> Act:
    """Erase a result for good, granting every request about it. Raises InvalidInput if there is none."""
    row = results.read(context.engine, act.subject)
    with writing(context.engine) as connection:
        if row is None or results.state_in(connection, row.id) == "deleted":
            raise InvalidInput("no result has this id, or it was deleted before", field="subject")
        results.erase(connection, row.id, REMOVED, edit_key_hash=None)
        store.close_removals(connection, act.by, act.at, removed=True, result_id=row.id)
        store.note(connection, act)
        trust.settle_in(connection, row.cell, act.at)
    jobs.hasten(context.engine, "dumps", act.at)
    return act


def _refuse(context: Records, act: Act) -> Act:
    """Refuse a request: close it and remove nothing. Raises InvalidInput if none open has this id."""
    with writing(context.engine) as connection:
        asked = act.subject if is_id(act.subject) else None
        if not asked or not store.close_removals(connection, act.by, act.at, removed=False, request_id=asked):
            raise InvalidInput("no open request for removal has this id", field="subject")
        store.note(connection, act)
    return act
