"""Where ik_llama.cpp puts layers, and what `-ot`, `-cmoe` and `-ncmoe` move.

A layer's device follows from bytes of weights, cache and an estimate of the compute buffer.

Sources: src/llama.cpp:4100-4464 (get_layer_sizes and the walk over the devices), 7752-7764,
src/llama-load-tensors.cpp:262-486, common/common.cpp:2167-2186.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from service.engine.builds import TODAY, MemoryRules
from service.engine.config import Flags
from service.engine.engines.ik_llama_cpp.caches import keys_values
from service.engine.kept import kept
from service.engine.memory import device_shares
from service.engine.memory.cache import cache_bytes, cache_owner, indexer_cache
from service.engine.memory.device_shares import f32, split_shares
from service.engine.memory.graph import row_size
from service.engine.memory.spec import GraphSpec, make_spec
from service.engine.model import Model
from service.engine.run.overrides import overridden
from service.engine.run.settings import numbers_of
from service.engine.units import MIB

_CPU_MOE = re.compile(r"ffn_(up|down|gate|gate_up)_exps\.(weight|scale)")
_WEIGHTS_ONLY = re.compile(r"ffn_(up|down|gate|gate_up)_exps\.weight")  # where each device gives up some (line 347)


def place_layers(
    model: Model, flags: Flags, free: Sequence[int], rules: MemoryRules
) -> tuple[list[int], dict[str, int]]:  # fmt: skip
    """Return the device of each layer and, last, of the head; and of each tensor that a flag moves."""
    cpu = len(free)
    if not free or flags.n_gpu_layers <= 0:
        return [cpu] * (model.n_layer + 1), {}
    if rules.layers_by_bytes:
        walked = split_layers(model, flags, free, rules)
    else:
        walked = device_shares.split_layers(model, flags, free, head_first=False)
    moved = _cpu_experts(model, flags, walked, cpu, rules) | overridden(model, flags.overrides, cpu)
    return with_cpu_layers(walked, model, flags, cpu), moved


def _cpu_experts(model: Model, flags: Flags, walked: Sequence[int], cpu: int, rules: MemoryRules) -> dict[str, int]:
    """`-cmoe` and `-ncmoe`: the last N layers with experts, or, with `-sm layer`, each device's share of N.

    Older builds: blocks 0 to N-1, or those where there is no share of each device (pull 2262).
    """
    n = 999 if flags.cpu_moe else flags.n_cpu_moe
    if not n:
        return {}
    moved, undivided = _CPU_MOE, cpu == 1 or n >= model.n_layer or flags.split_mode in ("graph", "attn")
    if rules.expert_layers == "first" or (rules.expert_layers != "last" and undivided):
        layers = list(range(min(n, model.n_layer)))
    elif undivided:
        layers = [i for i in range(model.n_layer - model.n_layer_nextn) if model.layers[i].moe][-n:]
    else:
        moved = _WEIGHTS_ONLY
        layers = _share_of_each_device(walked[: model.n_layer], n, cpu)
    names = (t.name for i in layers for t in model.by_layer[i])
    return {name: cpu for name in names if moved.match(name.split(".", 2)[2])}


def _share_of_each_device(walked: Sequence[int], n: int, n_devices: int) -> list[int]:
    """src/llama-load-tensors.cpp:269-354: round(N * layers / n_layer) of each, corrected to sum N."""
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


_MAX_KEPT = 64
_MARGIN_MIB = 1024  # --fit-margin's default, ik common.h
_EXPERTS = re.compile(r"ffn_(gate_up|gate|up|down)_exps\.weight")
_SHARED = re.compile(r"ffn_(gate|up|down)_shexp\.weight")
_DENSE = re.compile(r"ffn_(gate|up|down)\.weight")
_NORMS = frozenset({"attn_norm.weight", "post_attention_norm.weight", "ffn_norm.weight", "post_ffw_norm.weight"})


class _LayerWeights(NamedTuple):
    """Bytes of a block, with what the engine believes it will derive, and the rows of its feed-forward matrices."""

    n_bytes: int
    expert_rows: int
    shared_rows: int
    dense_rows: int
    has_norm: bool


def split_layers(model: Model, flags: Flags, free: Sequence[int], rules: MemoryRules = TODAY) -> list[int]:
    """Return the device of each block and, last, of the head by the walk alone: CPU layers are not cut off yet."""
    n_devices, n_layer = len(free), model.n_layer
    if n_devices == 1:
        return [0] * (n_layer + 1)
    sizes, compute = slot_sizes(model, flags, rules)
    start = max(n_layer - flags.n_gpu_layers, flags.layers_in_ram, 0)
    end = n_layer + (flags.n_gpu_layers > n_layer)
    shares = split_shares(flags.tensor_split, usable(flags, free))
    return _walk(sizes, start, end, shares, compute)


def usable(flags: Flags, free: Sequence[int]) -> list[int]:
    """Return the bytes of each card that layers are divided by: less `--fit-margin`, or `-gfm` for a card."""
    stated = numbers_of(flags, "--fit-margin")
    margins = [stated[0] if stated and stated[0] else _MARGIN_MIB] * len(free)
    pairs = numbers_of(flags, "-gfm", "--gpu-fit-margin")
    for card, margin in zip(pairs[::2], pairs[1::2], strict=False):
        margins[card : card + 1] = [margin] * (card < len(free))
    return [max(n - margin * MIB, 0) for n, margin in zip(free, margins, strict=True)]


def slot_sizes(model: Model, flags: Flags, rules: MemoryRules = TODAY) -> tuple[list[float], float]:
    """Return the bytes that the walk counts for each block and, last, the head; and for a device's compute buffer."""
    spec = make_spec("ik_llama.cpp", model, flags, rules=rules)
    n_ctx = flags.n_ctx or model.n_ctx_train  # not padded yet (common.cpp:4273)
    least = {name: min(getattr(spec, name), n_ctx) for name in ("n_tokens", "n_outputs")}
    spec = msgspec.structs.replace(spec, n_kv=n_ctx, **least)
    known: dict[GraphSpec, tuple[list[float], float]] = model.__dict__.setdefault("_slot_sizes", {})
    if spec not in known:
        if len(known) >= _MAX_KEPT:
            known.clear()
        estimates = _compute_estimates(model, spec)
        largest = max(estimates)
        caches = _counted_caches(model, spec)
        sizes: list[float] = [w.n_bytes + cache for w, cache in zip(_layer_weights(model, spec), caches, strict=True)]
        logits = 4.0 * model.n_vocab * spec.n_outputs
        sizes.append(_head_bytes(model) + max(logits, largest) - largest)
        known[spec] = sizes, largest
    return known[spec]


def with_cpu_layers(walked: Sequence[int], model: Model, flags: Flags, n_devices: int) -> list[int]:
    """Return the walk's devices with the first layers, and the head if `-ngl` leaves it out, on the CPU."""
    start = max(model.n_layer - max(flags.n_gpu_layers, 0), flags.layers_in_ram) if n_devices else model.n_layer
    devices = [n_devices] * start + list(walked[start:])
    if flags.n_gpu_layers <= model.n_layer or not n_devices:
        devices[-1] = n_devices
    return devices


def _walk(sizes: Sequence[float], start: int, end: int, shares: Sequence[float], compute: float) -> list[int]:
    """Fill device after device up to its share; the layer that crosses the mark goes to the nearer side."""
    n_devices = len(shares)
    devices = [n_devices - 1] * len(sizes)
    total = compute * n_devices + sum(sizes[start:end])
    layer, loaded = start, 0.0
    for device, share in enumerate(shares):
        loaded = f32(loaded + compute)
        target = f32(share * total)
        while layer < end:
            size = sizes[layer]
            fits = loaded + size <= target
            if not fits and loaded + size - target >= f32(target - loaded):
                break
            devices[layer] = device
            loaded = f32(loaded + size)
            layer += 1
            if not fits:
                break
    return devices


def _counted_caches(model: Model, spec: GraphSpec) -> tuple[int, ...]:
    """The estimate counts a cache for next-token layers too, like the layer before them, and for shared ones.

    It does not count the indexer's keys (ik src/llama-model.cpp, cache_size).
    """
    caches = list(cache_bytes(model, spec))
    for layer in model.layers:
        caches[layer.index] -= sum(t.n_bytes for t in indexer_cache(model, spec, layer))
        if cache_owner(model, layer) != layer.index:
            caches[layer.index] = sum(t.n_bytes for t in keys_values(model, layer, spec))
    for i in range(model.n_layer - model.n_layer_nextn, model.n_layer):
        caches[i] = next((caches[j] for j in range(i - 1, -1, -1) if model.layers[j].attends), 0)
    return tuple(caches)


def _compute_estimates(model: Model, spec: GraphSpec) -> list[float]:
    u, latent = spec.n_tokens, _latent_estimate(model, spec)
    estimates = []
    for i, w in enumerate(_layer_weights(model, spec)):
        rows = max(w.expert_rows * model.n_expert_used, w.shared_rows, w.dense_rows)
        estimate = 4.0 * u * rows + 4.0 * model.n_embd * u * (2 if w.has_norm else 1)
        estimates.append(max(estimate, latent) if f"blk.{i}.attn_v_b.weight" in model.by_name else estimate)
    return estimates


def _latent_estimate(model: Model, spec: GraphSpec) -> float:
    """The chunk of expanded keys and values that `-mla 3` will hold, as the engine guesses it."""
    first = next((t for t in model.tensors if t.name.endswith(".attn_v_b.weight")), None)
    if spec.mla != 3 or first is None:
        return 0.0
    n_rows, n_head = first.dims[1], first.dims[2] if len(first.dims) > 2 else 1
    size = 2 * n_rows * n_head * spec.n_kv * 4 / MIB
    heads = n_head
    if 0 < spec.attn_max_batch < size:
        steps = (i for i in range(2, n_head) if n_head % i == 0 and size / i <= spec.attn_max_batch)
        heads = next((n_head // i for i in steps), 1)
    return 2.0 * n_rows * heads * spec.n_kv * 4


def _head_bytes(model: Model) -> int:
    names = [t for t in model.tensors if t.name == "output.weight" or t.name.startswith("output_hc_")]
    inputs = sum(t.nbytes for t in model.tensors if t.name.startswith("per_layer_"))  # Gemma 4's, llama.cpp:4001
    return (sum(t.nbytes for t in names) or model.by_name["token_embd.weight"].nbytes) + inputs


@kept
def _all_weights(model: Model) -> list[_LayerWeights]:
    return [_weights_of(model, i) for i in range(model.n_layer)]


def _layer_weights(model: Model, spec: GraphSpec) -> list[_LayerWeights]:
    """The facts of each block that no flag changes. Next-token layers count once loaded."""
    known = _all_weights(model)
    if spec.next_tokens or not model.n_layer_nextn:
        return known
    return known[: -model.n_layer_nextn] + [_LayerWeights(0, 0, 0, 0, False)] * model.n_layer_nextn


def _weights_of(model: Model, layer: int) -> _LayerWeights:
    total, rows, has_norm = _derived_estimate(model, layer), {_EXPERTS: 0, _SHARED: 0, _DENSE: 0}, False
    if model.architecture == "gemma4" and layer == next((a.index for a in model.layers if not a.n_swa), -1):
        total += sum(t.nbytes for t in model.tensors if t.name == "rope_freqs.weight")
    for tensor in model.by_layer[layer]:
        total += tensor.nbytes
        rest = tensor.name.split(".", 2)[2]
        has_norm = has_norm or rest in _NORMS
        for pattern in rows:
            if pattern.match(rest):
                rows[pattern] += tensor.dims[1]
    return _LayerWeights(total, rows[_EXPERTS], rows[_SHARED], rows[_DENSE], has_norm)


def _derived_estimate(model: Model, layer: int) -> int:
    """What the engine adds for latent attention tensors made at load time (ik llama.cpp:4125, more than it makes)."""
    if model.mla is None:
        return 0
    k_b, v_b, kv_b = (model.by_name.get(f"blk.{layer}.attn_{part}.weight") for part in ("k_b", "v_b", "kv_b"))
    if k_b is not None and v_b is not None and kv_b is None:
        kind = k_b.type if k_b.type in ("f32", "f16", "bf16") else "q8_0"
        heads = v_b.dims[2] if len(v_b.dims) > 2 else 1
        return row_size(kind, v_b.dims[0]) * (v_b.dims[1] + k_b.dims[1]) * heads * 2
    if kv_b is None:
        return 0
    return kv_b.nbytes // 2 * ((k_b is None) + (v_b is None))
