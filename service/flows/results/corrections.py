"""Submitters' changes to their results: remarks, hardware, build, or deletion. Rows never change."""

from __future__ import annotations

import hmac
from collections.abc import Callable

import msgspec

from service.engine.decoding import require_no_nul
from service.engine.errors import InvalidInput
from service.engine.hardware_text.form import to_shorthand
from service.engine.reduction import reduced
from service.errors import NotAllowed, ResultNotFound, WrongKey
from service.flows.accounts import Caller, hashed
from service.flows.context import Context
from service.flows.results.parse_submission import MOST_REMARKS, parse_submission
from service.flows.results.read_results import read_result, require_visible
from service.flows.results.trust import judged, settle_in
from service.store.results import comparisons, results
from service.store.results.results import DELETED_HIDDEN, MOST_CHANGES, OPERATOR, StoredResult
from service.store.results.trust import writing
from service.wire.results.results import Result
from service.wire.results.submissions import Correction, ResultChange, Submission

DELETED = "deleted by its submitter"
_MEANWHILE = "meanwhile it was hidden, deleted or judged again: look at it, and send the change again"
_KEPT = (
    *("id", "account_id", "created_at", "measured_at", "seen", "rows", "rows_key"),
    *("edit_key_hash", "submission_key", "submission_body"),
)


def correct(
    context: Context, caller: Caller | None, edit_key: str | None, result_id: str, asked: Correction,
    admit_new_repo: Callable[[], None] = lambda: None,
) -> Result:  # fmt: skip
    """Correct a result for its submitter: predict, judge and compare it again, and keep what it was before.

    Raises ResultNotFound, NotAllowed or WrongKey for somebody else's, InvalidInput for wrong values.
    """
    require_no_nul(asked)
    row = _own(context, caller, edit_key, result_id)
    if len(results.changes_of(context.engine, row.id)) >= MOST_CHANGES:
        raise InvalidInput(f"it was changed {MOST_CHANGES} times: delete it and send it again", field="id")
    new = _again(context, row, asked, admit_new_repo) if asked.hardware or asked.build else row
    if asked.remarks is not None:
        new = msgspec.structs.replace(new, remarks=reduced(asked.remarks)[:MOST_REMARKS] or None)
    values = {
        name: new_value for name, new_value in msgspec.structs.asdict(new).items() if new_value != getattr(row, name)
    }
    before = _before(row, new)
    if before:
        what = f"{', '.join(before)} changed"
        with writing(context.engine) as connection:
            if results.state_in(connection, row.id) != row.state:
                raise InvalidInput(_MEANWHILE, field="id")
            results.change(connection, row.id, **values)
            comparisons.forget(connection, row.id)
            results.add_change(connection, row.id, context.clock(), what, before)
            for cell in dict.fromkeys((row.cell, new.cell)):
                settle_in(connection, cell, context.clock())
    return read_result(context, row.id, caller)


def delete(context: Context, caller: Caller | None, edit_key: str | None, result_id: str) -> None:
    """Delete a result for its submitter: its log, command, remarks and history are erased, and it is shown nowhere.

    A hidden one stays known by its figures, so that deleting it does not allow sending it again as new.
    Raises ResultNotFound, NotAllowed or WrongKey for somebody else's.
    """
    row = _own(context, caller, edit_key, result_id)
    with writing(context.engine) as connection:
        reason = DELETED_HIDDEN if results.state_in(connection, row.id) == "hidden" else DELETED
        results.erase(connection, row.id, reason)
        results.add_change(connection, row.id, context.clock(), "deleted", {})
        settle_in(connection, row.cell, context.clock())


def history(context: Context, result_id: str, caller: Caller | None = None) -> list[ResultChange]:
    """Return the changes of a shown result, oldest first. Raises ResultNotFound."""
    read_result(context, result_id, caller)
    return results.changes_of(context.engine, result_id)


def _own(context: Context, caller: Caller | None, edit_key: str | None, result_id: str) -> StoredResult:
    row = results.read(context.engine, result_id)
    if row is None or row.state == "deleted":
        raise ResultNotFound("there is no result with this id, or it was deleted", field="id")
    if edit_key is not None:
        if row.edit_key_hash is None or not hmac.compare_digest(row.edit_key_hash, hashed(edit_key)):
            raise WrongKey("this is not the key that was given when the result was sent", field="X-Edit-Key")
        return row
    if caller is None or row.account_id != caller.account_id:
        require_visible(context, caller, row)
    if caller is None:
        raise WrongKey(
            "it needs the key that was given when the result was sent, or its account's token", field="X-Edit-Key"
        )
    caller.require("submit")
    if row.account_id != caller.account_id:
        raise NotAllowed("this result belongs to another account")
    return row


def _again(context: Context, row: StoredResult, asked: Correction, admit_new_repo: Callable[[], None]) -> StoredResult:
    """Return the result parsed again from the same rows and command with the corrected hardware or build."""
    if row.origin != "submitted" or row.model is None or row.command is None:
        raise InvalidInput(
            "hardware and build that an agent or an author reported cannot be changed here", field="hardware"
        )
    sent = Submission(
        text=results.read_log(context.engine, row.id),
        command=row.command,
        rows=row.rows,
        hardware=asked.hardware or row.hardware,
        repo=f"{row.repo}:{row.variant}",
        revision=row.model.revision,
        engine=row.engine,
        build=asked.build or row.build,
    )
    found = parse_submission(context, sent, admit_new_repo)
    if found.filed is None or found.hardware is None:
        raise InvalidInput(f"this is missing: {found.missing[0].text}", field=found.missing[0].field)
    kept = {name: getattr(row, name) for name in _KEPT}
    new = msgspec.structs.replace(row, **(found.filed | kept), hardware=found.hardware, build=found.build)
    plain = msgspec.structs.replace(new, state="shown", state_reason=None)
    fixed = row.state == "hidden" or (row.state_reason or "").startswith(OPERATOR)
    judgement = judged(context, plain)
    return msgspec.structs.replace(judgement, state=row.state, state_reason=row.state_reason) if fixed else judgement


def _before(row: StoredResult, new: StoredResult) -> dict[str, str]:
    """Return the previous values of what changes for readers."""
    told = {
        "hardware": (to_shorthand(row.hardware), to_shorthand(new.hardware)),
        "build": (row.build or "", new.build or ""),
        "remarks": (row.remarks or "", new.remarks or ""),
    }
    return {name: was[:4000] for name, (was, now) in told.items() if was != now}
