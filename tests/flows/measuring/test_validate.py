"""Which configs of an advice are measured, on which hosts, within which quotas."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from service.engine.errors import InvalidInput
from service.engine.hardware import Ram
from service.engine.measured.classify import Failure
from service.errors import (
    AdviceNotFound,
    HostNotFound,
    IdempotencyKeyReused,
    NoHost,
    NotAllowed,
    TooManyValidations,
    ValidationNotFound,
)
from service.flows.accounts import Caller
from service.flows.advice import advise
from service.flows.context import Context
from service.flows.measuring import runs
from service.flows.measuring.hosts import save_probe
from service.flows.measuring.run_plans import Asker, Wanted, suited
from service.flows.measuring.validate import hosts_of_advice, request_validation
from service.flows.measuring.validated import cancel_validation, read_validation
from service.flows.results import submissions
from service.flows.results.moderation import moderate
from service.hub.errors import HubBusy
from service.store.measuring import hosts
from service.store.measuring import runs as store_runs
from service.wire.advice.advice import Advice, AdviceRequest
from service.wire.measuring.agent import Progress, Report, RunOutline
from service.wire.measuring.hosts import Downloads
from service.wire.measuring.runs import ValidationRequest
from service.wire.results.moderation import Moderation
from tests.flows.conftest import Clock
from tests.flows.measuring.asking import (
    BENCH,
    BUSY_CARDS,
    MINE,
    OTHER_CONTENT,
    QWEN,
    SWEEP,
    WITHOUT_CUDA,
    advised,
    host_of,
    measured_like,
    probe_of,
    run_all,
    validated,
)
from tests.hosts import PROBE, RIG, caller
from tests.sampling import some_of


def lacking(context: Context, by: Caller, advice: Advice) -> str:
    with pytest.raises(NoHost) as refused:
        validated(context, by, advice)
    return refused.value.detail


def test_what_several_configs_lack_is_said_once(context: Context, alice: Caller) -> None:
    said = lacking(context, alice, advised(context, MINE))
    assert said.count("there is no host that you may use: enrol one (/docs/hosts)") == 1
    assert said.startswith("#1, #2")


def test_what_hosts_lack_for_one_config_is_a_sentence_of_its_own(context: Context, alice: Caller) -> None:
    host_of(context, engines=WITHOUT_CUDA)
    said = lacking(context, alice, advised(context, MINE))
    assert len(re.findall(r"(?:^|\. )(?:#\d|your command)", said)) == said.count("no host could measure it. ") > 1


def test_the_best_two_the_best_of_the_other_engine_and_the_command_in_use_are_measured(
    context: Context, alice: Caller
) -> None:
    host = host_of(context)
    advice = advised(context, MINE)
    made = validated(context, alice, advice)
    first, second, *_ = advice.configs
    other = next(c for c in advice.configs if c.engine != first.engine)
    wanted = list(dict.fromkeys([first.id, second.id, other.id]))
    assert [run.config for run in made.runs] == [*wanted, None]
    assert [run.kind for run in made.runs] == ["config"] * len(wanted) + ["baseline"]
    assert {"--temp", "0.7"} & {word for text in made.runs[-1].dropped for word in text.split()}
    assert {"--jinja", "-np 2"} <= set(made.runs[-1].dropped)
    assert (made.state, made.hosts[0].pseudonym, made.hosts[0].match) == ("queued", host.pseudonym, "exact")
    assert all(run.state == "queued" and run.host is None for run in made.runs)


def test_a_lease_names_the_hosts_own_cards_and_builds_and_depths_of_the_goal(context: Context, alice: Caller) -> None:
    host = host_of(context)
    advice = advised(context)
    validated(context, alice, advice)
    leased = runs.lease(context, host)
    assert leased is not None
    assert advice.goal is not None
    assert leased.document.depths == (0, advice.goal.depth // 2, advice.goal.depth)
    assert leased.document.engine_builds == (
        SWEEP.sha256 if leased.document.engine == "ik_llama.cpp" else BENCH.sha256,
    )
    n_cards = len(advice.configs[0].devices) - 1
    assert len(set(leased.document.gpus)) == n_cards
    assert leased.document.files[0].sha256


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"engines": ()}, "it has no"),
        ({"engines": (PROBE.engines[0], PROBE.engines[1])}, "does not know"),
        ({"engines": WITHOUT_CUDA}, "built for cuda"),
        ({"models": ()}, "may not download"),
        ({"models": OTHER_CONTENT}, "has other content than that of Qwen/Qwen3-0.6B-GGUF"),
        ({"models": (), "downloads": Downloads(repos=("Qwen/*",), max_gib=0.1)}, "it may download 0 GiB"),
        ({"hardware": msgspec.structs.replace(RIG, gpus=[])}, "it has no NVIDIA GeForce RTX 3090"),
        ({"hardware": BUSY_CARDS}, "too little free"),
        ({"paused": True}, "paused"),
    ],
)  # fmt: skip
def test_what_a_host_lacks_is_said(context: Context, alice: Caller, fields: dict[str, Any], sentence: str) -> None:
    host = host_of(context, **fields)
    advice = advised(context)
    assert sentence in lacking(context, alice, advice)
    for config in hosts_of_advice(context, alice, advice.id):
        (match,) = config.hosts
        assert (match.host, match.match) == (host.id, None)
        assert sentence in " ".join(match.missing)


@pytest.mark.parametrize(("state", "sentence"), [("waiting", "approval"), ("paused", "has paused it")])
def test_a_host_that_its_owner_holds_back_is_not_asked(
    context: Context, alice: Caller, state: Any, sentence: str
) -> None:
    host = host_of(context)
    hosts.change(context.engine, host.id, context.clock(), state=state)
    assert sentence in lacking(context, alice, advised(context))


def test_without_any_host_the_way_to_one_is_said(context: Context, alice: Caller) -> None:
    host_of(context, "bob")  # private
    assert "enrol one" in lacking(context, alice, advised(context))


def test_a_host_that_may_download_the_model_needs_not_have_it(context: Context, alice: Caller) -> None:
    host_of(context, models=(), downloads=Downloads(repos=(QWEN,), max_gib=50))
    assert validated(context, alice, advised(context)).state == "queued"


@pytest.mark.full
def test_other_ram_or_an_unknown_cpu_is_near_and_other_cards_are_none(context: Context, alice: Caller) -> None:
    slower = msgspec.structs.replace(RIG, ram=Ram(total_gb=128, type="DDR5", channels=2, mts=4800))
    host_of(context, hardware=slower)
    assert [host.match for host in validated(context, alice, advised(context)).hosts] == ["near"]
    bare = msgspec.structs.replace(RIG, cpu=None, ram=None)
    assert {host.match for host in validated(context, alice, advised(context, hardware=bare)).hosts} == {"near"}


def test_a_public_host_serves_any_account_within_its_share(context: Context, alice: Caller) -> None:
    host_of(context, "bob", visibility="public")
    advice = advised(context)
    ids = [config.id for config in advice.configs]
    for config in ids[:3]:
        validated(context, alice, advice, configs=[config])
    with pytest.raises(TooManyValidations, match="3 validations are open"):
        validated(context, alice, advice, configs=[ids[0]])
    for _ in range(4):
        validated(context, caller(context, "bob"), advice)  # his own host


def test_many_requests_at_once_get_no_more_than_the_share(context: Context, alice: Caller) -> None:
    host_of(context, "bob", visibility="public")
    advice = advised(context)

    def one(number: int) -> bool:
        try:
            return bool(validated(context, alice, advice, configs=[advice.configs[0].id]))
        except TooManyValidations:
            return False
        except HubBusy:  # four read at a time, and a busy machine reads slowly
            return one(number)

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(one, range(8))) == [False] * 5 + [True] * 3


@pytest.mark.parametrize("name", ["", "\x00", "x" * 5000])
def test_what_is_no_id_names_nothing(context: Context, alice: Caller, name: str) -> None:
    with pytest.raises(AdviceNotFound):
        request_validation(context, alice, name, ValidationRequest())
    with pytest.raises(ValidationNotFound):
        read_validation(context, name)
    with pytest.raises(ValidationNotFound):
        cancel_validation(context, alice, name)


def test_an_account_that_used_its_minutes_is_told_so(context: Context, alice: Caller, clock: Clock) -> None:
    host = host_of(context, "bob", visibility="public")
    advice = advised(context)
    first = validated(context, alice, advice, configs=[advice.configs[0].id])
    leased = runs.lease(context, host)
    assert leased is not None
    clock.pass_minutes(60)
    said = Report(fence=leased.fence, rows=measured_like(advice, advice.configs[0].id), gpu_seconds=3600)
    runs.report(context, host, leased.run, said)
    assert read_validation(context, first.id, alice).state == "done"
    with pytest.raises(TooManyValidations, match="60 GPU-minutes"):
        validated(context, alice, advice, configs=[advice.configs[1].id])


def test_the_same_again_within_thirty_days_shows_the_old_result(context: Context, alice: Caller, clock: Clock) -> None:
    host = host_of(context, "bob", visibility="public")
    moderate(context, "root", Moderation(action="trust", subject="bob", reason="known to us"))
    advice = advised(context)
    config = advice.configs[0].id
    validated(context, alice, advice, configs=[config])
    leased = runs.lease(context, host)
    assert leased is not None
    result = runs.report(
        context, host, leased.run, Report(fence=leased.fence, rows=measured_like(advice, config))
    ).result
    again = validated(context, caller(context, "carol"), advice, configs=[config])
    assert (again.state, again.runs[0].previous, again.runs[0].result) == ("done", True, result)
    assert runs.lease(context, host) is None
    clock.pass_minutes(31 * 24 * 60)
    assert validated(context, alice, advice, configs=[config]).state == "queued"
    bobs = validated(context, caller(context, "bob"), advice, configs=[config])
    assert bobs.state == "queued"  # on his own host he measures what he likes


def test_measured_stands_next_to_predicted_and_the_fastest_is_named(context: Context, alice: Caller) -> None:
    host = host_of(context)
    advice = advised(context)
    made = validated(context, alice, advice, baseline=False)
    speeds = dict(zip([run.id for run in made.runs], (1.0, 5.0, 0.5), strict=False))
    for _ in made.runs:
        leased = runs.lease(context, host)
        assert leased is not None
        config = next(run.config for run in made.runs if run.id == leased.run)
        rows = measured_like(advice, config or "", speeds[leased.run])
        runs.note_progress(context, host, leased.run, Progress(fence=leased.fence, step="measuring", rows=rows[:1]))
        assert read_validation(context, made.id, alice).state == "running"
        runs.report(context, host, leased.run, Report(fence=leased.fence, rows=rows, files_confirmed=True))
    done = read_validation(context, made.id, alice)
    assert (done.state, done.best) == ("done", made.runs[1].config)
    outcome = done.runs[0].outcome
    assert outcome is not None
    assert [point.n_kv for point in outcome.speed] == [point.n_kv for point in advice.configs[0].speed]
    assert {one.verdict for one in outcome.compared} == {"within"}
    assert {one.verdict for one in (done.runs[1].outcome or outcome).compared} == {"above"}
    assert outcome.confirmed
    assert "measured" in outcome.compared[0].text


def test_a_result_that_was_taken_back_or_hidden_is_in_no_validation_any_more(context: Context, alice: Caller) -> None:
    host = host_of(context)
    advice = advised(context)
    made = validated(context, alice, advice, baseline=False)
    run_all(context, host, advice, {advice.configs[0].id: 2.0})
    before = read_validation(context, made.id, alice)
    assert before.best == advice.configs[0].id
    gone = next(run for run in before.runs if run.config == before.best)
    submissions.delete(context, alice, None, gone.result or "")
    after = read_validation(context, made.id, alice)
    left = next(run for run in after.runs if run.id == gone.id)
    assert (left.outcome, left.rows, left.result, left.failure) == (None, [], None, None)
    assert after.best != before.best
    assert sum(run.outcome is not None for run in after.runs) == len(after.runs) - 1


def test_what_does_not_fit_is_a_result_too(context: Context, alice: Caller) -> None:
    host = host_of(context)
    advice = advised(context)
    made = validated(context, alice, advice, configs=[advice.configs[0].id])
    leased = runs.lease(context, host)
    assert leased is not None
    oom = Failure(
        kind="out_of_memory", transient=False, text="does not fit: needed 812 MiB more on CUDA0", device="CUDA0"
    )
    assert runs.report(context, host, leased.run, Report(fence=leased.fence, failure=oom)).result
    (run,) = read_validation(context, made.id, alice).runs
    assert (run.state, run.failure) == ("failed", oom)


def test_the_same_key_makes_one_validation(context: Context, alice: Caller) -> None:
    host_of(context)
    advice = advised(context)
    asked = ValidationRequest()
    first = request_validation(context, alice, advice.id, asked, "key-1")
    again = request_validation(context, alice, advice.id, asked, "key-1")
    assert (first.is_new, again.is_new, again.validation.id) == (True, False, first.validation.id)
    with pytest.raises(IdempotencyKeyReused):
        request_validation(context, alice, advice.id, ValidationRequest(minutes=5), "key-1")


def test_only_the_one_who_asked_cancels(context: Context, alice: Caller) -> None:
    host = host_of(context, visibility="public")
    advice = advised(context)
    made = validated(context, alice, advice)
    leased = runs.lease(context, host)
    assert leased is not None
    with pytest.raises(NotAllowed):
        cancel_validation(context, caller(context, "bob"), made.id)
    cancel_validation(context, alice, made.id)
    assert read_validation(context, made.id, alice).state == "cancelled"
    assert runs.note_progress(context, host, leased.run, Progress(fence=leased.fence, step="measuring")).stop
    with pytest.raises(ValidationNotFound):
        cancel_validation(context, alice, "none")


def test_what_cannot_be_asked_is_refused_with_the_field(context: Context, alice: Caller) -> None:
    host_of(context)
    advice = advised(context)
    with pytest.raises(InvalidInput) as wrong:
        validated(context, alice, advice, configs=["nothing"])
    assert (wrong.value.field, wrong.value.choices) == ("configs[0]", tuple(c.id for c in advice.configs))
    with pytest.raises(HostNotFound):
        validated(context, alice, advice, hosts=["nothing"])
    with pytest.raises(AdviceNotFound):
        request_validation(context, alice, "nothing", ValidationRequest())
    queued = advise.request_advice(context, AdviceRequest(repo="unsloth/gpt-oss-20b-GGUF", hardware=RIG)).advice
    with pytest.raises(InvalidInput, match=r"queued: .* try again when it is ready"):
        request_validation(context, alice, queued.id, ValidationRequest())


@pytest.mark.parametrize(
    ("command", "why"),
    some_of(
        [
            ("GGML_CUDA_FORCE_MMQ=1 " + MINE, "GGML_CUDA_FORCE_MMQ"),
            (MINE + " -md draft.gguf", "-md"),
            (MINE.replace(" -ngl 99", ""), "-fit"),
            (MINE + " -ot '(a|a)*$=CPU'", "pattern"),
            ("taskset -c 0-7 " + MINE, "taskset"),
        ],
        3,
    ),
)
def test_a_baseline_that_would_be_another_measurement_is_refused_and_why(
    context: Context, alice: Caller, command: str, why: str
) -> None:
    host_of(context)
    made = validated(context, alice, advised(context, command, engine="llama.cpp"))
    assert "baseline" not in {run.kind for run in made.runs}
    assert why in " ".join(made.refused)


def test_too_little_ram_is_said(context: Context, alice: Caller) -> None:
    host = host_of(context)
    validated(context, alice, advised(context))
    leased = runs.lease(context, host)
    assert leased is not None
    outline = RunOutline(**{name: getattr(leased.document, name) for name in RunOutline.__struct_fields__})
    wanted = Wanted(outline, (), 200_000.0, None)
    assert suited(host, wanted, RIG, Asker(host.account_id, "alice")).missing == ("68,928 MiB too little RAM",)


def test_a_host_that_has_changed_since_is_told_from_its_new_probe_at_the_next_request(
    context: Context, alice: Caller
) -> None:
    host = host_of(context)
    advice = advised(context)
    save_probe(context, host, probe_of(context, engines=(BENCH,)))
    made = validated(context, alice, advice)
    assert {run.engine for run in made.runs} == {"llama.cpp"}
    assert "it has no ik_llama.cpp" in " ".join(made.refused)


def test_tuning_measures_steps_around_a_config_and_stops_when_the_best_is_clear(
    context: Context, alice: Caller
) -> None:
    host = host_of(context)
    advice = advised(context)
    made = validated(context, alice, advice, mode="tune", configs=[advice.configs[0].id])
    assert {run.kind for run in made.runs} == {"step"}
    assert made.runs[0].step == "as advised"
    assert len({run.step for run in made.runs}) == len(made.runs) > 2
    speeds = [1.0, 1.05, *[0.3] * len(made.runs)]
    n_runs = 0
    while (leased := runs.lease(context, host)) is not None:
        n_runs += 1
        run = store_runs.read(context.engine, leased.run)
        assert run is not None
        rows = measured_like(advice, advice.configs[0].id, speeds[run.position % 100])
        assert read_validation(context, made.id, alice).state == "running"
        runs.report(context, host, leased.run, Report(fence=leased.fence, rows=rows))
    done = read_validation(context, made.id, alice)
    assert done.state == "done"
    assert n_runs == len(done.runs) >= len(made.runs)
    best = next(run for run in done.runs if run.id == done.best)
    assert best.step == made.runs[1].step
    assert best.result


@pytest.mark.full
def test_a_tuning_that_stands_still_is_taken_up_again_by_the_sweep(
    context: Context, alice: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = host_of(context)
    advice = advised(context)
    made = validated(context, alice, advice, mode="tune", configs=[advice.configs[0].id], minutes=30)
    with monkeypatch.context() as killed:
        killed.setattr("service.flows.measuring.tuning.go_on", lambda context, validation_id: False)
        run_all(context, host, advice, {})
    assert read_validation(context, made.id, alice).state == "running"  # the next rung is still to come
    assert runs.sweep(context) == 1
    assert runs.sweep(context) == 0
    assert len(read_validation(context, made.id, alice).runs) > len(made.runs)
