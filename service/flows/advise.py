"""From a request to an advice: the row first, then the queue; a worker computes, and may do so twice."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from service import logs, metrics
from service.engine import advise as engine_advise
from service.engine.advice import AdviceBody
from service.engine.errors import AdvisorError
from service.engine.measured import model_identity
from service.engine.speed.calibration import version_put_in_force
from service.errors import AdviceFailed, AdviceNotFound, QueueUnavailable, ServiceUnavailable, WrongKey, describe
from service.flows import calibration
from service.flows.context import Context
from service.flows.in_use import models_for
from service.flows.measured_advice import with_results
from service.flows.reading import Advise
from service.flows.repos import known_revision, list_repo, reading
from service.flows.requests import Request, parse_request, request_key
from service.hub import RepoListing
from service.logs import Log
from service.queue.enqueue import enqueue_advice, ensure_enqueued
from service.queue.progress import publish
from service.store import advices, listings, versions
from service.store.advices import StoredAdvice
from service.wire.advice import FINAL, Advice, AdviceEvent, AdviceRequest
from service.wire.problem import stored_problem

log = Log("advice")

MAX_UNFINISHED = 1000  # requests waiting at a time, of all clients together
MAX_FAILURES = 3  # attempts that end in an error nobody planned
MAX_ATTEMPTS = 10  # attempts in all, those too that ended with their worker: a request may not kill workers for ever


class Requested(msgspec.Struct, frozen=True):
    """The advice that answers a request; `delete_key` when the request made it."""

    advice: Advice
    delete_key: str | None = None


class ReadyAdvice(NamedTuple):
    """A finished advice, and the version of what it says now."""

    id: str
    version: str


def request_advice(
    context: Context, asked: AdviceRequest, admit_new_repo: Callable[[], None] = lambda: None
) -> Requested:
    """Return a finished advice for this request, the one being computed for it, or a new one, committed and queued.

    `admit_new_repo` is called before work begins on a repo never read here, and may raise. Raises InvalidInput and
    its kinds for a request that cannot be answered.
    """
    request = parse_request(asked)
    ready = _ready(context, request)
    if ready is not None:
        metrics.ADVICE_ASKED.of("ready").inc()
        return Requested(_as_advice(ready, context))
    shared = advices.in_flight(context.engine, request_key(request, None))
    if shared:
        metrics.ADVICE_ASKED.of("joined").inc()
        return Requested(_as_advice(shared))
    if not listings.is_known(context.engine, request.repo):
        admit_new_repo()
    if advices.count_unfinished(context.engine) >= MAX_UNFINISHED:
        raise ServiceUnavailable(f"{MAX_UNFINISHED} requests are waiting already: ask again in a few minutes")
    return _queue(context, request)


def ready_advice(context: Context, asked: AdviceRequest) -> ReadyAdvice | None:
    """Return which finished advice answers this request. Raises InvalidInput as `request_advice`."""
    advice_id = _ready_id(context, parse_request(asked))
    found = versions.of_advice(context.engine, advice_id) if advice_id else None
    if advice_id is None or found is None:
        return None
    metrics.ADVICE_ASKED.of("ready").inc()
    return ReadyAdvice(advice_id, _version(found))


def _ready_id(context: Context, request: Request) -> str | None:
    revision = known_revision(context, request.reference)
    return advices.ready_under(context.engine, request_key(request, revision)) if revision else None


def _ready(context: Context, request: Request) -> StoredAdvice | None:
    advice_id = _ready_id(context, request)
    return advices.read(context.engine, advice_id) if advice_id else None


def _queue(context: Context, request: Request) -> Requested:
    delete_key = secrets.token_urlsafe(24)
    row = _new_row(context, request, delete_key)
    if not advices.add(context.engine, row):
        shared = advices.in_flight(context.engine, row.request_key)
        return Requested(_as_advice(shared)) if shared else _queue(context, request)
    with suppress(QueueUnavailable):  # it is logged, and the sweeper enqueues the row when Redis answers
        enqueue_advice(context.redis, row.id)
    logs.note(advice_id=row.id)
    metrics.ADVICE_ASKED.of("new").inc()
    log.info("advice.queued")
    return Requested(_as_advice(row), delete_key)


def _new_row(context: Context, request: Request, delete_key: str) -> StoredAdvice:
    now = context.clock()
    return StoredAdvice(
        id=secrets.token_urlsafe(16),
        request_key=request_key(request, None),
        key=None,
        state="queued",
        repo=request.repo,
        revision=None,
        request=request.canonical,
        body=None,
        problem=None,
        progress=None,
        attempts=0,
        delete_key_hash=_hash(delete_key),
        created_at=now,
        updated_at=now,
        request_id=logs.request_id(),
    )


def read_advice(context: Context, advice_id: str) -> Advice:
    """Return the advice as it is now. Raises AdviceNotFound."""
    return _as_advice(_row(context, advice_id), context)


def advice_progress(context: Context, advice_id: str) -> AdviceEvent:
    """Return how far an advice is. Raises AdviceNotFound."""
    found = advices.progress_of(context.engine, advice_id)
    if found is None:
        raise _not_found()
    return found


def advice_version(context: Context, advice_id: str) -> str | None:
    """Return what says whether `read_advice` would return the same again; None while it moves on.

    Raises AdviceNotFound.
    """
    found = versions.of_advice(context.engine, advice_id)
    if found is None:
        raise _not_found()
    return _version(found) if found.state in FINAL else None


def _version(found: versions.AdviceVersion) -> str:
    return f"{found.results} {version_put_in_force()}"


def asked_for(context: Context, advice_id: str) -> AdviceRequest:
    """Return the request that an advice answers, in canonical form. Raises AdviceNotFound."""
    return _row(context, advice_id).request


def delete_advice(context: Context, advice_id: str, key: str) -> None:
    """Delete an advice, in whatever state it is. Raises AdviceNotFound, or WrongKey."""
    row = _row(context, advice_id)
    if not hmac.compare_digest(row.delete_key_hash, _hash(key)):
        raise WrongKey("this key was not given when the advice was made", field="X-Advice-Key")
    advices.remove(context.engine, advice_id)


def requeue_unfinished(context: Context) -> int:
    """Enqueue every advice that is still to be computed and has no living job; return how many there were.

    Raises QueueUnavailable. Called at start and by a sweeper: Redis may be wiped at any moment.
    """
    now = context.clock()
    beat = context.settings.heartbeat_seconds
    return sum(ensure_enqueued(context.redis, advice_id, now, beat) for advice_id in advices.unfinished(context.engine))


def compute_advice(context: Context, advice_id: str, advise: Advise = engine_advise.advise) -> None:
    """Compute a queued advice and store it, or why it cannot be; nothing happens when that is done already.

    Runs at least once for each advice, maybe twice at a time: the first to finish wins. An error that nobody planned
    is raised, so that the queue tries again, until MAX_FAILURES.
    """
    calibration.in_force(context)
    row = advices.start(context.engine, advice_id, context.clock())
    if row is not None:
        with logs.bound(advice_id=row.id, request_id=row.request_id):
            log.info("advice.started", attempt=row.attempts)
            _finish(context, row, advise)


def _finish(context: Context, row: StoredAdvice, advise: Advise) -> None:
    try:
        if row.attempts > MAX_ATTEMPTS:
            raise AdviceFailed(f"it was begun {MAX_ATTEMPTS} times and never ended")
        body = _compute(context, row, advise)
    except ServiceUnavailable:
        raise  # nothing is wrong with the request
    except AdvisorError as error:
        _fail(context, row, error)
    except Exception as error:
        metrics.ADVICE_ENDED.of("retried").inc()
        log.error("advice.retried", error, attempt=row.attempts)
        if row.attempts < MAX_FAILURES:
            raise
        _fail(context, row, AdviceFailed(f"an unexpected error ({type(error).__name__}); it has been logged"))
    else:
        advices.finish(context.engine, row.id, body, context.clock())
        log.info("advice.ready", duration_ms=_ended(context, row, "ready"))
        publish(context.redis, AdviceEvent(row.id, "ready", None))


def _fail(context: Context, row: StoredAdvice, error: AdvisorError) -> None:
    advices.fail(context.engine, row.id, describe(error), context.clock())
    log.warning("advice.failed", problem=error.problem, duration_ms=_ended(context, row, "failed"))
    publish(context.redis, AdviceEvent(row.id, "failed", None))


def _ended(context: Context, row: StoredAdvice, outcome: str) -> int:
    """Count it, and return the milliseconds since it was asked for: what a person waits, with the queue."""
    seconds = (context.clock() - row.created_at).total_seconds()
    metrics.ADVICE_ENDED.of(outcome).inc()
    metrics.ADVICE_WAIT.only.observe(seconds)
    return round(seconds * 1000)


def _compute(context: Context, row: StoredAdvice, advise: Advise) -> AdviceBody:
    request = parse_request(row.request)
    constraints = request.canonical.constraints

    def report(step: str) -> None:
        advices.note_progress(context.engine, row.id, step, context.clock())
        publish(context.redis, AdviceEvent(row.id, "running", step))

    report("listing the repo")
    with reading(context, request.repo):
        with metrics.ADVICE_SECONDS.of("listing").time():
            listing = list_repo(context, request.reference)
        ready = _pin(context, row, request, listing)
        if ready and ready.body:
            return ready.body
        with metrics.ADVICE_SECONDS.of("headers").time():
            models = models_for(context.hub, listing, request.reference, constraints, report)
    report("planning")
    with metrics.ADVICE_SECONDS.of("computing").time():
        body = models.advised(advise, request.hardware, request.goal, constraints, request.canonical.what_if)
    filed = model_identity(row.repo, models.variants[0].model)
    return msgspec.structs.replace(body, model_slug=filed.slug)


def _pin(context: Context, row: StoredAdvice, request: Request, listing: RepoListing) -> StoredAdvice | None:
    """Note the commit that the row is computed for; return the advice that was finished for it before, if any."""
    if listing.revision is None:
        return None
    key = request_key(request, listing.revision)
    advices.pin(context.engine, row.id, listing.revision, key)
    ready = advices.ready_under(context.engine, key)
    return advices.read(context.engine, ready) if ready else None


def _row(context: Context, advice_id: str) -> StoredAdvice:
    row = advices.read(context.engine, advice_id)
    if row is None:
        raise _not_found()
    return row


def _not_found() -> AdviceNotFound:
    return AdviceNotFound("there is no advice with this id; it may have been deleted", field="id")


def _as_advice(row: StoredAdvice, context: Context | None = None) -> Advice:
    """Return the row as it is shown; with a `context`, what was measured of it is joined."""
    request = row.request
    known: dict[str, Any] = {"hardware": request.hardware, "goal": None}
    if row.body is not None:
        known = msgspec.structs.asdict(with_results(context, row, row.body) if context else row.body)
    return Advice(
        id=row.id,
        state=row.state,
        repo=row.repo,
        revision=row.revision or request.revision,
        progress=row.progress,
        problem=None if row.problem is None else stored_problem(row.problem),
        created_at=row.created_at.isoformat(timespec="seconds"),
        **known,
    )


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
