"""The agent at work: leases are renewed, lost and given back; the owner's policy, pause and signals come first."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from service.engine.measured.classify import Failure
from service.engine.measured.rows import MeasuredRow
from service.wire.measuring.agent import Report, RunDocument
from tests.workers.agent.fake_service import HOST, Answer, FakeService, enrolled, fake_service, problem
from tests.workers.agent.machines import SHARDS, look_again, make_machine
from workers.agent import loop
from workers.agent.client import Client
from workers.agent.errors import HostError, NotEnrolled
from workers.agent.journal import last
from workers.agent.local import EngineProgram, Machine
from workers.agent.loop import Agent, why_idle
from workers.agent.policy import Policy
from workers.agent.process import Confinement
from workers.agent.state import State
from workers.agent.watcher import Watcher

ROW = MeasuredRow(n_kv=0, n_prompt=512, n_gen=64, pp_seconds=(1.0,), tg_seconds=(2.0,))
GOES_ON: Answer = (200, {"stop": False, "why": None})
TAKEN: Answer = (200, {"result": "r", "again": False})


class Result:
    """What an engine gave, as workers/agent/measure.py returns it."""

    def __init__(self, report: Report) -> None:
        self.made = report

    def report(self, fence: int, program: EngineProgram | None, *, files_confirmed: bool) -> Report:
        return replace(self.made, fence=fence, files_confirmed=files_confirmed)


class AgentBench:
    """An agent with a fake service, a machine, and an engine that does what a test says."""

    def __init__(self, folder: Path, service: FakeService) -> None:
        self.service, self.state = service, State(folder / "state")
        self.machine, self.document = make_machine(folder)
        self.policy = folder / "policy.toml"
        self.policy.write_text("allow_root = true\n")
        self.ending, self.said, self.resting = threading.Event(), list[str](), list[bool]()
        key = enrolled(service, self.state)
        client = Client(service.address, "offload-advisor/test", wait=self.ending)
        client.sign_as(HOST, key, self.state)
        self.engine: Callable[[Callable[[MeasuredRow], None], Callable[[], str | None]], Report] = self.two_rows
        self.measured: list[RunDocument] = []
        self.taken: str | None = None
        self.folder = folder
        self.fetched_files: Mapping[Path, str] = {}
        self.gpus = None
        self.agent = Agent(
            self.state, self.policy, client, cast(Watcher, self), held=Confinement(network="seccomp", files="landlock"),
            ending=self.ending, say=self.said.append,
        )  # fmt: skip
        service.answers["/progress"] = [GOES_ON]
        service.answers["/report"] = [TAKEN]

    def offers(self, *answers: Answer) -> None:
        self.service.answers["/v1/agent/leases"] = [*answers, (204, None)]

    def run_offered(self, seconds: float = 90) -> Answer:
        document = msgspec.to_builtins(self.document)
        return 200, {"run": "r1", "fence": 3, "lease_seconds": seconds, "document": document}

    def look(self, policy: Policy) -> Machine:
        return self.machine

    def in_use(self, policy: Policy) -> str | None:
        return self.taken

    def fetched(self, contents: Mapping[Path, str]) -> None:
        self.fetched_files = contents
        self.machine = look_again(self.machine, self.folder)

    def rest(self, resting: bool) -> None:
        self.resting.append(resting)

    def measure(self, document: RunDocument, *arguments: Any, **_: Any) -> Result:
        self.measured.append(document)
        return Result(self.engine(*arguments[-2:]))

    def two_rows(self, on_row: Callable[[MeasuredRow], None], stop: Callable[[], str | None]) -> Report:
        on_row(ROW)
        on_row(replace(ROW, n_kv=4096))
        return Report(fence=1, rows=(ROW, replace(ROW, n_kv=4096)))

    def the_last(self, on_row: Callable[[MeasuredRow], None], stop: Callable[[], str | None]) -> Report:
        self.ending.set()
        return self.two_rows(on_row, stop)

    def until_stopped(self, on_row: Callable[[MeasuredRow], None], stop: Callable[[], str | None]) -> Report:
        until = time.monotonic() + 20
        while (why := stop()) is None and time.monotonic() < until:
            time.sleep(0.01)
        return Report(fence=1, failure=Failure(kind="stopped", transient=True, text=why or "never"))

    def sent(self, path: str) -> list[Any]:
        return self.service.bodies(path)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentBench]:
    monkeypatch.setattr(loop, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(loop, "pause_after", lambda _: 0.01)
    monkeypatch.setattr(loop, "_LOOK_SECONDS", 0.0)
    with fake_service() as service:
        bench = AgentBench(tmp_path, service)
        monkeypatch.setattr(loop, "measure", bench.measure)
        yield bench
        bench.agent.client.close()


def test_the_request_that_asked_for_a_run_stands_in_the_log_and_in_the_calls_about_it(
    bench: AgentBench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "advisor")
    status, body = bench.run_offered()
    bench.offers((status, {**body, "request": "from-a-person-1"}))
    bench.agent.serve(once=True)
    asked = bench.service.about
    about = {identity for path, identity in asked if path.startswith("/v1/agent/runs/")}
    assert about == {"from-a-person-1"}
    assert {identity for path, identity in asked if not path.startswith("/v1/agent/runs/")} == {None}
    began, ended = (line for line in caplog.messages if line.startswith("run."))
    assert "run_id=r1 request_id=from-a-person-1" in began
    assert "outcome='measured 2 rows'" in ended


def test_a_run_is_renewed_before_it_starts_measured_and_reported(bench: AgentBench) -> None:
    bench.offers(bench.run_offered())
    bench.agent.serve(once=True)
    paths = [path.rpartition("/")[2] for path, _ in bench.service.calls]
    assert paths[:4] == ["sessions", "probe", "leases", "progress"]
    assert bench.sent("/progress")[0] == {"fence": 3, "step": "checking", "text": None, "rows": []}
    (report,) = bench.sent("/report")
    assert report["fence"] == 3
    assert [row["n_kv"] for row in report["rows"]] == [0, 4096]
    assert not report["files_confirmed"]
    assert bench.measured == [bench.document]
    assert bench.resting == [False, True]


def test_what_ran_is_written_down_with_its_words(bench: AgentBench) -> None:
    bench.offers(bench.run_offered())
    bench.agent.serve(once=True)
    started, ended = last(bench.state.path / "ran.jsonl", 10)
    assert (started.outcome, ended.outcome) == ("started", "measured 2 rows")
    assert started.words[0].endswith("bin/llama-sweep-bench")
    assert (ended.run, ended.repo) == ("r1", bench.document.repo)


def test_a_run_that_is_lost_at_its_first_renewal_is_never_started(bench: AgentBench) -> None:
    bench.service.answers["/progress"] = [problem(409, "lease-lost")]
    bench.offers(bench.run_offered())
    bench.agent.serve(once=True)
    assert bench.measured == []
    assert bench.sent("/report") == []


@pytest.mark.parametrize(
    ("answer", "reports"), [(problem(409, "lease-lost"), 0), ((200, {"stop": True, "why": "cancelled"}), 1)]
)
def test_a_run_that_is_lost_or_cancelled_stops(bench: AgentBench, answer: Answer, reports: int) -> None:
    bench.service.answers["/progress"] = [GOES_ON, answer]
    bench.offers(bench.run_offered(seconds=1))
    bench.engine = bench.until_stopped
    bench.agent.serve(once=True)
    assert len(bench.sent("/report")) == reports


def test_rows_are_sent_while_it_measures(bench: AgentBench) -> None:
    def slow(on_row: Callable[[MeasuredRow], None], stop: Callable[[], str | None]) -> Report:
        on_row(ROW)
        until = time.monotonic() + 10
        while not any(body["rows"] for body in bench.sent("/progress")) and time.monotonic() < until:
            time.sleep(0.01)
        return Report(fence=1, rows=(ROW,))

    bench.engine = slow
    bench.offers(bench.run_offered(seconds=1))
    bench.agent.serve(once=True)
    sent = [body for body in bench.sent("/progress") if body["rows"]]
    assert [row["n_kv"] for body in sent for row in body["rows"]] == [0]
    assert sent[0]["step"] == "measuring"


def test_a_pause_file_stops_a_run_and_it_may_be_tried_again(bench: AgentBench) -> None:
    def paused(on_row: Callable[[MeasuredRow], None], stop: Callable[[], str | None]) -> Report:
        (bench.state.path / "pause").touch()
        return bench.until_stopped(on_row, stop)

    bench.engine = paused
    bench.offers(bench.run_offered())
    bench.agent.serve(once=True)
    (report,) = bench.sent("/report")
    assert (report["failure"]["kind"], report["failure"]["transient"]) == ("gave_way", True)
    assert "paused" in report["failure"]["text"]
    assert last(bench.state.path / "ran.jsonl", 1)[0].outcome == report["failure"]["text"]  # without its code
    assert str(bench.folder) not in json.dumps([bench.sent("/report"), bench.sent("/progress")])


def test_a_policy_that_breaks_in_the_middle_stops_a_run(bench: AgentBench) -> None:
    def broken(on_row: Callable[[MeasuredRow], None], stop: Callable[[], str | None]) -> Report:
        bench.policy.write_text("max_minuts = 5")
        return bench.until_stopped(on_row, stop)

    bench.engine = broken
    bench.offers(bench.run_offered())
    bench.agent.serve(once=True)
    assert str(bench.folder) not in json.dumps(bench.sent("/report"))
    assert bench.sent("/report")[0]["failure"]["kind"] == "gave_way"


def test_a_journal_that_cannot_be_written_keeps_a_run_from_starting(bench: AgentBench) -> None:
    (bench.folder / "file").write_text("")
    bench.policy.write_text(f'allow_root = true\nlog_file = "{bench.folder}/file/ran.jsonl"')
    bench.offers(bench.run_offered())
    with pytest.raises(HostError):
        bench.agent.serve(once=True)
    assert bench.measured == []
    assert str(bench.folder) not in json.dumps(bench.sent("/report"))


def test_an_agent_that_is_to_end_reports_its_run_first(bench: AgentBench) -> None:
    def ended(on_row: Callable[[MeasuredRow], None], stop: Callable[[], str | None]) -> Report:
        bench.agent.end()
        return bench.until_stopped(on_row, stop)

    bench.engine = ended
    bench.offers(bench.run_offered(), bench.run_offered())
    bench.agent.serve()
    (report,) = bench.sent("/report")
    assert report["failure"]["text"] == "the agent was asked to end"
    doing = bench.state.doing()
    assert doing is not None
    assert doing.what == "stopped"


def test_nothing_is_asked_for_while_paused_and_the_service_is_told(
    bench: AgentBench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "advisor")
    (bench.state.path / "pause").touch()
    threading.Timer(0.3, bench.ending.set).start()
    bench.agent.serve()
    assert bench.sent("/leases") == []
    assert [probe["paused"] for probe in bench.sent("/probe")] == [True]
    assert len([line for line in caplog.messages if "paused" in line]) == 1


def test_nothing_is_asked_for_while_another_program_uses_the_cards(bench: AgentBench) -> None:
    bench.taken = "another program uses GPU 0"
    threading.Timer(0.2, bench.ending.set).start()
    bench.agent.serve()
    assert bench.sent("/leases") == []
    assert [probe["paused"] for probe in bench.sent("/probe")] == [False]


def test_the_policy_is_read_again_and_a_broken_one_stops_everything(
    bench: AgentBench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "advisor")
    bench.policy.write_text("max_minuts = 5")
    threading.Timer(0.3, bench.ending.set).start()
    bench.agent.serve()
    assert bench.service.calls == []
    assert "max_minuts" in caplog.messages[0]


def test_what_the_policy_denies_is_reported_with_its_reason(bench: AgentBench) -> None:
    bench.policy.write_text("allow_root = true\ngpus = [0]")
    bench.offers(bench.run_offered())
    bench.agent.serve(once=True)
    (report,) = bench.sent("/report")
    assert report["failure"]["kind"] == "refused_by_policy"
    assert bench.measured == []


def test_a_model_that_is_missing_is_fetched_where_the_policy_says_so(
    bench: AgentBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {path: path.read_bytes() for path in (bench.folder / "models" / "Q4").iterdir()}
    for path in kept:
        path.unlink()
    bench.machine = look_again(bench.machine, bench.folder)

    def download(document: RunDocument, policy: Policy, *_: object) -> tuple[Path, ...]:
        for path, content in kept.items():
            path.write_bytes(content)
        return tuple(bench.folder / "models" / "Q4" / name for name in SHARDS)

    monkeypatch.setattr(loop, "download", download)
    bench.offers(bench.run_offered(), bench.run_offered())
    bench.agent.serve(once=True)
    assert bench.sent("/report")[0]["failure"]["kind"] == "model_missing"
    repo, models = bench.document.repo, bench.folder / "models"
    downloads = f'[downloads]\nrepos = ["{repo}"]\nmax_gib = 1\nfolder = "{models}/x"\n'
    bench.policy.write_text(f'allow_root = true\n[models]\nfolders = ["{models}"]\n{downloads}')
    bench.agent.serve(once=True)
    assert bench.sent("/report")[1]["rows"]
    assert list(bench.fetched_files.values()) == [file.sha256 for file in bench.document.files]


def test_a_dry_run_shows_the_words_and_gives_the_run_back_uncounted(bench: AgentBench) -> None:
    bench.offers(bench.run_offered())
    bench.agent.serve(once=True, dry_run=True)
    assert bench.measured == []
    assert "bin/llama-sweep-bench" in bench.said[0]
    (report,) = bench.sent("/report")
    assert (report["failure"]["kind"], report["failure"]["transient"]) == ("gave_way", True)
    assert last(bench.state.path / "ran.jsonl", 10) == ()


def test_figures_that_the_service_refuses_end_the_run_as_a_failure(bench: AgentBench) -> None:
    bench.service.answers["/report"] = [problem(422, "invalid-request"), TAKEN]
    bench.offers(bench.run_offered())
    bench.agent.serve(once=True)
    refused, failed = bench.sent("/report")
    assert refused["rows"]
    assert (failed["rows"], failed["failure"]["transient"]) == ([], False)


def test_a_fault_of_the_agent_gives_the_run_back(bench: AgentBench, caplog: pytest.LogCaptureFixture) -> None:
    def faulty(*_: Any) -> Report:
        raise ZeroDivisionError("/home/ada/secret")

    bench.engine = faulty
    bench.offers(bench.run_offered())
    bench.agent.serve(once=True)
    (report,) = bench.sent("/report")
    assert report["failure"]["text"] == "the agent failed: ZeroDivisionError"
    assert report["failure"]["transient"]
    assert "ZeroDivisionError" in caplog.text


def test_a_service_that_stumbles_is_asked_again_later(bench: AgentBench) -> None:
    bench.engine = bench.the_last
    bench.offers(problem(422, "invalid-request"), problem(404, "not-found"), bench.run_offered())
    bench.agent.serve()
    assert len(bench.sent("/report")) == 1


def test_a_host_that_waits_for_its_owner_asks_again(bench: AgentBench) -> None:
    bench.engine = bench.the_last
    bench.offers(problem(403, "host-not-active"), bench.run_offered())
    bench.agent.serve()
    assert len(bench.sent("/report")) == 1


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("why", "says"),
    [
        ("refused", "so it is: host-not-active"), ("paused", "`advisor host resume` removes it"),
        ("policy", "max_minuts"), ("in use", "another program computes"), ("none", "no run is waiting for this host"),
    ],
)  # fmt: skip
def test_who_comes_for_one_run_is_told_why_there_is_none(
    bench: AgentBench, why: str, says: str, *, dry_run: bool
) -> None:
    bench.offers(*([problem(403, "host-not-active")] if why == "refused" else []))
    bench.taken = "another program computes" if why == "in use" else None
    if why == "paused":
        (bench.state.path / "pause").touch()
    if why == "policy":
        bench.policy.write_text("max_minuts = 5")
    assert bench.agent.serve(once=True, dry_run=dry_run) == (why == "none")
    assert len(bench.said) == 1
    assert says in bench.said[0]


def test_a_host_that_was_revoked_ends(bench: AgentBench) -> None:
    bench.service.answers["/v1/agent/sessions"] = [problem(403, "host-not-active")]
    with pytest.raises(NotEnrolled, match="no longer knows this host"):
        bench.agent.serve()


def test_the_machine_is_described_once_while_it_stays_as_it_is(bench: AgentBench) -> None:
    bench.offers(bench.run_offered(), bench.run_offered())
    bench.agent.serve(once=True)
    bench.agent.serve(once=True)
    assert len(bench.sent("/probe")) == 1
    bench.machine = replace(bench.machine, probe=replace(bench.machine.probe, max_minutes=5))
    bench.agent.serve(once=True)
    assert len(bench.sent("/probe")) == 2


def test_nothing_that_names_the_machine_is_sent(bench: AgentBench, tmp_path: Path) -> None:
    bench.offers(bench.run_offered())
    bench.agent.serve(once=True)
    sent = json.dumps([body for _, body in bench.service.calls])
    for secret in (str(tmp_path), "GPU-0000", "GPU-1111", (bench.state.path / "key").read_text().strip()):
        assert secret not in sent


def test_hours_count_in_local_time(tmp_path: Path) -> None:
    policy, state = Policy(hours=("22:00-07:00",)), State(tmp_path)
    assert why_idle(policy, state, datetime(2026, 1, 1, 23, 0)) is None
    assert "22:00-07:00" in (why_idle(policy, state, datetime(2026, 1, 1, 12, 0)) or "")
