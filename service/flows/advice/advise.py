"""From a request to an advice: the row is committed before a worker is called, and may be computed twice."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from typing import Any

import msgspec

from service import logs, metrics
from service.engine import advise as engine_advise
from service.engine.advice import AdviceBody
from service.engine.calibration import Calibration
from service.engine.errors import AdvisorError
from service.engine.measured.identity import model_identity
from service.errors import AdviceFailed, AdviceNotFound, ServiceUnavailable, WrongKey, describe
from service.flows.accounts import Caller, hashed, viewer_of
from service.flows.advice import fair_queue
from service.flows.advice.cpu_limit import CpuLimit, CpuSpent, no_limit
from service.flows.advice.fair_queue import NOBODY_KNOWN, Payer
from service.flows.advice.measured_advice import with_results
from service.flows.advice.reading import Advise, Pace, counted, models_for
from service.flows.advice.repos import known_revision, list_repo, reading
from service.flows.advice.requests import Request, parse_request, request_key
from service.flows.context import Context
from service.flows.results.differences import with_differences
from service.hub.listing import RepoListing
from service.logs import Log
from service.queue.progress import publish
from service.store import versions
from service.store.advice import advices, listings, queue
from service.store.advice.advices import StoredAdvice
from service.store.queries import new_id
from service.store.results import calibrations
from service.store.viewers import ANYBODY, Viewer
from service.structs import made_from
from service.wire.advice.advice import Advice, AdviceEvent, AdviceRequest
from service.wire.advice.card import card_of
from service.wire.problem import stored_problem

log = Log("advice")

MAX_FAILURES = 3  # attempts that end in an unexpected error
MAX_ATTEMPTS = 10  # attempts of any kind: a request that kills its worker must not do so for ever


class Requested(msgspec.Struct, frozen=True):
    """The advice that answers a request; `delete_key` is set only where this request created it."""

    advice: Advice
    delete_key: str | None = None


def request_advice(
    context: Context, asked: AdviceRequest, admit_new_repo: Callable[[], None] = lambda: None,
    payer: Payer = NOBODY_KNOWN,
) -> Requested:  # fmt: skip
    """Return a finished advice for this request, the one being computed for it, or a new one, committed and queued.

    `admit_new_repo` is called before any work on a repo never read here, and may raise. `payer`: whose share of the
    workers it uses. Raises InvalidInput and its subclasses for a request that cannot be answered, TooExpensive for
    one that would take more CPU time than allowed, TooManyOpen where its payer has as many open as allowed.
    """
    request = parse_request(asked)
    found = _ready(context, request)
    ready = advices.read(context.engine, found.id) if found else None
    if ready is not None:
        metrics.ADVICE_ASKED.of("ready").inc()
        return Requested(_as_advice(ready, context))
    shared = advices.in_flight(context.engine, _key(context, request))
    if shared:
        metrics.ADVICE_ASKED.of("joined").inc()
        queue.share_with(context.engine, shared.id, payer.name)
        return Requested(_as_advice(shared))
    if not listings.is_known(context.engine, request.repo):
        admit_new_repo()
    return _queue(context, request, payer)


def ready_advice(context: Context, asked: AdviceRequest) -> versions.AdviceVersion | None:
    """Return the finished advice that answers this request, if any. Raises InvalidInput as `request_advice`."""
    found = _ready(context, parse_request(asked))
    if found is not None:
        metrics.ADVICE_ASKED.of("ready").inc()
    return found


def _ready(context: Context, request: Request) -> versions.AdviceVersion | None:
    revision = known_revision(context, request.reference)
    if revision is None:
        return None
    return versions.of_ready(context.engine, lambda calibration: request_key(request, revision, calibration))


def _key(context: Context, request: Request) -> str:
    """Return the key under which a request is in flight: its commit is not known yet."""
    return request_key(request, None, calibrations.version_in_force(context.engine))


def _queue(context: Context, request: Request, payer: Payer) -> Requested:
    delete_key = secrets.token_urlsafe(24)
    now = context.clock()
    cost, budget = fair_queue.priced(context, request, payer)
    row = StoredAdvice(
        id=new_id(),
        request_key=_key(context, request),
        state="queued",
        repo=request.repo,
        request=request.canonical,
        delete_key_hash=hashed(delete_key),
        created_at=now,
        updated_at=now,
        request_id=logs.request_id(),
        payer=payer.name,
        cost=cost,
        budget=budget,
        account=payer.account,
    )
    if not fair_queue.add(context, row):
        shared = advices.in_flight(context.engine, row.request_key)
        return Requested(_as_advice(shared)) if shared else _queue(context, request, payer)
    logs.note(advice_id=row.id)
    metrics.ADVICE_ASKED.of("new").inc()
    log.info("advice.queued")
    return Requested(_as_advice(row), delete_key)


def read_advice(context: Context, advice_id: str, caller: Caller | None = None) -> Advice:
    """Return an advice with what was measured of it; the caller's own hosts count for them. Raises AdviceNotFound.

    One whose body was dropped to save space is queued again.
    """
    row = stored_advice(context, advice_id)
    if row.is_dropped:
        fair_queue.begin_again(context, row)
        row = msgspec.structs.replace(stored_advice(context, advice_id), state="queued")
    advices.note_read(context.engine, row, context.clock())
    return _as_advice(row, context, viewer_of(caller))


def advice_progress(context: Context, advice_id: str) -> AdviceEvent:
    """Return how far an advice is. Raises AdviceNotFound."""
    found = advices_progress(context, [advice_id])
    if not found:
        raise not_found()
    return found[advice_id]


def advices_progress(context: Context, ids: list[str]) -> dict[str, AdviceEvent]:
    """Return the progress of advices by id, without those that do not exist."""
    return advices.progress_of(context.engine, ids)


def advice_version(context: Context, advice_id: str) -> str | None:
    """Return a version that changes whenever `read_advice` would answer differently; None while it is computed.

    Raises AdviceNotFound.
    """
    found = versions.of_advice(context.engine, advice_id)
    if found is None:
        raise not_found()
    return found.version if found.state == "failed" or (found.state == "ready" and found.kept) else None


def asked_for(context: Context, advice_id: str) -> AdviceRequest:
    """Return the request that an advice answers, in canonical form. Raises AdviceNotFound."""
    return stored_advice(context, advice_id).request


def delete_advice(context: Context, advice_id: str, key: str) -> None:
    """Delete an advice in any state. Raises AdviceNotFound, or WrongKey."""
    row = stored_advice(context, advice_id)
    if not hmac.compare_digest(row.delete_key_hash, hashed(key)):
        raise WrongKey("this is not the key that was given when the advice was created", field="X-Advice-Key")
    advices.remove(context.engine, advice_id)


def compute_advice(
    context: Context, job: str, advise: Advise = engine_advise.advise, limit: CpuLimit = no_limit
) -> None:
    """Compute the next waiting advice and store it, or why it failed; do nothing when none waits.

    `job` names the queue's job: one that was interrupted resumes the same advice. An advice is computed at least once,
    possibly twice at a time, and the first to finish wins. Unexpected errors are raised so that the queue retries, up
    to MAX_FAILURES times. `limit` bounds the CPU seconds.
    """
    row = fair_queue.start(context, job)
    if row is not None:
        with logs.bound(advice_id=row.id, request_id=row.request_id):
            log.info("advice.started", attempt=row.attempts)
            _finish(context, row, advise, limit)


def _finish(context: Context, row: StoredAdvice, advise: Advise, limit: CpuLimit) -> None:
    began = time.process_time()
    try:
        if row.attempts > MAX_ATTEMPTS:
            raise AdviceFailed(f"it was started {MAX_ATTEMPTS} times and never finished")
        with limit(row.budget or context.settings.advice_cpu_seconds):
            body = _compute(context, row, advise)
    except ServiceUnavailable:
        raise  # nothing is wrong with the request
    except CpuSpent:
        metrics.ADVICE_REFUSED.of("budget").inc()
        _fail(context, row, fair_queue.too_expensive(context, row), began)
    except AdvisorError as error:
        _fail(context, row, error, began)
    except Exception as error:
        metrics.ADVICE_ENDED.of("retried").inc()
        log.error("advice.retried", error, attempt=row.attempts)
        if row.attempts < MAX_FAILURES:
            raise
        _fail(context, row, AdviceFailed(f"an unexpected error ({type(error).__name__}); it has been logged"), began)
    else:
        queue.finish(context.engine, row.id, body, time.process_time() - began, context.clock())
        log.info("advice.ready", duration_ms=_ended(context, row, "ready"))
        publish(context.redis, AdviceEvent(row.id, "ready", None))


def _fail(context: Context, row: StoredAdvice, error: AdvisorError, began: float) -> None:
    queue.fail(context.engine, row.id, describe(error), time.process_time() - began, context.clock())
    log.warning("advice.failed", problem=error.problem, duration_ms=_ended(context, row, "failed"))
    publish(context.redis, AdviceEvent(row.id, "failed", None))


def _ended(context: Context, row: StoredAdvice, outcome: str) -> int:
    """Count the outcome, and return the milliseconds since the request: what a person waited, queue included."""
    seconds = (context.clock() - row.created_at).total_seconds()
    metrics.ADVICE_ENDED.of(outcome).inc()
    metrics.ADVICE_WAIT.only.observe(seconds)
    return round(seconds * 1000)


def _compute(context: Context, row: StoredAdvice, advise: Advise) -> AdviceBody:
    request, calibration = parse_request(row.request), calibrations.in_force(context.engine)
    if row.revision is not None and row.first_versions is not None:  # dropped before: stay at the commit it was for
        request = msgspec.structs.replace(
            request, reference=msgspec.structs.replace(request.reference, revision=row.revision)
        )
    constraints = request.canonical.constraints

    def report(step: str) -> None:
        advices.note_progress(context.engine, row.id, step, context.clock())
        publish(context.redis, AdviceEvent(row.id, "running", step))

    report("listing the repo")
    with reading(context, request.repo):
        with metrics.ADVICE_SECONDS.of("listing").time():
            listing = list_repo(context, request.reference)
        ready = _pin(context, row, request, listing, calibration)
        if ready and ready.body:
            return ready.body
        with metrics.ADVICE_SECONDS.of("headers").time():
            models = models_for(
                context.hub, listing, request.reference, constraints, lambda *counts: report(counted(*counts))
            )
    with metrics.ADVICE_SECONDS.of("computing").time():
        what_if, pace = request.canonical.what_if, Pace(lambda words, share: report(words))
        body = models.advised(advise, request.hardware, request.goal, constraints, what_if, calibration, pace)
    filed = model_identity(row.repo, models.variants[0].model)
    return msgspec.structs.replace(body, model_slug=filed.slug, architecture=filed.arch)


def _pin(
    context: Context, row: StoredAdvice, request: Request, listing: RepoListing, calibration: Calibration | None
) -> StoredAdvice | None:  # fmt: skip
    """Record the commit that the row is computed for; return a finished advice for the same commit, if any."""
    if listing.revision is None:
        return None
    key = request_key(request, listing.revision, calibration.version if calibration else None)
    advices.pin(context.engine, row.id, listing.revision, key)
    ready = advices.ready_under(context.engine, key)
    return advices.read(context.engine, ready) if ready else None


def stored_advice(context: Context, advice_id: str) -> StoredAdvice:
    """Return an advice as it is stored. Raises AdviceNotFound."""
    row = advices.read(context.engine, advice_id)
    if row is None:
        raise not_found()
    return row


def not_found() -> AdviceNotFound:
    """Return the error for an id that no advice has."""
    return AdviceNotFound("there is no advice with this id; it may have been deleted", field="id")


def _as_advice(row: StoredAdvice, context: Context | None = None, viewer: Viewer = ANYBODY) -> Advice:
    """Return the row as the API shows it; `context` joins the measured results that `viewer` may see."""
    request = row.request
    known: dict[str, Any] = {"hardware": request.hardware, "goal": None}
    if row.body is not None:
        body = row.body
        if context:
            body = with_differences(context, with_results(context, row, body, viewer), request.constraints)
        known = {**msgspec.structs.asdict(body), "card": card_of(body)}
    return made_from(
        Advice,
        row,
        revision=row.revision or request.revision,
        problem=None if row.problem is None else stored_problem(row.problem),
        computed_again=_computed_again(row),
        **known,
    )


def _computed_again(row: StoredAdvice) -> str | None:
    """Return the note for an answer that was dropped and recomputed with another version, else None."""
    first, now = row.first_versions, row.body.versions if row.body else None
    if first is None or now is None or first == now:
        return None
    return (
        f"computed again, because nobody had read it for a long time: with engine model {now.engine_model} and "
        f"calibration {now.calibration}; the first answer, with {first.engine_model} and {first.calibration}, "
        "may have differed"
    )
