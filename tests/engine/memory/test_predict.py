"""What a real context has beyond the lab, and what is said of models that nobody described."""

from __future__ import annotations

import msgspec
import pytest

from service.engine.config import ENGINES, Device, Engine, Flags, Override
from service.engine.gguf.header import Header
from service.engine.memory.figures import Memory
from service.engine.memory.report import report
from service.engine.model import Model, build_model
from service.engine.run.placement import place
from service.engine.units import GIB, MIB
from tests.bare_runs import memory_on
from tests.models import build, build_header

EXPERTS_IN_RAM = Flags(n_ctx=16384, n_ubatch=2048, overrides=(Override("exps", "CPU"),))
ONE_CARD = [24 * GIB]


@pytest.fixture
def deepseek() -> Model:
    return build("DeepSeek-R1-0528", "ffn_down_exps=iq3_k,exps=iq2_k,*=q8_0")


@pytest.fixture
def dense() -> Model:
    return build("Qwen3-8B", "q4_K_M")


def renamed(model_name: str, *, without: str = "") -> Model:
    """The model under an architecture that nobody knows, less the tensors whose name holds `without`."""
    header = build_header(model_name, "q4_K_M")
    old = str(header.metadata["general.architecture"])
    metadata = {k.replace(f"{old}.", "unheard-of."): v for k, v in header.metadata.items()}
    metadata["general.architecture"] = "unheard-of"
    tensors = tuple(t for t in header.tensors if not without or without not in t.name)
    return build_model(Header(metadata, tensors, 0))


def test_ik_makes_copies_of_latent_matrices_that_no_buffer_line_shows(deepseek: Model) -> None:
    memory = memory_on("ik_llama.cpp", deepseek, EXPERTS_IN_RAM, ONE_CARD)

    assert memory.devices[0].derived == 61 * 544 * 128 * 256
    assert memory_on("llama.cpp", deepseek, EXPERTS_IN_RAM, ONE_CARD).devices[0].derived == 0


def test_a_tied_head_in_loaded_ram_is_counted_twice_in_ik_and_once_in_llama_cpp() -> None:
    model = build("Qwen3-0.6B", "q8_0")
    embedding = model.by_name["token_embd.weight"].nbytes
    ik, llama = (memory_on(engine, model, Flags(mmap=False), []).devices[0].weights for engine in ENGINES)

    assert llama == model.n_bytes
    assert ik == model.n_bytes + embedding


def test_a_quantised_cache_costs_llama_cpp_f16_copies_on_cuda(dense: Model) -> None:
    flags = Flags(n_ctx=65536, cache_type_k="q8_0", cache_type_v="q8_0")
    lab, cuda = (
        memory_on("llama.cpp", dense, flags, ONE_CARD, allocator=allocator).devices[0].compute
        for allocator in ("lab", "cuda")
    )

    assert cuda - lab >= 200 * MIB


def test_llama_server_reserves_one_row_of_logits_a_slot_and_the_benchmark_a_batch(dense: Model) -> None:
    flags = Flags(n_ctx=8192, n_ubatch=2048)
    server, bench = (memory_on("llama.cpp", dense, flags, ONE_CARD, tool=t) for t in ("server", "bench"))

    assert bench.devices[0].compute >= 4 * 2048 * 151936
    assert server.devices[0].compute < bench.devices[0].compute / 2


@pytest.mark.parametrize(
    ("options", "n_batch", "mib"),
    [
        ((), 2048, 112.05), (("--embedding",), 2048, 1203.05), (("--pooling last",), 2048, 1203.01),
        (("--pooling none",), 2048, 112.05), (("--embeddings",), 512, 300.76), (("--reranking",), 2048, 1203.01),
    ],
)  # fmt: skip
def test_llama_server_reserves_logits_of_a_whole_micro_batch_for_embeddings(
    options: tuple[str, ...], n_batch: int, mib: float
) -> None:
    """As b11312 printed on a CPU for a file of Qwen3-Embedding-0.6B's shape: "CPU compute buffer size"."""
    flags = Flags(n_ctx=2048, n_batch=n_batch, n_ubatch=n_batch, n_gpu_layers=0, other=options)
    memory = memory_on("llama.cpp", build("Qwen3-0.6B", "q8_0"), flags, [])

    assert memory.devices[0].compute / MIB == pytest.approx(mib, abs=0.05)


def test_several_slots_of_llama_cpp_share_the_context(dense: Model) -> None:
    one, four = (memory_on("llama.cpp", dense, Flags(n_ctx=32768, n_parallel=n), ONE_CARD) for n in (1, 4))

    assert four.devices[0].kv == one.devices[0].kv
    assert four.devices[0].compute < one.devices[0].compute
    assert four.basis == "measured"


def test_unified_slots_of_llama_cpp_use_one_cache_of_the_whole_context(dense: Model) -> None:
    """What llama-server does by itself: four slots, one cache."""
    unified = Flags(n_ctx=32768, n_parallel=4, other=("-kvu",))
    one, four, apart = (
        memory_on("llama.cpp", dense, flags, ONE_CARD, allocator="lab")
        for flags in (Flags(n_ctx=32768), unified, msgspec.structs.replace(unified, other=("-kvu", "-no-kvu")))
    )

    assert four.devices[0].kv == one.devices[0].kv
    assert four.devices[0].compute >= one.devices[0].compute > apart.devices[0].compute
    assert four.devices[1].output == 4 * one.devices[1].output


def test_a_unified_cache_of_llama_cpp_holds_a_window_for_each_slot() -> None:
    model = build("Gemma-3-12B", "q4_K_M")
    one, four = (
        memory_on("llama.cpp", model, Flags(n_ctx=65536, n_parallel=n, other=("-kvu",)), ONE_CARD) for n in (1, 4)
    )
    n_windowed = sum(layer.n_swa > 0 for layer in model.layers)

    # 1024 + 512 rows for one slot, 4 * 1024 + 512 for four
    assert four.devices[0].kv - one.devices[0].kv == n_windowed * 3 * 1024 * 2 * 2 * 8 * 256


@pytest.mark.parametrize(("mode", "made"), [(0, True), (1, False), (2, True), (3, True)])
def test_ik_makes_attn_kv_b_in_every_latent_mode_but_the_first(deepseek: Model, mode: int, made: bool) -> None:
    flags = msgspec.structs.replace(EXPERTS_IN_RAM, mla=mode)
    assert (memory_on("ik_llama.cpp", deepseek, flags, ONE_CARD).devices[0].derived > 0) is made


def test_ik_prints_its_buffers_before_op_switches_offload_off_and_the_host_s_grows_later(deepseek: Model) -> None:
    """Measured for GLM-4.5-Air iq4_xs on three stand-in CUDA devices: 1538.75 MiB on CUDA0 with and without -op."""
    without = msgspec.structs.replace(EXPERTS_IN_RAM, op_offload=False)
    staged, plain = (memory_on("ik_llama.cpp", deepseek, f, ONE_CARD) for f in (EXPERTS_IN_RAM, without))

    assert [d.compute for d in plain.devices] == [d.compute for d in staged.devices]
    assert plain.devices[0].overhead == staged.devices[0].overhead
    assert plain.devices[1].overhead.low > staged.devices[1].overhead.high


@pytest.mark.parametrize(
    ("model", "switch", "n_nodes"),
    [(("GLM-4.5-Air", "iq4_xs"), "-no-mmad", 2056), (("GLM-4.5-Air", "iq4_xs"), "-no-fug", 2058),
     (("gpt-oss-120b", "q8_0"), "-no-mmad", 1481), (("Gemma-3-27B", "q4_K_M"), "-no-fug", 1804)],
)  # fmt: skip
def test_without_fused_sums_or_dense_layers_the_graph_is_as_ik_s_cuda_build_has_it(
    model: tuple[str, str], switch: str, n_nodes: int
) -> None:
    flags = Flags(n_ctx=16384, n_ubatch=1024, other=(switch,))
    assert memory_on("ik_llama.cpp", build(*model), flags, [24105 << 20] * 2).graph_nodes == n_nodes


def test_experts_of_a_type_without_gpu_kernels_stay_in_ram_for_every_batch() -> None:
    """Repacked at run time (-rtr), or in the file: nothing is staged on the GPU, as posted logs show."""
    flags = msgspec.structs.replace(EXPERTS_IN_RAM, n_ubatch=512)
    plain = build("Qwen3-235B-A22B", "q4_K")
    staged = memory_on("ik_llama.cpp", plain, flags, ONE_CARD)
    repacked = memory_on("ik_llama.cpp", plain, msgspec.structs.replace(flags, runtime_repack=True), ONE_CARD)
    interleaved = memory_on("ik_llama.cpp", build("Qwen3-235B-A22B", "exps=q4_k_r4,*=q4_K"), flags, ONE_CARD)

    assert repacked.devices[0].compute == interleaved.devices[0].compute < staged.devices[0].compute
    assert (staged.basis, repacked.basis) == ("measured", "measured")


def test_ik_copies_weights_to_a_gpu_even_when_no_layer_is_offloaded(dense: Model) -> None:
    flags = Flags(n_gpu_layers=0)
    cuda, lab = (memory_on("ik_llama.cpp", dense, flags, ONE_CARD, allocator=a) for a in ("cuda", "lab"))

    assert cuda.devices[0].weights == lab.devices[0].compute == 0
    assert cuda.devices[0].compute > 0
    assert len(lab.devices) == 2


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["Qwen3-30B-A3B", "gpt-oss-20b", "Gemma-3-12B", "GLM-4.5-Air", "Qwen3-Next-80B-A3B"])
def test_an_unknown_architecture_gets_the_nearest_graph_and_says_so(engine: Engine, name: str) -> None:
    known = memory_on(engine, build(name, "q4_K_M"), EXPERTS_IN_RAM, ONE_CARD)
    unknown = memory_on(engine, renamed(name), EXPERTS_IN_RAM, ONE_CARD)

    assert unknown.basis == "approximate"
    assert unknown.graph_nodes > 0
    assert unknown.devices[0].compute == pytest.approx(known.devices[0].compute, rel=0.15)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("missing", ["attn_q.", "ffn_norm", "output_norm", "ffn_gate_inp"])
def test_missing_tensors_give_a_rough_figure_not_a_failure(engine: Engine, missing: str) -> None:
    memory = memory_on(engine, renamed("Qwen3-30B-A3B", without=missing), EXPERTS_IN_RAM, ONE_CARD)

    assert memory.basis == "approximate"
    assert memory.devices[0].compute > 100 * MIB


@pytest.mark.parametrize("engine", ENGINES)
def test_absurd_counts_in_a_header_end_in_a_rough_figure(engine: Engine) -> None:
    header = build_header("Qwen3-30B-A3B", "q4_K_M")
    metadata = header.metadata | {"qwen3moe.expert_count": 1 << 40, "qwen3moe.expert_used_count": 1 << 40}
    model = build_model(Header(metadata, header.tensors, 0))

    assert memory_on(engine, model, EXPERTS_IN_RAM, ONE_CARD).basis == "approximate"


def test_placement_is_the_same_for_everybody(deepseek: Model) -> None:
    for engine in ENGINES:
        memory = memory_on(engine, deepseek, EXPERTS_IN_RAM, [24 * GIB] * 3)
        assert memory.placement == place(engine, deepseek, EXPERTS_IN_RAM, [24 * GIB] * 3)


@pytest.fixture
def on_one_card(dense: Model) -> Memory:
    return memory_on("ik_llama.cpp", dense, Flags(n_ctx=16384), ONE_CARD)


def test_a_report_has_a_row_for_each_card_and_the_cpu_last(on_one_card: Memory) -> None:
    card = Device("CUDA0", 0, 24 * GIB, 24 * GIB)
    gpu, cpu = report(on_one_card, [card], [512 * MIB], 64 * GIB)

    assert (gpu.device, cpu.device) == ("CUDA0", "CPU")
    assert gpu.capacity_mib == 24 * 1024
    assert gpu.reserve_mib == 512
    assert gpu.total_mib == pytest.approx(gpu.weights_mib + gpu.kv_mib + gpu.compute_mib + gpu.overhead_mib, abs=0.05)
    assert gpu.total_low_mib < gpu.total_mib < gpu.total_high_mib
    assert gpu.free_mib == pytest.approx(gpu.capacity_mib - gpu.total_mib, abs=0.05)


def test_a_card_fits_only_if_the_high_end_fits(on_one_card: Memory) -> None:
    d = on_one_card.devices[0]
    high = round(d.weights + d.kv + d.compute + d.derived + d.overhead.high)

    for free, fits in ((high, True), (high - MIB, False)):
        card = Device("CUDA0", 0, free, 24 * GIB)
        assert report(on_one_card, [card], [0], None)[0].fits is fits


def test_ram_of_unknown_size_holds_what_is_needed(on_one_card: Memory) -> None:
    card = Device("CUDA0", 0, 24 * GIB, 24 * GIB)

    assert report(on_one_card, [card], [0], None)[1].fits


def test_merged_up_and_gate_have_the_bytes_of_both_and_a_graph_of_fewer_nodes_where_they_were_two() -> None:
    model = build("Qwen3-30B-A3B", "q4_K_M")
    apart, merged = (
        memory_on("ik_llama.cpp", model, Flags(n_ctx=4096, other=other), [24 << 30])
        for other in ((), ("-muge", "-mqkv"))
    )
    assert merged.devices[0].weights == apart.devices[0].weights
    assert merged.graph_nodes < apart.graph_nodes
    assert merged.placement == apart.placement
    assert merged.basis == "measured"


def test_the_merged_bias_of_gpt_oss_has_a_row_for_every_row_of_an_expert() -> None:
    """ik llama-load-tensors.cpp:4455; measured: 15,599.32 MiB on the first of four cards apart, 16,143.53 merged."""
    model, card = build("gpt-oss-120b", "exps=q2_K,*=q5_1"), 15800 << 20
    flags = Flags(n_ctx=8192, n_gpu_layers=36, cache_type_k="q8_0", cache_type_v="q8_0")
    merged = msgspec.structs.replace(flags, other=("-muge",))
    sizes = [memory_on("ik_llama.cpp", model, f, [card] * 4).devices[0].weights / MIB for f in (flags, merged)]
    assert sizes == [pytest.approx(15599.32, abs=0.0051), pytest.approx(16143.53, abs=0.0051)]


@pytest.mark.parametrize("flags", [Flags(cache_type_k="q8_KV"), Flags(split_mode="none")])
def test_what_the_rig_does_not_confirm_is_approximate(dense: Model, flags: Flags) -> None:
    assert memory_on("ik_llama.cpp", dense, flags, [24 << 30] * 2).basis == "approximate"


@pytest.mark.parametrize(
    ("model", "mapped", "printed"),
    [
        ("Qwen3-0.6B", None, 319.96),
        ("Qwen3-0.6B", False, 403.42),
        ("Gemma-3-12B", None, 6314.30),
        ("Gemma-3-12B", False, 6854.43),
    ],
)
def test_a_tied_head_in_ram_is_counted_once_in_a_mapped_file_and_twice_without(
    model: str, mapped: bool | None, printed: float
) -> None:
    flags = Flags(n_ctx=512, n_ubatch=256, n_batch=256, n_gpu_layers=0, mmap=mapped)
    memory = memory_on("ik_llama.cpp", build(model, "q4_0"), flags, [])
    assert round(memory.devices[-1].weights / MIB, 2) == printed


@pytest.mark.parametrize("name", ["LFM2-1.2B", "LFM2-8B-A1B"])
def test_short_convolutions_have_no_heads_to_deal_out_over_cards(name: str) -> None:
    memory = memory_on("llama.cpp", build(name, "q4_k_m"), Flags(n_ctx=8192, split_mode="tensor"), [24 << 30] * 2)
    assert memory.basis == "approximate"
    assert memory.devices[0].weights == memory.devices[1].weights > 0
