"""Where each engine puts tensors, layers and caches."""

from __future__ import annotations

import pytest

from service.engine.config import ENGINES, Engine, Flags, Override
from service.engine.errors import InvalidFlags
from service.engine.model import Model
from service.engine.run.placement import place
from service.engine.units import GIB, MIB
from tests.models import build

FOUR_CARDS = [24 * GIB] * 4


@pytest.fixture
def dense() -> Model:
    return build("Qwen3-8B", "q4_K_M")


@pytest.fixture
def experts() -> Model:
    return build("Qwen3-30B-A3B", "q4_K_M")


@pytest.fixture
def with_next_token_layer() -> Model:
    return build("GLM-4.5-Air", "q4_K_M")


@pytest.mark.parametrize("engine", ENGINES)
def test_without_a_gpu_everything_is_in_ram(engine: Engine, dense: Model) -> None:
    placement = place(engine, dense, Flags(), [])

    assert set(placement.tensors.values()) == {0}
    assert set(placement.caches) == {0}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_token_embedding_stays_in_ram(engine: Engine, dense: Model) -> None:
    placement = place(engine, dense, Flags(), [24 * GIB])

    assert placement.tensors["token_embd.weight"] == placement.n_devices
    assert placement.tensors["output.weight"] == 0


def test_one_layer_on_the_gpu_is_the_last_block_in_ik_and_the_head_in_llama_cpp(dense: Model) -> None:
    flags = Flags(n_gpu_layers=1)
    ik, llama = (place(engine, dense, flags, [24 * GIB]) for engine in ENGINES)

    assert (ik.layers[-1], ik.head) == (0, 1)
    assert (llama.layers[-1], llama.head) == (1, 0)


def test_llama_cpp_splits_by_layer_count_and_free_memory(dense: Model) -> None:
    placement = place("llama.cpp", dense, Flags(), [24 * GIB, 8 * GIB])

    assert placement.layers.count(0) == 28  # of 37 slots, 36 blocks and the head
    assert placement.head == 1


def test_ik_splits_by_bytes_so_that_the_head_weighs_as_much_as_several_layers(dense: Model) -> None:
    placement = place("ik_llama.cpp", dense, Flags(), [24 * GIB, 24 * GIB])

    assert placement.layers.count(0) > placement.layers.count(1)


def test_ik_divides_layers_by_the_context_that_is_not_padded_yet() -> None:
    """5000 tokens, for which 5024 rows are made without flash attention. Measured: rig2026-0494."""
    model = build("DeepSeek-R1-0528", "exps=iq3_xxs,attn=q8_0,*=q6_K")
    flags = Flags(n_ctx=5000, n_batch=4096, n_ubatch=2048, n_gpu_layers=7, flash_attn="off", mla=2)
    cards = place("ik_llama.cpp", model, flags, [47_900 * MIB] * 4).layers
    assert cards[54:] == (0, 0, 1, 2, 2, 3, 3)


@pytest.mark.parametrize("engine", ENGINES)
def test_tensor_split_entries_that_are_missing_are_zero(engine: Engine, dense: Model) -> None:
    placement = place(engine, dense, Flags(tensor_split=(1.0, 1.0)), FOUR_CARDS)

    assert set(placement.layers) == {0, 1}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_first_matching_rule_wins(engine: Engine, experts: Model) -> None:
    rules = (Override(r"blk\.(0|1)\.ffn_.*_exps", "CUDA1"), Override("exps", "CPU"))
    placement = place(engine, experts, Flags(overrides=rules), [24 * GIB] * 2)

    assert placement.tensors["blk.1.ffn_up_exps.weight"] == 1
    assert placement.tensors["blk.2.ffn_up_exps.weight"] == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_a_rule_moves_weights_but_never_a_cache(engine: Engine, dense: Model) -> None:
    placement = place(engine, dense, Flags(overrides=(Override("attn", "CPU"),)), [24 * GIB])

    assert placement.tensors["blk.0.attn_q.weight"] == 1
    assert placement.caches[0] == 0


def test_ik_ignores_rules_when_nothing_is_offloaded(dense: Model) -> None:
    flags = Flags(n_gpu_layers=0, overrides=(Override("ffn", "CUDA0"),))

    assert set(place("ik_llama.cpp", dense, flags, [24 * GIB]).tensors.values()) == {1}
    assert 0 in place("llama.cpp", dense, flags, [24 * GIB]).tensors.values()


def test_n_cpu_moe_takes_the_last_layers_in_ik_and_the_first_in_llama_cpp(experts: Model) -> None:
    flags = Flags(n_cpu_moe=3)
    ik, llama = (place(engine, experts, flags, [24 * GIB]) for engine in ENGINES)

    def in_ram(tensors: dict[str, int]) -> list[int]:
        return [i for i in range(48) if tensors[f"blk.{i}.ffn_up_exps.weight"] == 1]

    assert in_ram(ik.tensors) == [45, 46, 47]
    assert in_ram(llama.tensors) == [0, 1, 2]


def test_n_cpu_moe_of_ik_takes_a_share_from_the_end_of_every_device(experts: Model) -> None:
    flags = Flags(n_cpu_moe=6, tensor_split=(1.0, 1.0))
    placement = place("ik_llama.cpp", experts, flags, [24 * GIB] * 2)
    moved = [i for i in range(48) if placement.tensors[f"blk.{i}.ffn_up_exps.weight"] == 2]
    border = placement.layers.index(1)

    assert moved == [*range(border - 3, border), 45, 46, 47]


def test_n_cpu_moe_comes_after_the_rules(experts: Model) -> None:
    flags = Flags(cpu_moe=True, overrides=(Override(r"blk\.0\.ffn", "CUDA0"),))

    for engine in ENGINES:
        tensors = place(engine, experts, flags, [24 * GIB]).tensors
        assert (tensors["blk.0.ffn_up_exps.weight"], tensors["blk.1.ffn_up_exps.weight"]) == (0, 1)


@pytest.mark.parametrize("engine", ENGINES)
def test_next_token_layers_are_not_loaded(engine: Engine, with_next_token_layer: Model) -> None:
    placement = place(engine, with_next_token_layer, Flags(), [24 * GIB])

    assert not any(name.startswith("blk.46.") for name in placement.tensors)
    assert placement.caches[46] is None


@pytest.mark.parametrize("engine", ENGINES)
def test_the_cache_can_be_kept_in_ram(engine: Engine, dense: Model) -> None:
    placement = place(engine, dense, Flags(no_kv_offload=True), [24 * GIB])

    assert set(placement.caches) == {1}
    assert set(placement.layers) == {0}


@pytest.mark.parametrize("engine", ENGINES)
def test_split_mode_none_uses_the_main_gpu_alone(engine: Engine, dense: Model) -> None:
    placement = place(engine, dense, Flags(split_mode="none", main_gpu=2), FOUR_CARDS)

    assert set(placement.layers) == {2}
    assert placement.tensors["token_embd.weight"] == 4


@pytest.mark.parametrize("name", ["CUDA1", "CUDA_Host", "", "GPU", "CUDA0,CUDA1"])
def test_a_device_that_is_not_there_is_refused(name: str, dense: Model) -> None:
    with pytest.raises(InvalidFlags, match="numbered 0 to 0"):
        place("llama.cpp", dense, Flags(overrides=(Override("ffn", name),)), [24 * GIB])
