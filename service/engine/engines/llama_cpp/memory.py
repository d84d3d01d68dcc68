"""How llama.cpp places a model and what it allocates: the answers to `EngineMemory`.

Sources of where layers go, what `-ot`, `-cmoe` and `-ncmoe` move, and which splits are refused:
src/llama-model-loader.cpp:1234-1262, common/common.h:1198-1217; what it refuses was tried with 0c1e57098.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from service.engine.builds import MemoryRules
from service.engine.config import CPU, Flags, Override, Tool
from service.engine.engines.llama_cpp import ARCHITECTURES, caches, graphs
from service.engine.engines.llama_cpp.kernels import not_yet
from service.engine.engines.llama_cpp.slices import predict_tensor_split
from service.engine.engines.memory import EngineMemory
from service.engine.kept import kept
from service.engine.layers import Layer
from service.engine.memory.device_shares import split_layers
from service.engine.memory.spec import GraphSpec, spec_for
from service.engine.model import Model
from service.engine.purpose import computes_logits, writes_text
from service.engine.run.overrides import matching_names, overridden
from service.engine.run.settings import micro_batch, option_value, speculation_types
from service.engine.units import pad

if TYPE_CHECKING:
    from service.engine.memory.contents import Contents
    from service.engine.memory.figures import Memory
    from service.engine.run.resolved import ResolvedRun

_ROLLS_BACK = frozenset({"draft-mtp", "draft-eagle3", "draft-dflash", "draft-dspark"})
_DRAFTED, _MOST_DRAFTED = 3, 1024
_UNIFIED, _SEPARATE = ("-kvu", "--kv-unified"), ("-no-kvu", "--no-kv-unified")
_CONTEXT_WITH_SHARED_INDEXERS = 1 << 20
_LOADED_ANYWAY = {  # src/models/{hy-v3,step35}.cpp: tensors created without the flag that skips them
    "hy_v3": re.compile(r"\.(ffn_(?!norm)|exp_probs_b|nextn\.(embed|shared))"),
    "step35": re.compile(r"\.(ffn_(?!norm)|exp_probs_b|nextn\.(embed|shared)|attn_(gate|[qk]_norm))"),
    "glm-dsa": re.compile(r"\.exp_probs_b"),  # src/models/glm-dsa.cpp:155
    "deepseek32": re.compile(r"\.exp_probs_b"),
}
_CPU_MOE = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_SPLIT_CACHES = ("f32", "f16", "bf16", "q8_0", "q4_0")  # what `-sm tensor` was seen to run with


def place_layers(
    model: Model, flags: Flags, free: Sequence[int], rules: MemoryRules
) -> tuple[list[int], dict[str, int]]:  # fmt: skip
    """Return the device of each layer and, last, of the head; and of each tensor that a flag moves."""
    written = flags.overrides
    if flags.cpu_moe:
        written += (Override(_CPU_MOE, "CPU"),)
    found = overridden(model, written, len(free))
    if flags.n_cpu_moe and not flags.cpu_moe:
        expert = re.compile(r"blk\.(\d+)" + _CPU_MOE)
        matches = ((t.name, expert.match(t.name)) for t in model.tensors if t.name not in found)
        found |= {name: len(free) for name, match in matches if match and int(match[1]) < flags.n_cpu_moe}
    return split_layers(model, flags, free, head_first=rules.head_first), found


def split_refused(model: Model, flags: Flags) -> str | None:
    """Return why the model is not loaded with these flags' `-sm` on CUDA, None where it is.

    `-sm row` is not judged here: other back ends have it.
    """
    named = {rule.device for rule in flags.overrides if matching_names(model, rule.pattern)} - {CPU}
    if flags.split_mode == "none" and named - {f"CUDA{flags.main_gpu or 0}"}:
        return f"-ot names {min(named)}, but with -sm none there is only CUDA{flags.main_gpu or 0}"
    if flags.split_mode != "tensor":
        return None
    if model.architecture in ARCHITECTURES.having("no_tensor_split"):
        return f"-sm tensor: llama.cpp does not have it for {model.architecture}"
    if flags.flash_attn == "off":
        return "-sm tensor needs flash attention, and -fa is off"
    return f"-ot names {min(named)}, but with -sm tensor all cards are one device" if named else None


def split_aborts(model: Model, flags: Flags, n_cards: int) -> str | None:
    """Return with what `-sm tensor` was seen to abort though the model is loaded; None: nobody reported it."""
    heads = {layer.n_head_kv for layer in model.layers if layer.kind == "attention"}
    uneven = next((n for n in sorted(heads) if n % n_cards), None)
    kind = next((one for one in (flags.cache_type_k, flags.cache_type_v) if one not in _SPLIT_CACHES), None)
    if uneven is not None:
        return f"{uneven} heads of the cache on {n_cards} cards, which do not divide them"
    return f"a cache of {kind}" if kind else None


class LlamaMemory(EngineMemory):
    """llama.cpp's memory."""

    without_flash_attention = ARCHITECTURES.having("no_flash_attention")
    on_first_layer = frozenset(
        {"per_layer_model_proj.weight", "per_layer_proj_norm.weight", "token_embd_norm.weight", "token_embd_norm.bias"}
    )
    loaded_anyway = MappingProxyType(_LOADED_ANYWAY)
    split_modes = ("none", "layer", "row", "tensor")
    latent_needs_sizes = True
    together = ("tensor",)
    together_from = "2026-04-09"  # pull 19378
    together_capability = 7.0  # no run with older cards was published
    shares_quantised_from = "2026-06-01"  # pull 23792, in b9455
    tries_flash_attention = True
    reserves_single_tokens = True
    checks_kernels = True
    pipeline_copies = 4  # GGML_SCHED_MAX_COPIES
    checkpoints_windows = True

    describe_graph = staticmethod(graphs.describe)
    keys_values = staticmethod(caches.keys_values)
    latent_rows = staticmethod(caches.latent_rows)
    recurrent_state = staticmethod(caches.recurrent_state)
    indexer_keys = staticmethod(caches.indexer_keys)
    place_layers = staticmethod(place_layers)
    split_layers = staticmethod(split_layers)
    split_refused = staticmethod(split_refused)

    def latent_mode(self, model: Model, flags: Flags, rules: MemoryRules) -> int:
        """Return 1 for a latent cache: of files that name the absorbed head sizes."""
        latent = model.mla is not None and model.int_value("attention.key_length_mla")
        return 1 if latent and rules.latent_cache != "heads" else 0

    def graph_spec(self, model: Model, flags: Flags, tool: Tool, *, rules: MemoryRules) -> GraphSpec:
        """Return the spec: each slot has its own cache unless they share one; the batch is a multiple of them.

        A server that returns embeddings or ranks reserves logits of all tokens, though it reads none.
        """
        n_seq, n_tokens = max(1, flags.n_parallel), micro_batch("llama.cpp", model, flags)
        few_rows = tool == "server" and not rules.whole_logits and not _returns_embeddings(flags)
        few_rows |= not computes_logits(model)
        # Whether slots share one cache: `-kvu`, the server's default where `-np` is not given.
        asked = [flag for flag in flags.other if flag in _UNIFIED or flag in _SEPARATE]
        spec = spec_for(
            "llama.cpp", model, flags, rules, n_logits=n_seq if few_rows else n_tokens,
            n_stream=1 if asked and asked[-1] in _UNIFIED else n_seq,
        )  # fmt: skip
        return msgspec.structs.replace(
            spec,
            n_tokens=pad(n_tokens, n_seq),  # llama-context.cpp:2528
            swa_full="--swa-full" in flags.other or not rules.window_caches,
            n_snapshots=_snapshots(flags),
        )

    def has_indexer(self, model: Model, layer: int) -> bool:
        """Return whether a layer chooses rows: by the header, else by the length of the context it was trained for.

        src/models/glm-dsa.cpp:59-66 (GLM_5_2_DEFAULT_INDEXER_TYPES), deepseek32.cpp.
        """
        if model.architecture not in ARCHITECTURES.having("sparse"):
            return False
        if model.architecture == "minimax-m3":  # src/llama-model.cpp, filter_idx
            return layer >= model.int_value("leading_dense_block_count")
        if model.architecture == "qwen4exp":
            ratios = model.value("attention.compress_ratios")
            return isinstance(ratios, list) and layer < len(ratios) and bool(ratios[layer])
        types = model.value("attention.indexer.types")
        if isinstance(types, list) and layer < len(types):
            return bool(types[layer])
        shared = model.architecture == "glm-dsa" and model.n_ctx_train >= _CONTEXT_WITH_SHARED_INDEXERS
        return not shared or layer <= 1 or layer % 4 == 2

    def attends_in_ram(self, run: ResolvedRun, layer: Layer) -> bool:
        """Return whether a build from before such a kernel was told to use flash attention (auto turns it off)."""
        flags, types = run.flags, (run.flags.cache_type_k, run.flags.cache_type_v)
        if not run.build.date or flags.flash_attn != "on" or not not_yet(layer.head_dim_k, types, run.rules):
            return False
        if run.mla or layer.head_dim_k != layer.head_dim_v or run.model.architecture in self.without_flash_attention:
            return False
        return any(run.rig.cards[device.gpu].backend in ("cuda", "rocm") for device in run.devices)

    def works_together(self, model: Model, flags: Flags, n_cards: int) -> bool:
        """Return whether `-sm tensor` splits the architecture, evenly, and its memory is known."""
        if model.architecture in ARCHITECTURES.having("unknown_slices") or split_aborts(model, flags, n_cards):
            return False
        return split_refused(model, Flags(split_mode="tensor")) is None

    def shares_tied_head(self, contents: Contents) -> bool:
        """Return whether there is a token embedding already when the head is made."""
        return contents.model.architecture not in ARCHITECTURES.having("head_first")

    def predict_split(self, run: ResolvedRun) -> Memory | None:
        return predict_tensor_split(run) if run.flags.split_mode == "tensor" and run.devices else None

    def roughly_split(self, model: Model, flags: Flags, basis: str) -> str | None:
        return None if flags.split_mode == "tensor" else super().roughly_split(model, flags, basis)

    def basis(self, contents: Contents, *, older: bool) -> str:
        """Return how sure the figures are; hyper-connections are described with fused operations only."""
        # Whether operations of hyper-connections may miss their layer's device: the engine then replaces all of them.
        # llama_context::resolve_fused_ops. DeepSeek V4's do where `-ot` moved a weight of theirs; GLM 5.3's results are
        # not pinned to a device, and miss it behind layers in RAM.
        placement, model = contents.placement, contents.model
        if model.architecture == "glm5-next" or any(
            placement.layers[int(name.split(".")[1])] != placement.tensors[name]
            for name in _hyper_connections(model)
            if name in placement.tensors
        ):
            return "approximate"
        return "source only" if older else "measured"


@kept
def _hyper_connections(model: Model) -> list[str]:
    return [t.name for t in model.tensors if t.name.startswith("blk.") and ".hc_" in t.name]


def _snapshots(flags: Flags) -> int:
    """common/common.h:396 need_n_rs_seq: as many states as tokens are drafted, 3 by default."""
    if not set(speculation_types(flags)) & _ROLLS_BACK:
        return 0
    asked = option_value(flags.other, ("--spec-draft-n-max",)) or ""
    return min(int(asked), _MOST_DRAFTED) if asked.isdecimal() else _DRAFTED


def _returns_embeddings(flags: Flags) -> bool:
    """tools/server/server-context.cpp:43 server_output_limits: `--embedding`, `--reranking`, or any `--pooling`."""
    pooled = option_value(flags.other, ("--pooling",)) not in (None, "none")
    return pooled or not writes_text(flags.other)
