"""The sums behind Work, made once for a model, its flags and placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

import msgspec

from service.engine.config import Engine, Flags, Placement
from service.engine.ggml_types import GgmlType, type_named
from service.engine.layers import Layer
from service.engine.model import Model
from service.engine.speed.builds import Change, changes_after
from service.engine.speed.tensors import (
    TINY,
    Row,
    Same,
    Use,
    has_gpu_kernel,
    quant_class,
    rows_of,
    type_in_memory,
)
from service.engine.speed.work import MIN_COPY_TOKENS, Attention, Move, Weights, Work

_LEGACY = ("q4_0", "q8_0", "iq4_nl")
_MUL_MAT_ID, _FUSED_UP_GATE = 28, 31  # operations of ik_llama.cpp (ggml.h, enum ggml_op)


def work_of(engine: Engine, model: Model, flags: Flags, placement: Placement, build_date: str | None = None) -> Work:
    """Return the work of one config in a build of `build_date` (YYYY-MM-DD; None: today's).

    The last 64 answers are kept (by identity of model and placement).
    """
    return _work(engine, Same(model), flags, Same(placement), changes_after(engine, build_date))


@lru_cache(maxsize=64)
def _work(
    engine: Engine,
    model_key: Same[Model],
    flags: Flags,
    placement_key: Same[Placement],
    lacks: frozenset[Change],
) -> Work:
    model, placement = model_key.value, placement_key.value
    rows = _placed_rows(rows_of(Same(model)), placement)
    devices, moves = _evaluated_on(engine, flags, rows, placement)
    host_changes, card_changes = _changes(rows, devices, placement)
    host = placement.n_devices
    mla = model.mla if engine == "ik_llama.cpp" or model.value("attention.key_length_mla") is not None else None
    return Work(
        engine=engine,
        n_devices=host,
        weights=_sum_weights(engine, flags, rows, devices, host, lacks),
        attention=_attention(engine, model, flags, rows, placement, lacks),
        moves=moves,
        state_bytes=_state_bytes(model, placement),
        n_embd=model.n_embd,
        n_expert=model.n_expert,
        n_expert_used=_experts_used(model, flags),
        mla=mla,
        mla_mode=_mla_mode(engine, flags, lacks),
        n_layer=len(placement.layers),
        gpu_layers=sum(1 for device in placement.layers if device < host),
        host_layers=len({r.layer for r in rows if devices[r.name] == host and r.counts and r.layer >= 0}),
        host_changes=host_changes,
        card_changes=card_changes,
        cache_k=type_named(flags.cache_type_k).bpw / 8,
        cache_v=type_named(flags.cache_type_v).bpw / 8,
        flash=flags.flash_attn != "off",
        fused=flags.fused_moe,
        repacked=flags.runtime_repack and engine == "ik_llama.cpp",
        copies=flags.op_offload and host > 0,
        active_experts_only=_active_experts_only(flags, lacks),
        expert_copy_tokens=_expert_copy_tokens(engine, model, lacks),
        pinned=_pinned(engine, flags, lacks),
        split_mode=flags.split_mode,
        n_ubatch=max(min(flags.n_ubatch, flags.n_batch), 1),
        lacks=lacks,
    )


def weights_of(
    engine: Engine, model: Model, flags: Flags, names: Iterable[str], device: int, work: Work
) -> tuple[Weights, ...]:
    """Return the sums of some tensors of a model as if they were on `device` of the config that `work` is of."""
    rows = rows_of(Same(model))
    chosen = [rows[name] for name in names if name in rows]
    devices = dict.fromkeys((row.name for row in chosen), device)
    return _sum_weights(engine, flags, chosen, devices, work.n_devices, work.lacks)


def _mla_mode(engine: Engine, flags: Flags, lacks: frozenset[Change]) -> int:
    if engine == "llama.cpp":
        return 1
    return (0 if "latent_by_default" in lacks else 3) if flags.mla is None else flags.mla


def _placed_rows(rows: dict[str, Row], placement: Placement) -> list[Row]:
    return [rows[name] for name in placement.tensors if name in rows]


def _evaluated_on(
    engine: Engine, flags: Flags, rows: list[Row], placement: Placement
) -> tuple[dict[str, int], tuple[Move, ...]]:
    """Return the device that multiplies each tensor, and the tensors that must cross to it every time.

    ik_llama.cpp's fused up and gate run where up is, and gate crosses to it (its issue #521: 8.7 to 1.6 t/s with two
    such layers). A type without GPU kernels is multiplied by the CPU wherever it lies (discussion #491: 17 to 1.3).
    """
    devices, host = dict(placement.tensors), placement.n_devices
    moves: list[Move] = []
    for row in rows:
        home = devices[row.name]
        target = home
        if home < host and row.counts and not has_gpu_kernel(engine, row.type) and row.n_elements > TINY:
            target = host
        elif engine == "ik_llama.cpp" and flags.fused_moe and ".ffn_gate_exps." in row.name:
            up = row.name.replace(".ffn_gate_exps.", ".ffn_up_exps.")
            target = placement.tensors.get(up, home)
        if target != home:
            devices[row.name] = target
            moves.append(Move(home, target, row.n_bytes))
    return devices, tuple(moves)


def _sum_weights(
    engine: Engine, flags: Flags, rows: list[Row], devices: dict[str, int], host: int, lacks: frozenset[Change]
) -> tuple[Weights, ...]:
    sums: dict[tuple[int, Use, str, bool, bool, bool], list[int]] = {}
    repack = flags.runtime_repack and engine == "ik_llama.cpp"
    switched_off = _switched_off(flags)
    for row in rows:
        if not row.counts:
            continue
        device = devices[row.name]
        kind = type_in_memory(row, repack and device == host)
        movable = _movable(engine, flags, row, kind, lacks) and _operation(flags, row) not in switched_off
        key = (
            device,
            row.use,
            quant_class(kind.name),
            kind.name.lower() in _LEGACY,
            kind.row_interleave > 1,
            movable,
        )
        total = sums.setdefault(key, [0, 0, 0])
        total[0] += row.n_bytes
        total[1] += row.n_elements
        total[2] += 1
    return tuple(Weights(*key, *total) for key, total in sums.items())


def _movable(engine: Engine, flags: Flags, row: Row, kind: GgmlType, lacks: frozenset[Change]) -> bool:
    """Return whether a weight in RAM can be copied to a GPU for a batch: its type has kernels there.

    Until pull request 405 ik_llama.cpp left the up and gate of fused experts to the CPU, and until interleaved types
    had kernels whatever `-rtr` had touched.
    """
    if row.n_elements <= TINY or not has_gpu_kernel(engine, kind):
        return False
    if "interleaved_on_gpu" in lacks and (kind.row_interleave > 1 or (flags.runtime_repack and row.use == "expert")):
        return False
    is_fused = flags.fused_moe and row.use == "expert" and ".ffn_down" not in row.name
    return not (is_fused and "copies_of_fused_experts" in lacks)


def _operation(flags: Flags, row: Row) -> int | None:
    """Return the operation of ik_llama.cpp that multiplies an expert tensor; None for other weights."""
    if row.use != "expert":
        return None
    return _FUSED_UP_GATE if flags.fused_moe and ".ffn_down" not in row.name else _MUL_MAT_ID


def _changes(rows: list[Row], devices: dict[str, int], placement: Placement) -> tuple[int, int]:
    """Count the changes of device while one evaluation passes through the layers: (CPU and GPU, GPU and GPU)."""
    links: dict[int, list[tuple[int, int]]] = {}
    for row in rows:
        if row.chain >= 0 and row.layer >= 0:
            links.setdefault(row.layer, []).append((row.chain, devices[row.name]))
    sequence: list[int] = []
    for layer, device in enumerate(placement.layers):
        sequence.append(device)
        sequence.extend(d for _, d in sorted(links.get(layer, ())))
    sequence.append(placement.head)
    pairs = [(a, b) for a, b in pairwise(sequence) if a != b]
    with_host = sum(1 for pair in pairs if placement.n_devices in pair)
    return with_host, len(pairs) - with_host


def _attention(
    engine: Engine, model: Model, flags: Flags, rows: list[Row], placement: Placement, lacks: frozenset[Change]
) -> tuple[Attention, ...]:
    host, repack = placement.n_devices, flags.runtime_repack and engine == "ik_llama.cpp"
    outputs = [r for r in rows if ".attn_output." in r.name and placement.tensors[r.name] == host]
    movable = {r.layer for r in outputs if _movable(engine, flags, r, type_in_memory(r, repack), lacks)}
    windows = "sliding_windows" not in lacks
    found: Counter[Attention] = Counter()
    for layer in model.layers:
        device = placement.caches[layer.index] if layer.index < len(placement.caches) else None
        if device is None or not layer.attends:
            continue
        found[_geometry(layer, device, device == host and layer.index in movable, windows)] += 1
    return tuple(msgspec.structs.replace(a, count=n) for a, n in found.items())


def _geometry(layer: Layer, device: int, movable: bool, windows: bool) -> Attention:
    n_swa = layer.n_swa if windows else 0
    return Attention(device, 1, layer.n_head, layer.n_head_kv, layer.head_dim_k, layer.head_dim_v, n_swa, movable)


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


def _expert_copy_tokens(engine: Engine, model: Model, lacks: frozenset[Change]) -> float:
    """ik_llama.cpp (ggml-cuda.cu:5180): 32 * n_expert / n_expert_used, `-ser` or not; llama.cpp (:5636): 32."""
    if engine == "llama.cpp" or not model.n_expert or "expert_threshold" in lacks:
        return MIN_COPY_TOKENS
    return MIN_COPY_TOKENS * model.n_expert / max(model.n_expert_used, 1)


def _experts_used(model: Model, flags: Flags) -> int:
    """Experts a token uses: the model's, or fewer with ik_llama.cpp's `-ser K,t`."""
    used = max(model.n_expert_used, 1)
    numbers = _numbers(flags, "-ser")
    return min(used, numbers[0]) if numbers and numbers[0] > 0 else used


def _switched_off(flags: Flags) -> set[int]:
    """Operations whose weights ik_llama.cpp's `-op operation,0` leaves in RAM (ggml.h, enum ggml_op)."""
    numbers = _numbers(flags, "-op")
    return {operation for operation, on in zip(numbers[::2], numbers[1::2], strict=False) if not on}


def _numbers(flags: Flags, option: str) -> list[int]:
    text = next((o for o in flags.other if o.startswith(f"{option} ")), "")
    return [int(n) for n in text.removeprefix(option).split(",") if n.strip().isdigit()]


def _active_experts_only(flags: Flags, lacks: frozenset[Change]) -> bool:
    """ik_llama.cpp had `-ooae` to switch it on, and has `-no-ooae` to switch it off."""
    return "-no-ooae" not in flags.other and ("active_experts_only" not in lacks or "-ooae" in flags.other)


def _pinned(engine: Engine, flags: Flags, lacks: frozenset[Change]) -> bool:
    """Whether weights in RAM are pinned for copies: ik_llama.cpp does it with overrides, both without mmap."""
    if engine == "ik_llama.cpp" and "pinned" not in lacks and (flags.overrides or flags.cpu_moe or flags.n_cpu_moe):
        return True
    return flags.mmap is False
