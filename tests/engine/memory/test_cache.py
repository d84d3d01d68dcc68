"""KV cache and state, against figures that are published or follow from the shapes."""

from __future__ import annotations

import pytest

from service.engine.config import ENGINES, Engine, Flags
from service.engine.units import GIB, MIB
from tests.bare_runs import memory_on
from tests.models import build


def cache_mib(engine: Engine, name: str, flags: Flags) -> float:
    memory = memory_on(engine, build(name, "q4_K_M"), flags, [80 * GIB] * 8, allocator="lab")
    return sum(d.kv for d in memory.devices) / MIB


@pytest.mark.parametrize("engine", ENGINES)
def test_qwen3_06b_at_32768_rows_of_f16_takes_3584_mib(engine: Engine) -> None:
    assert cache_mib(engine, "Qwen3-0.6B", Flags(n_ctx=32768)) == 3584


@pytest.mark.parametrize("engine", ENGINES)
def test_a_latent_cache_takes_1152_bytes_a_token_and_layer(engine: Engine) -> None:
    assert cache_mib(engine, "DeepSeek-R1-0528", Flags(n_ctx=32768)) * MIB == 61 * 32768 * 1152


def test_a_quantised_latent_cache_takes_612_bytes_a_token_and_layer() -> None:
    flags = Flags(n_ctx=32768, cache_type_k="q8_0")

    assert cache_mib("ik_llama.cpp", "DeepSeek-R1-0528", flags) * MIB == 61 * 32768 * 612


def test_types_of_keys_and_values_count_apart() -> None:
    flags = Flags(n_ctx=4096, cache_type_k="q8_0", cache_type_v="q4_0")
    per_row = 36 * (1024 * 34 // 32 + 1024 * 18 // 32)

    for engine in ENGINES:
        assert cache_mib(engine, "Qwen3-8B", flags) * MIB == 4096 * per_row


def test_a_sliding_window_saves_cache_in_llama_cpp_only() -> None:
    flags = Flags(n_ctx=65536, n_ubatch=512)
    full_layers, windowed_layers, row = 10, 52, 2 * 2 * 16 * 128

    assert cache_mib("ik_llama.cpp", "Gemma-3-27B", flags) * MIB == 62 * 65536 * row
    assert cache_mib("llama.cpp", "Gemma-3-27B", flags) * MIB == (full_layers * 65536 + windowed_layers * 1536) * row


@pytest.mark.parametrize("engine", ENGINES)
def test_recurrent_layers_have_a_state_that_no_context_changes(engine: Engine) -> None:
    small, large = (cache_mib(engine, "Qwen3-Next-80B-A3B", Flags(n_ctx=n)) for n in (4096, 8192))
    growing = 12 * 4096 * 2 * 2 * 2 * 256 / MIB

    assert large - small == growing
    assert small - growing == pytest.approx(36 * 2.09, rel=0.01)


def test_several_slots_have_states_of_their_own() -> None:
    one, four = (cache_mib("llama.cpp", "Qwen3-Next-80B-A3B", Flags(n_ctx=4096, n_parallel=n)) for n in (1, 4))

    assert four - one == pytest.approx(3 * 36 * 2.09, rel=0.01)


def test_the_context_is_padded_as_the_engine_pads_it() -> None:
    flags, without = Flags(n_ctx=1000), Flags(n_ctx=1000, flash_attn="off")
    row = 36 * 2 * 2 * 1024

    assert cache_mib("ik_llama.cpp", "Qwen3-8B", flags) * MIB == 1024 * row
    assert cache_mib("ik_llama.cpp", "Qwen3-8B", without) * MIB == 1024 * row
    assert cache_mib("ik_llama.cpp", "Qwen3-8B", Flags(n_ctx=1030, flash_attn="off")) * MIB == 1056 * row
    assert cache_mib("llama.cpp", "Qwen3-8B", Flags(n_ctx=1030, flash_attn="off")) * MIB == 1280 * row


def test_attention_and_state_of_one_layer_are_both_kept() -> None:
    state, row = 3 * (4096 + 2 * 2 * 256) + 4096 * 256, 2 * 4 * 128 * 2

    assert cache_mib("llama.cpp", "Falcon-H1-34B", Flags(n_ctx=4096)) * MIB == 72 * (4 * state + 4096 * row)


def test_feed_forward_blocks_keep_nothing() -> None:
    small, large = (cache_mib("llama.cpp", "Nemotron-3-Nano-30B-A3B", Flags(n_ctx=n)) for n in (4096, 8192))

    assert large - small == 6 * 4096 * 2 * 2 * 2 * 128 / MIB
