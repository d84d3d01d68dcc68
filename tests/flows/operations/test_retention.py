"""What is too old goes, by kind and a batch at a time; what others rely on stays, however old it is."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from sqlalchemy import Engine, func, insert, select, update

from service.flows.context import Context
from service.flows.operations.retention import purge
from service.flows.results.moderation import ask_removal, moderate, open_requests, report_abuse
from service.settings import Settings
from service.store.measuring import hosts
from service.store.operations import retention
from service.store.results import results
from service.store.tables import advice, branch, host_session, repo_listing, result
from service.wire.results.moderation import AbuseReport, Moderation, RemovalRequest
from tests.flows.conftest import Clock
from tests.flows.measuring.test_runs import queued as run_of
from tests.flows.results.test_trust import kept
from tests.hosts import a_host
from tests.store.advice.test_advices import added, queued
from tests.stored_results import a_result

POLICY = Settings(keep_advice_days=30, keep_listings_days=10, keep_logs_days=20, keep_reports_days=5)
DAY = 24 * 60


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_BATCH", 2)


def add_advice(context: Context, *names: str, state: str = "failed") -> None:
    for name in names:
        assert added(context.engine, queued(name, f"r{name}", context.clock()))
    with context.engine.begin() as connection:
        connection.execute(update(advice).where(advice.c.id.in_(names)).values(state=state))


def ids(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(select(advice.c.id).order_by(advice.c.id)))


def purged(context: Context, **kinds: int) -> bool:
    """Purge, and return whether exactly these rows were removed, as a dry run had said."""
    said = purge(context, POLICY, dry_run=True)
    assert purge(context, POLICY) == said
    return {one.kind: one.rows for one in said if one.rows} == kinds


def test_finished_advice_goes_when_it_is_too_old_but_not_what_is_computed_or_was_measured(
    context: Context, clock: Clock, small_batches: None
) -> None:
    add_advice(context, "old1", "old2", "old3", "old4", "old5")
    add_advice(context, "a")  # what `run_of` asks a validation of
    add_advice(context, "waits", state="queued")
    run_of(context, a_host(context))
    clock.pass_minutes(29 * DAY)
    add_advice(context, "new")
    assert purged(context)
    clock.pass_minutes(2 * DAY)
    assert purged(context, advice=5)
    assert ids(context.engine) == ["a", "new", "waits"]


def test_listings_are_read_again_after_a_while(context: Context, clock: Clock, small_batches: None) -> None:
    rows = [
        {"repo": "owner/name", "revision": str(n) * 40, "listing": b"x", "seen_at": clock() + timedelta(days=n)}
        for n in range(5)
    ]
    with context.engine.begin() as connection:
        connection.execute(insert(repo_listing), rows)
        connection.execute(insert(branch), [{"repo": "a/b", "name": "main", "revision": "0", "seen_at": clock()}])
    clock.pass_minutes(12.5 * DAY)
    assert purged(context, listings=3, branches=1)


def test_an_old_result_loses_its_log_and_nothing_else(context: Context, clock: Clock) -> None:
    (measured,) = kept(context, a_result(created_at=clock()))
    with context.engine.begin() as connection:
        connection.execute(update(result).where(result.c.id == measured).values(log=b"log"))
    before = results.read(context.engine, measured)
    clock.pass_minutes(21 * DAY)
    assert purged(context, logs=1)
    assert results.read(context.engine, measured) == before
    with context.engine.connect() as connection:
        assert connection.scalar(select(func.count()).where(result.c.log.is_not(None))) == 0


def test_closed_reports_go_and_open_ones_stay(context: Context, clock: Clock) -> None:
    (measured,) = kept(context, a_result())
    closed = report_abuse(context, None, measured, AbuseReport(kind="spam")).id
    report_abuse(context, None, measured, AbuseReport(kind="other"))
    moderate(context, "root", Moderation(action="close", subject=closed, reason="it is none"))
    clock.pass_minutes(6 * DAY)
    assert purged(context, reports=1)


def test_decided_requests_for_removal_go_and_open_ones_stay(context: Context, clock: Clock) -> None:
    (measured,) = kept(context, a_result())
    asked = [ask_removal(context, None, measured, RemovalRequest(text="it names me")).id for _ in range(2)]
    moderate(context, "an operator", Moderation(action="refuse", subject=asked[0], reason="it does not"))
    clock.pass_minutes(6 * DAY)
    assert purged(context, removals=1)
    assert [one.id for one in open_requests(context)] == asked[1:]


def test_sessions_and_codes_go_a_day_after_their_end(context: Context, clock: Clock) -> None:
    host = a_host(context)
    hosts.add_session(context.engine, "h" * 64, host.id, clock(), clock() + timedelta(hours=1))
    hosts.add_enrolment(context.engine, "c" * 64, host.account_id, "public", clock(), clock() + timedelta(minutes=10))
    clock.pass_minutes(DAY + 30)
    assert purged(context, codes=1)
    clock.pass_minutes(DAY)
    assert purged(context, sessions=1)
    with context.engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(host_session)) == 0


def test_nothing_goes_that_is_kept_for_ever(context: Context, clock: Clock) -> None:
    add_advice(context, "old")
    clock.pass_minutes(3650 * DAY)
    forever = msgspec.structs.replace(POLICY, keep_advice_days=0)
    assert "advice" not in {one.kind for one in purge(context, forever)}
    assert ids(context.engine) == ["old"]
