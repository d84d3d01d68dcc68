"""The sums behind Work, made once for a model, its flags and placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import pairwise

import msgspec

from service.engine.config import Flags, Placement
from service.engine.engines import engine_spec
from service.engine.ggml_types import type_named
from service.engine.layers import Layer
from service.engine.model import Model
from service.engine.run.resolved import ResolvedRun
from service.engine.run.weights import (
    Same,
    Use,
    UsedWeight,
    rows_of,
    used_weights,
)
from service.engine.speed.builds import changes_after
from service.engine.speed.types import quant_class
from service.engine.speed.work import Attention, Weights, Work

_BEFORE_UP = 1.5  # places in a layer's chain, from behind up to in front of it
_MAX_KEPT = 64
_LEGACY = ("q4_0", "q8_0", "iq4_nl")


def work_of(run: ResolvedRun) -> Work:
    """Return the work of a run. The last 64 answers are kept with the model, by identity of the placement."""
    kept: dict[object, Work] = run.model.__dict__.setdefault("_work", {})
    key = run.engine, run.flags, Same(run.placement), run.build, run.environment
    found = kept.get(key)
    if found is None:
        found = kept[key] = _work(run)
        for oldest in list(kept)[:-_MAX_KEPT]:
            kept.pop(oldest, None)
    return found


def _work(run: ResolvedRun) -> Work:
    engine, model, flags, placement = run.engine, run.model, run.flags, run.placement
    lacks, host = changes_after(engine, run.build.date), placement.n_devices
    treatment, used = run.treatment, run.weights
    host_changes, card_changes = _changes(used, placement, up_first=treatment.up_before_gate)
    memory, has_sizes = engine_spec(engine).memory, model.value("attention.key_length_mla") is not None
    mla = model.mla if has_sizes or not memory.latent_needs_sizes else None
    unfused = {u.row.layer for u in used if u.row.use == "expert" and (u.row.up or u.row.gate) and not u.fused}
    return Work(
        engine=engine,
        n_devices=host,
        weights=_summed(used, unfused),
        attention=_attention(model, used, placement, windows="sliding_windows" not in lacks),
        state_bytes=_state_bytes(model, placement),
        recurrent_layers=_recurrent_layers(model, placement),
        n_embd=model.n_embd,
        n_expert=model.n_expert,
        n_expert_used=_experts_used(model, flags),
        mla=mla,
        mla_mode=run.mla,
        n_layer=len(placement.layers),
        gpu_layers=sum(1 for device in placement.layers if device < host),
        host_layers=len({u.row.layer for u in used if u.computed == host and u.row.counts and u.row.layer >= 0}),
        host_changes=host_changes,
        card_changes=card_changes,
        cache_k=type_named(flags.cache_type_k).bpw / 8,
        cache_v=type_named(flags.cache_type_v).bpw / 8,
        flash=flags.flash_attn != "off",
        unfused_layers=sum(1 for layer in unfused if placement.layers[layer] < host),
        rules=treatment,
        split_mode=flags.split_mode,
        parallel_cards=parallel_cards(flags, host),
        pipeline=run.build.rules.memory.pipeline,
        n_ubatch=run.n_ubatch,
        lacks=lacks,
    )


def weights_of(model: Model, names: Iterable[str], device: int, work: Work) -> tuple[Weights, ...]:
    """Return the sums of some tensors of a model as if they were on `device` of the config that `work` is of."""
    rows = rows_of(model)
    chosen = [rows[name] for name in names if name in rows]
    ups = (rows.get(f"blk.{layer}.ffn_up_exps.weight") for layer in {r.layer for r in chosen if r.use == "expert"})
    pairs = [(up, rows[up.gate]) for up in ups if up is not None and up.gate]
    places = dict.fromkeys((r.name for r in (*chosen, *(one for pair in pairs for one in pair))), device)
    unfused = {up.layer for up, gate in pairs if not work.rules.fuses(up, gate, device, device)}
    return _summed(used_weights(work.rules, model, places, [r.name for r in chosen]), unfused)


def _summed(used: Sequence[UsedWeight], unfused: Collection[int]) -> tuple[Weights, ...]:
    """Add up what is alike. `unfused`: layers whose routed experts' up and gate are two operations."""
    sums: dict[tuple[int, int, Use, str, str, bool, bool, int, bool], list[int]] = {}
    for one in used:
        row = one.row
        if not row.counts:
            continue
        key = (
            one.computed,
            one.stored,
            row.use,
            *_of_type(one.type.name),
            one.copied_from,
            row.use != "expert" or row.layer not in unfused,
        )
        total = sums.setdefault(key, [0, 0, 0])
        total[0] += row.n_bytes
        total[1] += row.n_elements
        total[2] += 1
    return tuple(Weights(*key, *total) for key, total in sums.items())


@cache
def _of_type(name: str) -> tuple[str, str, bool, bool]:
    low = name.lower()
    return low, quant_class(low), low in _LEGACY, type_named(name).row_interleave > 1


def _changes(used: Sequence[UsedWeight], placement: Placement, *, up_first: bool) -> tuple[int, int]:
    """Count the changes of device while one evaluation passes through the layers: (CPU and GPU, GPU and GPU)."""
    links: dict[int, list[tuple[float, int]]] = {}
    for one in used:
        row = one.row
        if row.chain >= 0 and row.layer >= 0:
            earlier = _BEFORE_UP if row.up and row.use == "expert" and not up_first else 0.0
            links.setdefault(row.layer, []).append((row.chain - earlier, one.computed))
    sequence: list[int] = []
    for layer, device in enumerate(placement.layers):
        sequence.append(device)
        sequence.extend(d for _, d in sorted(links.get(layer, ())))
    sequence.append(placement.head)
    pairs = [(a, b) for a, b in pairwise(sequence) if a != b]
    with_host = sum(1 for pair in pairs if placement.n_devices in pair)
    return with_host, len(pairs) - with_host


def _attention(
    model: Model, used: Sequence[UsedWeight], placement: Placement, *, windows: bool
) -> tuple[Attention, ...]:
    host = placement.n_devices
    copied = {u.row.layer: u.copied_from for u in used if ".attn_output." in u.row.name and u.stored == host}
    found: Counter[Attention] = Counter()
    for layer in model.layers:
        device = placement.caches[layer.index] if layer.index < len(placement.caches) else None
        if device is None or not layer.attends:
            continue
        found[_geometry(layer, device, copied.get(layer.index, 0) if device == host else 0, windows)] += 1
    return tuple(msgspec.structs.replace(a, count=n) for a, n in found.items())


def _geometry(layer: Layer, device: int, copied_from: int, windows: bool) -> Attention:
    n_swa = layer.n_swa if windows else 0
    return Attention(device, 1, layer.n_head, layer.n_head_kv, layer.head_dim_k, layer.head_dim_v, n_swa, copied_from)


def _state_bytes(model: Model, placement: Placement) -> tuple[int, ...]:
    """Bytes of recurrent state on each device (CPU last): f32, conv and delta-net state (ik llama.cpp, kv cache)."""
    total = [0] * (placement.n_devices + 1)
    r = model.recurrent
    if r is None:
        return tuple(total)
    size = 4 * (r.n_conv + r.n_state)
    for layer in model.layers:
        device = placement.caches[layer.index] if layer.index < len(placement.caches) else None
        if layer.recurs and device is not None:
            total[device] += size
    return tuple(total)


def _recurrent_layers(model: Model, placement: Placement) -> int:
    """Count the layers that keep a state and compute on a GPU."""
    places = zip(model.layers, placement.layers, strict=False)
    return sum(1 for layer, device in places if layer.recurs and device < placement.n_devices)


def parallel_cards(flags: Flags, n_devices: int) -> int:
    """Return the GPUs that share a layer with `-sm graph`: all, or as many as ik_llama.cpp's `--max-gpu` allows."""
    text = next((o for o in flags.other if o.startswith(("--max-gpu ", "-max-gpu "))), "")
    most = text.rpartition(" ")[2]
    return max(min(n_devices, int(most)) if most.isdigit() and int(most) else n_devices, 1)


def _experts_used(model: Model, flags: Flags) -> int:
    """Experts a token uses: the model's, or fewer with ik_llama.cpp's `-ser K,t`."""
    used = max(model.n_expert_used, 1)
    text = next((o for o in flags.other if o.startswith("-ser ")), "")
    numbers = [int(n) for n in text.removeprefix("-ser").split(",") if n.strip().isdigit()]
    return min(used, numbers[0]) if numbers and numbers[0] > 0 else used
