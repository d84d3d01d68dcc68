"""Runs are leased once, renewed, taken back, reported once; on both databases, with and without Redis."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from service.engine.errors import InvalidInput
from service.engine.measured.classify import Failure
from service.engine.measured.identity import model_identity
from service.engine.measured.roofline import Prediction
from service.engine.measured.rows import MeasuredRow
from service.engine.run_flags import RunFlags
from service.errors import HostNotActive, LeaseLost, RunNotFound
from service.flows.context import Context
from service.flows.measuring import runs as flow
from service.flows.measuring.hosts import own_hosts
from service.flows.results import trust
from service.flows.results.trust import NEW_HOST
from service.queue.connection import connect
from service.store.measuring import hosts, runs, validations
from service.store.measuring.hosts import StoredHost
from service.store.measuring.runs import Eligible, StoredRun, Terms
from service.store.measuring.validations import StoredValidation
from service.store.results import listed_results, results
from service.store.tables import account, run_host
from service.store.viewers import ANYBODY, Viewer
from service.wire.measuring.agent import LeasedRun, Progress, Report, RunFile, RunOutline
from service.wire.measuring.runs import ValidationRequest
from tests.flows.conftest import Clock
from tests.hosts import PROBE, a_host, caller

OUTLINE = RunOutline(
    engine="ik_llama.cpp",
    repo="owner/name-GGUF",
    revision="0" * 40,
    files=(RunFile(path="x-Q4_K_M.gguf", size=1000, sha256="c" * 64),),
    flags=RunFlags(n_ctx=16_384),
    depths=(0, 4096),
    n_prompt=512,
    n_gen=128,
    seconds=600,
)
PREDICTION = Prediction(devices=[], speed=[], most_tg=200.0, most_pp=10_000.0)
ROWS = (MeasuredRow(n_kv=0, n_prompt=512, n_gen=128, pp_seconds=(0.5,), tg_seconds=(6.4,)),)
OOM = Failure(kind="out_of_memory", transient=False, text="needed 812 MiB more on CUDA0", device="CUDA0")
CRASH = Failure(kind="crashed", transient=True, text="it ended with signal 11")
GAVE_WAY = Failure(kind="gave_way", transient=True, text="another program uses GPU 0")


def may_take(host: StoredHost) -> Eligible:
    """A host as one that may take a run, bounded as the runs here are."""
    assert host.probe is not None
    terms = Terms(hardware=host.probe.hardware, most_tg=200.0, most_pp=10_000.0, max_minutes=host.probe.max_minutes)
    return Eligible(
        host_id=host.id, match="exact", gpus=(1, 0), engine_builds=("a" * 64,), hardware_key=host.hardware_key,
        terms=terms,
    )  # fmt: skip


def queued(context: Context, host: StoredHost, n: int = 1, account: str = "alice") -> list[str]:
    """Queue `n` runs of an account for one host; return their ids, in order."""
    owner = caller(context, account).account_id
    validation = StoredValidation(
        id=secrets.token_urlsafe(16),
        advice_id="a",
        account_id=owner,
        mode="validate",
        request=ValidationRequest(),
        refused=[],
        idempotency_key=None,
        created_at=context.clock(),
    )
    eligible = may_take(host)
    rows = [
        StoredRun(
            id=secrets.token_urlsafe(16),
            validation_id=validation.id,
            account_id=owner,
            kind="config",
            config_id=f"c{i}",
            position=i,
            variant="Q4_K_M",
            cell=f"{i:064}",
            outline=OUTLINE,
            prediction=PREDICTION,
            identity=model_identity(OUTLINE.repo, None),
            created_at=context.clock(),
        )
        for i in range(n)
    ]
    assert validations.add(context.engine, validation, [(row, [eligible]) for row in rows])
    return [row.id for row in rows]


def taken(context: Context, host: StoredHost) -> LeasedRun:
    leased = flow.lease(context, host)
    assert leased is not None
    return leased


def state_of(context: Context, run_id: str) -> StoredRun:
    found = runs.read(context.engine, run_id)
    assert found is not None
    return found


@pytest.fixture
def host(context: Context) -> StoredHost:
    return a_host(context)


def test_a_host_gets_the_document_with_its_own_cards_and_builds(context: Context, host: StoredHost) -> None:
    (run,) = queued(context, host)
    leased = taken(context, host)
    assert (leased.run, leased.fence, leased.lease_seconds) == (run, 1, 90)
    assert (leased.document.gpus, leased.document.engine_builds) == ((1, 0), ("a" * 64,))
    assert leased.document.flags == OUTLINE.flags
    assert state_of(context, run).state == "leased"


def test_a_host_is_told_who_asks_and_its_owner_what_it_gave_and_got(context: Context) -> None:
    host, others = a_host(context, "alice", visibility="public"), a_host(context, "bob", visibility="public")
    for machine, asker in ((host, "alice"), (host, "bob"), (others, "alice")):
        queued(context, machine, account=asker)
        leased = taken(context, machine)
        assert (leased.asked_by, leased.is_owners) == (asker, machine is host and asker == "alice")
        said = Report(fence=leased.fence, rows=ROWS, engine_sha256="a" * 64)
        flow.report(context, machine, leased.run, said)
    mine = own_hosts(context, caller(context, "alice"))
    (shown,) = mine.hosts
    assert (shown.pseudonym, shown.own_runs, shown.others_runs, mine.received_runs) == (host.pseudonym, 1, 1, 1)
    assert own_hosts(context, caller(context, "carol")).hosts == []


def test_a_host_gets_no_run_that_is_not_for_it(context: Context, host: StoredHost) -> None:
    queued(context, host)
    assert flow.lease(context, a_host(context, "bob")) is None


@pytest.mark.parametrize("state", ["waiting", "paused"])
def test_a_host_that_is_not_active_gets_nothing(context: Context, host: StoredHost, state: Any) -> None:
    queued(context, host)
    with pytest.raises(HostNotActive):
        flow.lease(context, msgspec.structs.replace(host, state=state))


def test_sixty_leases_at_once_over_forty_runs_give_each_run_once(context: Context) -> None:
    machines = [a_host(context, f"owner-{i}") for i in range(12)]
    owner = caller(context).account_id
    ids = queued(context, machines[0], 40)
    with context.engine.begin() as connection:
        for run in ids:
            for machine in machines[1:]:
                values = {"run_id": run, **msgspec.structs.asdict(may_take(machine))}
                connection.execute(run_host.insert().values(values))
    now = context.clock()

    def one(i: int) -> str | None:
        found = runs.lease(context.engine, machines[i % 12].id, owner, now, now + timedelta(seconds=90), 3600.0)
        return found[0].id if found else None

    with ThreadPoolExecutor(12) as pool:
        got = list(pool.map(one, range(60)))
    leased = [run for run in got if run]
    assert sorted(leased) == sorted(ids)


def test_a_report_becomes_a_result_and_the_same_again_is_answered_the_same(
    context: Context, host: StoredHost, clock: Clock
) -> None:
    (run,) = queued(context, host)
    leased = taken(context, host)
    clock.pass_minutes(1)
    said = Report(fence=leased.fence, rows=ROWS, gpu_seconds=30.0, files_confirmed=True, log="at /home/alice/x.gguf")
    first = flow.report(context, host, run, said)
    assert first == flow.report(context, host, run, said)
    assert first.result is not None
    kept = results.read(context.engine, first.result)
    assert kept is not None
    assert (kept.rows, kept.tier, kept.confirmed, kept.host_id) == (list(ROWS), "self-reported", True, host.id)
    assert kept.state_reason == NEW_HOST
    assert results.read_log(context.engine, kept.id) == "at x.gguf"
    assert (state_of(context, run).state, state_of(context, run).gpu_seconds) == ("succeeded", 30.0)
    yesterday = context.clock() - timedelta(days=1)

    def proven_to(viewer: Viewer) -> int:
        return len(results.of_cells(context.engine, [kept.cell or ""], yesterday, viewer))

    assert proven_to(Viewer(host.account_id)) == 1  # its owner trusts his own machine
    assert listed_results.read(context.engine, kept.id, ANYBODY) is None  # of a private host, to nobody else
    hosts.change(context.engine, host.id, context.clock(), visibility="public")
    assert listed_results.read(context.engine, kept.id, ANYBODY) is not None
    assert proven_to(ANYBODY) == 0


def test_progress_keeps_rows_once_and_lengthens_the_lease(context: Context, host: StoredHost, clock: Clock) -> None:
    (run,) = queued(context, host)
    fence = taken(context, host).fence
    for _ in range(2):
        said = Progress(fence=fence, step="measuring", text="depth 0", rows=ROWS)
        assert not flow.note_progress(context, host, run, said).stop
        clock.pass_minutes(1)
    stored = state_of(context, run)
    assert (stored.state, stored.rows, stored.progress) == ("running", list(ROWS), "measuring: depth 0")
    assert flow.sweep(context) == 0


def test_an_expired_lease_goes_back_and_its_old_writer_is_fenced_off(
    context: Context, host: StoredHost, clock: Clock
) -> None:
    (run,) = queued(context, host)
    old = taken(context, host).fence
    clock.pass_minutes(2)
    assert flow.sweep(context) == 1
    assert (state_of(context, run).state, state_of(context, run).attempt) == ("queued", 1)
    with pytest.raises(LeaseLost):
        flow.note_progress(context, host, run, Progress(fence=old, step="measuring"))
    new = taken(context, host).fence
    assert new == old + 1
    with pytest.raises(LeaseLost):
        flow.report(context, host, run, Report(fence=old, rows=ROWS))
    assert flow.report(context, host, run, Report(fence=new, rows=ROWS)).result


def test_a_lease_is_not_renewed_for_ever(context: Context, host: StoredHost, clock: Clock) -> None:
    (run,) = queued(context, host)
    fence, renewed = taken(context, host).fence, 0
    while state_of(context, run).state != "queued":
        flow.note_progress(context, host, run, Progress(fence=fence, step="measuring"))
        clock.pass_minutes(1)
        flow.sweep(context)
        renewed += 1
    assert PROBE.max_minutes <= renewed <= PROBE.max_minutes + 20


def test_a_run_whose_host_falls_silent_three_times_has_failed(context: Context, host: StoredHost, clock: Clock) -> None:
    (run,) = queued(context, host)
    for _ in range(3):
        taken(context, host)
        clock.pass_minutes(2)
        flow.sweep(context)
    stored = state_of(context, run)
    assert (stored.state, stored.attempt) == ("failed", 3)
    assert stored.failure is not None
    assert "stopped answering" in stored.failure.text


def test_a_host_that_asks_again_has_lost_what_it_held(context: Context, host: StoredHost) -> None:
    (run,) = queued(context, host)
    assert taken(context, host).fence == 1
    assert taken(context, host).fence == 2
    assert state_of(context, run).attempt == 1


def test_a_failure_that_may_pass_is_tried_three_times(context: Context, host: StoredHost) -> None:
    (run,) = queued(context, host)
    for again in (True, True, False):
        fence = taken(context, host).fence
        accepted = flow.report(context, host, run, Report(fence=fence, failure=CRASH))
        assert accepted.again is again
    assert state_of(context, run).state == "failed"
    assert state_of(context, run).result_id is None


def test_giving_way_to_the_owner_is_not_counted(context: Context, host: StoredHost) -> None:
    (run,) = queued(context, host)
    for _ in range(5):
        fence = taken(context, host).fence
        assert flow.report(context, host, run, Report(fence=fence, failure=GAVE_WAY)).again
    assert (state_of(context, run).state, state_of(context, run).attempt) == ("queued", 0)


def test_what_was_measured_before_the_host_ended_early_is_shown_until_the_next_attempt(
    context: Context, host: StoredHost
) -> None:
    (run,) = queued(context, host)
    flow.report(context, host, run, Report(fence=taken(context, host).fence, rows=ROWS, failure=GAVE_WAY))
    assert (state_of(context, run).state, tuple(state_of(context, run).rows)) == ("queued", ROWS)
    taken(context, host)
    assert not state_of(context, run).rows


def test_what_does_not_fit_is_a_result_too(context: Context, host: StoredHost) -> None:
    (run,) = queued(context, host)
    accepted = flow.report(context, host, run, Report(fence=taken(context, host).fence, failure=OOM))
    assert accepted.result is not None
    kept = results.read(context.engine, accepted.result)
    assert kept is not None
    assert kept.failure == OOM


@pytest.mark.parametrize(
    "row",
    [
        MeasuredRow(n_kv=0, n_gen=128, tg_seconds=(0.1,)),
        MeasuredRow(n_kv=0, n_prompt=512, pp_seconds=(1.0, 0.05)),
    ],
)
def test_a_speed_that_cannot_be_is_refused_and_the_run_goes_on(
    context: Context, host: StoredHost, row: MeasuredRow
) -> None:
    (run,) = queued(context, host)
    fence = taken(context, host).fence
    for call in (
        lambda: flow.report(context, host, run, Report(fence=fence, rows=(row,))),
        lambda: flow.note_progress(context, host, run, Progress(fence=fence, step="measuring", rows=(row,))),
    ):
        with pytest.raises(InvalidInput, match="is impossible") as refused:
            call()
        assert (refused.value.field or "").startswith("rows[0].")
    assert flow.report(context, host, run, Report(fence=fence, rows=ROWS)).result


def test_a_report_is_kept_and_held_against_others_at_once_or_not_at_all(
    context: Context, host: StoredHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = queued(context, host)
    said = Report(fence=taken(context, host).fence, rows=ROWS)
    with monkeypatch.context() as patched:
        patched.setattr(trust, "settle_in", killed)
        with pytest.raises(SystemExit):
            flow.report(context, host, run, said)
    assert (state_of(context, run).state, state_of(context, run).result_id) == ("leased", None)
    assert flow.report(context, host, run, said).result is not None


def killed(*_: object) -> None:
    raise SystemExit


def test_a_report_without_rows_or_reason_is_refused(context: Context, host: StoredHost) -> None:
    (run,) = queued(context, host)
    fence = taken(context, host).fence
    with pytest.raises(InvalidInput):
        flow.report(context, host, run, Report(fence=fence))


def test_another_host_cannot_write_to_a_run(context: Context, host: StoredHost) -> None:
    (run,) = queued(context, host)
    fence, other = taken(context, host).fence, a_host(context, "bob")
    with pytest.raises(LeaseLost):
        flow.report(context, other, run, Report(fence=fence, rows=ROWS))
    with pytest.raises(LeaseLost):
        flow.note_progress(context, other, run, Progress(fence=fence, step="measuring"))
    with pytest.raises(RunNotFound):
        flow.report(context, host, "none", Report(fence=fence, rows=ROWS))


def test_a_cancelled_run_is_stopped_at_its_next_call_and_its_report_kept_nowhere(
    context: Context, host: StoredHost
) -> None:
    (run,) = queued(context, host)
    fence = taken(context, host).fence
    validations.cancel(context.engine, state_of(context, run).validation_id, context.clock())
    renewed = flow.note_progress(context, host, run, Progress(fence=fence, step="measuring"))
    assert (renewed.stop, renewed.why) == (True, "the validation was cancelled")
    accepted = flow.report(context, host, run, Report(fence=fence, rows=ROWS))
    assert (accepted.result, accepted.again) == (None, False)
    assert state_of(context, run).state == "cancelled"


def test_a_paused_host_is_told_to_stop(context: Context, host: StoredHost) -> None:
    (run,) = queued(context, host)
    fence = taken(context, host).fence
    paused = hosts.change(context.engine, host.id, context.clock(), state="paused")
    assert paused is not None
    assert flow.note_progress(context, paused, run, Progress(fence=fence, step="measuring")).stop


def test_the_owners_own_runs_come_first_then_those_of_who_used_least(context: Context, clock: Clock) -> None:
    host = a_host(context, visibility="public")
    (heavy,) = queued(context, host, account="heavy")
    fence = taken(context, host).fence
    clock.pass_minutes(1)
    flow.report(context, host, heavy, Report(fence=fence, rows=ROWS, gpu_seconds=500))
    again, light, own = (queued(context, host, account=name)[0] for name in ("heavy", "light", "alice"))
    order = []
    for _ in range(3):
        leased = taken(context, host)
        order.append(leased.run)
        flow.report(context, host, leased.run, Report(fence=leased.fence, rows=ROWS))
    assert order == [own, light, again]


def test_a_host_that_became_private_or_paused_while_it_waited_gets_nothing_of_others(context: Context) -> None:
    host = a_host(context, visibility="public")
    queued(context, host, account="bob")
    hosts.change(context.engine, host.id, context.clock(), visibility="private")
    assert flow.next_run(context, host) is None
    hosts.change(context.engine, host.id, context.clock(), visibility="public", state="paused")
    assert flow.next_run(context, host) is None
    hosts.change(context.engine, host.id, context.clock(), state="active")
    assert flow.next_run(context, host)


def test_a_banned_accounts_runs_are_not_given_out(context: Context) -> None:
    host = a_host(context, visibility="public")
    queued(context, host, account="mallory")
    with context.engine.begin() as connection:
        connection.execute(account.update().where(account.c.name == "mallory").values(banned_at=context.clock()))
    assert flow.next_run(context, host) is None


def test_no_host_says_that_it_used_more_than_its_cards_can_have(
    context: Context, host: StoredHost, clock: Clock
) -> None:
    (run,) = queued(context, host)
    fence = taken(context, host).fence
    clock.pass_minutes(1)
    flow.report(context, host, run, Report(fence=fence, rows=ROWS, gpu_seconds=1e7))
    assert state_of(context, run).gpu_seconds == 2 * 60


def test_progress_without_end_keeps_a_thousand_rows(context: Context, host: StoredHost) -> None:
    (run,) = queued(context, host)
    fence = taken(context, host).fence
    for i in range(6):
        rows = tuple(msgspec.structs.replace(ROWS[0], n_kv=200 * i + j) for j in range(200))
        flow.note_progress(context, host, run, Progress(fence=fence, step="measuring", rows=rows))
    assert len(state_of(context, run).rows) == runs.MAX_ROWS


@pytest.mark.parametrize("run", ["", "\x00", "x" * 5000, "a b"])
def test_what_is_no_id_is_no_run(context: Context, host: StoredHost, run: str) -> None:
    with pytest.raises(RunNotFound):
        flow.note_progress(context, host, run, Progress(fence=1, step="loading"))


def test_a_run_that_nobody_takes_ends(context: Context, host: StoredHost, clock: Clock) -> None:
    (run,) = queued(context, host)
    clock.pass_minutes(8 * 24 * 60)
    assert flow.sweep(context) == 1
    assert state_of(context, run).state == "failed"


def test_nothing_of_this_needs_redis(context: Context, host: StoredHost) -> None:
    alone = context._replace(redis=connect("redis://127.0.0.1:1"))
    (run,) = queued(alone, host)
    fence = taken(alone, host).fence
    assert not flow.note_progress(alone, host, run, Progress(fence=fence, step="loading")).stop
    assert flow.report(alone, host, run, Report(fence=fence, rows=ROWS)).result


def test_an_account_that_used_its_day_of_others_hosts_waits_until_tomorrow(context: Context, clock: Clock) -> None:
    host = a_host(context, visibility="public")
    first, _ = queued(context, host, 2, account="bob")
    fence = taken(context, host).fence
    clock.pass_minutes(60)
    flow.report(context, host, first, Report(fence=fence, rows=ROWS, gpu_seconds=3600))
    assert flow.lease(context, host) is None
    clock.pass_minutes(24 * 60 + 1)
    assert flow.lease(context, host) is not None


def test_an_owner_uses_his_own_host_without_limit(context: Context, host: StoredHost, clock: Clock) -> None:
    first, _ = queued(context, host, 2)
    fence = taken(context, host).fence
    clock.pass_minutes(300)
    flow.report(context, host, first, Report(fence=fence, rows=ROWS, gpu_seconds=36_000))
    assert flow.lease(context, host) is not None
    yesterday = context.clock() - timedelta(days=1)
    assert runs.gpu_seconds(context.engine, host.account_id, yesterday) == 0
    with context.engine.connect() as connection:
        assert runs.open_validations(connection, host.account_id) == 0


def test_what_a_hosts_own_policy_refuses_goes_to_another_and_is_no_result(context: Context, host: StoredHost) -> None:
    (run,) = queued(context, host)
    refused = Failure(kind="refused_by_policy", transient=False, text="not between 8 and 18 o'clock")
    said = Report(fence=taken(context, host).fence, failure=refused)
    accepted = flow.report(context, host, run, said)
    assert (accepted.result, accepted.again) == (None, False)  # there is no other
    assert (state_of(context, run).state, state_of(context, run).attempt) == ("failed", 0)
