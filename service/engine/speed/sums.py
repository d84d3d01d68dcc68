"""The sums behind Work, made once for a model, its flags and placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import msgspec

from service.engine.config import Engine, Flags, Placement
from service.engine.engines import engine_spec
from service.engine.engines.speed import SpeedChange
from service.engine.ggml_types import type_named
from service.engine.kept import kept
from service.engine.layers import Layer
from service.engine.model import Model
from service.engine.run.resolved import ResolvedRun
from service.engine.run.settings import numbers_of
from service.engine.run.weights import Row, Same, Use, UsedWeight, WeightRules, rows_of, used_weights
from service.engine.speed.work import Attention, Weights, Work, quant_class

_Alike: TypeAlias = tuple[int, int, Use, str, str, bool, bool, int, bool]  # the fields of Weights but for the sums
_Sums: TypeAlias = tuple[tuple[_Alike, tuple[int, int, int]], ...]  # bytes, elements and tensors of what is alike
_BEFORE_UP = 1.5  # places in CHAIN by which the gate of experts moves forward where it is computed before up
_MAX_KEPT, _MAX_RULES = 64, 8
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


class _OfLayer(NamedTuple):
    """The work of one layer's weights (-1: of those in no layer) with one placement of them.

    `unfused`: the routed experts' up and gate are two operations. `on_cpu`: something is computed there.
    `copied_from`: that of the attention's output if it lies in RAM, else 0. `chain`: the devices in the order of
    evaluation.
    """

    sums: _Sums
    unfused: bool
    on_cpu: bool
    copied_from: int
    chain: tuple[int, ...]


def _work(run: ResolvedRun) -> Work:
    engine, model, flags, placement = run.engine, run.model, run.flags, run.placement
    lacks, host = changes_after(engine, run.build.date), placement.n_devices
    treatment, layers = run.treatment, _of_layers(run)
    host_changes, card_changes = _changes(layers, placement)
    attention = _attention(run, layers, windows="sliding_windows" not in lacks)
    leaving = sum(one.count for one in attention if one.fetched_to == host and one.device != host)
    states = _state_bytes(model, placement)
    memory, has_sizes = engine_spec(engine).memory, model.value("attention.key_length_mla") is not None
    mla = model.mla if has_sizes or not memory.latent_needs_sizes else None
    return Work(
        engine=engine,
        n_devices=host,
        weights=_added(one.sums for one in layers.values()),
        attention=attention,
        state_bytes=states,
        delta_bytes=states[-1] if _is_delta_net(model) else 0,
        recurrent_layers=_recurrent_layers(model, placement),
        hyper_connections=model.int_value("hyper_connection.count") > 1,
        n_embd=model.n_embd,
        n_expert=model.n_expert,
        n_expert_used=_experts_used(model, flags),
        mla=mla,
        mla_mode=run.mla,
        n_layer=len(placement.layers),
        gpu_layers=sum(1 for device in placement.layers if device < host),
        host_layers=sum(one.on_cpu for layer, one in layers.items() if layer >= 0),
        host_changes=host_changes + 2 * leaving,  # to the CPU and back
        card_changes=card_changes,
        cache_k=type_named(flags.cache_type_k).bpw / 8,
        cache_v=type_named(flags.cache_type_v).bpw / 8,
        flash=flags.flash_attn != "off",
        unfused_layers=sum(one.unfused and placement.layers[layer] < host for layer, one in layers.items()),
        rules=treatment,
        split_mode=flags.split_mode,
        parallel_cards=parallel_cards(flags, host),
        pipeline=run.may_pipeline,
        n_ubatch=run.n_ubatch,
        lacks=lacks,
    )


def _of_layers(run: ResolvedRun) -> dict[int, _OfLayer]:
    """The work of each layer's weights, by its number. That under the last 8 rules is kept with the model, because most
    placements have most of their layers in common."""
    rules, places, found = run.treatment, run.placement.tensors, dict[int, _OfLayer]()
    kept: dict[WeightRules, dict[object, _OfLayer]] = run.model.__dict__.setdefault("_of_layers", {})
    known = kept.setdefault(rules, {})
    for oldest in list(kept)[:-_MAX_RULES]:
        kept.pop(oldest, None)
    for layer, (kind, names) in _kinds_by_layer(run.model).items():
        key = kind, tuple(map(places.get, names))
        if key not in known:
            used = used_weights(rules, run.model, places, [name for name in names if name in places])
            known[key] = _of_layer(used, rules)
        found[layer] = known[key]
    return found


@kept
def _kinds_by_layer(model: Model) -> dict[int, tuple[int, list[str]]]:
    """For each layer its kind (a number, the same for layers with like tensors) and its tensors that cost time."""
    rows: dict[int, list[Row]] = {}
    for row in rows_of(model).values():
        rows.setdefault(row.layer, []).append(row)
    if model.tied and -1 in rows:  # the head comes after all layers
        rows[-1] = rows.pop(-1)
    kinds: dict[object, int] = {}
    return {
        layer: (kinds.setdefault(tuple(map(_of_its_layer, of)), len(kinds)), [row.name for row in of])
        for layer, of in rows.items()
    }


def _of_its_layer(row: Row) -> tuple[object, ...]:
    """What identifies a row apart from the number of its layer."""
    return row.name.split(".", 2)[-1], row.type.name, row.n_bytes, row.n_elements, row.rows


def _of_layer(used: Sequence[UsedWeight], rules: WeightRules) -> _OfLayer:
    unfused = any(u.row.use == "expert" and (u.row.up or u.row.gate) and not u.fused for u in used)
    forward = 0.0 if rules.up_before_gate else _BEFORE_UP
    links = (
        (u.row.chain - (forward if u.row.up and u.row.use == "expert" else 0.0), u.computed)
        for u in used
        if u.row.chain >= 0
    )
    copied = [u.copied_from for u in used if ".attn_output." in u.row.name and u.stored == rules.cpu]
    return _OfLayer(
        sums=_summed(used, {u.row.layer for u in used} if unfused else ()),
        unfused=unfused,
        on_cpu=any(u.computed == rules.cpu and u.row.counts for u in used),
        copied_from=copied[-1] if copied else 0,
        chain=tuple(device for _, device in sorted(links)),
    )


def weights_of(model: Model, names: Iterable[str], device: int, work: Work) -> tuple[Weights, ...]:
    """Return the sums of some tensors of a model as if they were on `device` in the config of `work`."""
    rows = rows_of(model)
    chosen = [rows[name] for name in names if name in rows]
    ups = (rows.get(f"blk.{layer}.ffn_up_exps.weight") for layer in {r.layer for r in chosen if r.use == "expert"})
    pairs = [(up, rows[up.gate]) for up in ups if up is not None and up.gate]
    places = dict.fromkeys((r.name for r in (*chosen, *(one for pair in pairs for one in pair))), device)
    unfused = {up.layer for up, gate in pairs if not work.rules.fuses(up, gate, device, device)}
    return _added([_summed(used_weights(work.rules, model, places, [r.name for r in chosen]), unfused)])


def _summed(used: Sequence[UsedWeight], unfused: Collection[int]) -> _Sums:
    """Add up what is alike. `unfused`: layers whose routed experts' up and gate are two operations."""
    sums: dict[_Alike, tuple[int, int, int]] = {}
    for one in used:
        row = one.row
        if row.counts:
            fused = row.use != "expert" or row.layer not in unfused
            key = (one.computed, one.stored, row.use, *_of_type(one.type.name), one.copied_from, fused)
            n_bytes, n_elements, n_tensors = sums.get(key, (0, 0, 0))
            sums[key] = n_bytes + row.n_bytes, n_elements + row.n_elements, n_tensors + 1
    return tuple(sums.items())


def _added(layers: Iterable[_Sums]) -> tuple[Weights, ...]:
    """Add up what is alike in several layers."""
    total: dict[_Alike, tuple[int, int, int]] = {}
    for sums in layers:
        for key, (n_bytes, n_elements, n_tensors) in sums:
            a, b, c = total.get(key, (0, 0, 0))
            total[key] = a + n_bytes, b + n_elements, c + n_tensors
    return tuple(Weights(*key, *sums) for key, sums in total.items())


@cache
def _of_type(name: str) -> tuple[str, str, bool, bool]:
    low = name.lower()
    return low, quant_class(low), low in _LEGACY, type_named(name).row_interleave > 1


def _changes(layers: Mapping[int, _OfLayer], placement: Placement) -> tuple[int, int]:
    """Count the changes of device while one evaluation passes through the layers: (CPU and GPU, GPU and GPU)."""
    sequence: list[int] = []
    for layer, device in enumerate(placement.layers):
        sequence.append(device)
        sequence += layers[layer].chain if layer in layers else ()
    sequence.append(placement.head)
    pairs = [(a, b) for a, b in pairwise(sequence) if a != b]
    with_host = sum(1 for pair in pairs if placement.n_devices in pair)
    return with_host, len(pairs) - with_host


def _attention(run: ResolvedRun, layers: Mapping[int, _OfLayer], *, windows: bool) -> tuple[Attention, ...]:
    """The layers that attend. Flash attention runs where its neighbours do, on the layer's GPU, also with `-nkvo`.

    That is what both schedulers do; measured on an H200 after 8,192 tokens of Qwen3-8B (docs/gpu-day.md).
    """
    placement, fetches = run.placement, run.flags.flash_attn != "off"
    in_ram = engine_spec(run.engine).memory.attends_in_ram
    host, found = placement.n_devices, Counter[Attention]()
    for layer, device in zip(run.model.layers, placement.caches, strict=False):
        if device is None or not layer.attends:
            continue
        copied = layers[layer.index].copied_from if device == host and layer.index in layers else 0
        one = _geometry(run.model, layer, device, copied, windows)
        computes = placement.layers[layer.index]
        attends = host if computes < host and in_ram(run, layer) else computes
        if attends != device and (fetches if device == host else attends == host):
            one = msgspec.structs.replace(one, fetched_to=attends)
        found[one] += 1
    return tuple(msgspec.structs.replace(a, count=n) for a, n in found.items())


def _geometry(model: Model, layer: Layer, device: int, copied_from: int, windows: bool) -> Attention:
    n_swa, compressed = layer.n_swa if windows else 0, model.compression_ratio(layer.index)
    if compressed is not None:
        n_swa = model.int_value("attention.sliding_window")
    return Attention(
        device, 1, layer.n_head, layer.n_head_kv, layer.head_dim_k, layer.head_dim_v, n_swa, copied_from,
        compressed=compressed or 0,
    )  # fmt: skip


def _state_bytes(model: Model, placement: Placement) -> tuple[int, ...]:
    """Bytes of recurrent state on each device (CPU last): f32, conv and delta-net state (ik llama.cpp, kv cache)."""
    total = [0] * (placement.n_devices + 1)
    r = model.recurrent
    if r is None:
        return tuple(total)
    size = 4 * (r.n_conv + r.n_state)
    for layer, device in zip(model.layers, placement.caches, strict=False):
        if layer.recurs and device is not None:
            total[device] += size
    return tuple(total)


@kept
def _is_delta_net(model: Model) -> bool:
    """Whether recurrent layers follow the delta rule: only those have its beta, with ssm_alpha in one tensor or not."""
    return any(".ssm_beta." in t.name or ".ssm_ba." in t.name for t in model.tensors)


def _recurrent_layers(model: Model, placement: Placement) -> int:
    """Count the layers that keep a state and compute on a GPU."""
    places = zip(model.layers, placement.layers, strict=False)
    return sum(1 for layer, device in places if layer.recurs and device < placement.n_devices)


def parallel_cards(flags: Flags, n_devices: int) -> int:
    """Return the GPUs that share a layer with `-sm graph`: all, or as many as ik_llama.cpp's `--max-gpu` allows."""
    most = next(iter(numbers_of(flags, "--max-gpu", "-max-gpu")), 0)
    return max(min(n_devices, most) if most else n_devices, 1)


def _experts_used(model: Model, flags: Flags) -> int:
    """Experts a token uses: the model's, or fewer with ik_llama.cpp's `-ser K,t`."""
    used = max(model.n_expert_used, 1)
    numbers = numbers_of(flags, "-ser", "--smart-expert-reduction")
    return min(used, numbers[0]) if numbers and numbers[0] > 0 else used


@lru_cache(maxsize=256)
def changes_after(engine: Engine, build_date: str | None) -> frozenset[SpeedChange]:
    """Return the changes that a build of `build_date` (YYYY-MM-DD) does not have yet; none without a date."""
    if build_date is None:
        return frozenset()
    return frozenset(m.change for m in engine_spec(engine).speed.milestones if build_date < m.date)
