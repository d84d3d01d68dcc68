"""`advisor validate` against a service: asked for, followed, shown next to what was predicted, ranked again."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from msgspec.structs import replace

from service.cli import following, main
from service.cli.progress import Progress
from service.engine.goal import Constraints
from service.wire.advice.advice import Advice
from service.wire.measuring.runs import Run, Validation, ValidationEvent, ValidationRequest
from tests import rigs
from tests.cli.fake_service import FakeService
from tests.cli.test_submit import Terminal
from tests.engine.planner.asking import ask
from tests.wire.test_validation_text import DONE, MEASURED, ROWS, point

TOKEN = "adv_" + "x" * 40


@pytest.fixture(scope="module")
def advice() -> Advice:
    body = ask("Qwen3-0.6B", "q8_0", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, constraints=Constraints())
    known = {name: getattr(body, name) for name in body.__struct_fields__}
    return Advice(id="a1", state="ready", repo="someone/Qwen3-0.6B-GGUF", revision="0" * 40, **known)


@pytest.fixture
def service(advice: Advice, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeService]:
    monkeypatch.setenv("ADVISOR_TOKEN", TOKEN)
    monkeypatch.setattr(following, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("service.cli.remote.PAUSE_SECONDS", 0.01)
    with FakeService() as fake:
        fake.answers["GET /v1/advice/a1"] = [(200, advice)]
        yield fake


def running(*rows: int) -> Run:
    shown = [ROWS[i] for i in rows]
    return replace(MEASURED, state="running", outcome=None, progress="measuring", rows=shown)


def validation(state: Literal["queued", "running", "done"], *runs: Run) -> Validation:
    return replace(DONE, state=state, runs=list(runs), best=None)


def goes_well(service: FakeService, *streams: list[ValidationEvent]) -> None:
    service.answers["POST /v1/advice/a1/validations"] = [
        (201, validation("queued", replace(running(), state="queued")))
    ]
    service.answers["GET /v1/validations/v1"] = [(200, validation("running", running(0, 1))), (200, DONE)]
    service.streams["/v1/validations/v1/events"] = list(streams)


def test_rows_come_as_they_are_measured_then_all_next_to_what_was_predicted(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [
        ValidationEvent("v1", "r1", "running", "measuring", [ROWS[0]]),
        ValidationEvent("v1", "r1", "running", "measuring"),
        ValidationEvent("v1", "r1", "succeeded"),
    ]
    goes_well(service, events)
    assert main(["validate", f"{service.url}/v1/advice/a1?detail=full"]) == 0
    shown = capsys.readouterr()
    said = [line for line in shown.err.splitlines() if "tokens" in line]
    assert said == [
        "IQ4_KS_R4 ik_llama.cpp at 0 tokens: TG 18.7 t/s, PP 406 t/s",
        "IQ4_KS_R4 ik_llama.cpp at 4,096 tokens: TG 16.0 t/s, PP 366 t/s",
    ]
    assert "does not fit (needed 812 MiB more on CUDA0)" in shown.err
    assert shown.out.startswith("Measured fastest: IQ4_KS_R4")
    assert "\nranked as predicted" in shown.out
    assert "proven (docs/trust.md):\n#1 " in shown.out
    asked = next(one for one in service.asked if one.method == "POST")
    assert asked.headers["Authorization"] == f"Bearer {TOKEN}"
    assert msgspec.json.decode(asked.body, type=ValidationRequest) == ValidationRequest()


def test_the_address_of_the_page_is_as_good(service: FakeService) -> None:
    goes_well(service, [])
    assert main(["validate", f"{service.url}/advice/a1#key=k", "--json"]) == 0


def test_measurements_that_do_not_count_are_not_said_to_rank(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    goes_well(service, [])
    assert main(["validate", f"{service.url}/v1/advice/a1"]) == 0
    assert (
        "\nranked as predicted, because what other people's hosts measure counts only once" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--minutes", "0"], "--minutes: this must be at least 1"),
        (["--minutes", "61"], "--minutes: this must be at most 60"),
    ],
)
def test_what_no_validation_can_have_is_refused_before_it_is_asked_for(
    service: FakeService, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", f"{service.url}/v1/advice/a1", *words]) == 2
    assert says in capsys.readouterr().err


def test_an_advice_in_a_file_is_measured_here_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", f"@{tmp_path}/advice.json"]) == 2
    assert "for advice in a file, use --here" in capsys.readouterr().err


def test_a_run_that_its_host_did_not_finish_is_said_to_wait_again() -> None:
    waiting = replace(running(0), state="queued")
    assert following._now(validation("running", waiting)) == (
        "waiting for a host again: one went silent or gave way before the end"
    )
    assert following._now(validation("queued", replace(waiting, rows=[], attempt=0))) == "waiting for a host"


def test_configs_hosts_and_minutes_are_asked_for_by_rank(service: FakeService, advice: Advice) -> None:
    goes_well(service, [])
    words = ["--config", "2", "--host", "h1", "--minutes", "5", "--mode", "tune", "--no-baseline", "--json"]
    assert main(["validate", f"{service.url}/v1/advice/a1", *words]) == 0
    asked = next(one for one in service.asked if one.method == "POST")
    assert msgspec.json.decode(asked.body, type=ValidationRequest) == ValidationRequest(
        mode="tune", configs=[advice.configs[1].id], baseline=False, hosts=["h1"], minutes=5
    )


def test_a_rank_that_is_not_there_is_said(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", f"{service.url}/v1/advice/a1", "--config", "99"]) == 2
    assert "--config: the advice has no config #99, but 1 to " in capsys.readouterr().err


def test_what_goes_with_here_only_is_refused(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", f"{service.url}/v1/advice/a1", "--engine-dir", "bin"]) == 2
    assert "--engine-dir goes with --here" in capsys.readouterr().err
    assert not service.asked


def test_a_stream_that_breaks_is_opened_again(service: FakeService) -> None:
    goes_well(service, [], [ValidationEvent("v1", "r1", "running", None, [ROWS[0]])], [])
    assert main(["validate", f"{service.url}/v1/advice/a1", "--json"]) == 0


def test_a_request_whose_answer_was_lost_is_the_same_request_again(service: FakeService) -> None:
    goes_well(service, [])
    service.answers["POST /v1/advice/a1/validations"] = [(0, b""), (201, DONE)]
    service.answers["GET /v1/validations/v1"] = [(200, DONE)]
    assert main(["validate", f"{service.url}/v1/advice/a1", "--json"]) == 0
    keys = [one.headers["Idempotency-Key"] for one in service.asked if one.method == "POST"]
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_where_no_host_matches_what_is_missing_and_the_other_way_are_said(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = {"type": "/docs/problems#no-host", "title": "no", "status": 409, "detail": "#1: slow-newt: no RTX 3090"}
    service.answers["POST /v1/advice/a1/validations"] = [(409, refusal)]
    address = f"{service.url}/v1/advice/a1"
    assert main(["validate", address]) == 1
    assert capsys.readouterr().err == (
        f"#1: slow-newt: no RTX 3090\non this machine, without a host: advisor validate {address} --here\n"
    )


def test_a_refusal_is_told_in_the_service_s_words(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    refusal = {"type": "/docs/problems#forbidden", "title": "no", "status": 403, "detail": "lacks the scope validate"}
    service.answers["POST /v1/advice/a1/validations"] = [(403, refusal)]
    assert main(["validate", f"{service.url}/v1/advice/a1"]) == 1
    assert capsys.readouterr().err == "advisor: lacks the scope validate\n"


def test_what_is_no_service_is_said(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    service.answers["GET /v1/advice/a1"] = [(200, b"<html>hello</html>")]
    assert main(["validate", f"{service.url}/v1/advice/a1"]) == 1
    assert "is not what this program expects" in capsys.readouterr().err


@pytest.mark.parametrize(
    "address", ["a1", "ftp://host/v1/advice/a1", "http://host/v1/advice/", "http://[x/v1/advice/a"]
)
def test_what_is_no_advice_is_said(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISOR_TOKEN", TOKEN)
    assert main(["validate", address]) == 2


def test_a_token_never_leaves_the_machine_unencrypted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ADVISOR_TOKEN", TOKEN)
    assert main(["validate", "http://192.0.2.1/v1/advice/a1"]) == 2
    assert "https only" in capsys.readouterr().err


def test_without_a_token_the_way_to_measure_here_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ADVISOR_TOKEN", raising=False)
    assert main(["validate", "https://host.example/v1/advice/a1"]) == 2
    assert "advisor validate https://host.example/v1/advice/a1 --here" in capsys.readouterr().err


def test_ctrl_c_leaves_it_running_and_says_how_to_follow(service: FakeService, tmp_path: Path) -> None:
    """Not at a terminal: nobody can be asked."""
    goes_well(service, [])
    service.hold_stream = True
    words = [sys.executable, "-m", "service.cli", "validate", f"{service.url}/v1/advice/a1"]
    # A shell's background job is started deaf to Ctrl-C, and so would be what it starts.
    hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ}, preexec_fn=hears
    ) as process:
        assert service.streaming.wait(60)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"advisor validate --follow {service.url}/v1/validations/v1" in said.decode()
    assert not any(one.method == "DELETE" for one in service.asked)


def test_a_validation_can_be_followed_later(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    service.answers["GET /v1/validations/v1"] = [(200, DONE)]
    assert main(["validate", "--follow", f"{service.url}/v1/validations/v1"]) == 0
    assert capsys.readouterr().out.startswith("Measured fastest")


def test_what_was_measured_ranks(advice: Advice) -> None:
    first, second, *others = advice.configs
    measured = replace(second, rank=1, measured=[point(4096, 99.0, 1000.0)], measured_match="exact")
    near = replace(first, rank=2, measured=[point(4096, 98.0, 1000.0)], measured_match="near")
    after = replace(advice, configs=[measured, near, *others])
    lines = list(following.ranking(advice, after))
    assert lines[0].startswith("#1 (was #2) ")
    assert lines[0].endswith("TG 99.0 t/s at 4,096 tokens, measured")
    assert lines[1].startswith("#2 (was #1) ")
    assert "predicted" in lines[1]
    assert lines[1].endswith(", measured 98.0 on another CPU or RAM")


def test_a_bar_is_drawn_on_a_terminal_only() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        with Progress(stream) as progress:
            progress.show(0.5, "measuring")
            progress.show(0.5, "measuring")
            progress.line("a row")
    assert "\r[##########..........]" in terminal.getvalue()
    assert terminal.getvalue().endswith("a row\n")
    assert pipe.getvalue() == "measuring\na row\n"


def test_a_service_that_is_not_there_is_said_without_the_systems_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "http://127.0.0.1:9/advice/a1", "--here"]) == 1
    assert capsys.readouterr().err == "advisor: http://127.0.0.1:9: Connection refused\n"
