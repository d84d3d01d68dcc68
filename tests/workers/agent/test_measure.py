"""A run from its document to what is reported: programs that behave as recorded engines do, and badly."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from service.engine.config import Engine
from service.engine.measured.rows import MeasuredRow
from service.engine.measured.summary import agreed
from service.engine.run_flags import RunFlags
from service.wire.measuring.agent import MAX_LOG_CHARACTERS, RunDocument, RunFile
from service.wire.measuring.hosts import EngineBuild
from tests.engine_replay import install, recorded
from tests.waiting import PATIENCE
from tests.workers.agent.scripted_gpus import GIB, ScriptedGpus, cuda, idle
from workers.agent import measure as measuring
from workers.agent import watch
from workers.agent.engines import find_engines
from workers.agent.local import EngineProgram
from workers.agent.measure import Measured, measure
from workers.agent.policy import EnginePolicy, Policy
from workers.agent.probe import GpuNow
from workers.agent.process import ProcessLimits, confinement
from workers.agent.usage import UsageOfDay

PROGRAMS: dict[Engine, str] = {"ik_llama.cpp": "llama-sweep-bench", "llama.cpp": "llama-bench"}
STRANGER = 1


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "models" / "model-Q4_K_M.gguf"
    path.parent.mkdir()
    path.write_bytes(b"GGUF")
    return path


def document(engine: Engine = "ik_llama.cpp", **changed: Any) -> RunDocument:
    one = RunDocument(
        engine=engine,
        engine_builds=("0" * 64,),
        repo="owner/name-GGUF",
        revision="0" * 40,
        files=(RunFile(path="model-Q4_K_M.gguf", size=4, sha256="0" * 64),),
        gpus=(),
        flags=RunFlags(n_ctx=4096, n_ubatch=512, n_gpu_layers=0),
        depths=(0, 1024, 2048),
        n_prompt=512,
        n_gen=32,
        seconds=20,
    )
    return replace(one, **changed)


Run = Callable[..., Measured]


@pytest.fixture
def run(tmp_path: Path, model: Path, nothing_left: None, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(watch, "PERIOD_SECONDS", 0.1)

    def run_case(
        case: str = "ok",
        engine: Engine = "ik_llama.cpp",
        *,
        policy: Policy = NO_LIMITS,
        watched: Any = None,
        stop: Callable[[], str | None] = lambda: None,
        on_row: Callable[[MeasuredRow], None] = lambda _: None,
        changed: dict[str, Any] | None = None,
        usage: UsageOfDay | None = None,
        **options: Any,
    ) -> Measured:
        folder = tmp_path / "bin"
        install(folder, PROGRAMS[engine], case, **options)
        (program,) = _known(folder)
        gpus = watched or ScriptedGpus(count=0)
        local = [card for card, _ in gpus.cards()]
        one = document(engine, **(changed or {}))
        state = tmp_path / "state"
        found = measure(one, program, [model], local, policy, on_row, stop, watched=gpus, state=state, usage=usage)
        assert not (state / "engine.json").exists()
        return found

    return run_case


NO_LIMITS = Policy()
_asked: dict[str, EngineProgram] = {}


def _known(folder: Path) -> tuple[EngineProgram, ...]:
    """Ask a program once: what it says does not depend on the case."""
    (path,) = (path for path in folder.iterdir() if not path.suffix)
    if path.name not in _asked:
        (_asked[path.name],) = find_engines(Policy(engines=EnginePolicy(folders=(str(folder),))))
    return (replace(_asked[path.name], path=path),)


@pytest.mark.parametrize("engine", PROGRAMS)
def test_a_run_is_repeated_until_its_figures_agree(run: Run, engine: Engine) -> None:
    seen: list[MeasuredRow] = []
    found = run("ok", engine, on_row=seen.append, pp_tps=400, tg_tps=20, half_depth=4096, spread=0.01)
    assert found.failure is None
    assert {row.n_kv for row in found.rows} == {0, 1024, 2048}
    assert {row.n_prompt for row in found.rows if row.pp_seconds} == {512}
    assert {row.n_gen for row in found.rows if row.tg_seconds} == {32}
    assert agreed(found.rows)
    assert sum(len(row.tg_seconds) for row in seen) == sum(len(row.tg_seconds) for row in found.rows)
    first = next(row for row in found.rows if row.tg_seconds)
    assert first.tg_tps[0] == pytest.approx(20, rel=0.02)


def test_rows_behind_the_last_depth_are_not_waited_for(run: Run) -> None:
    began = time.monotonic()
    found = run("ok", changed={"flags": RunFlags(n_ctx=262144, n_ubatch=512)}, delay=0.05)
    assert {row.n_kv for row in found.rows} == {0, 1024, 2048}
    assert time.monotonic() - began < PATIENCE


def test_figures_that_never_agree_are_reported_with_their_spread(run: Run) -> None:
    found = run("ok", spread=0.3)
    assert found.failure is None
    assert not agreed(found.rows)
    assert max(len(row.tg_seconds) for row in found.rows) == 8


def test_the_budget_ends_a_run_with_the_rows_that_it_has(run: Run) -> None:
    found = run("ok", changed={"seconds": 2, "depths": (0, 512, 1024, 1536, 2048)}, delay=0.7)
    assert found.failure is None
    assert 1 <= len(found.rows) <= 3
    assert not agreed(found.rows)


def test_the_log_tells_buffers_splits_and_when_it_was_loaded(run: Run) -> None:
    found = run("ok")
    assert found.buffers
    assert found.buffers[0].device == "CPU"
    assert found.buffers[0].weights_mib
    assert found.graph_splits == 1
    assert found.load_seconds is not None
    assert 0 <= found.load_seconds < 2
    assert found.page_cache == "warm"
    assert found.gpu_seconds == 0


def test_weights_are_known_however_much_llama_bench_says_of_its_graphs_behind_them(run: Run) -> None:
    chatter = "llama_graph_n_input_tensors: input tensor 'inp_pos' is used by node 'Kcur-27' (ROPE)\n" * 30_000
    found = run("ok", "llama.cpp", stderr=recorded("main-bench-verbose.stderr") + chatter)
    assert found.buffers[0].weights_mib == 634.61
    assert len(found.log) < 50_000


def test_nothing_of_this_machine_is_in_the_log(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/planted")
    monkeypatch.setenv("ADVISOR_TOKEN", "adv_planted")
    found = run("tells_environment")
    assert "told:" in found.log
    assert "model-Q4_K_M.gguf" in found.log
    for secret in (str(tmp_path), "planted"):
        assert secret not in found.log
    # As a word of its own: a short name such as `vm` may stand in a random one.
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", found.log)


def test_a_program_gets_paths_a_home_of_its_own_and_no_card_that_the_run_does_not_name(run: Run) -> None:
    found = run("tells_environment")
    for name in ("HOME", "TMPDIR", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        assert name in found.log
    assert '"CUDA_VISIBLE_DEVICES": "-1"' in found.log


@pytest.mark.parametrize(
    ("case", "engine", "kind"),
    [
        ("segfault", "ik_llama.cpp", "crashed"),
        ("illegal_instruction", "llama.cpp", "crashed"),
        ("partial_then_crash", "ik_llama.cpp", "crashed"),
        ("nan", "ik_llama.cpp", "no_output"),
        ("million_tps", "llama.cpp", "no_output"),
        ("flood", "ik_llama.cpp", "crashed"),
        ("flood_without_newline", "llama.cpp", "crashed"),
    ],
)
def test_what_goes_wrong_is_a_failure_for_good(run: Run, case: str, engine: Engine, kind: str) -> None:
    found = run(case, engine)
    assert found.failure is not None
    assert (found.failure.kind, found.failure.transient) == (kind, False)
    assert len(found.log) <= MAX_LOG_CHARACTERS


def test_rows_before_a_crash_are_kept_next_to_it(run: Run) -> None:
    found = run("partial_then_crash", rows=2)
    assert found.failure is not None
    assert [row.n_kv for row in found.rows] == [0]


def test_a_program_that_prints_nothing_is_ended_at_the_owners_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        measuring, "ProcessLimits", lambda **told: ProcessLimits(**told | {"seconds": 0.5, "grace_seconds": 0.2})
    )
    found = run("hang")
    assert found.failure is not None
    assert (found.failure.kind, found.failure.transient) == ("hung", False)


def test_children_that_a_program_leaves_are_ended(run: Run) -> None:
    found = run("forks_children")
    children = [int(line.split()[1]) for line in found.log.splitlines() if line.startswith("child ")]
    assert len(children) >= 2
    assert not [pid for pid in children if psutil.pid_exists(pid)]


def test_a_program_finds_no_network_and_nowhere_to_write(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = run("opens_network", port=server.getsockname()[1])
    held = confinement(tmp_path)
    if held.network is None:
        pytest.skip("this system does not let a program be without network")
    assert "could not connect" in found.log
    found = run("writes_files")
    if held.files is None:
        pytest.skip("this kernel has no Landlock")
    wrote = [line for line in found.log.splitlines() if line.startswith("wrote ")]
    assert len(wrote) == 2 * found.log.count("llama_model_loader: loaded meta data")  # both are the folder it runs in
    assert not list(tmp_path.rglob("written-by-an-engine"))


def test_being_asked_to_stop_is_a_failure_that_may_be_tried_again(run: Run) -> None:
    seen: list[MeasuredRow] = []
    found = run("ok", on_row=seen.append, stop=lambda: "the lease is lost" if seen else None, delay=0.3)
    assert found.failure is not None
    assert (found.failure.kind, found.failure.transient, found.failure.text) == ("stopped", True, "the lease is lost")


def test_a_run_does_not_start_alongside_another_program(run: Run) -> None:
    found = run("ok", watched=ScriptedGpus([idle(processes=(cuda(STRANGER),))]), changed={"gpus": (0,)})
    assert found.failure is not None
    assert (found.failure.kind, found.failure.transient) == ("gave_way", True)
    assert not found.rows
    assert not found.log


class _Joined(ScriptedGpus):
    """Another program comes when the run has begun; `at`: when."""

    at = 0.0

    def now(self, indices: Any) -> tuple[GpuNow, ...]:
        self.looks = [[idle(used=GIB)]] if not self.at else [[idle(processes=(cuda(STRANGER),))]]
        return super().now(indices)


@pytest.mark.parametrize("case", ["ok", pytest.param("hang", marks=pytest.mark.full)])
def test_a_run_gives_way_within_ten_seconds(run: Run, case: str) -> None:
    gpus = _Joined()
    began = time.monotonic()

    def stop() -> None:
        if not gpus.at and time.monotonic() > began + 0.5:
            gpus.at = time.monotonic()

    found = run(case, watched=gpus, stop=stop, changed={"gpus": (0,)}, delay=1)
    assert found.failure is not None
    assert (found.failure.kind, found.failure.text) == ("gave_way", "another program began to use GPU 0")
    assert time.monotonic() - gpus.at < 10


def test_cards_are_named_as_the_engine_names_them_in_the_order_of_the_run(run: Run) -> None:
    looks = [idle(0, used=GIB, watts=50.0), idle(1, used=2 * GIB, watts=100.0)]
    gpus = ScriptedGpus(looks, looks, [replace(looks[0], used=3 * GIB), replace(looks[1], used=8 * GIB)], count=2)
    policy = Policy(foreign_mib_percent=50)
    found = run("tells_environment", watched=gpus, policy=policy, changed={"gpus": (1, 0)}, delay=0.1)
    assert [(use.device, use.peak_mib) for use in found.devices] == [("CUDA0", 6 << 10), ("CUDA1", 2 << 10)]
    assert found.gpu_seconds > 0
    assert "GPU-00000001" not in found.log


def test_an_engine_that_goes_on_without_its_card_is_ended_at_once_and_gives_no_figure(run: Run) -> None:
    # as recorded with ik_llama.cpp 8337e4cd3 on an H100 whose driver could not start, 2026-11-26
    said = "ggml_cuda_init: failed to initialize CUDA: OS call failed or operation not supported on this OS\n"
    began = time.monotonic()
    found = run("ok", stderr=said, watched=ScriptedGpus([idle()]), changed={"gpus": (0,)}, delay=20)
    assert time.monotonic() - began < 10
    assert found.failure is not None
    assert (found.failure.kind, found.failure.transient) == ("engine_missing", False)
    assert found.failure.text.startswith("the engine used no card: CUDA did not start: OS call failed")
    assert not found.rows


@pytest.mark.parametrize(
    ("policy", "changed", "why"),
    [
        (Policy(gpus=(1,)), {"gpus": (0,)}, "does not allow GPU 0"),
        (NO_LIMITS, {"gpus": (7,)}, "has no GPUs [7]"),
        (Policy(engines=EnginePolicy(sha256=("1" * 64,))), {}, "does not allow this build"),
        (NO_LIMITS, {"flags": RunFlags(n_ctx=512, n_ubatch=512), "n_gen": 1024}, "no room for one row"),
    ],
)
def test_what_the_owner_or_this_host_does_not_allow_is_not_started(
    run: Run, policy: Policy, changed: dict[str, Any], why: str
) -> None:
    found = run("ok", policy=policy, changed=changed, watched=ScriptedGpus(count=2))
    assert found.failure is not None
    assert (found.failure.kind, found.failure.transient) == ("refused_by_policy", False)
    assert why in found.failure.text
    assert not found.log


def test_a_program_that_is_gone_is_told(run: Run, model: Path, tmp_path: Path) -> None:
    build = EngineBuild(engine="ik_llama.cpp", sha256="0" * 64)
    program = EngineProgram(path=tmp_path / "gone", build=build)
    found = measure(
        document(), program, [model], [], NO_LIMITS, lambda _: None, lambda: None, watched=ScriptedGpus(count=0)
    )
    assert found.failure is not None
    assert (found.failure.kind, found.failure.transient) == ("engine_missing", False)


def test_a_report_says_what_ran(run: Run) -> None:
    found = run("ok", "llama.cpp")
    program = _asked["llama-bench"]
    report = found.report(3, program, files_confirmed=True)
    assert (report.fence, report.engine_commit, report.files_confirmed) == (3, "0c1e57098", True)
    assert report.rows == found.rows
