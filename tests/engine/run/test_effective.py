"""Which flags hold, and where each comes from."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.check.run import check
from service.engine.config import Engine
from tests.models import build
from tests.rigs import ONE_3090_DESKTOP

QWEN, R1 = ("Qwen3-30B-A3B", "q4_K_M"), ("DeepSeek-R1-0528", "q2_k")


def held(
    command: str, engine: Engine, model: tuple[str, str] = QWEN, day: str | None = None
) -> dict[str, tuple[str, ...]]:
    """Return value and source of each flag that holds, with what forces it."""
    report = check(command, engine, build(*model), resolve(ONE_3090_DESKTOP), depths=[0])
    return {one.option: tuple(filter(None, (one.value, one.source, one.because))) for one in report.flags}


def test_what_a_command_says_is_given_and_the_rest_is_the_builds() -> None:
    found = held("llama-server -m m.gguf -c 8192 -ub 1024 -ngl 99 -fit off", "llama.cpp")
    assert found["-c"] == ("8192", "given")
    assert found["-ub"] == ("1024", "given")
    assert found["-b"] == ("2048", "default")
    assert found["--mmap"] == ("on", "default")
    assert "-mla" not in found
    assert "-rtr" not in found


def test_a_micro_batch_beyond_the_batch_is_forced_down() -> None:
    found = held("llama-server -m m.gguf -c 8000 -b 256 -ub 1024 -ngl 99 -fit off", "llama.cpp")
    assert found["-ub"] == ("256", "forced", "no more than -b and -c")
    assert found["-c"][:2] == ("8192", "forced")


@pytest.mark.parametrize(
    ("flags", "mmap"),
    [
        ("--no-mmap", ("off", "given")),
        ("-rtr", ("off", "forced", "-rtr")),
        ("-ot exps=CPU", ("off", "forced", "an override to the CPU (pinned memory)")),
        ("", ("on", "default")),
    ],
)
def test_mmap_is_off_for_a_reason(flags: str, mmap: tuple[str, ...]) -> None:
    assert held(f"./ik_llama.cpp/llama-server -m m.gguf -c 8192 -ngl 99 {flags}", "ik_llama.cpp")["--mmap"] == mmap


def test_a_build_forces_latent_attention_where_only_some_layers_are_offloaded() -> None:
    command = "llama-server -m m.gguf -c 8192 -ngl {} -mla 1"
    assert held(command.format(99), "ik_llama.cpp", R1)["-mla"] == ("1", "given")
    assert held(command.format(20), "ik_llama.cpp", R1)["-mla"][:2] == ("3", "forced")
