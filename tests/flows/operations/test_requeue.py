"""What failed is tried again when an operator asks; what would fail again, or is being tried, is not."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import update

from service.engine.errors import InvalidInput
from service.engine.measured.classify import Failure
from service.flows.context import Context
from service.flows.measuring import runs as flow
from service.flows.operations.requeue import Requeued, requeue
from service.store.advice import advices, queue
from service.store.measuring import runs
from service.store.tables import run
from service.wire.measuring.agent import Report
from tests.flows.conftest import Clock
from tests.flows.measuring.test_runs import OOM, queued, taken
from tests.flows.operations.test_retention import add_advice
from tests.hosts import a_host
from tests.store.advice.test_advices import added


def test_failed_advice_is_queued_again_but_not_with_the_same_request(context: Context, clock: Clock) -> None:
    add_advice(context, *(one := ("A" * 22, "B" * 22)))
    other = advices.read(context.engine, one[1])
    assert other is not None
    clock.pass_minutes(10)
    assert requeue(context, one, None, dry_run=True) == Requeued(list(one), [])
    assert queue.calls(context.engine) == []
    assert requeue(context, [one[0]], None) == Requeued([one[0]], [])
    assert requeue(context, [], clock() - timedelta(hours=1)) == Requeued([one[1]], [])
    assert sorted(queue.calls(context.engine)) == list(one)
    again = advices.read(context.engine, one[0])
    assert again is not None
    assert (again.state, again.problem, again.attempts) == ("queued", None, 0)


def test_a_request_that_was_asked_again_meanwhile_is_not_computed_twice(context: Context) -> None:
    add_advice(context, "A" * 22)
    failed = advices.read(context.engine, "A" * 22)
    assert failed is not None
    assert added(context.engine, queued_like(failed))
    assert requeue(context, ["A" * 22], None) == Requeued([], [])


def queued_like(failed: advices.StoredAdvice) -> advices.StoredAdvice:
    from tests.store.advice.test_advices import queued as row

    return row("C" * 22, failed.request_key)


def test_a_run_that_failed_for_what_may_pass_waits_for_a_host_again(context: Context, clock: Clock) -> None:
    host = a_host(context)
    too_large, lost = queued(context, host, 2)
    leased = taken(context, host)
    flow.report(context, host, leased.run, Report(fence=leased.fence, failure=OOM))
    nobody = Failure(kind="stopped", transient=False, text="no host took it")
    with context.engine.begin() as connection:
        ended = {"state": "failed", "failure": nobody, "ended_at": clock(), "attempt": 3}
        connection.execute(update(run).where(run.c.id == lost).values(ended))
    clock.pass_minutes(60 * 24 * 8)
    since = clock() - timedelta(days=9)
    assert requeue(context, [], since) == Requeued([], [lost])
    again = runs.read(context.engine, lost)
    assert again is not None
    assert (again.state, again.attempt, again.failure, again.ended_at) == ("queued", 0, None, None)
    flow.sweep(context)
    still = runs.read(context.engine, lost)
    assert still is not None
    assert still.state == "queued", "it waits from now on, not from when it was first asked for"
    with pytest.raises(InvalidInput, match="may be tried again"):
        requeue(context, [too_large], None)


@pytest.mark.parametrize("text", ["x", "../../etc", "Z" * 22])
def test_an_id_of_nothing_that_failed_is_named(context: Context, text: str) -> None:
    with pytest.raises(InvalidInput, match=text[:20]):
        requeue(context, [text], None)
