"""What one user's host can do to another user's answers, runs and quota: attacks, each as it was done."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import update

from service.engine.errors import InvalidInput
from service.engine.hardware import Gpu, Hardware
from service.engine.measured.classify import Failure
from service.engine.measured.rows import MeasuredRow
from service.errors import LeaseLost, NoHost
from service.flows.accounts import Caller
from service.flows.advice import advise
from service.flows.context import Context
from service.flows.measuring import runs
from service.flows.measuring.hosts import save_probe
from service.flows.measuring.validate import hosts_of_advice
from service.flows.measuring.validated import read_validation
from service.flows.results.moderation import moderate
from service.store.measuring import hosts
from service.store.measuring import runs as store_runs
from service.store.measuring.hosts import StoredHost
from service.store.results import results
from service.store.tables import host as host_table
from service.wire.advice.advice import Advice
from service.wire.measuring.agent import LeasedRun, Progress, Report
from service.wire.measuring.runs import Validation
from service.wire.results.moderation import Moderation
from tests.flows.conftest import Clock
from tests.flows.measuring.asking import advised, host_of, measured_like, probe_of, validated
from tests.hosts import RIG, caller

LIE = "CUDA error: out of memory. Buy a better card at example.com"
OOM = Failure(kind="out_of_memory", transient=False, text=LIE, device="CUDA0")
CRASH = Failure(kind="crashed", transient=True, text=LIE)
GAVE_WAY = Failure(kind="gave_way", transient=True, text="another program uses GPU 0")
ONE_3090 = msgspec.structs.replace(RIG, gpus=[Gpu(name="RTX 3090", pcie="4.0 x16")])
WITH_EIGHT_H100 = msgspec.structs.replace(ONE_3090, gpus=[*ONE_3090.gpus, *([Gpu(name="H100 SXM")] * 8)])
WITH_64_CARDS = msgspec.structs.replace(ONE_3090, gpus=ONE_3090.gpus * 64)


def public(context: Context, owner: str, hardware: Hardware = RIG, **fields: Any) -> StoredHost:
    """A public host of `owner`'s, which has the model."""
    return host_of(context, owner, hardware, visibility="public", **fields)


def taken(context: Context, host: StoredHost) -> LeasedRun:
    found = runs.lease(context, host)
    assert found is not None
    return found


def reported(context: Context, host: StoredHost, **said: Any) -> str | None:
    """What came of the next run of a host that reports this."""
    leased = taken(context, host)
    return runs.report(context, host, leased.run, Report(fence=leased.fence, **said)).result


def now(context: Context, host: StoredHost, hardware: Hardware) -> StoredHost:
    """The host after it has said that it is another machine."""
    save_probe(context, host, probe_of(context, hardware))
    found = hosts.read(context.engine, host.id)
    assert found is not None
    return found


def faster(rows: tuple[MeasuredRow, ...], times: float) -> tuple[MeasuredRow, ...]:
    """The same rows with output `times` as fast."""
    return tuple(msgspec.structs.replace(row, tg_seconds=tuple(t / times for t in row.tg_seconds)) for row in rows)


@pytest.fixture
def liar(context: Context) -> StoredHost:
    return public(context, "mallory")


@pytest.fixture
def advice(context: Context) -> Advice:
    return advised(context)


def the_run(context: Context, made: Validation, by: Caller) -> Any:
    (run,) = read_validation(context, made.id, by).runs
    return run


# --- a stranger's false result ----------------------------------------------------------------------------------------


def lied_about(context: Context, liar: StoredHost, advice: Advice) -> str:
    """Have the liar's own account ask for the best config, and its host say that it does not run."""
    validated(context, caller(context, "mallory"), advice, configs=[advice.configs[0].id])
    found = reported(context, liar, failure=OOM)
    assert found is not None
    return found


@pytest.mark.parametrize("names_a_host", [False, True])
def test_a_new_hosts_false_failure_is_nobody_elses_validation(
    context: Context, alice: Caller, liar: StoredHost, advice: Advice, names_a_host: bool
) -> None:
    honest = public(context, "bob")
    lied_about(context, liar, advice)
    named = {"hosts": [honest.id]} if names_a_host else {}
    made = validated(context, alice, advised(context), configs=[advice.configs[0].id], **named)
    assert [(run.state, run.previous, run.failure) for run in made.runs] == [("queued", False, None)]


def test_a_new_hosts_false_speed_is_nobody_elses_validation(
    context: Context, alice: Caller, liar: StoredHost, advice: Advice
) -> None:
    config = advice.configs[0].id
    validated(context, caller(context, "mallory"), advice, configs=[config])
    assert reported(context, liar, rows=measured_like(advice, config, 0.2))
    made = validated(context, alice, advised(context), configs=[config])
    assert [(run.state, run.previous) for run in made.runs] == [("queued", False)]


def test_a_proven_hosts_failure_is_not_another_hosts(context: Context, alice: Caller, advice: Advice) -> None:
    public(context, "bob")
    proven = public(context, "carol")
    moderate(context, "root", Moderation(action="trust", subject="carol", reason="known to us"))
    config = advice.configs[0].id
    validated(context, caller(context, "carol"), advice, configs=[config], hosts=[proven.id])
    assert reported(context, proven, failure=OOM)
    other = validated(context, alice, advised(context), configs=[config], hosts=[public(context, "dave").id])
    assert [(run.state, run.previous) for run in other.runs] == [("queued", False)]
    same = validated(context, alice, advised(context), configs=[config], hosts=[proven.id])
    assert [(run.state, run.previous) for run in same.runs] == [("failed", True)]


def test_a_stranger_who_measures_my_advice_changes_neither_its_order_nor_its_headline(
    context: Context, alice: Caller, liar: StoredHost, advice: Advice
) -> None:
    first = advice.configs[0].id
    made = validated(context, alice, advice, configs=[first])
    reported(context, liar, failure=OOM)
    after = advise.read_advice(context, advice.id, alice)
    assert (after.headline, after.configs) == (advice.headline, advice.configs)
    run = the_run(context, made, alice)
    assert (run.state, run.failure.kind) == ("failed", "out_of_memory")
    assert run.failure.text == "it does not fit into the memory of CUDA0"
    assert LIE not in msgspec.json.encode(run).decode()


def test_a_host_of_my_own_counts_for_me_and_for_nobody_else_who_reads_my_advice(
    context: Context, alice: Caller, advice: Advice
) -> None:
    host = public(context, "alice")
    first = advice.configs[0].id
    validated(context, alice, advice, configs=[first])
    reported(context, host, rows=measured_like(advice, first, 0.05))
    assert advise.read_advice(context, advice.id, alice).configs[0].id != first
    for reader in (None, caller(context, "bob")):
        assert advise.read_advice(context, advice.id, reader).configs == advice.configs


def test_nobody_moves_anothers_advice_by_having_it_measured_on_his_own_host(
    context: Context, alice: Caller, liar: StoredHost, advice: Advice
) -> None:
    config = advice.configs[0].id
    validated(context, caller(context, "mallory"), advice, configs=[config])
    reported(context, liar, rows=measured_like(advice, config, 0.05))
    assert advise.read_advice(context, advice.id, alice).configs == advice.configs


def test_no_words_of_a_stranger_are_in_my_validation(
    context: Context, alice: Caller, liar: StoredHost, advice: Advice
) -> None:
    made = validated(context, alice, advice, configs=[advice.configs[0].id])
    leased = taken(context, liar)
    said = Progress(fence=leased.fence, step="loading", text=LIE)
    runs.note_progress(context, liar, leased.run, said)
    assert the_run(context, made, alice).progress == "loading"
    runs.report(context, liar, leased.run, Report(fence=leased.fence, failure=CRASH, engine_version=LIE))
    assert LIE not in msgspec.json.encode(read_validation(context, made.id, alice)).decode()


# --- an impossible number ---------------------------------------------------------------------------------------------


def test_a_host_that_says_it_is_a_smaller_machine_after_the_lease_is_bounded_and_filed_as_it_was(
    context: Context, alice: Caller, clock: Clock
) -> None:
    liar = public(context, "mallory", WITH_EIGHT_H100)
    advice = advised(context, hardware=ONE_3090)
    config = advice.configs[0].id
    validated(context, alice, advice, configs=[config])
    leased = taken(context, liar)
    small = now(context, liar, ONE_3090)
    clock.pass_minutes(5)
    fast = faster(measured_like(advice, config), 30.0)
    with pytest.raises(InvalidInput, match="is impossible"):
        runs.note_progress(context, small, leased.run, Progress(fence=leased.fence, step="measuring", rows=fast))
    with pytest.raises(InvalidInput, match="is impossible"):
        runs.report(context, small, leased.run, Report(fence=leased.fence, rows=fast))
    said = Report(fence=leased.fence, rows=measured_like(advice, config))
    kept = results.read(context.engine, runs.report(context, small, leased.run, said).result or "")
    assert kept is not None
    assert kept.rig_slug != "rtx-3090"
    assert len(kept.hardware.gpus) == 9


def test_a_host_whose_cards_are_others_than_when_the_run_was_planned_gets_no_run(
    context: Context, alice: Caller, advice: Advice
) -> None:
    host = public(context, "mallory", WITH_EIGHT_H100)
    validated(context, alice, advised(context, hardware=ONE_3090), baseline=False)
    assert runs.lease(context, now(context, host, ONE_3090)) is None
    assert runs.lease(context, now(context, host, WITH_EIGHT_H100)) is not None


def test_renamed_cards_are_another_machine(context: Context, alice: Caller, advice: Advice) -> None:
    host = public(context, "mallory")
    validated(context, alice, advice, baseline=False)
    renamed = msgspec.structs.replace(RIG, gpus=[Gpu(name="RTX 4090"), Gpu(name="RTX 3090")])
    assert runs.lease(context, now(context, host, renamed)) is None


def test_the_bound_is_that_of_the_cards_that_the_run_uses_not_of_all_in_the_machine(
    context: Context, alice: Caller
) -> None:
    advice = advised(context, hardware=ONE_3090)
    config = advice.configs[0].id
    small, large = public(context, "bob", ONE_3090), public(context, "mallory", WITH_EIGHT_H100)
    bounds = []
    for host in (small, large):
        validated(context, alice, advice, configs=[config], hosts=[host.id])
        run = store_runs.read(context.engine, taken(context, host).run)
        assert run is not None
        assert run.record is not None
        bounds.append(run.record.terms.most_tg)
    assert bounds[0] == pytest.approx(bounds[1])


# --- another's run, another's quota -----------------------------------------------------------------------------------


def test_a_host_that_drops_a_run_is_not_offered_it_again_and_an_honest_one_measures_it(
    context: Context, alice: Caller, liar: StoredHost, advice: Advice
) -> None:
    honest = public(context, "bob")
    config = advice.configs[0].id
    made = validated(context, alice, advice, configs=[config])
    taken(context, liar)
    assert runs.lease(context, liar) is None  # it asked again: it has lost the run, for good
    assert the_run(context, made, alice).state == "queued"
    reported(context, honest, rows=measured_like(advice, config))
    assert the_run(context, made, alice).state == "succeeded"


@pytest.mark.parametrize("failure", [CRASH, OOM])
def test_two_hosts_that_work_together_do_not_end_a_run_that_an_honest_one_may_take(
    context: Context, alice: Caller, liar: StoredHost, advice: Advice, failure: Failure
) -> None:
    second, honest = public(context, "trudy"), public(context, "bob")
    config = advice.configs[0].id
    made = validated(context, alice, advice, configs=[config])
    for host in (liar, second):
        leased = taken(context, host)
        assert runs.report(context, host, leased.run, Report(fence=leased.fence, failure=failure)).again
        assert runs.lease(context, host) is None
    reported(context, honest, rows=measured_like(advice, config))
    assert the_run(context, made, alice).state == "succeeded"


def test_a_host_that_does_not_measure_for_an_account_is_given_none_of_its_runs(
    context: Context, alice: Caller, advice: Advice
) -> None:
    config = advice.configs[0].id
    choosy = public(context, "bob", accounts=("carol", "team-*"))
    with pytest.raises(NoHost, match="named accounts only"):
        validated(context, alice, advice, configs=[config])
    (seen,) = hosts_of_advice(context, None, advice.id)[0].hosts
    assert seen.missing == ["its owner measures for named accounts only"]
    for name in ("carol", "team-3", "bob"):
        validated(context, caller(context, name), advice, configs=[config], baseline=False)
        assert taken(context, choosy)


def test_a_host_that_is_silent_for_days_is_named_with_its_last_day(
    context: Context, liar: StoredHost, advice: Advice, clock: Clock
) -> None:
    with context.engine.begin() as connection:
        connection.execute(update(host_table).where(host_table.c.id == liar.id).values(seen_at=clock()))
    assert "last seen" not in hosts_of_advice(context, None, advice.id)[0].text
    clock.now += timedelta(days=3)
    assert "(last seen 2026-11-21) could measure it" in hosts_of_advice(context, None, advice.id)[0].text


def test_where_all_hosts_have_failed_the_run_has(
    context: Context, alice: Caller, liar: StoredHost, advice: Advice, clock: Clock
) -> None:
    made = validated(context, alice, advice, configs=[advice.configs[0].id])
    taken(context, liar)
    clock.pass_minutes(2)
    runs.sweep(context)
    run = the_run(context, made, alice)
    assert (run.state, run.attempt) == ("failed", 1)
    assert "stopped answering" in run.failure.text


def test_a_host_that_gives_way_again_and_again_lets_others_come_first(
    context: Context, alice: Caller, liar: StoredHost, advice: Advice, clock: Clock
) -> None:
    validated(context, alice, advice, configs=[advice.configs[0].id])
    reported(context, liar, failure=GAVE_WAY)
    assert runs.lease(context, liar) is None
    clock.pass_minutes(11)
    assert runs.lease(context, liar) is not None


def test_a_run_costs_the_cards_and_the_seconds_of_its_lease_whatever_its_host_says_it_is(
    context: Context, alice: Caller, clock: Clock
) -> None:
    advice = advised(context, hardware=ONE_3090)
    config = advice.configs[0].id
    liar = public(context, "mallory", ONE_3090)
    made = validated(context, alice, advice, configs=[config])
    clock.pass_minutes(60)  # nobody pays for the time in which a run waits
    leased = taken(context, liar)
    large = now(context, liar, WITH_64_CARDS)
    clock.pass_minutes(20 / 60)
    said = Report(fence=leased.fence, rows=measured_like(advice, config), gpu_seconds=1e6)
    runs.report(context, large, leased.run, said)
    run = store_runs.read(context.engine, made.runs[0].id)
    assert run is not None
    assert run.gpu_seconds == pytest.approx(20, abs=0.1)


def test_a_host_cannot_lengthen_its_lease_by_saying_that_it_allows_more(
    context: Context, alice: Caller, advice: Advice, clock: Clock
) -> None:
    host = public(context, "mallory", max_minutes=5)
    validated(context, alice, advice, configs=[advice.configs[0].id])
    leased = taken(context, host)
    save_probe(context, host, probe_of(context, max_minutes=1440))
    slow = hosts.read(context.engine, host.id)
    assert slow is not None
    said, minutes = Progress(fence=leased.fence, step="measuring"), 0
    while minutes < 60 and not held_no_more(context, slow, leased, said):
        clock.pass_minutes(1)
        minutes += 1
        runs.sweep(context)
    assert minutes <= 5 + 20


def held_no_more(context: Context, host: StoredHost, leased: LeasedRun, said: Progress) -> bool:
    try:
        runs.note_progress(context, host, leased.run, said)
    except LeaseLost:
        return True
    return False


def test_what_comes_late_is_kept_nowhere(
    context: Context, alice: Caller, liar: StoredHost, advice: Advice, clock: Clock
) -> None:
    honest = public(context, "bob")
    config = advice.configs[0].id
    made = validated(context, alice, advice, configs=[config])
    late = taken(context, liar)
    clock.pass_minutes(2)
    runs.sweep(context)
    good = reported(context, honest, rows=measured_like(advice, config))
    with pytest.raises(LeaseLost):
        runs.report(context, liar, late.run, Report(fence=late.fence, failure=OOM))
    run = the_run(context, made, alice)
    assert (run.state, run.result) == ("succeeded", good)
