"""Which configs of an advice are measured, on which hosts, within which quotas; and the answer with what came of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.engine.errors import InvalidInput
from service.engine.goal import Constraints, EngineChoice
from service.engine.hardware import Hardware, Ram
from service.engine.measured.classify import Failure
from service.engine.measured.rows import MeasuredRow
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
from service.flows.advice.repos import list_repo
from service.flows.context import Context
from service.flows.measuring import runs
from service.flows.measuring.host_matching import Asker, Wanted, suited
from service.flows.measuring.hosts import save_probe
from service.flows.measuring.validate import hosts_of_advice, request_validation
from service.flows.measuring.validated import cancel_validation, read_validation
from service.flows.results import corrections
from service.flows.results.moderation import moderate
from service.hub.errors import HubBusy
from service.hub.references import parse_reference
from service.store.advice import advices
from service.store.measuring import hosts
from service.store.measuring import runs as store_runs
from service.store.measuring.hosts import StoredHost
from service.wire.advice.advice import Advice, AdviceRequest
from service.wire.advice.text import render_markdown, render_text
from service.wire.measuring.agent import Progress, Report, RunOutline
from service.wire.measuring.hosts import Downloads, EngineBuild, ModelFile, Probe
from service.wire.measuring.runs import Validation, ValidationRequest
from service.wire.results.moderation import Moderation
from tests.computed_once import advise_once
from tests.flows.conftest import Clock
from tests.hosts import PROBE, RIG, a_host, caller
from tests.sampling import some_of

QWEN = "Qwen/Qwen3-0.6B-GGUF"
MINE = "llama-server -m /models/Qwen3-0.6B-Q8_0.gguf -ngl 99 -c 16384 -fa on --temp 0.7 --jinja -np 2"
HELP = Path(__file__).parents[2] / "data" / "help"


def options(program: str) -> tuple[str, ...]:
    words = (HELP / program).read_text().replace(",", " ").split()
    return tuple(dict.fromkeys(word for word in words if word.startswith("-") and len(word) <= 64))[:1000]


def built(build: EngineBuild, program: str) -> EngineBuild:
    return msgspec.structs.replace(build, backends=("CUDA", "CPU"), options=options(program))


SWEEP, BENCH = (
    built(PROBE.engines[0], "ik_llama.cpp-8337e4cd3-llama-sweep-bench.txt"),
    built(PROBE.engines[1], "llama.cpp-0c1e57098-llama-bench.txt"),
)


WITHOUT_CUDA = (msgspec.structs.replace(SWEEP, backends=("CPU",)), msgspec.structs.replace(BENCH, backends=()))
BUSY_CARDS = msgspec.structs.replace(RIG, gpus=[msgspec.structs.replace(gpu, free_gib=1.0) for gpu in RIG.gpus])


def models_of(context: Context) -> tuple[ModelFile, ...]:
    listing = list_repo(context, parse_reference(QWEN, None))
    files = [file for variant in listing.variants for file in variant.files]
    return tuple(ModelFile(name=f.path, size=f.n_bytes or 1, header_sha256="0" * 64) for f in files)


def probe_of(context: Context, hardware: Hardware = RIG, **fields: Any) -> Probe:
    known = {"agent": "0.1.0", "engines": (SWEEP, BENCH), "models": models_of(context), **fields}
    return Probe(hardware=hardware, **known)


def host_of(context: Context, owner: str = "alice", hardware: Hardware = RIG, **fields: Any) -> StoredHost:
    visibility = fields.pop("visibility", "private")
    return a_host(context, owner, probe=probe_of(context, hardware, **fields), visibility=visibility)


def advised(
    context: Context, command: str | None = None, hardware: Hardware = RIG, engine: str | None = None
) -> Advice:
    engines = [EngineChoice(engine)] if engine else None  # type: ignore[arg-type]
    limits = Constraints(current_command=command, engines=engines)
    asked = AdviceRequest(repo=QWEN, hardware=hardware, constraints=limits)
    advice = advise.request_advice(context, asked).advice
    advise.compute_advice(context, advice.id, advise_once)
    return advise.read_advice(context, advice.id)


def validated(context: Context, by: Caller, advice: Advice, **asked: Any) -> Validation:
    return request_validation(context, by, advice.id, ValidationRequest(**asked)).validation


def measured_like(advice: Advice, config: str, faster: float = 1.0) -> tuple[MeasuredRow, ...]:
    """Rows as if a config ran `faster` than predicted."""
    (found,) = [one for one in advice.configs if one.id == config]
    return tuple(
        MeasuredRow(
            n_kv=p.n_kv,
            n_prompt=512,
            n_gen=64,
            pp_seconds=(512 / p.pp_tps / faster,),
            tg_seconds=(64 / p.tg_tps / faster,),
        )
        for p in found.speed
    )


@pytest.fixture
def alice(context: Context) -> Caller:
    return caller(context)


def lacking(context: Context, by: Caller, advice: Advice) -> str:
    with pytest.raises(NoHost) as refused:
        validated(context, by, advice)
    return refused.value.detail


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
    corrections.delete(context, alice, None, gone.result or "")
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
    with pytest.raises(InvalidInput, match="queued"):
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


def run_all(context: Context, host: StoredHost, advice: Advice, speeds: dict[str, float]) -> None:
    """Report each queued run of a host: configs in `speeds` that much faster, others as predicted."""
    while (leased := runs.lease(context, host)) is not None:
        run = store_runs.read(context.engine, leased.run)
        assert run is not None
        name = run.config_id or ""
        rows = measured_like(advice, name, speeds.get(name, 1.0))
        runs.report(context, host, leased.run, Report(fence=leased.fence, rows=rows, engine_commit="0c1e57098"))


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


def test_a_tuning_that_stands_still_is_taken_up_again_by_the_sweep(
    context: Context, alice: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = host_of(context)
    advice = advised(context)
    made = validated(context, alice, advice, mode="tune", configs=[advice.configs[0].id], minutes=30)
    with monkeypatch.context() as killed:
        killed.setattr("service.flows.measuring.tuning.go_on", lambda context, validation_id: False)
        run_steps(context, host, advice)
    assert read_validation(context, made.id, alice).state == "running"  # the next rung is still to come
    assert runs.sweep(context) == 1
    assert runs.sweep(context) == 0
    assert len(read_validation(context, made.id, alice).runs) > len(made.runs)


def run_steps(context: Context, host: StoredHost, advice: Advice) -> None:
    """Report every queued step as it was predicted, all alike: nothing is clear."""
    while (leased := runs.lease(context, host)) is not None:
        rows = measured_like(advice, advice.configs[0].id)
        runs.report(context, host, leased.run, Report(fence=leased.fence, rows=rows))
