"""Where each engine puts every tensor and cache, from the flags alone.

Sources: ik src/llama-load-tensors.cpp:262-486, src/llama.cpp:7752-7764, common/common.cpp:2167-2186; llama.cpp
src/llama-model-loader.cpp:1234-1262, common/common.h:1198-1217.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.engine.builds.rules import TODAY, MemoryRules
from service.engine.config import Engine, Flags, Override, Placement
from service.engine.errors import InvalidFlags
from service.engine.memory import layers_ik, layers_llama
from service.engine.memory.float32 import f32
from service.engine.memory.overrides import overridden
from service.engine.memory.spec import loads_next_tokens, make_spec
from service.engine.memory.split_modes import split_refused
from service.engine.model import Model
from service.engine.tensor_names import layer_of

ROPE_FACTORS = frozenset({"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})
_OF_FIRST_LAYER = frozenset({"per_layer_model_proj.weight", "per_layer_proj_norm.weight"})  # ik: with the head
# src/models/{hy-v3,step35}.cpp of llama.cpp: tensors created without the flag that skips them
_LOADED_ANYWAY = {
    ("llama.cpp", "hy_v3"): re.compile(r"\.(ffn_(?!norm)|exp_probs_b|nextn\.(embed|shared))"),
    ("llama.cpp", "step35"): re.compile(r"\.(ffn_(?!norm)|exp_probs_b|nextn\.(embed|shared)|attn_(gate|[qk]_norm))"),
    ("llama.cpp", "glm-dsa"): re.compile(r"\.exp_probs_b"),  # src/models/glm-dsa.cpp:157
    ("llama.cpp", "deepseek32"): re.compile(r"\.exp_probs_b"),
    ("ik_llama.cpp", "glm-dsa"): re.compile(r"\.attn_[kv]_b\."),  # src/llama-load-tensors.cpp:3205
}
_INPUTS = ("token_embd.", "per_layer_token_embd.", "position_embd.", "token_types.")
_INPUT_NORM, _OUTPUT_NORM = "token_embd_norm.weight", "output_norm.weight"
_CPU_MOE_LLAMA = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_CPU_MOE_IK = re.compile(r"ffn_(up|down|gate|gate_up)_exps\.(weight|scale)")


def place(
    engine: Engine, model: Model, flags: Flags, free: Sequence[int], rules: MemoryRules = TODAY
) -> Placement:  # fmt: skip
    """Return the device of every tensor, layer and cache. `free`: bytes free on each GPU, in the engine's order.

    `cpu_moe` and `n_cpu_moe` are read as if they stood after all `overrides`: in llama.cpp the order on the command
    line decides, in ik_llama.cpp they always come last. With `-sm none` everything is on the main GPU; modes that
    split tensors are placed by layer. `rules`: those of the build. Raises InvalidFlags for patterns or devices that the
    engine would refuse.
    """
    refused = split_refused(model, flags) if engine == "llama.cpp" and free else None
    if refused is not None:
        raise InvalidFlags(refused, field="-sm", choices=("layer",))
    if flags.split_mode == "none" and len(free) > 1:
        return _on_one_device(engine, model, flags, free, rules)
    layers, moved = (_layers_ik if engine == "ik_llama.cpp" else _layers_llama)(model, flags, free, rules)
    return _assemble(engine, model, flags, layers, moved, len(free))


def _on_one_device(
    engine: Engine, model: Model, flags: Flags, free: Sequence[int], rules: MemoryRules
) -> Placement:  # fmt: skip
    n, main = len(free), flags.main_gpu or 0
    if not 0 <= main < n:
        raise InvalidFlags(f"-mg {main}, but the GPUs are numbered 0 to {n - 1}", field="main_gpu")
    alone = Flags(**{f: getattr(flags, f) for f in flags.__struct_fields__} | {"overrides": (), "tensor_split": ()})
    layers, moved = (_layers_ik if engine == "ik_llama.cpp" else _layers_llama)(model, alone, [free[main]], rules)
    asked = {} if _ignores_overrides(engine, flags) else overridden(model, flags.overrides, n)
    moved = {name: n if device else main for name, device in moved.items()} | asked
    return _assemble(engine, model, flags, [n if device else main for device in layers], moved, n)


def _ignores_overrides(engine: Engine, flags: Flags) -> bool:
    return engine == "ik_llama.cpp" and flags.n_gpu_layers <= 0


def _layers_ik(
    model: Model, flags: Flags, free: Sequence[int], rules: MemoryRules
) -> tuple[list[int], dict[str, int]]:  # fmt: skip
    cpu = len(free)
    if not free or flags.n_gpu_layers <= 0:
        return [cpu] * (model.n_layer + 1), {}
    if rules.layers_by_bytes:
        spec = make_spec("ik_llama.cpp", model, flags, "server", cpu_only=False, rules=rules)
        walked = layers_ik.split_layers(model, flags, spec, free)
    else:
        walked = layers_llama.split_layers(model, flags, free, head_first=False)
    moved = _cpu_experts_ik(model, flags, walked, cpu, rules) | overridden(model, flags.overrides, cpu)
    return layers_ik.with_cpu_layers(walked, model, flags, cpu), moved


def _layers_llama(
    model: Model, flags: Flags, free: Sequence[int], rules: MemoryRules
) -> tuple[list[int], dict[str, int]]:  # fmt: skip
    written = flags.overrides
    if flags.cpu_moe:
        written += (Override(_CPU_MOE_LLAMA, "CPU"),)
    found = overridden(model, written, len(free))
    if flags.n_cpu_moe and not flags.cpu_moe:
        expert = re.compile(r"blk\.(\d+)" + _CPU_MOE_LLAMA)
        matches = ((t.name, expert.match(t.name)) for t in model.tensors if t.name not in found)
        found |= {name: len(free) for name, match in matches if match and int(match[1]) < flags.n_cpu_moe}
    return layers_llama.split_layers(model, flags, free, head_first=rules.head_first), found


def _cpu_experts_ik(
    model: Model, flags: Flags, walked: Sequence[int], cpu: int, rules: MemoryRules
) -> dict[str, int]:  # fmt: skip
    """`-cmoe` and `-ncmoe`: the last N layers with experts, or, with `-sm layer`, each device's share of N.

    Older builds: blocks 0 to N-1 (also with several GPUs), or with one GPU only.
    """
    n = 999 if flags.cpu_moe else flags.n_cpu_moe
    if not n:
        return {}
    if rules.expert_layers == "first" or (rules.expert_layers != "last" and (cpu == 1 or n >= model.n_layer)):
        layers = list(range(min(n, model.n_layer)))
    elif cpu == 1 or n >= model.n_layer or flags.split_mode in ("graph", "attn"):
        layers = [i for i in range(model.n_layer - model.n_layer_nextn) if model.layers[i].moe][-n:]
    else:
        layers = _share_of_each_device(walked[: model.n_layer], n, cpu)
    names = (t.name for i in layers for t in model.by_layer[i])
    return {name: cpu for name in names if _CPU_MOE_IK.match(name.split(".", 2)[2])}


def _share_of_each_device(walked: Sequence[int], n: int, n_devices: int) -> list[int]:
    """ik llama-load-tensors.cpp:269-354: round(N * layers / n_layer) of each, corrected to sum N."""
    counts = [walked.count(d) for d in range(n_devices)]
    exact = [count * n / len(walked) for count in counts]
    quota = [int(f32(f32(count / len(walked)) * n) + 0.5) for count in counts]
    while sum(quota) > n:
        quota[max((d for d in range(n_devices) if quota[d]), key=lambda d: quota[d] - 1 - exact[d])] -= 1
    while sum(quota) < n:
        quota[min((d for d in range(n_devices) if quota[d] < counts[d]), key=lambda d: quota[d] + 1 - exact[d])] += 1
    layers = []
    for i in range(len(walked) - 1, -1, -1):
        if quota[walked[i]] > 0:
            quota[walked[i]] -= 1
            layers.append(i)
    return layers


def _assemble(
    engine: Engine, model: Model, flags: Flags, layers: list[int], rules: dict[str, int], n_devices: int
) -> Placement:
    next_tokens = loads_next_tokens(flags)
    loaded = model.n_layer - (0 if next_tokens else model.n_layer_nextn)
    tensors: dict[str, int] = {}
    for name, layer, is_input in _known_of_names(model):
        if layer is not None and layer >= loaded and not _loaded_anyway(engine, model, name):
            continue
        default = n_devices if is_input else layers[layer if layer is not None else -1]
        if name in ROPE_FACTORS or (engine == "llama.cpp" and name in _OF_FIRST_LAYER):
            default = layers[0]
        fixed = engine == "ik_llama.cpp" and is_input
        tensors[name] = default if fixed else rules.get(name, default)
    if model.tied:
        tensors["output.weight"] = rules.get("token_embd.weight", layers[-1])
    caches = tuple(
        None
        if layer.kind == "nextn" and not (next_tokens and engine == "ik_llama.cpp")
        else n_devices
        if flags.no_kv_offload
        else layers[layer.index]
        for layer in model.layers
    )
    return Placement(n_devices, tensors, tuple(layers[:-1]), caches, layers[-1])


def _loaded_anyway(engine: Engine, model: Model, name: str) -> bool:
    """Whether the engine loads this tensor of a next-token layer although nobody drafts with it."""
    pattern = _LOADED_ANYWAY.get((engine, model.architecture))
    return pattern is not None and pattern.search(name) is not None


def _is_input(model: Model, name: str) -> bool:
    """LFM2's output norm carries the name of other models' input norm (llama.cpp src/llama-arch.cpp:442)."""
    return name.startswith(_INPUTS) or (name == _INPUT_NORM and _OUTPUT_NORM in model.by_name)


def _known_of_names(model: Model) -> list[tuple[str, int | None, bool]]:
    """Of each tensor its name, its layer, and whether it belongs to the input: what no flag changes."""
    known: list[tuple[str, int | None, bool]] | None = model.__dict__.get("_known_of_names")
    if known is None:
        known = [(t.name, layer_of(t.name), _is_input(model, t.name)) for t in model.tensors]
        model.__dict__["_known_of_names"] = known
    return known


def rope_devices(engine: Engine, model: Model, flags: Flags, placement: Placement) -> tuple[int, ...]:
    """Return the device of each layer's copy of the rope factors."""
    n_layer = model.n_layer if engine == "ik_llama.cpp" else model.n_layer - model.n_layer_nextn
    layers = placement.layers[:n_layer]
    if not any(name in model.by_name for name in ROPE_FACTORS) or _ignores_overrides(engine, flags):
        return layers
    rules = overridden(model, flags.overrides, placement.n_devices)
    moved = next((rules[name] for name in ROPE_FACTORS if name in rules), None)
    return layers if moved is None else (moved,) * n_layer
