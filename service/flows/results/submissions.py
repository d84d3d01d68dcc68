"""Submissions of people's own benchmarks: parsed, previewed, and stored."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable
from datetime import datetime
from urllib.parse import urlsplit

import msgspec
from sqlalchemy.exc import IntegrityError

from service.engine.errors import InvalidInput
from service.engine.hardware_text.form import to_shorthand
from service.engine.measured.summary import measured_speed
from service.errors import IdempotencyKeyReused
from service.flows.accounts import Caller, hashed, viewer_of
from service.flows.context import Context
from service.flows.results.parse_submission import ParsedSubmission, parse_submission
from service.flows.results.read_results import outcome_of
from service.flows.results.trust import judged, settle_in
from service.store.queries import new_id
from service.store.results import listed_results, results
from service.store.results.results import StoredResult
from service.store.results.trust import writing
from service.structs import made_from
from service.wire.results.results import Published
from service.wire.results.submissions import Preview, Submission, Submitted, SubmittedModel

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
    return SubmittedModel(
        name=row.model_name,
        slug=row.model_slug,
        repo=row.repo or "",
        revision=row.model.revision if row.model else None,
        variant=row.variant,
        architecture=row.arch,
        bpw=row.bpw,
    )


def _submitted(row: StoredResult, edit_key: str | None = None, *, is_new: bool = False) -> Submitted:
    return made_from(Submitted, row, is_new=is_new, edit_key=edit_key)
