"""How ik_llama.cpp places a model and what it allocates: the answers to `EngineMemory`."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from service.engine.builds import MemoryRules
from service.engine.config import Flags, Tool
from service.engine.engines.ik_llama_cpp import ARCHITECTURES, caches, graphs
from service.engine.engines.ik_llama_cpp.graph_split import beyond_the_graphs, predict_graph_split, splits_graph
from service.engine.engines.ik_llama_cpp.merged import merged
from service.engine.engines.ik_llama_cpp.placement import place_layers, slot_sizes, split_layers
from service.engine.engines.ik_llama_cpp.shares import can_share, graph_split_aborts
from service.engine.engines.memory import EngineMemory
from service.engine.memory.cache import CacheTensor
from service.engine.memory.graph import MIN_OFFLOAD_BATCH, joined_type, row_size
from service.engine.memory.spec import GraphSpec, cache_type, spec_for
from service.engine.model import Model
from service.engine.purpose import computes_logits
from service.engine.run.settings import micro_batch, option_value

if TYPE_CHECKING:
    from service.engine.memory.contents import Contents

_PARTIAL_MLA = 3
_SWITCHED_OFF = {
    "fused_dense": ("-no-fug", "--no-fused-up-gate"),
    "fused_sums": ("-no-mmad", "--no-fused-mul-multiadd"),
}
_INDEXER_TYPE = ("-ictk", "--indexer-cache-type-k")


class IkMemory(EngineMemory):
    """ik_llama.cpp's memory."""

    padding_without_flash_attention = 32
    without_flash_attention = ARCHITECTURES.having("no_flash_attention")
    inputs_stay_in_ram = True
    loaded_anyway = MappingProxyType({"glm-dsa": re.compile(r"\.attn_[kv]_b\.")})  # src/llama-load-tensors.cpp:3205
    caches_next_tokens = True
    rope_factors_for_each = "layer"
    repeats_expert_biases = True
    repacks_at_load = True
    fuses_up_and_gate = True
    up_before_gate = True
    most_split_inputs = 64  # GGML_SCHED_MAX_SPLIT_INPUTS, ggml/src/ggml-backend.cpp:1128
    head_moves_last = True
    split_modes = ("none", "layer", "graph", "attn")
    together = ("graph", "attn")
    together_from = "2025-12-01"  # pull 1022: in the main branch by then (pull 1026, of the day after)
    together_capability = 7.5  # README: Turing or newer
    counts_experts_from_first = False  # load-tensors.cpp:269-354; its benchmark counts from the first
    divides_by = "bytes of free memory"
    latent_ignores_v = True
    tools_alike = True
    limits_logits_from = "2026-04-01"  # -wgt, pull 1560
    reserves_before_policy = True  # common.cpp:4085
    pools_results = True
    checkpoint_option = "-ctx-ckpt"

    describe_graph = staticmethod(graphs.describe)
    keys_values = staticmethod(caches.keys_values)
    latent_rows = staticmethod(caches.latent_rows)
    recurrent_state = staticmethod(caches.recurrent_state)
    place_layers = staticmethod(place_layers)
    split_layers = staticmethod(split_layers)
    slot_sizes = staticmethod(slot_sizes)
    stops_at_graph = staticmethod(graph_split_aborts)
    loaded = staticmethod(merged)
    predict_split = staticmethod(predict_graph_split)

    def works_together(self, model: Model, flags: Flags, n_cards: int) -> bool:
        """Return whether `-sm graph` works on the architecture; uneven shares are usual there."""
        return splits_graph(model)

    def latent_mode(self, model: Model, flags: Flags, rules: MemoryRules) -> int:
        """Return the effective `-mla`. Partial offload runs as 3 whatever was asked (src/llama.cpp)."""
        if model.mla is None or model.architecture not in ARCHITECTURES.having("latent_cache"):
            return 0
        if rules.latent_without_kv_b == "forces -mla 1" and lacks_kv_b(model):
            return 1
        if rules.partial_latent and 0 < flags.n_gpu_layers < model.n_layer:
            return _PARTIAL_MLA
        return rules.mla if flags.mla is None else flags.mla

    def graph_spec(self, model: Model, flags: Flags, tool: Tool, *, rules: MemoryRules) -> GraphSpec:
        """Return the spec: logits of the whole batch are reserved, and one cache is shared by all slots."""
        n_logits = micro_batch("ik_llama.cpp", model, flags) if computes_logits(model) else 1
        spec = spec_for("ik_llama.cpp", model, flags, _switched(flags, rules), n_logits=n_logits)
        return msgspec.structs.replace(
            spec,
            type_indexer=cache_type(option_value(flags.other, _INDEXER_TYPE) or "f16", "other"),
            sparse=bool({"-dsa", "--dsa"} & set(flags.other)),
        )

    def indexer_keys(self, model: Model, spec: GraphSpec) -> tuple[CacheTensor, ...]:
        """Return the indexer's keys, which have a type of their own (`-ictk`)."""
        size = model.int_value("attention.indexer.key_length")
        return (CacheTensor(spec.type_indexer, (size, spec.n_kv)),)

    def has_indexer(self, model: Model, layer: int) -> bool:
        """Return whether a layer chooses rows: always by GLM-5.2's schedule (llama-hparams.cpp:1917)."""
        return model.architecture in ARCHITECTURES.having("sparse") and (layer <= 1 or layer % 4 == 2)

    def ignores_overrides(self, flags: Flags) -> bool:
        """Return whether `-ngl` is 0 (src/llama.cpp:7761)."""
        return flags.n_gpu_layers <= 0

    def shares_tied_head(self, contents: Contents) -> bool:
        """Return whether head and embedding are one mapped file.

        Measured with 8337e4cd3 on the CPU: Qwen3-0.6B q4_0 319.96 MiB mapped, 403.42 with --no-mmap. The lab's runs
        were not mapped.
        """
        return contents.cuda and contents.run.mmap_off is None and contents.model is contents.run.model

    def derived_bytes(self, model: Model, layer: int, mode: int) -> int:
        """Return the bytes of the matrices made of a latent layer's tensors at `-mla` `mode` (llama.cpp:2975-3424).

        attn_kv_b in every mode but 1, which has no use for it; attn_k_b and attn_v_b in every mode but 0. Counted in
        its CUDA build for DeepSeek-V2-Lite: 27, 0, 27 and 27 of them in modes 0 to 3.
        """
        k_b, v_b, kv_b = (model.by_name.get(f"blk.{layer}.attn_{part}.weight") for part in ("k_b", "v_b", "kv_b"))
        mla = model.mla
        if mla is None or model.architecture not in ARCHITECTURES.having("latent_cache"):
            return 0
        n_head = model.layers[layer].n_head
        if kv_b is None and k_b is not None and v_b is not None and mode != 1:
            return row_size(joined_type(k_b.type, v_b.type), mla.kv_lora_rank) * n_head * (mla.nope + mla.value)
        missing = (mla.nope * (k_b is None) + mla.value * (v_b is None)) if kv_b is not None and mode else 0
        return row_size("q8_0", mla.kv_lora_rank) * n_head * missing

    def roughly_split(self, model: Model, flags: Flags, basis: str) -> str | None:
        """Return how roughly `-sm graph` and `-sm attn` are computed, None where the graph in parts is known."""
        if basis != "approximate":
            return None
        if not splits_graph(model):
            return super().roughly_split(model, flags, basis)
        shared = "" if can_share(model, flags) else "weights and cache are shared out by -ts alone, "
        return f"{shared}its compute buffers are roughly those of -sm layer"

    def basis(self, contents: Contents, *, older: bool) -> str:
        """Return how sure the figures are; next-token layers were never compared."""
        if beyond_the_graphs(contents):
            return "approximate"
        return "source only" if older or contents.spec.next_tokens else "measured"

    def copied_for_batch(self, contents: Contents, *, experts: bool) -> bool:
        """Return whether copies are reserved, whatever `-op` says; of experts where the batch hits most of them."""
        spec, model = contents.spec, contents.model
        by_experts = experts and spec.rules.threshold_by_experts
        return not by_experts or spec.n_tokens * model.n_expert_used >= MIN_OFFLOAD_BATCH * model.n_expert


def lacks_kv_b(model: Model) -> bool:
    """Return whether a layer of a latent model has no attn_kv_b, as in files that llama.cpp has made since April 2025.

    This is asked of deepseek2 only (pull 394, llama_kv_cache_init).
    """
    running = range(model.n_layer - model.n_layer_nextn)
    return model.architecture == "deepseek2" and any(f"blk.{i}.attn_kv_b.weight" not in model.by_name for i in running)


def _switched(flags: Flags, rules: MemoryRules) -> MemoryRules:
    """The build's rules with what the command switches off: `-no-fug`, `-no-mmad` (common/common.cpp)."""
    off = {name for name, options in _SWITCHED_OFF.items() if set(options) & set(flags.other)}
    return msgspec.structs.replace(rules, **dict.fromkeys(off, False)) if off else rules
