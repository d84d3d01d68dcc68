"""What logs teach: recorded logs sent by the real flows, one of them altered, and who may make answers say so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from service.engine.check.learning import Lesson, lesson_of
from service.engine.config import Engine as EngineName
from service.engine.errors import InvalidInput
from service.engine.goal import Constraints
from service.engine.hardware_text import parse_hardware
from service.engine.logs.read import LogBuffers, LogReading
from service.engine.rules.case import Case
from service.engine.run_flags import RunFlags
from service.flows.accounts import Caller
from service.flows.advice import advise
from service.flows.advice.check import check_command
from service.flows.advice.repos import list_repo
from service.flows.context import Context
from service.flows.results import differences
from service.flows.results.accuracy import accuracy
from service.flows.results.differences import Entry, compare_logs, open_differences
from service.flows.results.moderation import moderate
from service.flows.results.submissions import correct, submit
from service.hub.errors import HubUnavailable
from service.hub.references import parse_reference
from service.store import versions
from service.store.measuring.hosts import StoredHost
from service.store.results import comparisons, results
from service.wire.advice.advice import Advice, AdviceRequest
from service.wire.advice.check import Checked, CheckRequest
from service.wire.results.moderation import Moderation
from service.wire.results.results import ResultModel, Seen
from service.wire.results.submissions import Correction, Submission
from tests.computed_once import advise_once
from tests.flows.conftest import Clock
from tests.flows.results.submitted import REPO, RIG, sweep
from tests.flows.results.test_others_results import people
from tests.hosts import a_host
from tests.stored_results import a_result, keep, row

RECORDED = (Path(__file__).parent.parent.parent / "data" / "engine_logs" / "ik-sweep-table.stderr").read_text()
# Up to its table; recorded with another file of this shape, whose weights are no part of what is compared here.
LOG = RECORDED[: RECORDED.index("main: n_kv_max")].replace("319.961 MiB (4.503 BPW)", "604.154 MiB (8.503 BPW)")
COMMAND = "llama-sweep-bench -m Qwen3-0.6B-Q8_0.gguf -c 2048 -t 2 -fa on"
MACHINE = "Ryzen 9 7950X, 128GB DDR5-5600"
BUILD = "8337e4cd3"
BENCHES: dict[EngineName, str] = {
    "ik_llama.cpp": "llama-sweep-bench -m a.gguf -c 4096 -ngl 999 -fa on",
    "llama.cpp": "llama-bench -m a.gguf -ngl 999 -fa 1",
}
NAME = "ik_llama.cpp:qwen3:2026-08-13:CPU:CPU:compute:above"


def printed(compute: float = 300.75) -> str:
    """The recorded log, with this much of a compute buffer."""
    return LOG.replace("compute buffer size =   300.75 MiB", f"compute buffer size =   {compute:.2f} MiB")


def send(
    context: Context, clock: Clock, by: Caller | None, log: str, command: str = COMMAND, build: str | None = BUILD,
    machine: str = MACHINE,
) -> str:  # fmt: skip
    """Send a log with a measurement of its own; return the result's id."""
    clock.pass_minutes(1)
    faster = 1 + clock.now.minute / 60 + clock.now.hour / 1_000
    text = f"{log}\n{sweep(pp=900.0 * faster, tg=25.0 * faster)}"
    asked = Submission(text=text, command=command, hardware=machine, repo=f"{REPO}:Q8_0", build=build)
    made = submit(context, by, asked)
    assert (made.is_new, made.state) == (True, "shown"), made.state_reason
    return made.id


def learned(context: Context) -> list[Entry]:
    compare_logs(context)
    return open_differences(context)


@pytest.fixture
def advice(context: Context) -> Advice:
    """An answer for a machine without cards."""
    made = advise.request_advice(context, AdviceRequest(repo=REPO, hardware=parse_hardware(MACHINE))).advice
    advise.compute_advice(context, made.id, advise_once)
    return advise.read_advice(context, made.id)


def notes(context: Context, advice: Advice) -> list[str]:
    """The notes of memory at configs of ik_llama.cpp; no other engine's has one."""
    configs = advise.read_advice(context, advice.id).configs
    said = {c.engine: [note for note in c.notes if "than computed" in note] for c in configs}
    assert not said.get("llama.cpp")
    return said.get("ik_llama.cpp", [])


def checked(context: Context, build: str = BUILD) -> Checked:
    return check_command(context, CheckRequest(command=COMMAND, hardware=MACHINE, repo=f"{REPO}:Q8_0", build=build))


def found(context: Context, build: str = BUILD) -> list[str]:
    return [one.message for one in checked(context, build).findings if one.rule == "logs-differ"]


def test_a_recorded_log_is_as_computed_and_opens_nothing(context: Context, clock: Clock) -> None:
    (ann,) = people(context, clock, ["ann"])
    send(context, clock, ann, printed())
    assert learned(context) == []
    (shown,) = comparisons.of_architecture(context.engine, "qwen3", clock())
    assert shown.lesson.agrees == ("CPU kv", "CPU compute", "CPU output", "card graph_splits")


def test_an_altered_compute_buffer_opens_an_entry_with_what_differs_and_by_how_much(
    context: Context, clock: Clock
) -> None:
    (ann,) = people(context, clock, ["ann"])
    sent = send(context, clock, ann, printed(332.75))
    (entry,) = learned(context)
    assert (entry.reported.name, entry.state, entry.results) == (NAME, "open", (sent,))
    (line,) = accuracy(context).differences
    assert (line.architecture, line.builds, line.part, line.place) == ("qwen3", "2026-08-13", "compute", "CPU")
    assert (line.rigs, line.agreeing, line.low, line.high) == (1, 0, 32.0, 32.0)


def test_three_owners_make_answers_and_checks_say_so_and_an_operator_ends_it(
    context: Context, clock: Clock, advice: Advice
) -> None:
    owners = people(context, clock, ("ann", "ben", "cleo", "dora"))
    for owner, compute in zip(owners[:2], (332.75, 330.75), strict=True):
        send(context, clock, owner, printed(compute))
    compare_logs(context)
    assert (notes(context, advice), found(context)) == ([], [])
    before = versions.of_results(context.engine)
    send(context, clock, owners[2], printed(332.75))
    (entry,) = learned(context)
    assert (entry.state, entry.reported.rigs) == ("warned", 3)
    text = (
        "ik_llama.cpp builds since 2026-08-13, qwen3: on 3 rigs the compute buffer of RAM is 30.0 to 32.0 MiB larger "
        "than computed: memory may be off by that"
    )
    assert found(context) == [text]
    assert set(notes(context, advice)) == {text}
    assert "1 warning" in checked(context).verdict
    assert versions.of_results(context.engine) > before  # what is kept of answers is made again

    assert found(context, "2026-08-10") == []  # other rules held
    settled = Moderation(action="settle", subject=NAME, reason="three builds of one fork")
    moderate(context, "op", settled)
    assert (open_differences(context), notes(context, advice), found(context)) == ([], [], [])
    with pytest.raises(InvalidInput, match="unsettled"):
        moderate(context, "op", settled)
    send(context, clock, owners[3], printed(332.75))
    (again,) = learned(context)
    assert (again.state, again.reported.rigs) == ("open", 1)


@pytest.mark.full
def test_one_owner_thrice_many_new_accounts_and_none_at_all_warn_nobody(
    context: Context, clock: Clock, advice: Advice
) -> None:
    """Anybody may paste, as often as he likes, under as many new names as he likes."""
    crowd: list[Caller | None] = [*people(context, clock, [f"new{n}" for n in range(3)], days=0), None, None]
    for one in crowd:
        send(context, clock, one, printed(332.75))
    (entry,) = learned(context)
    assert (entry.state, entry.reported.rigs) == ("unconfirmed", 0)
    (ann,) = people(context, clock, ["ann"], days=0)
    moderate(context, "op", Moderation(action="trust", subject="ann", reason="an author of the engine"))
    for _ in range(3):
        send(context, clock, ann, printed(332.75))
    (entry,) = learned(context)
    assert (entry.state, entry.reported.rigs) == ("open", 1)
    assert (notes(context, advice), found(context)) == ([], [])


@pytest.mark.full
def test_as_many_logs_that_are_as_computed_outweigh_those_that_are_not(context: Context, clock: Clock) -> None:
    owners = people(context, clock, [f"owner{n}" for n in range(6)])
    for owner in owners[:3]:
        send(context, clock, owner, printed(332.75))
    assert [one.state for one in learned(context)] == ["warned"]
    for owner in owners[3:]:
        send(context, clock, owner, printed())
    (entry,) = learned(context)
    assert (entry.state, entry.reported.rigs, entry.reported.agreeing) == ("open", 3, 3)
    send(context, clock, owners[0], printed())  # his last word counts
    (entry,) = learned(context)
    assert (entry.reported.rigs, entry.reported.agreeing) == (2, 4)


def test_what_is_hidden_or_banned_counts_no_more(context: Context, clock: Clock) -> None:
    owners = people(context, clock, ("ann", "ben", "cleo"))
    sent = [send(context, clock, owner, printed(332.75)) for owner in owners]
    assert [one.reported.rigs for one in learned(context)] == [3]
    moderate(context, "op", Moderation(action="hide", subject=sent[0], reason="made up"))
    moderate(context, "op", Moderation(action="ban", subject="ben", reason="made up"))
    assert [one.results for one in open_differences(context)] == [(sent[2],)]


def test_a_new_engine_model_compares_again_and_settles_what_it_computes(
    context: Context, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ann,) = people(context, clock, ["ann"])
    sent = send(context, clock, ann, printed(332.75))
    assert len(learned(context)) == 1
    assert compare_logs(context) == 0  # nothing is new
    row = results.read(context.engine, sent)
    assert row is not None
    right = tuple(msgspec.structs.replace(one, compute_mib=300.75) for one in row.seen.buffers)
    with context.engine.begin() as connection:  # stands for a model that computes what the log prints
        results.change(connection, sent, seen=msgspec.structs.replace(row.seen, buffers=right))
    assert len(open_differences(context)) == 1
    monkeypatch.setattr(differences, "_VERSION", differences._VERSION + 1)
    assert learned(context) == []
    monkeypatch.undo()
    assert compare_logs(context) == 0  # an older process leaves it alone while both run


def test_while_the_hub_does_not_answer_results_wait_and_what_was_found_stays(
    context: Context, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ann,) = people(context, clock, ["ann"])
    send(context, clock, ann, printed(332.75))
    assert len(learned(context)) == 1
    monkeypatch.setattr(differences, "_VERSION", differences._VERSION + 1)

    def away(*_: object) -> None:
        raise HubUnavailable("away", retry_after=1)

    with monkeypatch.context() as hub:
        hub.setattr(differences, "_model", away)
        assert compare_logs(context) == 0
    assert len(open_differences(context)) == 1

    def gone(*_: object) -> None:
        raise InvalidInput("no such variant", field="variant")

    monkeypatch.setattr(differences, "_model", gone)
    assert compare_logs(context) == 1
    assert len(open_differences(context)) == 1
    assert compare_logs(context) == 0


@pytest.mark.parametrize(
    ("changes", "log"),
    [
        ({"build": None}, printed(332.75)),
        ({"build": "2024-09-01"}, printed(332.75)),  # before what is described
        ({"command": f"{COMMAND} -md draft.gguf"}, printed(332.75)),
        ({"command": f"GGML_CUDA_NO_PINNED=1 {COMMAND}"}, printed(332.75)),
        ({}, printed(332.75).replace("= qwen3\n", "= llama\n")),
        ({}, printed(332.75) + "\nllama_init_from_model:      CUDA0 compute buffer size =   100.00 MiB"),
        ({"machine": f"RTX 3090, {MACHINE}", "command": f"{COMMAND} -ngl 99"}, printed(332.75)),
        ({}, printed(301.60)),  # less than a MiB
    ],
)  # fmt: skip
def test_what_may_be_of_something_else_says_nothing(
    context: Context, clock: Clock, changes: dict[str, str], log: str
) -> None:
    (ann,) = people(context, clock, ["ann"])
    send(context, clock, ann, log, **changes)
    assert learned(context) == []


def test_builds_newer_than_the_known_ones_have_entries_of_their_own(context: Context, clock: Clock) -> None:
    owners: Sequence[Caller] = people(context, clock, ("ann", "ben", "cleo"))
    for owner in owners:
        send(context, clock, owner, printed(332.75), build="2026-11-01")
    (entry,) = learned(context)
    assert (entry.reported.subject.era, entry.state) == ("2026-08-15+", "warned")
    assert found(context) == []
    (message,) = found(context, "2026-11-02")
    assert message.startswith("ik_llama.cpp builds after 2026-08-15, which are not known here, qwen3: on 3 rigs")
    assert re.search(r"32\.0 MiB larger than computed", message)


def on_a_card(context: Context, engine: EngineName, off: float = 0.0) -> tuple[LogBuffers, ...]:
    """The buffers of a run with everything on the card, as computed; `off`: MiB more of the card's compute buffer."""
    asked = CheckRequest(command=BENCHES[engine], engine=engine, hardware=RIG, repo=f"{REPO}:Q8_0")
    return tuple(
        LogBuffers(
            device=row.device,
            weights_mib=row.weights_mib,
            kv_mib=row.kv_mib,
            output_mib=row.output_mib,
            compute_mib=row.compute_mib + off * (row.device != "CPU"),
        )
        for row in check_command(context, asked).memory.devices
    )


def measured(
    context: Context, clock: Clock, host: StoredHost, engine: EngineName, seen: tuple[LogBuffers, ...], tg: float
) -> None:
    """Keep what a host's agent reported of a run."""
    revision = list_repo(context, parse_reference(REPO, None)).revision
    assert revision is not None
    clock.pass_minutes(1)
    made = a_result(
        [row(0, tg, 9_000.0)],
        origin="agent",
        account_id=host.account_id,
        host_id=host.id,
        engine=engine,
        build=BUILD if engine == "ik_llama.cpp" else "0c1e57098",
        repo=REPO,
        variant="Q8_0",
        arch="qwen3",
        model=ResultModel(repo=REPO, revision=revision, variant="Q8_0", files=()),
        flags=RunFlags(n_ctx=4096),
        hardware=parse_hardware(RIG),
        seen=Seen(buffers=seen),
        created_at=clock(),
    )
    keep(context.engine, made)


def test_runs_of_hosts_count_for_answers_on_their_back_end_only(context: Context, clock: Clock) -> None:
    machines = [a_host(context, name, visibility="public") for name in ("ann", "ben", "cleo")]
    clock.pass_minutes(15 * 24 * 60)
    for n, host in enumerate(machines):
        measured(context, clock, host, "ik_llama.cpp", on_a_card(context, "ik_llama.cpp", 64.0), 200.0 + n)
    (entry,) = learned(context)
    assert (entry.reported.name, entry.state) == ("ik_llama.cpp:qwen3:2026-08-13:CUDA:card:compute:above", "warned")
    assert found(context) == []
    asked = CheckRequest(command=COMMAND + " -ngl 99", hardware=RIG, repo=f"{REPO}:Q8_0")
    (message,) = [one.message for one in check_command(context, asked).findings if one.rule == "logs-differ"]
    assert "the compute buffer of a card (CUDA) is 64.0 MiB larger than computed" in message
    other = msgspec.structs.replace(asked, hardware=RIG.replace("RTX 3090", "RX 7900 XTX"))
    assert [one for one in check_command(context, other).findings if one.rule == "logs-differ"] == []


def test_a_private_hosts_runs_are_its_owners(context: Context, clock: Clock) -> None:
    host = a_host(context, "ann", visibility="private")
    clock.pass_minutes(15 * 24 * 60)
    measured(context, clock, host, "ik_llama.cpp", on_a_card(context, "ik_llama.cpp", 64.0), 200.0)
    assert learned(context) == []


def test_of_llama_bench_which_makes_a_context_for_each_test_the_weights_alone_are_compared(
    context: Context, clock: Clock
) -> None:
    host = a_host(context, "ann", visibility="public")
    clock.pass_minutes(15 * 24 * 60)
    measured(context, clock, host, "llama.cpp", on_a_card(context, "llama.cpp", 64.0), 200.0)
    assert learned(context) == []
    right = on_a_card(context, "llama.cpp")
    wrong = tuple(msgspec.structs.replace(one, weights_mib=(one.weights_mib or 0) - 100.0) for one in right)
    measured(context, clock, host, "llama.cpp", wrong, 201.0)
    (entry,) = learned(context)
    assert (entry.reported.part, entry.reported.place, entry.reported.low) == ("weights", "card", -100.0)


def test_a_result_that_is_corrected_is_compared_again(context: Context, clock: Clock) -> None:
    (ann,) = people(context, clock, ["ann"])
    sent = send(context, clock, ann, printed(332.75), build="2026-08-10")
    assert [one.reported.subject.era for one in learned(context)] == ["2026-08-07"]
    correct(context, ann, None, sent, Correction(build=BUILD))
    assert [one.reported.subject.era for one in learned(context)] == ["2026-08-13"]


def test_what_the_comparison_trips_over_holds_up_no_other(
    context: Context, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, ben = people(context, clock, ("ann", "ben"))
    kept = send(context, clock, ann, printed(332.75))
    send(context, clock, ben, printed(332.75))
    calls: list[object] = []

    def trips_once(case: Case, log: LogReading) -> Lesson | None:
        calls.append(case)
        if len(calls) == 1:
            raise ZeroDivisionError
        return lesson_of(case, log)

    monkeypatch.setattr(differences, "lesson_of", trips_once)
    with pytest.raises(ZeroDivisionError):
        compare_logs(context)
    assert compare_logs(context) == 1
    assert [one.results for one in open_differences(context)] == [(kept,)]


def test_the_command_in_use_is_warned_of_too(context: Context, clock: Clock) -> None:
    for owner in people(context, clock, ("ann", "ben", "cleo")):
        send(context, clock, owner, printed(332.75))
    compare_logs(context)
    mine = Constraints(current_command=COMMAND.replace("llama-sweep-bench", "ik_llama.cpp/build/bin/llama-server"))
    asked = AdviceRequest(repo=REPO, hardware=parse_hardware(MACHINE), constraints=mine)
    made = advise.request_advice(context, asked).advice
    advise.compute_advice(context, made.id, advise_once)
    shown = advise.read_advice(context, made.id).mine
    assert shown is not None
    assert "logs-differ" in [one.rule for one in shown.findings]
