"""What the person at the machine does: enrol after seeing whose code it is, pause, look, and leave for good."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from service.wire.measuring.agent import key_fingerprint
from tests.workers.agent.fake_service import HOST, FakeService, enrolled, problem
from workers.agent import journal, owner
from workers.agent.errors import HostError, NotEnrolled, ServiceError
from workers.agent.journal import Ran
from workers.agent.policy import InvalidPolicy, Policy, decode_policy
from workers.agent.state import KEY, State, load_key

CODE = "c" * 22
GREETED = {"service": "Advisor", "owner": "ada\x1b[2J", "visibility": "private", "expires_at": "2026-01-01T00:00:00Z"}


class Person:
    """Answers as told, and keeps what was shown."""

    def __init__(self, answer: bool = True) -> None:
        self.answer, self.asked, self.shown = answer, list[str](), list[str]()

    def ask(self, question: str) -> bool:
        self.asked.append(question)
        return self.answer

    def say(self, text: str) -> None:
        self.shown.append(text)

    @property
    def text(self) -> str:
        return "\n".join(self.shown)


@pytest.fixture
def service(service: FakeService) -> FakeService:
    service.answers["/v1/agent/greeting"] = [(200, GREETED)]
    service.answers["/v1/agent/hosts"] = [(201, {"host": HOST, "pseudonym": "quiet-otter-7", "state": "waiting"})]
    return service


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "host")


def test_a_machine_enrols_after_its_person_saw_whose_code_it_is(
    service: FakeService, state: State, tmp_path: Path
) -> None:
    person, policy = Person(), tmp_path / "policy.toml"
    assert owner.enrol(service.address, CODE, state, policy, person.ask, person.say)
    assert person.shown[0].startswith(f"service   {service.address}")
    assert person.shown[1] == "owner     ada [2J"
    assert "quiet-otter-7" in person.text
    assert f"/v1/hosts/{HOST}" in person.text
    assert key_fingerprint(load_key(state).public) in person.text
    assert state.enrolled().host == HOST
    assert stat.S_IMODE((state.path / KEY).stat().st_mode) == 0o600
    assert decode_policy(policy.read_bytes(), "p") == Policy()


def test_who_says_no_leaves_no_key_and_sends_none(service: FakeService, state: State, tmp_path: Path) -> None:
    person = Person(answer=False)
    assert not owner.enrol(service.address, CODE, state, tmp_path / "p.toml", person.ask, person.say)
    assert [path for path, _ in service.calls] == ["/v1/agent/greeting"]
    assert not state.path.exists()


def test_a_code_that_is_refused_leaves_no_key(service: FakeService, state: State, tmp_path: Path) -> None:
    person = Person()
    service.answers["/v1/agent/hosts"] = [problem(404, "enrolment-code-unknown")]
    with pytest.raises(ServiceError, match="enrolment-code-unknown"):
        owner.enrol(service.address, CODE, state, tmp_path / "p.toml", person.ask, person.say)
    assert not (state.path / KEY).exists()
    service.answers["/v1/agent/hosts"] = [(201, {"host": HOST, "pseudonym": "p", "state": "waiting"})]
    assert owner.enrol(service.address, CODE, state, tmp_path / "p.toml", person.ask, person.say)


@pytest.mark.parametrize("host", ["", "x' ; rm -rf ~ #", "$(id)", "a/../../b", "a\nb", "a\x1b[2J", "x" * 65, 7])
def test_a_host_id_that_a_shell_would_read_is_never_shown_to_be_pasted(
    service: FakeService, state: State, tmp_path: Path, host: object
) -> None:
    person = Person()
    service.answers["/v1/agent/hosts"] = [(201, {"host": host, "pseudonym": "p", "state": "waiting"})]
    with pytest.raises(ServiceError, match="not of this protocol"):
        owner.enrol(service.address, CODE, state, tmp_path / "p.toml", person.ask, person.say)
    assert "curl" not in person.text
    assert not (state.path / KEY).exists()


def test_a_policy_that_is_there_is_kept_and_a_second_enrolment_refused(
    service: FakeService, state: State, tmp_path: Path
) -> None:
    person, policy = Person(), tmp_path / "p.toml"
    policy.write_text("max_minutes = 5")
    owner.enrol(service.address, CODE, state, policy, person.ask, person.say)
    assert policy.read_text() == "max_minutes = 5"
    with pytest.raises(HostError, match="already"):
        owner.enrol(service.address, CODE, state, policy, person.ask, person.say)


@pytest.mark.parametrize("code", ["", "short", "a b" * 10, "x" * 65, "c" * 21 + "\n"])
def test_a_code_that_cannot_be_one_is_not_sent(service: FakeService, state: State, tmp_path: Path, code: str) -> None:
    person = Person()
    service.answers["/v1/agent/greeting"] = [problem(404, "enrolment-code-unknown")]
    with pytest.raises(HostError, match="code: this must be written like"):
        owner.enrol(service.address, code, state, tmp_path / "p.toml", person.ask, person.say)
    assert not state.path.exists()


def test_a_pause_is_a_file_that_the_policy_names(service: FakeService, state: State, tmp_path: Path) -> None:
    person, policy = Person(), tmp_path / "p.toml"
    with pytest.raises(NotEnrolled):  # else the next host there would begin paused
        owner.pause(state, policy, person.say)
    enrolled(service, state)
    owner.pause(state, policy, person.say)
    assert (state.path / "pause").exists()
    owner.resume(state, policy, person.say)
    owner.resume(state, policy, person.say)
    assert not (state.path / "pause").exists()
    policy.write_text(f'pause_file = "{tmp_path}/here/pause"')
    owner.pause(state, policy, person.say)
    assert (tmp_path / "here" / "pause").exists()
    policy.write_text("pause_fil = 1")
    with pytest.raises(InvalidPolicy):
        owner.pause(state, policy, person.say)


def test_status_says_what_runs_what_may_and_what_ran(service: FakeService, state: State, tmp_path: Path) -> None:
    enrolled(service, state)
    person, policy = Person(), tmp_path / "p.toml"
    owner.status(state, policy, person.say)
    assert "policy    nothing runs" in person.text
    policy.write_text("")
    owner.pause(state, policy, person.say)
    journal.write(
        state.path / "ran.jsonl",
        Ran(at="2026-01-01", run="r", repo="a/b", file="c.gguf", words=(), outcome="measured 3 rows", seconds=1),
    )
    owner.status(state, policy, person.say)
    assert f"quiet-otter-7 ({HOST}) of ada at {service.address}" in person.text
    assert "agent     not running" in person.text
    assert "nothing can run: no folder of engines and none of models is named" in person.text
    assert f"paused    yes: {state.path / 'pause'}" in person.text
    assert "ran       2026-01-01 a/b c.gguf: measured 3 rows" in person.text
    assert service.calls == []


def test_leaving_tells_the_service_and_removes_the_key(service: FakeService, state: State) -> None:
    enrolled(service, state)
    person = Person()
    assert owner.leave(state, person.ask, person.say)
    assert [path for path, _ in service.calls] == ["/v1/agent/sessions", "/v1/agent/leave"]
    assert not (state.path / KEY).exists()
    with pytest.raises(NotEnrolled):
        owner.leave(state, person.ask, person.say)


def test_the_key_is_removed_also_where_the_service_cannot_be_told(service: FakeService, state: State) -> None:
    enrolled(service, state)
    service.answers["/v1/agent/sessions"] = [problem(500, "internal")] * 9
    person = Person()
    assert not owner.leave(state, person.ask, person.say)
    assert not (state.path / KEY).exists()
    assert f"/v1/hosts/{HOST}" in person.text


def test_a_host_that_was_revoked_there_leaves_nothing_to_do(service: FakeService, state: State) -> None:
    enrolled(service, state)
    service.answers["/v1/agent/sessions"] = [problem(403, "host-not-active")]
    person = Person()
    assert owner.leave(state, person.ask, person.say)
    assert "has revoked quiet-otter-7" in person.text


def test_what_starts_the_agent_names_the_folder_and_policy_that_were_chosen(
    service: FakeService, state: State, tmp_path: Path
) -> None:
    person, policy = Person(), tmp_path / "my policy.toml"
    owner.enrol(service.address, CODE, state, policy, person.ask, person.say)
    assert f"advisor host run --state-dir {state.path} --policy '{policy}' --once --dry-run" in person.text


def test_status_names_a_folder_that_is_not_there(service: FakeService, state: State, tmp_path: Path) -> None:
    enrolled(service, state)
    person, policy = Person(), tmp_path / "p.toml"
    (tmp_path / "llama-bench").touch(0o755)
    policy.write_text(f'[engines]\nfolders = ["{tmp_path}", "/gone"]\n[models]\nfolders = ["{tmp_path}"]')
    owner.status(state, policy, person.say)
    assert "2 of engines, 1 of models; there is no folder /gone; 30 minutes a run" in person.text


def test_status_names_a_folder_of_engines_without_a_benchmark(
    service: FakeService, state: State, tmp_path: Path
) -> None:
    enrolled(service, state)
    person, policy = Person(), tmp_path / "p.toml"
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "llama-bench").touch(0o644)  # as an archive without modes leaves it
    policy.write_text(f'[engines]\nfolders = ["{tmp_path}/build"]\n[models]\nfolders = ["{tmp_path}"]')
    owner.status(state, policy, person.say)
    said = f"no llama-sweep-bench or llama-bench that can be run is in {tmp_path}/build"
    assert f"1 of engines, 1 of models; {said}; 30 minutes a run" in person.text


def test_nobody_leaves_while_the_agent_runs_or_against_a_no(service: FakeService, state: State) -> None:
    enrolled(service, state)
    with state.alone(), pytest.raises(HostError, match="stop it first"):
        owner.leave(state, Person().ask, print)
    assert not owner.leave(state, Person(answer=False).ask, print)
    assert (state.path / KEY).exists()


def test_the_journal_is_begun_again_when_it_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_BYTES", 100)
    ran = Ran(at="t", run="r", repo="a/b", file="c", words=("x",), outcome="o", seconds=0)
    for _ in range(5):
        journal.write(tmp_path / "ran.jsonl", ran)
    assert (tmp_path / "ran.jsonl").stat().st_size < 300
    assert (tmp_path / "ran.jsonl.1").exists()
    with (tmp_path / "ran.jsonl").open("ab") as file:
        file.write(b"{half a li")
    assert all(one == ran for one in journal.last(tmp_path / "ran.jsonl", 5))
    assert json.loads((tmp_path / "ran.jsonl").read_bytes().splitlines()[0])["words"] == ["x"]


def test_what_cannot_be_written_down_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError):
        journal.write(
            tmp_path / "file" / "ran.jsonl",
            Ran(at="t", run="r", repo="a/b", file="c", words=(), outcome="o", seconds=0),
        )
