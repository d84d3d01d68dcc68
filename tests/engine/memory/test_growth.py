"""What a server takes in RAM as it runs, and what bounds it."""

from __future__ import annotations

import pytest

from service.engine.config import Engine, Flags
from service.engine.memory.growth import bounds, checkpoint_bytes, growth_of
from service.engine.units import GIB, MIB
from tests.models import build

HYBRID, WINDOWED, DENSE = (build(name, "q4_K_M") for name in ("Qwen3.5-27B", "Gemma-3-12B", "Llama-3.3-70B"))


@pytest.mark.parametrize("engine", ["llama.cpp", "ik_llama.cpp"])
def test_a_checkpoint_of_a_hybrid_model_is_the_size_that_was_published(engine: Engine) -> None:
    """149.6 MiB each, 32 of them: unslothai/unsloth issue 11073, llama-server's log of a model of this shape."""
    assert round(checkpoint_bytes(engine, HYBRID, Flags(n_ctx=32768)) / MIB, 1) == 149.6
    assert growth_of(engine, HYBRID, Flags(n_ctx=32768)).checkpoints == 32 * checkpoint_bytes(engine, HYBRID, Flags())


def test_windows_are_kept_by_llama_cpp_alone_and_not_where_the_whole_context_is_cached() -> None:
    flags = Flags(n_ctx=32768)
    assert checkpoint_bytes("llama.cpp", WINDOWED, flags) == 40 * 1024 * 2 * 8 * 256 * 2
    assert checkpoint_bytes("llama.cpp", WINDOWED, Flags(n_ctx=32768, other=("--swa-full",))) == 0
    assert checkpoint_bytes("ik_llama.cpp", WINDOWED, flags) == 0


def test_a_dense_model_keeps_prompts_only() -> None:
    growth = growth_of("llama.cpp", DENSE, Flags(n_ctx=8192, n_parallel=4))
    assert (growth.prompts, growth.checkpoints, growth.total) == (8 * GIB, 0, 8 * GIB)
    assert growth_of("llama.cpp", DENSE, Flags(other=("-cram 0",))).total == 0
    assert growth_of("llama.cpp", DENSE, Flags(other=("--cache-ram -1",))).prompts is None


@pytest.mark.parametrize("left", [0, 100 * MIB, 3 * GIB, 20 * GIB, 40 * GIB])
@pytest.mark.parametrize("engine", ["llama.cpp", "ik_llama.cpp"])
def test_what_bounds_it_keeps_to_what_is_left(engine: Engine, left: int) -> None:
    flags = Flags(n_ctx=32768, n_parallel=4)
    growth = growth_of(engine, HYBRID, flags)
    words = bounds(engine, growth, left)
    bounded = growth_of(engine, HYBRID, Flags(n_ctx=32768, n_parallel=4, other=tuple(words)))
    assert bounded.total <= max(left, 0)
    assert bool(words) == (growth.total > left)


def test_prompts_without_a_limit_get_one() -> None:
    growth = growth_of("llama.cpp", DENSE, Flags(other=("-cram -1",)))
    assert bounds("llama.cpp", growth, 4 * GIB) == ["-cram 3072"]
