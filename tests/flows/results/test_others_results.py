"""What strangers send changes an answer by as little as one may believe them: through submissions and advices."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import pytest

from service.engine.advice import SpeedPoint
from service.engine.hardware_text import parse_hardware
from service.engine.measured.rows import MeasuredRow
from service.flows.accounts import Caller, caller_of, create_token
from service.flows.advice import advise
from service.flows.context import Context
from service.flows.results.submissions import preview, submit
from service.store.results import results
from service.store.viewers import ANYBODY
from service.wire.advice.advice import Advice, AdviceRequest
from service.wire.results.submissions import Submission
from tests.computed_once import advise_once
from tests.flows.conftest import Clock
from tests.flows.results.submitted import REPO, RIG, submission

MOST = 1.03


class Said(NamedTuple):
    """Of the config that an advice names first."""

    tg: float
    pp: float
    basis: str
    why: str


@pytest.fixture
def advice(context: Context) -> Advice:
    """An answer from before anybody has measured anything."""
    asked = AdviceRequest(repo=REPO, hardware=parse_hardware(RIG))
    made = advise.request_advice(context, asked).advice
    advise.compute_advice(context, made.id, advise_once)
    return advise.read_advice(context, made.id)


@pytest.fixture
def expected(context: Context) -> list[SpeedPoint]:
    """What is predicted of the config that people send results of."""
    return preview(context, None, submission()).predicted


def said(context: Context, advice: Advice, by: Caller | None = None) -> Said:
    config = advise.read_advice(context, advice.id, by).configs[0]
    point = config.speed[0]
    return Said(point.tg_tps, point.pp_tps, point.basis, config.reasons[0].text)


def people(context: Context, clock: Clock, names: Sequence[str], days: float = 15) -> list[Caller]:
    """Accounts that are so many days old."""
    now = context.clock()
    made = [create_token(context.engine, name, ["submit"], now).token for name in names]
    clock.pass_minutes(days * 24 * 60)
    return [caller_of(context.engine, token, context.clock()) for token in made]


def send(
    context: Context, clock: Clock, by: Caller | None, expected: Sequence[SpeedPoint], faster: float, n_ctx: int = 4096
) -> None:
    """Send what was measured to be so many times as fast as expected, no two prints alike."""
    clock.pass_minutes(1)
    scatter = 1 + clock.now.minute / 9_000
    rows = [
        MeasuredRow(
            n_kv=point.n_kv,
            n_prompt=512,
            n_gen=128,
            pp_seconds=(round(512 / point.pp_tps / faster * scatter, 6),),
            tg_seconds=(round(128 / point.tg_tps / faster * scatter, 6),),
        )
        for point in expected
    ]
    command = f"llama-sweep-bench -m Qwen3-0.6B-Q8_0.gguf -c {n_ctx} -ngl 99 -fa on"
    submit(context, by, Submission(command=command, rows=rows, repo=f"{REPO}:Q8_0", hardware=RIG))


def test_what_several_owners_measured_on_the_same_cards_moves_an_estimate_and_the_answer_says_so(
    context: Context, clock: Clock, advice: Advice, expected: list[SpeedPoint]
) -> None:
    before = said(context, advice)
    for owner in people(context, clock, ("ann", "ben", "cleo")):
        send(context, clock, owner, expected, 1.1)
    after = said(context, advice)
    assert 1.02 < after.tg / before.tg < 1.1
    assert after.basis == "calibrated on 3 results"
    assert after.why == "3 results of 3 owners on cards like yours: TG +3 %, PP +3 %"
    read = advise.read_advice(context, advice.id)
    assert [config.id for config in read.configs] == [config.id for config in advice.configs]
    assert [config.versus_next for config in read.configs] == [config.versus_next for config in advice.configs]

    assert f"about {read.configs[0].speed[-1].tg_tps:.1f} t/s" in (read.headline or "")


def test_a_tenth_of_the_owners_who_collude_move_nobodys_answer_by_more_than_3_percent(
    context: Context, clock: Clock, advice: Advice, expected: list[SpeedPoint]
) -> None:
    owners = people(context, clock, [f"owner{n}" for n in range(10)])
    for n, owner in enumerate(owners[:9]):
        send(context, clock, owner, expected, 0.95 + n / 100)
    honest = said(context, advice)
    for n_ctx in (8192, 16384, 32768):  # of cells of their own, where no fence of others stands
        send(context, clock, owners[9], expected, 2.9, n_ctx)
    moved = said(context, advice)
    assert moved.why.split(" on ")[0] == "12 results of 10 owners"
    for one, other in ((moved.tg, honest.tg), (moved.pp, honest.pp)):
        assert 1 < max(one / other, other / one) <= MOST


def test_many_accounts_of_today_and_none_at_all_are_one_owner_together(
    context: Context, clock: Clock, advice: Advice, expected: list[SpeedPoint]
) -> None:
    before = said(context, advice)
    crowd: list[Caller | None] = [*people(context, clock, [f"new{n}" for n in range(3)], days=0), None, None]
    for n, one in enumerate(crowd):
        send(context, clock, one, expected, 2.9, 4096 + 1024 * n)
    after = said(context, advice)
    assert after.why.startswith("3 results of 1 owner on cards like yours")
    assert 1 < after.tg / before.tg <= MOST


@pytest.mark.full
def test_an_owners_many_results_hide_nobodys_and_move_no_more_than_few(
    context: Context, clock: Clock, advice: Advice, expected: list[SpeedPoint]
) -> None:
    many, ann, ben = people(context, clock, ("many", "ann", "ben"))
    for owner in (ann, ben):
        send(context, clock, owner, expected, 1.02)
    for n in range(4):
        send(context, clock, many, expected, 1.3, 8192 + 1024 * n)
    few = said(context, advice)
    for n in range(5):
        send(context, clock, many, expected, 1.3, 16384 + 1024 * n)
    assert said(context, advice).tg == pytest.approx(few.tg, rel=0.002)
    rig = results.on_cards(context.engine, "rtx-3090", ANYBODY, context.clock() - timedelta(days=60), context.clock())
    assert sorted(len({r.id for o, r in rig if o == owner}) for owner in {o for o, _ in rig}) == [1, 1, 3]


def test_what_one_has_sent_of_the_same_machine_counts_in_full_for_oneself_and_little_for_others(
    context: Context, clock: Clock, advice: Advice, expected: list[SpeedPoint]
) -> None:
    before = said(context, advice)
    (ann,) = people(context, clock, ("ann",))
    send(context, clock, ann, expected, 0.7)
    assert said(context, advice, ann).tg / before.tg < 0.85
    assert 1 / MOST <= said(context, advice).tg / before.tg < 1
