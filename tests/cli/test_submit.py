"""`advisor submit`: nothing goes out that was not shown and agreed to, and what is missing is asked for by name."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from service.cli import main
from service.cli.sending import submissions_of
from service.engine.advice import SpeedPoint
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.measured.rows import MeasuredRow
from service.engine.run_flags import RunFlags
from service.wire.measuring.agent import Report, RunDocument, RunFile
from service.wire.results.results import ResultModel
from service.wire.results.submissions import (
    FORMAT,
    ON_DISK,
    Missing,
    Preview,
    SavedResult,
    SavedResults,
    Submission,
    Submitted,
)
from tests.cli.fake_service import Answer, Asked, FakeService

POINT = SpeedPoint(
    n_kv=0, pp_tps=9000, pp_low=8000, pp_high=9900, tg_tps=250, tg_low=240, tg_high=260, basis="measured"
)
WHOLE = Preview(complete=True, missing=[], command="llama-sweep-bench -m a.gguf", speed=[POINT], predicted=[POINT])
KEPT = Submitted(
    id="r1", url="https://x/results/r1", state="shown", state_reason=None, tier="self-reported", is_new=True,
    edit_key="the-key",
)  # fmt: skip
ROW = MeasuredRow(n_kv=0, n_prompt=512, n_gen=128, pp_seconds=(0.06,), tg_seconds=(0.5,))
FILE = RunFile(path="q8/a.gguf", size=1000, sha256="a" * 64)
DOCUMENT = RunDocument(
    engine="llama.cpp", engine_builds=("b" * 64,), repo="someone/a-GGUF", revision="c" * 40, files=(FILE,),
    flags=RunFlags(n_ctx=4096), depths=(0, 512), n_prompt=512, n_gen=64, seconds=60, gpus=(1,),
)  # fmt: skip


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService() as service:
        service.answers["POST /v1/results/preview"] = needs_hardware
        service.answers["POST /v1/results"] = [(201, KEPT)]
        yield service


def needs_hardware(asked: Asked) -> Answer:
    sent = msgspec.json.decode(asked.body, type=Submission)
    if sent.hardware is None:
        return 200, Preview(complete=False, missing=[Missing("hardware", "the machine: such as `RTX 3090`")])
    return 200, WHOLE


@pytest.fixture
def paste(tmp_path: Path) -> str:
    file = tmp_path / "bench.log"
    file.write_text("$ llama-sweep-bench -m a.gguf\n\n| PP | TG | …\n")
    return str(file)


def sent_to(service: FakeService, path: str) -> list[Submission]:
    return [msgspec.json.decode(one.body, type=Submission) for one in service.asked if one.path == path]


def run(service: FakeService, *words: str, typed: str = "", monkeypatch: pytest.MonkeyPatch | None = None) -> int:
    if monkeypatch is not None:
        monkeypatch.setattr("sys.stdin", Terminal(typed))
    return main(["submit", *words, "--service", service.url])


def test_what_was_understood_is_shown_and_sent_after_a_yes(
    service: FakeService, paste: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(service, paste, "-H", "RTX 3090", typed="y\n", monkeypatch=monkeypatch) == 0
    shown = capsys.readouterr()
    assert ["0", "250.00", "240.0", "to", "260.0", "9,000.0", "8,000", "to", "9,900"] in map(
        str.split, shown.out.splitlines()
    )
    assert "https://x/results/r1" in shown.out
    assert "the-key" in shown.out
    assert "send this to the database" in shown.err
    (sent,) = sent_to(service, "/v1/results")
    assert (sent.hardware, sent.text[:2]) == ("RTX 3090", "$ ")
    assert service.asked[-1].headers["Idempotency-Key"]


def test_a_cited_result_is_sent_with_its_link(service: FakeService, paste: str) -> None:
    assert run(service, paste, "-H", "RTX 3090", "--source", "https://forum.example.org/t/12", "--yes") == 0
    (sent,) = sent_to(service, "/v1/results")
    assert sent.source == "https://forum.example.org/t/12"


@pytest.mark.parametrize("typed", ["n\n", "\n", ""])
def test_without_a_yes_nothing_is_sent(
    service: FakeService, paste: str, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(service, paste, "-H", "RTX 3090", typed=typed, monkeypatch=monkeypatch) == 1
    assert sent_to(service, "/v1/results") == []


def test_what_is_missing_is_asked_for_on_a_terminal_and_named_elsewhere(
    service: FakeService, paste: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(service, paste, typed="RTX 3090, 64GB\ny\n", monkeypatch=monkeypatch) == 0
    assert [one.hardware for one in sent_to(service, "/v1/results")] == ["RTX 3090, 64GB"]
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run(service, paste, "--yes") == 2
    assert "--hardware: missing: the machine" in capsys.readouterr().err
    assert len(sent_to(service, "/v1/results")) == 1


def test_an_answer_that_was_lost_is_asked_for_again_under_the_same_key(
    service: FakeService, paste: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.cli.remote.PAUSE_SECONDS", 0.0)
    service.answers["POST /v1/results"] = [(0, None), (200, KEPT)]
    assert run(service, paste, "-H", "RTX 3090", "--yes") == 0
    keys = {one.headers["Idempotency-Key"] for one in service.asked if one.path == "/v1/results"}
    assert len(keys) == 1


def test_what_is_too_long_is_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "long.log").write_text("x" * (1 << 21))
    assert main(["submit", str(tmp_path / "long.log"), "--service", "http://127.0.0.1:9", "-H", "RTX 3090, 64GB"]) == 2
    assert capsys.readouterr().err == "advisor: FILE: this is longer than 1048576 characters\n"


def test_a_service_must_be_named(
    paste: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ADVISOR_SERVICE", raising=False)
    assert main(["submit", paste]) == 2
    assert "--service https://HOST" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["http://[", "http://127.0.0.1:port", "https://127.0.0.1:99999"])
def test_what_is_no_address_is_refused(address: str, paste: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", paste, "--service", address, "-H", "RTX 3090, 64GB"]) == 2
    assert f"{address!r} is not an address such as https://HOST" in capsys.readouterr().err


def kept_file(tmp_path: Path, repo: str = "someone/a-GGUF") -> Path:
    model = ResultModel(repo=repo, revision="c" * 40, variant="Q8_0", files=(FILE,))
    report = Report(fence=1, rows=(ROW,), engine_commit="0c1e57098")
    gpus = [Gpu(name="NVIDIA GeForce RTX 3090"), Gpu(name="NVIDIA GeForce RTX 4090")]
    kept = SavedResults(
        format=FORMAT, advice="a1", agent="1", hardware=Hardware(gpus=gpus, cpu=Cpu(), ram=Ram(total_gb=64)),
        results=[SavedResult(model=model, document=DOCUMENT, report=report, measured_at="2026-11-21T10:00:00Z")],
    )  # fmt: skip
    file = tmp_path / "kept.json"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2))
    return file


def test_what_was_kept_on_this_machine_is_sent_with_its_command_rows_and_cards(
    service: FakeService, tmp_path: Path
) -> None:
    assert run(service, str(kept_file(tmp_path)), "--yes") == 0
    (sent,) = sent_to(service, "/v1/results")
    assert (sent.repo, sent.revision, sent.build) == ("someone/a-GGUF:Q8_0", "c" * 40, "0c1e57098")
    assert sent.rows == [ROW]
    assert sent.command is not None
    assert sent.command.startswith("CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1 llama-bench -m a.gguf")
    assert sent.measured_on == "2026-11-21"


def test_files_of_this_disk_need_the_repo_that_they_are_from(service: FakeService, tmp_path: Path) -> None:
    file = str(kept_file(tmp_path, ON_DISK))
    assert run(service, file, "--yes") == 2
    assert run(service, file, "--yes", "--model", "someone/a-GGUF:Q8_0") == 0
    assert [one.repo for one in sent_to(service, "/v1/results")] == ["someone/a-GGUF:Q8_0"]


def test_a_run_that_failed_is_no_submission(tmp_path: Path) -> None:
    kept = msgspec.json.decode(kept_file(tmp_path).read_bytes(), type=SavedResults)
    failed = msgspec.structs.replace(kept.results[0], report=Report(fence=1))
    assert submissions_of(msgspec.structs.replace(kept, results=[failed])) == []


def test_of_a_server_s_log_only_figures_leave_this_machine(service: FakeService, tmp_path: Path) -> None:
    log = Path(__file__).parents[1] / "data" / "server_logs" / "llama-server-2025.txt"
    (tmp_path / "server.log").write_text(f"$ llama-server -m a.gguf -c 4096\n\nuser: my secret\n{log.read_text()}")
    run(service, str(tmp_path / "server.log"), "-H", "RTX 3090", "--yes")
    sent = [one.body for one in service.asked]
    assert sent
    assert not any(b"secret" in body for body in sent)
    (one,) = sent_to(service, "/v1/results")
    assert one.command == "llama-server -m a.gguf -c 4096"
    assert "915.13 ms /    51 tokens" in one.text


def test_a_chat_that_measured_nothing_is_refused_before_anything_is_sent(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = Path(__file__).parents[1] / "data" / "server_logs" / "ollama-orca-mini.txt"
    assert run(service, str(chat), "-H", "RTX 3090", "--yes") == 2
    assert "fewer than 16 tokens of prompt or 32 of output" in capsys.readouterr().err
    assert not service.asked
