"""What an advice costs, who pays for it, and how one that takes too much ends."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from service.engine.advice import AdviceBody
from service.engine.advise import VariantModel
from service.engine.calibration import Calibration
from service.engine.effort import Effort, estimated_seconds
from service.engine.goal import Constraints, GoalRequest
from service.engine.hardware import Gpu, Hardware
from service.engine.planner.search.all_variants import Report, no_report
from service.errors import TooExpensive, TooManyOpen
from service.flows.advice import fair_queue
from service.flows.advice.advise import compute_advice, read_advice, request_advice
from service.flows.advice.cpu_limit import CpuSpent, cpu_limit
from service.flows.advice.fair_queue import Payer, account_payer, network_payer, place_payer
from service.flows.context import Context
from service.queue.enqueue import queue_on
from service.store.advice import queue
from service.store.advice.advices import StoredAdvice
from service.store.advice.queue import SHORT_SECONDS
from service.wire.advice.advice import AdviceRequest
from tests.flows.advice.test_advise import QWEN, CountingAdvise, ask
from tests.flows.conftest import Clock

HOG, ALICE, BOB = (network_payer(f"192.0.2.{n}") for n in (1, 2, 3))
DEAREST = {"hardware": Hardware(gpus=[Gpu(name="RTX 3090", count=16)]), "what_if": ["+1 RTX 3090"] * 8}


def asked(context: Context, payer: Payer, n_tokens: int = 100, **more: Any) -> str:
    request = ask(goal=GoalRequest(prompt=n_tokens), **more)
    return request_advice(context, request, payer=payer).advice.id


def served(context: Context, advise: CountingAdvise, clock: Clock) -> str:
    """Let a worker compute the next advice, and return its id."""
    started: list[str] = []
    real = fair_queue.start

    def noted(context: Context, job: str) -> StoredAdvice | None:
        row = real(context, job)
        started.extend([row.id] if row else [])
        return row

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fair_queue, "start", noted)
        compute_advice(context, "any job", advise)
    clock.pass_minutes(0.01)
    return started[0]


@pytest.fixture
def advise() -> CountingAdvise:
    return CountingAdvise()


def test_who_asks_one_question_does_not_wait_behind_all_of_another_client(
    context: Context, advise: CountingAdvise, clock: Clock
) -> None:
    dear = [asked(context, HOG, n) for n in range(1, 6)]
    assert served(context, advise, clock) in dear
    alice = asked(context, ALICE, 50)
    clock.pass_minutes(1)
    bob = asked(context, BOB, 60)
    assert [served(context, advise, clock) for _ in range(2)] == [alice, bob]


def test_one_client_has_a_few_open_and_all_others_still_ask(context: Context) -> None:
    for n in range(1, context.settings.open_advices + 1):
        asked(context, HOG, n)
    with pytest.raises(TooManyOpen, match="of your requests") as refused:
        asked(context, HOG, 99)
    assert refused.value.retry_after > 0
    assert asked(context, HOG, 1), "what is in flight already is joined"
    assert asked(context, ALICE, 99)


def test_what_was_computed_is_answered_to_who_has_too_many_open(
    context: Context, advise: CountingAdvise, clock: Clock
) -> None:
    ready = asked(context, ALICE, 7)
    served(context, advise, clock)
    for n in range(100, 100 + context.settings.open_advices):
        asked(context, HOG, n)
    assert request_advice(context, ask(goal=GoalRequest(prompt=7)), payer=HOG).advice.id == ready


def test_a_question_that_would_take_too_much_is_refused_before_it_is_queued(context: Context) -> None:
    few = context._replace(settings=context.settings.__replace__(advice_cpu_seconds=5))
    with pytest.raises(TooExpensive, match=r"600 with an account.*fewer variants"):
        request_advice(few, AdviceRequest(repo=QWEN, **DEAREST))  # type: ignore[arg-type]
    assert queue_on(context.redis).job_ids == []
    with_account = account_payer("an account", "192.0.2.1", trusted=False)
    assert request_advice(few, AdviceRequest(repo=QWEN, **DEAREST), payer=with_account).advice  # type: ignore[arg-type]


def test_an_advice_that_takes_more_than_it_may_ends_with_a_clear_answer(context: Context) -> None:
    def endless(
        variants: Sequence[VariantModel], hardware: Hardware, goal: GoalRequest, constraints: Constraints,
        what_if: Sequence[str] = (), calibration: Calibration | None = None, report: Report = no_report,
    ) -> AdviceBody:  # fmt: skip
        while True:
            try:
                sum(range(1000))
            except Exception:
                continue

    few = context._replace(settings=context.settings.__replace__(advice_cpu_seconds=4))
    advice_id = request_advice(few, ask()).advice.id
    began = time.process_time()
    compute_advice(few, "a job", endless, lambda seconds: cpu_limit(seconds / 20))
    assert time.process_time() - began < 3
    failed = read_advice(context, advice_id)
    assert failed.problem is not None
    assert failed.problem.type.endswith("advice-too-expensive")
    assert failed.problem.status == 422
    assert "ended after 4 CPU seconds" in failed.problem.detail


def spin() -> None:
    while True:
        pass


def test_the_limit_leaves_nothing_behind() -> None:
    before = signal.getsignal(signal.SIGPROF)
    with pytest.raises(CpuSpent), cpu_limit(0.02):
        spin()
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    with cpu_limit(60):
        pass
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGPROF) == before


def test_a_job_calls_for_what_waits_when_it_ends(context: Context) -> None:
    waiting = asked(context, ALICE)
    context.redis.flushall()
    fair_queue.call_next(context, "another job")
    assert queue_on(context.redis).job_ids == [f"advice-{waiting}"]
    fair_queue.call_next(context, waiting)
    assert queue_on(context.redis).job_ids == [f"advice-{waiting}", f"advice-{waiting}-again"]


def test_a_client_is_its_network_however_many_addresses_it_has() -> None:
    of_56 = {network_payer(f"2001:db8:0:1{n:02x}::/64").name for n in range(256)}
    of_48 = {network_payer(f"2001:db8:7:{n:02x}00::/64").name for n in range(256)}
    assert len(of_56) == 1
    assert 1 < len(of_48) <= 8
    assert network_payer("192.0.2.1") != network_payer("192.0.2.2")
    assert network_payer("unknown") == network_payer("neither")


def test_many_accounts_of_one_network_have_a_few_shares_together() -> None:
    names = {account_payer(f"account {n}", "192.0.2.1", trusted=False).name for n in range(100)}
    assert 1 < len(names) <= 3
    assert network_payer("192.0.2.1").name not in names
    assert account_payer("known", "192.0.2.1", trusted=True) == account_payer("known", "198.51.100.1", trusted=True)


def test_a_place_in_chat_is_one_client() -> None:
    assert place_payer("discord-guild:1") == place_payer("discord-guild:1") != place_payer("discord-guild:2")


def test_most_questions_are_in_the_short_lane_and_the_dearest_are_not() -> None:
    usual = Effort(variants=12, cards=1, kinds=1, engines=2)
    dearest = Effort(variants=20, cards=16, kinds=4, engines=2, what_if=8)
    assert estimated_seconds(usual) <= SHORT_SECONDS < estimated_seconds(dearest)


@pytest.mark.parametrize("name", ["variants", "cards", "kinds", "engines", "what_if"])
def test_a_larger_question_is_never_estimated_to_cost_less(name: str) -> None:
    size = {"variants": 4, "cards": 2, "kinds": 1, "engines": 1, "what_if": 1}
    assert estimated_seconds(Effort(**size)) <= estimated_seconds(Effort(**{**size, name: size[name] + 1}))


def _queued(advice_id: str, payer: Payer, now: datetime) -> StoredAdvice:
    """A question that costs one CPU second."""
    return StoredAdvice(
        id=advice_id, request_key=advice_id, key=advice_id, state="queued", repo=QWEN, request=ask(),
        delete_key_hash="0" * 64, created_at=now, updated_at=now, payer=payer.name, cost=1.0, budget=10.0,
    )  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2])
def test_no_client_with_work_is_passed_over_more_than_twice_by_any_other(
    context: Context, clock: Clock, seed: int
) -> None:
    """Whoever asks how much and when: questions of one cost, some clients always at their limit, others coming late."""
    rng, payers = random.Random(seed), [network_payer(f"192.0.2.{n}") for n in range(1, 7)]
    greed = {payer: rng.choice((0.1, 0.5, 1.0)) for payer in payers}
    waiting: dict[str, Payer] = {}
    passed: Counter[tuple[Payer, Payer]] = Counter()
    for n in range(50):
        clock.pass_minutes(0.01)
        for payer in payers:
            if rng.random() < greed[payer]:
                row = _queued(f"{n:011}{payers.index(payer):011}", payer, clock.now)
                if queue.add(context.engine, row, 3, 1000) is queue.Added.QUEUED:
                    waiting[row.id] = payer
        started = queue.start(context.engine, f"job{n}", clock.now, 9)
        if started is None:
            continue
        served = waiting.pop(started.id)
        for other in set(waiting.values()) - {served}:
            passed[other, served] += 1
        passed = Counter({pair: n for pair, n in passed.items() if pair[0] != served and pair[0] in waiting.values()})
        assert not passed or max(passed.values()) <= 2, passed
        assert queue.fail(context.engine, started.id, {}, 1.0, clock.now)
