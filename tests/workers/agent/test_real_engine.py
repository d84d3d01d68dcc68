"""llama.cpp's own llama-bench, built by `make test-engine`, is measured as recorded programs are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from service.engine.measured.classify import classify
from service.engine.run_flags import RunFlags
from service.wire.measuring.agent import RunDocument, RunFile
from tests.tiny_model import write_tiny_model
from tests.workers.agent.scripted_gpus import ScriptedGpus
from workers.agent.engines import find_engines
from workers.agent.local import EngineProgram
from workers.agent.measure import Measured, measure
from workers.agent.policy import EnginePolicy, Policy
from workers.agent.process import ProcessLimits, run_engine

pytestmark = pytest.mark.full

VERSION = "0.3.36"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "offload-advisor" / f"llama.cpp-{VERSION}"
FOLDER = Path(os.environ.get("ENGINE_CACHE", CACHE)) / "build" / "bin"
FLAGS = RunFlags(n_ctx=512, n_ubatch=64, n_gpu_layers=0, threads=1)
DOCUMENT = RunDocument(
    engine="llama.cpp",
    engine_builds=("0" * 64,),
    repo="owner/name-GGUF",
    revision="0" * 40,
    files=(RunFile(path="tiny.gguf", size=1, sha256="0" * 64),),
    gpus=(),
    flags=FLAGS,
    depths=(0, 128, 256),
    n_prompt=64,
    n_gen=8,
    seconds=10,
)


@pytest.fixture(scope="module")
def program() -> EngineProgram:
    assert (FOLDER / "llama-bench").exists(), "no engine is built: run scripts/build_engine.sh"
    (found,) = find_engines(Policy(engines=EnginePolicy(folders=(str(FOLDER),))))
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


def run(program: EngineProgram, model: Path, **changed: Any) -> Measured:
    one = replace(DOCUMENT, **changed)
    return measure(one, program, [model], [], Policy(), lambda _: None, lambda: None, watched=ScriptedGpus(count=0))


def test_the_build_is_described(program: EngineProgram) -> None:
    build = program.build
    assert (build.engine, build.commit, build.backends) == ("llama.cpp", "0c1e57098", ("CPU",))
    assert {"--n-depth", "-ot", "-ncmoe"} <= set(build.options)


def test_every_depth_is_measured_more_than_once(program: EngineProgram, model: Path) -> None:
    found = run(program, model)
    assert found.failure is None
    assert [(row.n_kv, row.n_prompt, row.n_gen) for row in found.rows] == [
        (0, 0, 8), (0, 64, 0), (128, 0, 8), (128, 64, 0), (256, 0, 8), (256, 64, 0),
    ]  # fmt: skip
    assert all(len(row.pp_seconds or row.tg_seconds) > 1 for row in found.rows)
    assert found.load_seconds is not None


def test_buffers_are_those_that_the_model_needs(program: EngineProgram, model: Path) -> None:
    found = run(program, model, depths=(256,))
    (buffers,) = found.buffers
    assert buffers.device == "CPU"
    assert buffers.weights_mib == pytest.approx(model.stat().st_size / 2**20, abs=0.02)
    # Two layers of 64 values for keys and for values, two bytes each, of a context filled up to 512.
    assert buffers.kv_mib == 0.25
    assert found.graph_splits == 1


def test_a_context_that_no_memory_holds_does_not_fit(program: EngineProgram, model: Path) -> None:
    flags = replace(FLAGS, n_batch=1 << 16, n_ubatch=1 << 16, flash_attn="off")
    found = run(program, model, flags=flags, depths=(1 << 20,))
    assert found.failure is not None
    assert (found.failure.kind, found.failure.transient, found.failure.device) == ("out_of_memory", False, "CPU")
    assert found.failure.needed_mib is not None
    assert found.failure.needed_mib > 1 << 19


def test_a_truncated_file_cannot_be_read(program: EngineProgram, model: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(model.read_bytes()[:-100_000])
    found = run(program, cut)
    assert found.failure is not None
    assert (found.failure.kind, found.failure.transient) == ("cannot_read_model", False)
    assert str(tmp_path) not in found.log


def test_an_unknown_flag_is_told(program: EngineProgram, model: Path, tmp_path: Path) -> None:
    limits = ProcessLimits(folder=tmp_path, seconds=20, readable=(model,))
    words = (str(program.path), "-m", str(model), "--no-such-flag", "1")
    ended = run_engine(words, {}, limits, lambda _: None, lambda: None)
    failure = classify(ended.exit_status, ended.signal, False, ended.tail.decode(), "llama.cpp")
    assert failure is not None
    assert failure.kind == "unknown_flag"
