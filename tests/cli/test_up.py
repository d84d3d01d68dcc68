"""`advisor up` and `advisor watch`: servers next to their predictions; where full, with the engine built here."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import msgspec
import psutil
import pytest

from service.cli import main
from service.cli.replanning import first_plan
from service.cli.serving import Watch
from service.cli.up import _offer, _told
from service.detect import detect
from service.engine.commands.config_files import launch_of
from service.engine.errors import InvalidInput
from service.engine.ggml_types import tensor_bytes
from service.engine.gguf import write as gguf_file
from service.engine.gguf.header import Tensor
from service.engine.submission.reading import read_paste
from service.settings import load_settings
from service.wire.advice.check import BatchCase
from service.wire.results.submissions import Submission
from tests.cli.fake_service import FakeService
from tests.cli.test_submit import KEPT, WHOLE, Terminal
from tests.local_hub import LocalHub, Repo, WholeFile
from tests.projectors import GEMMA3_METADATA, gemma3_file
from tests.tiny_model import write_tiny_model
from tests.workers.agent.test_real_engine import FOLDER

LOG = Path(__file__).parents[1] / "data" / "server_logs" / "llama-server.log"
RIG = "no GPU, Ryzen 9 7950X, 64GB DDR5-5600"
REPO = "owner/tiny-GGUF"
LATE = 120.0  # seconds after which something is wrong: the machine may be ten times as slow


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADVISOR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return write_tiny_model(tmp_path / "tiny.gguf", n_layer=4, n_embd=256, n_ff=512, vocabulary=True)


# --- watch ------------------------------------------------------------------------------------------------------------


def test_a_log_is_read_next_to_what_its_command_should_do(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = f"llama-server -m {model} -c 2048 -t 1 -np 1 -fit off"
    assert main(["watch", str(LOG), "--command", command, "-H", RIG, "--once"]) == 0
    shown = capsys.readouterr().out
    assert "weights of CPU: 10.51 MiB in the log, 10.51 computed" in shown
    assert "kv of CPU: 8.00 MiB in the log, 8.00 computed" in shown
    assert "request: 300 tokens, 0 more cached, 47 answered" in shown
    assert "request: 120 tokens, 300 more cached, 63 answered" in shown
    assert shown.count("measured") == 4


@pytest.mark.parametrize("n_bytes", [1, 13, 97, 4096])
def test_a_request_is_told_once_and_whole_however_its_lines_arrive(model: Path, n_bytes: int) -> None:
    said: list[str] = []
    watch = watching(model, said)
    data = LOG.read_bytes()
    for start in range(0, len(data), n_bytes):
        watch.take(data[start : start + n_bytes])
    assert [line for line in said if line.startswith("request")] == [
        "request: 300 tokens, 0 more cached, 47 answered",
        "request: 120 tokens, 300 more cached, 63 answered",
    ]


@pytest.mark.full
def test_a_server_that_is_never_idle_is_told_of_at_any_length(model: Path) -> None:
    said: list[str] = []
    watch = watching(model, said)
    lines = LOG.read_bytes().splitlines(keepends=True)
    watch.take(b"".join(lines[:160]))
    one = b"".join(line for line in lines[160:177] if b"idle" not in line)
    for _ in range(105):
        watch.take(one)
    assert said.count("request: 300 tokens, 0 more cached, 47 answered") == 105


def watching(model: Path, said: list[str]) -> Watch:
    command = f"llama-server -m {model} -c 2048 -t 1 -np 1 -fit off"
    return Watch(load_settings(os.environ), BatchCase(command=command, hardware=RIG), said.append)


def test_a_log_without_its_command_is_asked_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(LOG), "-H", RIG, "--once"]) == 2
    assert "--command" in capsys.readouterr().err


def test_what_is_no_server_is_not_watched(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "nowhere.log", "-H", RIG]) == 2
    assert "nowhere.log is not a file, process or address" in capsys.readouterr().err


def test_a_process_or_server_that_is_none_is_said_in_words(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", "99999999", "-H", RIG]) == 2
    assert "there is no process 99999999 here" in capsys.readouterr().err
    with LocalHub() as hub:
        assert main(["watch", hub.endpoint, "--command", f"llama-server -m {model}", "-H", RIG]) == 2
    said = capsys.readouterr().err
    assert "has no totals of llama-server, which needs --metrics for them" in said
    assert "developer.mozilla.org" not in said
    assert main(["watch", "http://127.0.0.1:port", "--command", f"llama-server -m {model}", "-H", RIG]) == 2
    assert "http://127.0.0.1:port/metrics: Invalid port: 'port'" in capsys.readouterr().err


@pytest.mark.parametrize(("context", "is_planned"), [(0, False), (512, True)])
def test_a_small_context_is_planned_and_none_is_refused(model: Path, context: int, is_planned: bool) -> None:
    asked = Namespace(what=str(model), models=None, context=context, port=None, images=False)
    settings = load_settings({"ADVISOR_CACHE_MIB": "0"})
    if is_planned:
        assert f"-c {context} " in first_plan(settings, asked, RIG, "llama.cpp", None).what
    else:
        with pytest.raises(InvalidInput, match="this must be at least 1"):
            first_plan(settings, asked, RIG, "llama.cpp", None)


def test_what_is_kept_has_neither_folders_nor_words() -> None:
    kept = read_paste(LOG.read_text()).log
    assert kept is not None
    launch = launch_of("LLAMA_ARG_THREADS=4 /home/me/bin/llama-server -m /home/me/secret/tiny.gguf -c 2048")
    told = _told(launch, kept.splitlines())
    assert told.startswith("LLAMA_ARG_THREADS=4 llama-server -m tiny.gguf -c 2048\n")
    assert "/home" not in told
    assert read_paste(told).rows == read_paste(LOG.read_text()).rows


@pytest.mark.parametrize(
    ("choice", "typed", "sent"),
    [("", "y\n", 0), ("never", "y\n", 0), ("ask", "n\n", 0), ("ask", "y\n", 1), ("always", "", 1)],
)
def test_what_was_measured_is_sent_only_where_a_setting_or_an_answer_says_so(
    choice: str, typed: str, sent: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = read_paste(LOG.read_text()).log
    assert kept is not None
    told = _told(launch_of("/home/me/bin/llama-server -m /home/me/secret/tiny.gguf -c 2048"), kept.splitlines())
    with FakeService() as service:
        service.answers |= {"POST /v1/results/preview": [(200, WHOLE)], "POST /v1/results": [(201, KEPT)]}
        monkeypatch.setenv("ADVISOR_SERVICE", service.url)
        monkeypatch.setenv("ADVISOR_SEND", choice)
        monkeypatch.setattr("sys.stdin", Terminal(typed))
        _offer(told, RIG, "owner/tiny-GGUF:F32")
        bodies = [msgspec.json.decode(one.body, type=Submission) for one in service.asked if one.path == "/v1/results"]
        assert len(bodies) == sent
        assert bool(service.asked) is (choice in ("ask", "always")), "not even a preview leaves the machine unasked"
    assert all((one.repo, one.hardware) == ("owner/tiny-GGUF:F32", RIG) and "/home" not in str(one) for one in bodies)
    assert ("llama-sweep-bench -m a.gguf" in capsys.readouterr().out) is (choice in ("ask", "always"))


def test_what_cannot_be_sent_is_said_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ADVISOR_SEND", "always")
    monkeypatch.setenv("ADVISOR_SERVICE", "http://127.0.0.1:9")
    _offer("llama-server -m a.gguf\n", RIG, None)
    monkeypatch.setenv("ADVISOR_SEND", "sometimes")
    _offer("llama-server -m a.gguf\n", RIG, None)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("nothing was sent: ")
    assert second == "nothing was sent: 'sometimes' must be ask, always or never"


# --- up ---------------------------------------------------------------------------------------------------------------


def test_without_an_engine_it_says_how_to_get_one(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", str(model), "--engine-dir", str(tmp_path), "-H", RIG]) == 2
    assert "there is no llama-server in" in capsys.readouterr().err


def test_a_command_is_started_with_its_variables_and_none_of_the_shell_s_words(model: Path) -> None:
    command = f"GGML_CUDA_NO_PINNED=1 'llama-server' -m {model} --alias 'a b' 2>&1 | tee server.log"
    asked = Namespace(what=command, models=None, context=None, port=8081, images=False)
    made = first_plan(load_settings({}), asked, RIG, "llama.cpp", None).launch(Path("/opt/llama-server"))
    assert (made.env, made.program) == ({"GGML_CUDA_NO_PINNED": "1"}, "/opt/llama-server")
    assert made.arguments == ("-m", str(model), "--alias", "a b", "--port", "8081", "-lv", "4")


def test_an_advice_for_images_is_started_with_its_projector(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    projector, models = tmp_path / "mmproj-F16.gguf", tmp_path / "models"
    head, n_data = gemma3_file(256)
    projector.write_bytes(head)
    os.truncate(projector, len(head) + n_data)
    assert main(["advise", str(tmp_path), "-H", RIG, "--images", "--json", "--engine", "llama.cpp"]) == 0
    advice = capsys.readouterr().out.encode()
    asked = Namespace(what="@advice.json", models=models, context=None, port=None, images=False)

    def started() -> tuple[str, ...]:
        plan = first_plan(load_settings({}), asked, RIG, "llama.cpp", advice)
        return plan.launch(Path("/opt/llama-server")).arguments

    words = started()
    assert words[words.index("--mmproj") + 1] == str(projector)
    projector.unlink()
    with pytest.raises(InvalidInput, match=r"mmproj-F16\.gguf is not here"):
        started()
    models.mkdir()
    (models / projector.name).touch()
    words = started()
    assert words[words.index("--mmproj") + 1] == str(models / projector.name)


def test_a_repo_s_projector_is_fetched_with_the_model(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor = Tensor("mm.input_projection.weight", "f16", (256, 1152), 0, tensor_bytes("f16", (256, 1152)))
    projector = gguf_file.header_bytes(GEMMA3_METADATA, (tensor,)) + bytes(gguf_file.data_bytes((tensor,)))
    contents = {"tiny-F32.gguf": model.read_bytes(), "mmproj-F16.gguf": projector}
    files = {name: WholeFile(content, len(content)) for name, content in contents.items()}
    asked = Namespace(what=REPO, models=tmp_path / "models", context=2048, port=None, images=True)
    with LocalHub({REPO: Repo(lambda: files)}) as hub:
        settings = load_settings({"HF_ENDPOINT": hub.endpoint, "ADVISOR_CACHE_DIR": str(tmp_path / "cache")})
        plan = first_plan(settings, asked, RIG, "llama.cpp", None)
        assert any("with mmproj-F16.gguf" in step for step in plan.steps())
        ready = plan.fetched(lambda said: None)
    words = ready.launch(Path("/opt/llama-server")).arguments
    loaded = Path(words[words.index("--mmproj") + 1])
    assert loaded.read_bytes() == projector
    assert loaded.parent == Path(words[words.index("-m") + 1]).parent


class Started:
    """`advisor up` as a process of its own, and what it has said."""

    def __init__(self, process: subprocess.Popen[str], said: Path) -> None:
        self.process, self._said = process, said

    @property
    def said(self) -> str:
        return self._said.read_text()

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + LATE
        while text not in self.said:
            assert self.process.poll() is None or text in self.said, self.said
            assert time.monotonic() < until, self.said
            time.sleep(0.05)

    def servers(self) -> list[psutil.Process]:
        with_children = psutil.Process(self.process.pid).children(recursive=True)
        return [one for one in with_children if one.name() == "llama-server"]


@contextmanager
def up(
    tmp_path: Path, *words: str, environment: dict[str, str] | None = None, most_bytes: int = 0
) -> Iterator[Started]:
    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # which a shell has its background jobs ignore
        if most_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))

    said = tmp_path / "said.txt"
    with said.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "service.cli", "up", *words, "--engine-dir", str(FOLDER), "-H", here()],
            stdout=output, stderr=output, text=True, env={**os.environ, **(environment or {})}, preexec_fn=prepare,
        )  # fmt: skip
    try:
        yield Started(process, said)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(LATE)


def here() -> str:
    """This machine without its GPUs: the engine is built for the CPU, and with more threads than cores it crawls."""
    return msgspec.json.encode(msgspec.structs.replace(detect(), gpus=[])).decode()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def ask(port: int, n_prompt: int, n_predict: int) -> None:
    asked = {"prompt": [3 + i % 250 for i in range(n_prompt)], "n_predict": n_predict, "ignore_eos": True}
    request = Request(f"http://127.0.0.1:{port}/completion", json.dumps(asked).encode())
    with urlopen(request, timeout=LATE) as answer:
        answer.read()


def gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=LATE)[1]


@pytest.mark.full
def test_a_repo_is_fetched_started_and_compared_and_ctrl_c_leaves_the_model_only(model: Path, tmp_path: Path) -> None:
    content, port, folder = model.read_bytes(), free_port(), tmp_path / "models"
    files = {"tiny-F32.gguf": WholeFile(content, len(content))}
    with LocalHub({REPO: Repo(lambda: files)}) as hub:
        words = (REPO, "--models", str(folder), "--context", "2048", "--port", str(port))
        hidden = {"HF_ENDPOINT": hub.endpoint}
        for step in ("fetched", "expected memory"):  # killed, and begun again
            with up(tmp_path, *words, environment=hidden) as one:
                one.wait_for(step)
                its = psutil.Process(one.process.pid).children(recursive=True)
                one.process.kill()
                assert gone(its)
        with up(tmp_path, *words, "--log", str(tmp_path / "kept.log"), environment=hidden) as one:
            one.wait_for("kv of CPU")
            ask(port, 300, 40)
            one.wait_for("TG at 300 tokens")
            servers = one.servers()
            one.process.send_signal(signal.SIGINT)
            assert one.process.wait(LATE) == 0
            assert gone(servers)
            assert "weights of CPU: 10.51 MiB in the log, 10.51 computed" in one.said
            assert "ended; the model's files stay" in one.said
    assert [path.name for path in folder.rglob("*.gguf*")] == ["tiny-F32.gguf"]
    assert len(read_paste((tmp_path / "kept.log").read_text()).rows) == 2


@pytest.mark.full
def test_out_of_memory_ends_in_a_start_that_fits_what_was_measured(model: Path, tmp_path: Path) -> None:
    command = f"llama-server -m {model} -c 1000000 -fit off --port {free_port()}"
    with up(tmp_path, command, "--yes", most_bytes=5 << 29) as one:
        one.wait_for("it did not start: does not fit: needed 3,907 MiB more RAM")
        one.wait_for("instead: CPU gave 11 MiB and not 3,907 more")
        one.wait_for("kv of CPU: 1,038.06 MiB in the log, 1,038.06 computed")


@pytest.mark.full
def test_a_dry_run_prints_each_step_and_starts_nothing(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", str(model), "--engine-dir", str(FOLDER), "-H", RIG, "--context", "2048", "--dry-run"]) == 0
    steps = [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert steps[-4:] == ["engine", "plan", "start", "watch"]


def test_a_log_that_begins_after_the_start_has_its_requests_shown(tmp_path: Path, model: Path) -> None:
    said: list[str] = []
    watch = watching(model, said)
    watch.take(b"".join(LOG.read_bytes().splitlines(keepends=True)[160:177]))
    watch.finish()
    assert "request: 300 tokens, 0 more cached, 47 answered" in said


def test_a_log_without_any_request_is_said_to_have_none(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.log").write_text("hello\n")
    words = ["watch", str(tmp_path / "other.log"), "--once", "-H", RIG, "--command", f"llama-server -m {model} -c 2048"]
    assert main(words) == 0
    assert "shows no loaded server and no request" in capsys.readouterr().out
