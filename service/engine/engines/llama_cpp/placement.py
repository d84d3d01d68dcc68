"""Where llama.cpp puts layers, what `-ot`, `-cmoe` and `-ncmoe` move, and which splits it refuses.

Sources: src/llama-model-loader.cpp:1234-1262, common/common.h:1198-1217; what it refuses was tried with 0c1e57098.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.engine.builds import MemoryRules
from service.engine.config import CPU, Flags, Override
from service.engine.engines.llama_cpp.architectures import ARCHITECTURES
from service.engine.memory.device_shares import split_layers
from service.engine.model import Model
from service.engine.run.overrides import matching_names, overridden

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
