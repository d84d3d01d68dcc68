"""`advisor host`: what each verb answers, and that it needs nothing of the server's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from service.cli import main
from tests.waiting import PATIENCE, wait_for
from tests.workers.agent.conftest import service
from tests.workers.agent.fake_service import HOST, FakeService, enrolled
from workers.agent.askers import ASKERS, Approvals, Waiting
from workers.agent.state import State

__all__ = ["service"]

ROOT = Path(__file__).parents[2]
SERVERS = ["litestar", "sqlalchemy", "alembic", "rq", "redis", "huggingface_hub", "uvicorn", "jinja2"]
BLOCKED = f"import sys\nfor name in {SERVERS!r}: sys.modules[name] = None\nfrom service.cli import main\n"


def test_a_machine_that_is_not_enrolled_is_told_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb, code in (("run", 78), ("status", 1), ("leave", 1)):
        assert main(["host", verb, "--state-dir", str(tmp_path / "host")]) == code
        assert "advisor host enrol URL --code" in capsys.readouterr().err


def test_http_to_another_machine_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["host", "enrol", "http://192.168.1.9:8000", "--code=" + "c" * 22, "--state-dir", str(tmp_path / "h")]
    assert main(words) == 1
    assert "only https" in capsys.readouterr().err


def test_nobody_is_enrolled_unasked(tmp_path: Path, service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    greeted = {"service": "Advisor", "owner": "ada", "visibility": "public", "expires_at": "2026-01-01T00:00:00Z"}
    service.answers["/v1/agent/greeting"] = [(200, greeted)]
    service.answers["/v1/agent/hosts"] = [(201, {"host": HOST, "pseudonym": "quiet-otter-7", "state": "waiting"})]
    words = ["host", "enrol", service.address, "--code=" + "c" * 22, "--state-dir", str(tmp_path / "h")]
    assert main(words) == 1
    assert service.bodies("/hosts") == []
    assert main([*words, "--yes"]) == 0
    assert "as quiet-otter-7" in capsys.readouterr().out


def test_each_verb_says_as_json_what_came_of_it(
    tmp_path: Path, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(verb: str, *words: str) -> dict[str, object]:
        assert main(["host", verb, *words, "--json", "--state-dir", str(tmp_path / "h")]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    greeted = {"service": "Advisor", "owner": "ada", "visibility": "public", "expires_at": "2026-01-01T00:00:00Z"}
    service.answers["/v1/agent/greeting"] = [(200, greeted)]
    service.answers["/v1/agent/hosts"] = [(201, {"host": HOST, "pseudonym": "quiet-otter-7", "state": "waiting"})]
    assert said("enrol", service.address, "--code=" + "c" * 22, "--yes")["host"] == HOST
    assert said("pause") == {"paused": True, "pause_file": str(tmp_path / "h" / "pause")}
    status = said("status")
    assert (status["pseudonym"], status["paused"], status["doing"]) == ("quiet-otter-7", True, None)
    assert said("resume")["paused"] is False
    waiting = Waiting(run="r1", account="bob", repo="a/b", at="2026-01-01")
    State(tmp_path / "h").write(ASKERS, msgspec.json.encode(Approvals(waiting=[waiting])))
    assert said("status")["waiting"] == [msgspec.to_builtins(waiting)]
    assert said("approve", "bob") == {"approved": "bob"}
    assert said("leave", "--yes") == {"left": True, "revoked": True}


def test_pause_and_resume(tmp_path: Path, service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    enrolled(service, State(tmp_path))
    assert main(["host", "pause", "--state-dir", str(tmp_path)]) == 0
    assert (tmp_path / "pause").exists()
    assert main(["host", "resume", "--state-dir", str(tmp_path)]) == 0
    assert not (tmp_path / "pause").exists()


def test_a_wrong_policy_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    State(tmp_path).make()
    (tmp_path / "policy.toml").write_text("max_minuts = 3")
    assert main(["host", "pause", "--state-dir", str(tmp_path)]) == 1
    assert "max_minuts" in capsys.readouterr().err


@pytest.mark.full
def test_the_agent_works_without_anything_of_the_server(tmp_path: Path, service: FakeService) -> None:
    enrolled(service, State(tmp_path))
    (tmp_path / "policy.toml").write_text("allow_root = true")
    code = BLOCKED + f"sys.exit(main(['host', 'run', '--once', '--state-dir', {str(tmp_path)!r}]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert '"host":"quiet-otter-7","service":"http://127.0.0.1:' in done.stderr
    assert '"network":"' in done.stderr
    assert [path.rpartition("/")[2] for path, _ in service.calls] == ["sessions", "probe", "leases"]
    probe = json.dumps(service.bodies("/probe"))
    for secret in (str(Path.home()), os.uname().nodename, str(tmp_path)):
        assert secret not in probe


def test_its_help_needs_no_extra_at_all() -> None:
    blocked = [*SERVERS, "httpx", "nacl", "psutil", "pynvml", "cpuinfo"]
    code = f"import sys\nfor name in {blocked!r}: sys.modules[name] = None\nfrom service.cli import main\n"
    for words in (["host", "--help"], ["host", "run", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", f"{code}main({words!r})"], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0
        assert "usage: advisor host" in done.stdout


@pytest.mark.full
def test_a_signal_ends_an_agent_that_waits(tmp_path: Path, service: FakeService) -> None:
    enrolled(service, State(tmp_path))
    (tmp_path / "policy.toml").write_text("allow_root = true")

    released = threading.Event()

    def slowly(body: object) -> tuple[int, None]:
        released.wait(2 * PATIENCE)
        return 204, None

    service.answers["/v1/agent/leases"] = slowly
    words = [sys.executable, "-m", "service.cli", "host", "run", "--state-dir", str(tmp_path)]
    agent = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: service.bodies("/leases"), "it asks for no lease")
    second = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (second.returncode, "another agent runs" in second.stderr) == (1, True)
    agent.send_signal(signal.SIGTERM)
    _, errors = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 0, errors
    released.set()
    doing = State(tmp_path).doing()
    assert doing is not None
    assert doing.what == "stopped"
