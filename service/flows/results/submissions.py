"""Submissions of people's own benchmarks: parsed, previewed and stored, and their submitters' changes to them: remarks,
hardware, build, or deletion. Rows never change."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable
from datetime import datetime
from urllib.parse import urlsplit

import msgspec
from sqlalchemy.exc import IntegrityError

from service.engine.decoding import require_no_nul
from service.engine.errors import InvalidInput
from service.engine.hardware_text.form import to_shorthand
from service.engine.measured.summary import measured_speed
from service.engine.reduction import reduced
from service.errors import IdempotencyKeyReused, NotAllowed, ResultNotFound, WrongKey
from service.flows.accounts import Caller, hashed, viewer_of
from service.flows.context import Context
from service.flows.results.parse_submission import MOST_REMARKS, ParsedSubmission, parse_submission
from service.flows.results.read_results import outcome_of, read_result, require_visible
from service.flows.results.trust import judged, settle_in
from service.store.queries import new_id
from service.store.results import comparisons, listed_results, results
from service.store.results.results import DELETED_HIDDEN, MOST_CHANGES, OPERATOR, StoredResult
from service.store.results.trust import writing
from service.structs import made_from
from service.wire.results.results import Published, Result
from service.wire.results.submissions import Correction, Preview, ResultChange, Submission, Submitted, SubmittedModel

DELETED = "deleted by its submitter"
_MEANWHILE = "meanwhile it was hidden, deleted or judged again: look at it, and send the change again"
_KEPT = (
    *("id", "account_id", "created_at", "measured_at", "seen", "rows", "rows_key"),
    *("edit_key_hash", "submission_key", "submission_body"),
)
_UNGUESSABLE = 22  # characters of 128 random bits


def preview(
    context: Context, caller: Caller | None, asked: Submission, admit_new_repo: Callable[[], None] = lambda: None
) -> Preview:
    """Return how a submission is understood, and what it lacks; nothing is stored.

    `admit_new_repo` is called before any work on a repo never read here, and may raise. Raises InvalidInput and its
    subclasses for what is present but wrong, and the Hub's errors.
    """
    found = parse_submission(context, asked, admit_new_repo)
    shown = made_from(
        Preview,
        found,
        complete=not found.missing,
        missing=list(found.missing),
        dropped=list(found.dropped),
        warnings=list(found.warnings),
        rig=to_shorthand(found.hardware) if found.hardware else None,
        assumed=list(found.assumed),
        rows=list(found.rows),
        speed=measured_speed(found.rows),
    )
    if found.filed is None:
        return shown
    row = judged(context, _row(context, caller, asked, found))
    same = results.with_rows(context.engine, row.rows_key)
    if same is not None and listed_results.read(context.engine, same.id, viewer_of(caller)) is None:
        same = None  # a private host's or a hidden result, whose id the caller may not learn
    return msgspec.structs.replace(
        shown,
        model=_model(row),
        flags=row.flags,
        predicted=row.prediction.speed if row.prediction else [],
        devices=row.prediction.devices if row.prediction else [],
        compared=outcome_of(row).compared,
        state=row.state,
        state_reason=row.state_reason,
        tier=row.tier,
        duplicate_of=same.id if same else None,
    )


def submit(
    context: Context, caller: Caller | None, asked: Submission, idempotency_key: str | None = None,
    admit_new_repo: Callable[[], None] = lambda: None,
) -> Submitted:  # fmt: skip
    """Store a submission; return its result, or the existing one with the same rows.

    Raises InvalidInput for the first missing or wrong thing, IdempotencyKeyReused, NotAllowed, and as
    `preview`.
    """
    if caller is not None:
        caller.require("submit")
    key = _submission_key(caller, idempotency_key) if idempotency_key else None
    found = parse_submission(context, asked, admit_new_repo)
    if found.missing:
        first = found.missing[0]
        raise InvalidInput(f"this is missing: {first.text}", field=first.field, choices=found.choices)
    edit_key = _edit_key(idempotency_key) if caller is None else None
    row = msgspec.structs.replace(
        _row(context, caller, asked, found),
        submission_key=key,
        submission_body=hashlib.sha256(msgspec.json.encode(asked)).hexdigest() if key else None,
        edit_key_hash=hashed(edit_key) if edit_key else None,
    )
    known = _known(context, row)
    if known is not None:
        return _submitted(known, _same_key(row, known, edit_key))
    row = judged(context, row)
    try:
        with writing(context.engine) as connection:
            kept = results.insert_once(connection, row, found.log)
            if kept.id == row.id:
                settle_in(connection, row.cell, context.clock())
    except IntegrityError:  # the same key, sent twice at once
        again = _known(context, row)
        if again is None:
            raise
        return _submitted(again, _same_key(row, again, edit_key))
    if kept.id != row.id:
        return _submitted(kept, _same_key(row, kept, edit_key))
    return _submitted(results.read(context.engine, row.id) or row, edit_key, is_new=True)


def _known(context: Context, row: StoredResult) -> StoredResult | None:
    """Return the result already made with this key or these rows, if any. Raises IdempotencyKeyReused."""
    if row.submission_key is not None:
        same = results.with_submission_key(context.engine, row.submission_key)
        if same is not None:
            # What was sent is not known of a result kept before it was noted: its rows are.
            is_repeat = same.rows_key == row.rows_key and same.submission_body in (None, row.submission_body)
            if not is_repeat:
                raise IdempotencyKeyReused("this key was sent with another request", field="Idempotency-Key")
            return same
    return results.with_rows(context.engine, row.rows_key)


def _submission_key(caller: Caller | None, idempotency_key: str) -> str:
    who = caller.account_id if caller else ""
    return hashlib.sha256(f"{who}\n{idempotency_key}".encode()).hexdigest()


def _edit_key(idempotency_key: str | None) -> str:
    """Return the result's edit key: random, or derived from the request's own key if that cannot be guessed, so that a
    client that lost the answer gets the same key by asking again.

    `idempotency_key` ends, after its last blank, with what the client sent.
    """
    if idempotency_key is None or len(idempotency_key.rpartition(" ")[2]) < _UNGUESSABLE:
        return secrets.token_urlsafe(24)
    digest = hashlib.sha256(f"edit key\n{idempotency_key}".encode()).digest()
    return base64.urlsafe_b64encode(digest[:24]).decode()


def _same_key(new: StoredResult, known: StoredResult, edit_key: str | None) -> str | None:
    """Return the edit key if the known result was made by this very request, and so opens with it."""
    same = new.submission_key is not None and new.submission_key == known.submission_key
    return edit_key if same and new.edit_key_hash == known.edit_key_hash else None


def _row(context: Context, caller: Caller | None, asked: Submission, found: ParsedSubmission) -> StoredResult:
    if found.filed is None or found.engine is None or found.hardware is None:
        raise InvalidInput("the submission is not complete", field="text")
    return made_from(
        StoredResult,
        found,
        id=new_id(),
        origin="submitted",
        tier="self-reported",
        account_id=caller.account_id if caller else None,
        rows=list(found.rows),
        published=_cited(asked.source, found.filed["measured_at"]) if asked.source else None,
        created_at=context.clock(),
        **found.filed,
    )


def _cited(source: str, measured_at: datetime) -> Published:
    """Return the source of a result that its sender did not measure."""
    return Published(by=urlsplit(source).hostname or "", url=source, date=measured_at.date().isoformat())


def _model(row: StoredResult) -> SubmittedModel:
    return made_from(
        SubmittedModel,
        row,
        name=row.model_name,
        slug=row.model_slug,
        repo=row.repo or "",
        revision=row.model.revision if row.model else None,
        architecture=row.arch,
    )


def _submitted(row: StoredResult, edit_key: str | None = None, *, is_new: bool = False) -> Submitted:
    return made_from(Submitted, row, is_new=is_new, edit_key=edit_key)


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
