"""Whom to believe: tiers, proofs, outliers, and every way in which community results were polluted elsewhere."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from service.engine.errors import InvalidInput
from service.engine.hardware import Cpu, Hardware
from service.engine.logs.read import LogBuffers
from service.engine.measured.classify import Failure
from service.engine.measured.roofline import Prediction
from service.engine.run_flags import RunFlags
from service.flows.context import Context
from service.flows.results import trust
from service.flows.results.trust import NEW_HOST, NOTHING_BOUNDS, OUTLIER, judged, settle
from service.store.measuring.hosts import StoredHost
from service.store.results import results
from service.store.results.results import StoredResult
from service.store.tables import account
from service.store.viewers import ANYBODY
from service.wire.results.results import Seen
from tests.flows.conftest import Clock
from tests.hosts import a_host
from tests.speeds import point
from tests.stored_results import a_result, keep, row

CELL = "c" * 64
BOUND = Prediction(devices=[], speed=[], most_tg=2_000.0, most_pp=50_000.0)
SWEEP = [row(n_kv, tg, 500.0 - n_kv / 100) for n_kv, tg in ((0, 20.0), (512, 19.5), (1024, 19.1), (2048, 18.3))]


def sent(**values: Any) -> StoredResult:
    """A result that somebody pastes, as it is before it is judged."""
    return a_result(values.pop("rows", SWEEP), **{"prediction": BOUND, **values})


def by(host: StoredHost, clock: Clock, tg: float = 20.0, cell: str = CELL, **values: Any) -> StoredResult:
    """What a host's agent reports of a cell, as it is before it is judged."""
    return sent(
        rows=[row(0, tg, 500.0), row(4096, tg * 0.9, 450.0)],
        origin="agent", account_id=host.account_id, host_id=host.id, hardware_key="k", cell=cell,
        flags=RunFlags(n_ctx=8192), measured_at=clock(), created_at=clock(), **values,
    )  # fmt: skip


def kept(context: Context, *several: StoredResult) -> list[str]:
    """Judge, keep and settle results as the flows do; return their ids."""
    for one in several:
        keep(context.engine, judged(context, one))
        settle(context, one.cell)
    return [one.id for one in several]


def tiers(context: Context, ids: list[str]) -> list[str]:
    found = results.of_ids(context.engine, ids)
    return [found[name].tier for name in ids]


@pytest.fixture
def three(context: Context) -> tuple[StoredHost, StoredHost, StoredHost]:
    """Hosts of three owners."""
    return a_host(context, "alice"), a_host(context, "bob"), a_host(context, "carol")


def grow_old(clock: Clock) -> None:
    clock.pass_minutes(15 * 24 * 60)


# --- what polluted others ---------------------------------------------------------------------------------------------


def test_a_million_tokens_a_second_is_refused(context: Context) -> None:
    """llmfit #1038: an eval of one microsecond."""
    with pytest.raises(InvalidInput, match="is impossible") as caught:
        judged(context, sent(rows=[row(0, 999_999.0, None)]))
    assert caught.value.field == "rows[0].tg_seconds"


def test_an_honest_430_tokens_a_second_is_shown(context: Context) -> None:
    """project-nomad #274: a fixed limit of 250 refused it."""
    found = judged(context, sent(rows=[row(0, 430.0, 9_000.0)]))
    assert (found.state, found.state_reason) == ("shown", None)


def test_ten_times_what_the_command_is_expected_to_make_is_quarantined_where_that_is_of_this_machine(
    context: Context,
) -> None:
    here = msgspec.structs.replace(BOUND, speed=[point(0, 630.0, 16.7), point(8_192, 550.0, 16.0)])
    found = judged(context, sent(prediction=here, rows=[row(512, 161.0, 5_500.0)]))
    assert found.state == "quarantined"
    assert found.state_reason is not None
    assert found.state_reason.startswith("TG 161 t/s at 512 tokens is 9.7 times what")
    assert judged(context, sent(prediction=here, rows=[row(512, 48.0, 1_600.0)])).state == "shown"
    elsewhere = msgspec.structs.replace(here, own_rig=False)
    assert judged(context, sent(prediction=elsewhere, rows=[row(512, 161.0, 5_500.0)])).state == "shown"


def test_a_run_spanning_0_27_to_13_3_is_quarantined_with_the_reason(context: Context) -> None:
    """llmfit PR #910."""
    found = judged(context, sent(rows=[row(0, 0.27, 100.0), row(512, 13.3, 100.0)]))
    assert found.state == "quarantined"
    assert "0.27 t/s at 0 tokens to 13.3 at 512" in (found.state_reason or "")


@pytest.mark.parametrize(
    "values",
    [
        {"command": "llama-benchy --base-url http://hidden"},
        {"command": "llama-bench -m x.gguf --rpc hidden"},
        {"seen": Seen(buffers=(LogBuffers(device="RPC[hidden]", weights_mib=1.0),))},
    ],
)
def test_what_another_machine_measured_is_not_booked_here(context: Context, values: dict[str, Any]) -> None:
    """project-nomad #1151: a remote host's speed booked to the local machine."""
    found = judged(context, sent(**values))
    assert (found.state, "another machine" in (found.state_reason or "")) == ("quarantined", True)


@pytest.mark.parametrize("cpu", [None, Cpu(physical_cores=16)])
def test_hardware_that_says_nothing_is_refused(context: Context, cpu: Cpu | None) -> None:
    """llmfit PR #730: a submission whose hardware is `n-a`."""
    with pytest.raises(InvalidInput, match="neither a GPU nor a CPU"):
        judged(context, sent(hardware=Hardware(gpus=[], cpu=cpu)))


def test_too_few_tokens_are_quarantined(context: Context) -> None:
    few = row(0, 20.0, None)
    few = msgspec.structs.replace(few, n_gen=4, tg_seconds=(0.2,))
    assert "4 tokens of output" in (judged(context, sent(rows=[few])).state_reason or "")


def test_what_nothing_bounds_is_quarantined_and_what_was_published_elsewhere_is_not(context: Context) -> None:
    assert judged(context, sent(prediction=None)).state_reason == NOTHING_BOUNDS
    assert judged(context, sent(prediction=None, origin="published")).state == "shown"


def test_the_same_figures_sent_again_are_quarantined_from_any_sender(context: Context) -> None:
    (first,) = kept(context, sent())
    rounded = [row(r.n_kv, round(r.tg_tps[0], 2), round(r.pp_tps[0], 2)) for r in SWEEP]
    again = judged(context, sent(rows=rounded, variant="Q5_K_M", rig_slug="4x-h100"))
    assert (again.state, again.state_reason) == (
        "quarantined",
        f"the same figures as result {first}: a measurement counts only once",
    )
    other = judged(context, sent(rows=[row(r.n_kv, r.tg_tps[0] * 1.004, r.pp_tps[0]) for r in SWEEP]))
    assert other.state == "shown"


def test_a_failure_has_no_figures_to_doubt(context: Context) -> None:
    failure = Failure(kind="out_of_memory", transient=False, text="needed 812 MiB more on CUDA0")
    assert judged(context, sent(rows=[], failure=failure, prediction=None)).state == "shown"


# --- tiers ------------------------------------------------------------------------------------------------------------


def test_a_new_host_is_self_reported_and_says_so(context: Context, clock: Clock) -> None:
    (one,) = kept(context, by(a_host(context), clock))
    stored = results.read(context.engine, one)
    assert stored is not None
    assert (stored.tier, stored.state, stored.state_reason) == ("self-reported", "shown", NEW_HOST)


def test_two_old_owners_that_agree_replicate_each_other_and_prove_no_host_yet(
    context: Context, clock: Clock, three: tuple[StoredHost, ...]
) -> None:
    grow_old(clock)
    a, b, _ = three
    ids = kept(context, by(a, clock), by(b, clock, 20.5), by(a, clock, 33.0, "d" * 64))
    assert tiers(context, ids) == ["replicated", "replicated", "self-reported"]


def test_a_third_owner_that_agrees_is_proven_and_its_other_results_count_as_agent_run(
    context: Context, clock: Clock, three: tuple[StoredHost, ...]
) -> None:
    grow_old(clock)
    a, b, c = three
    elsewhere = kept(context, by(c, clock, 33.0, "d" * 64))
    assert tiers(context, elsewhere) == ["self-reported"]
    kept(context, by(a, clock), by(b, clock, 20.5), by(c, clock, 19.8))
    assert tiers(context, elsewhere) == ["agent-run"]
    assert results.of_ids(context.engine, elsewhere)[elsewhere[0]].state_reason is None
    assert tiers(context, kept(context, by(c, clock, 36.0, "e" * 64))) == ["agent-run"]


def test_young_accounts_replicate_when_they_are_old_enough_or_vouched_for(
    context: Context, clock: Clock, three: tuple[StoredHost, ...]
) -> None:
    a, b, _ = three
    ids = kept(context, by(a, clock), by(b, clock, 20.5))
    assert tiers(context, ids) == ["self-reported", "self-reported"]
    grow_old(clock)
    assert trust.sweep(context) == 1
    assert tiers(context, ids) == ["replicated", "replicated"]
    assert trust.sweep(context) == 0


@pytest.mark.parametrize(
    "values",
    [
        {"rows": [row(0, 24.0, 500.0), row(4096, 21.6, 450.0)]},  # a fifth faster: tokens on GPUs agree within 7 %
        {"hardware": Hardware(gpus=[], cpu=Cpu(model="EPYC 9355")), "hardware_key": "other"},
        {"build": "2025-01-15"},
        {"origin": "submitted", "host_id": None},
    ],
)
def test_other_figures_another_rig_an_old_build_and_a_paste_replicate_nothing(
    context: Context, clock: Clock, three: tuple[StoredHost, ...], values: dict[str, Any]
) -> None:
    grow_old(clock)
    a, b, _ = three
    other = msgspec.structs.replace(by(b, clock, 20.5), **values)
    assert tiers(context, kept(context, by(a, clock), other)) == ["self-reported", "self-reported"]


def test_two_hosts_of_one_owner_replicate_nothing(context: Context, clock: Clock) -> None:
    a, again = a_host(context, "alice"), a_host(context, "alice")
    grow_old(clock)
    assert set(tiers(context, kept(context, by(a, clock), by(again, clock, 20.5)))) == {"self-reported"}


def test_what_a_banned_account_measured_bears_out_nothing_any_more(
    context: Context, clock: Clock, three: tuple[StoredHost, ...]
) -> None:
    grow_old(clock)
    a, b, c = three
    ids = kept(context, by(a, clock), by(b, clock, 20.5), by(c, clock, 19.8), by(c, clock, 33.0, "d" * 64))
    assert tiers(context, ids) == ["replicated", "replicated", "replicated", "agent-run"]
    with context.engine.begin() as connection:
        connection.execute(account.update().where(account.c.id == b.account_id).values(banned_at=clock()))
    trust.settle_account(context, b.account_id)
    assert [tiers(context, ids)[i] for i in (0, 2, 3)] == ["replicated", "replicated", "self-reported"]


# --- outliers ---------------------------------------------------------------------------------------------------------


def owners(context: Context, n: int) -> list[StoredHost]:
    return [a_host(context, f"owner{i}") for i in range(n)]


def test_an_outlier_of_its_cell_is_quarantined_with_the_reason_and_shown_again_when_it_is_none(
    context: Context, clock: Clock
) -> None:
    hosts = owners(context, 7)
    kept(context, *(by(host, clock, tg) for host, tg in zip(hosts, (20.0, 20.5, 19.8), strict=False)))
    (far,) = kept(context, by(hosts[3], clock, 41.0))
    stored = results.of_ids(context.engine, [far])[far]
    assert stored.state == "quarantined"
    assert stored.state_reason == f"{OUTLIER}TG is 2.1 times above what 3 others measured"
    kept(context, *(by(host, clock, tg) for host, tg in zip(hosts[4:], (40.0, 41.5, 42.0), strict=True)))
    assert results.of_ids(context.engine, [far])[far].state == "shown"


def test_a_proven_host_that_later_says_half_the_speed_is_out_as_soon_as_two_others_measure_the_same(
    context: Context, clock: Clock
) -> None:
    a, b, slow, other = owners(context, 4)
    grow_old(clock)
    kept(context, by(a, clock), by(b, clock, 20.5), by(slow, clock, 19.8))
    (half,) = kept(context, by(slow, clock, 10.0, "d" * 64))
    assert tiers(context, [half]) == ["agent-run"]  # alone, and proven: nobody can know
    honest = kept(context, *(by(host, clock, tg, "d" * 64) for host, tg in ((a, 20.1), (b, 20.3), (other, 19.9))))
    assert results.of_ids(context.engine, [half])[half].state == "quarantined"
    assert set(tiers(context, honest)) == {"replicated"}


def test_many_accounts_cannot_push_out_what_is_better_borne_out(context: Context, clock: Clock) -> None:
    hosts = owners(context, 2)
    grow_old(clock)
    good = kept(context, by(hosts[0], clock, 20.0), by(hosts[1], clock, 20.5))
    fakes = [
        msgspec.structs.replace(by(host, clock, 8.0 + i / 100), origin="submitted", host_id=None)
        for i, host in enumerate([a_host(context, f"fake{i}") for i in range(5)])
    ]
    kept(context, *fakes)
    found = results.of_ids(context.engine, good)
    assert [found[name].state for name in good] == ["shown", "shown"]


def test_pastes_neither_push_out_what_a_new_host_measured_nor_hide_it_from_others(
    context: Context, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.store.results.trust._MOST_OF_CELL", 5)
    hosts = owners(context, 2)
    fakes = [a_host(context, f"fake{i}") for i in range(5)]
    grow_old(clock)
    first = kept(context, by(hosts[0], clock, 20.0))
    paste = [by(host, clock, 8.0 + i / 9) for i, host in enumerate(fakes)]
    kept(context, *(msgspec.structs.replace(one, origin="submitted", host_id=None) for one in paste))
    assert results.of_ids(context.engine, first)[first[0]].state == "shown"
    assert tiers(context, [*first, *kept(context, by(hosts[1], clock, 20.5))]) == ["replicated", "replicated"]


def test_an_owners_many_results_do_not_hide_what_others_measured_of_a_model(context: Context, clock: Clock) -> None:
    first, second = (a_host(context, name, visibility="public") for name in ("alice", "bob"))
    old = msgspec.structs.replace(by(first, clock), tier="agent-run")
    clock.pass_minutes(60)
    many = [msgspec.structs.replace(by(second, clock, 20 + i / 9), tier="agent-run") for i in range(12)]
    keep(context.engine, old, *many)
    found = results.near(context.engine, old.model_slug, old.rig_slug, ANYBODY)
    assert [one.account_id for one in found] == [second.account_id] * 10 + [first.account_id]


def test_settling_twice_changes_nothing_and_an_operators_word_stands(context: Context, clock: Clock) -> None:
    hosts = owners(context, 4)
    ids = kept(context, *(by(host, clock, tg) for host, tg in zip(hosts, (20.0, 20.5, 19.8, 41.0), strict=True)))
    before = results.of_ids(context.engine, ids)
    settle(context, CELL)
    assert results.of_ids(context.engine, ids) == before
    with context.engine.begin() as connection:
        results.change(connection, ids[3], state="shown", state_reason="an operator says so")
    settle(context, CELL)
    assert results.of_ids(context.engine, ids)[ids[3]].state == "shown"


def test_many_settle_a_cell_at_once_and_agree(context: Context, clock: Clock) -> None:
    hosts = owners(context, 6)
    grow_old(clock)
    several = [judged(context, by(host, clock, 20.0 + i / 10)) for i, host in enumerate(hosts)]

    def report(one: StoredResult) -> None:
        keep(context.engine, one)
        settle(context, one.cell)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(report, several))
    assert set(tiers(context, [one.id for one in several])) == {"replicated"}
    more = kept(context, by(hosts[0], clock, 33.0, "d" * 64))
    assert tiers(context, more) == ["agent-run"]
