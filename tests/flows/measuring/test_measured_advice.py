"""An advice with what was measured of it: whose results count, for whom, and what they change."""

from __future__ import annotations

import msgspec
import pytest

from service.engine.hardware import Ram
from service.engine.measured.classify import Failure
from service.flows.accounts import Caller
from service.flows.advice import advise
from service.flows.context import Context
from service.flows.measuring import runs
from service.flows.results.moderation import moderate
from service.store.advice import advices
from service.store.measuring import hosts
from service.wire.advice.text import render_markdown, render_text
from service.wire.measuring.agent import Report
from service.wire.results.moderation import Moderation
from tests.flows.measuring.asking import MINE, advised, host_of, run_all, validated
from tests.hosts import RIG, caller


def test_what_was_measured_takes_the_place_of_the_estimate_in_the_advice(context: Context, alice: Caller) -> None:
    host = host_of(context)
    before = advised(context)
    first, second = before.configs[:2]
    validated(context, alice, before, configs=[first.id, second.id])
    run_all(context, host, before, {first.id: 0.05, second.id: 2.0})
    after = advise.read_advice(context, before.id, alice)
    now = {config.id: config for config in after.configs}
    assert [config.rank for config in after.configs] == list(range(1, len(after.configs) + 1))
    assert now[first.id].measured_match == now[second.id].measured_match == "exact"
    assert now[first.id].rank > now[second.id].rank
    assert now[first.id].goal_seconds[1] == pytest.approx(first.goal_seconds[1] * 20, rel=0.01)
    assert now[second.id].goal_seconds[1] == pytest.approx(second.goal_seconds[1] / 2, rel=0.01)
    assert {point.basis for point in now[first.id].measured} == {"measured"}
    assert [point.n_kv for point in now[second.id].measured] == [point.n_kv for point in second.speed]
    text = render_text(after)
    assert "measured" in text
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "measured" in render_markdown(after)


def test_what_does_not_run_comes_last_and_says_so(context: Context, alice: Caller) -> None:
    host = host_of(context)
    before = advised(context)
    first = before.configs[0]
    validated(context, alice, before, configs=[first.id])
    leased = runs.lease(context, host)
    assert leased is not None
    oom = Failure(kind="out_of_memory", transient=False, text="does not fit: needed 812 MiB more on CUDA0")
    runs.report(context, host, leased.run, Report(fence=leased.fence, failure=oom))
    after = advise.read_advice(context, before.id, alice)
    assert after.configs[-1].id == first.id
    assert "812 MiB more" in after.configs[-1].notes[0]


def test_a_near_rig_is_shown_and_changes_no_rank(context: Context, alice: Caller) -> None:
    slower = msgspec.structs.replace(RIG, ram=Ram(total_gb=128, type="DDR5", channels=2, mts=4800))
    host = host_of(context, hardware=slower)
    before = advised(context)
    first = before.configs[0]
    validated(context, alice, before, configs=[first.id])
    run_all(context, host, before, {first.id: 0.1})
    after = advise.read_advice(context, before.id, alice)
    assert [config.id for config in after.configs] == [config.id for config in before.configs]
    assert (after.configs[0].measured_match, after.configs[0].goal_seconds) == ("near", first.goal_seconds)
    assert len(after.configs[0].measured) == len(first.speed)


def test_one_measured_config_corrects_the_estimates_of_the_others_with_the_reason(
    context: Context, alice: Caller
) -> None:
    host = host_of(context)
    before = advised(context)
    first = before.configs[0]
    validated(context, alice, before, configs=[first.id])
    run_all(context, host, before, {first.id: 0.7})
    after = {config.id: config for config in advise.read_advice(context, before.id, alice).configs}
    assert after[first.id].speed == first.speed  # its own estimate stands next to what was measured of it
    alike = next(c for c in before.configs[1:] if c.variant == first.variant)
    old, new = alike.speed[0], after[alike.id].speed[0]
    assert 0.7 < new.tg_tps / old.tg_tps < 0.9
    assert new.tg_high / new.tg_low < old.tg_high / old.tg_low
    assert new.basis == "calibrated on 1 result"
    assert after[alike.id].goal_seconds[1] > alike.goal_seconds[1] * 1.2
    assert after[alike.id].reasons[0].rule == "learned-from-results"
    assert sorted(config.rank for config in after.values()) == list(range(1, len(after) + 1))


def test_what_one_had_measured_changes_nobody_elses_answer(context: Context, alice: Caller) -> None:
    host = host_of(context)
    before = advised(context)
    row = advices.read(context.engine, before.id)
    assert row is not None
    assert advices.ready_under(context.engine, row.key or "") == before.id
    validated(context, alice, before, configs=[before.configs[0].id])
    assert advices.ready_under(context.engine, row.key or "") is None
    run_all(context, host, before, {before.configs[0].id: 2.0})
    assert advise.read_advice(context, before.id, alice).configs != before.configs
    assert advised(context).configs == before.configs


@pytest.mark.full
def test_a_private_hosts_results_count_for_its_owner_and_for_others_once_it_is_public_and_proven(
    context: Context, alice: Caller
) -> None:
    host = host_of(context)
    before = advised(context)
    validated(context, alice, before, configs=[before.configs[0].id])
    run_all(context, host, before, {})
    other = advised(context, MINE)  # another advice with the same configs

    def shown(by: Caller | None) -> bool:
        read = advise.read_advice(context, other.id, by)
        (same,) = [config for config in read.configs if config.id == before.configs[0].id]
        return bool(same.measured)

    bob = caller(context, "bob")
    assert (shown(alice), shown(bob), shown(None)) == (True, False, False)
    hosts.change(context.engine, host.id, context.clock(), visibility="public")
    assert (shown(alice), shown(bob), shown(None)) == (True, False, False)  # a new host
    moderate(context, "root", Moderation(action="trust", subject="alice", reason="known to us"))
    assert (shown(alice), shown(bob), shown(None)) == (True, True, True)
