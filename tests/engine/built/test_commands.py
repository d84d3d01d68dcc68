"""The engine itself takes the commands: rendered for llama.cpp, devices replaced by the CPU, given to its programs."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from service.engine.commands.render import render
from service.engine.config import CPU, Flags, Override, Tool
from service.engine.engines import engine_spec
from tests import models
from tests.engine.commands.strategies import flags_for

pytestmark = pytest.mark.full

VERSION = "0.3.36"
REFUSALS = ("error while handling argument", "invalid argument", "invalid parameter", "unknown buffer type", "usage:")
TOOLS: list[Tool] = ["server", "bench"]


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder with the built programs; scripts/build_engine.sh makes it."""
    default = (
        Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "offload-advisor" / f"llama.cpp-{VERSION}"
    )
    folder = Path(os.environ.get("ENGINE_CACHE", default)) / "build" / "bin"
    assert (folder / "llama-server").exists(), "no engine is built: run scripts/build_engine.sh"
    return folder


def _for_the_cpu(flags: Flags) -> Flags:
    """Return the flags with every device replaced by the CPU."""
    return msgspec.structs.replace(
        flags,
        overrides=tuple(Override(rule.pattern, CPU) for rule in flags.overrides),
        other=(),
    )


def _run(programs: Path, tool: Tool, flags: Flags, model: str, **options: Any) -> subprocess.CompletedProcess[str]:
    program = str(programs / engine_spec("llama.cpp").programs[tool])
    words = shlex.split(render("llama.cpp", tool, flags, model_path=model, program=program, **options))
    return subprocess.run(words, capture_output=True, text=True, timeout=110)


@pytest.mark.parametrize("tool", TOOLS)
def test_no_rendered_command_has_an_argument_error(programs: Path, tool: Tool) -> None:
    @given(flags_for("llama.cpp", tool))
    @settings(max_examples=100)
    def check(flags: Flags) -> None:
        done = _run(programs, tool, _for_the_cpu(flags), "/nowhere/model.gguf")
        output = done.stdout + done.stderr
        assert not any(refusal in output for refusal in REFUSALS), output[-2000:]
        assert "failed to load model" in output
        assert "DEPRECATED" not in output

    check()


def test_an_option_that_does_not_exist_is_an_argument_error(programs: Path) -> None:
    done = _run(programs, "server", Flags(other=("--frobnicate",)), "/nowhere/model.gguf")
    assert "invalid argument: --frobnicate" in done.stderr


def test_a_rendered_bench_command_measures(programs: Path, tmp_path: Path) -> None:
    (model,) = models.write_gguf(tmp_path / "model.gguf", "Qwen3-0.6B", "q4_0")
    rules = (Override(r"blk\.[0-9]\.ffn", CPU),)
    flags = Flags(n_ctx=48, n_batch=64, n_ubatch=16, threads=2, overrides=rules, other=("-r 1", "--no-warmup"))
    done = _run(programs, "bench", flags, str(model))
    assert done.returncode == 0, done.stderr
    assert [row for row in ("pp16 ", "tg16 ", "pp16 @ d16", "pp16 @ d32", "tg16 @ d32") if row not in done.stdout] == []
