"""What one config makes the devices do: bytes, weights and changes of device, summed once for a model and placement."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import pairwise
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec

from service.engine.config import Engine, Flags, Placement
from service.engine.ggml_types import GgmlType, type_named
from service.engine.model import Layer, Mla, Model, layer_of, role_of

T = TypeVar("T")
Use: TypeAlias = Literal["dense", "expert", "head"]
_LEGACY = ("q4_0", "q8_0", "iq4_nl")
# llama.cpp and ik_llama.cpp evaluate a layer in this order; a change of device between two of them costs a copy.
_CHAIN = (
    *("attn_output.", "ffn_norm.", "gate_inp.", "up_exps.", "gate_exps.", "gate_up_exps.", "down_exps."),
    *("gate_shexp.", "ffn_up.", "ffn_down."),
)


class Weights(msgspec.Struct, frozen=True):
    """Weights of one use and kind of type on one device: bytes, elements, tensors.

    `quant`: k | iqk | iq | iq1 | kt | f (k: legacy types too); `legacy`: q4_0, q8_0, iq4_nl. `gpu_kernel`: the engine
    can multiply the type on a GPU.
    """

    device: int
    use: Use
    quant: str
    legacy: bool
    interleaved: bool
    gpu_kernel: bool
    n_bytes: int
    n_elements: int
    n_tensors: int


class Attention(msgspec.Struct, frozen=True):
    """`count` layers of one geometry whose cache is on `device`. `movable`: their weights in RAM may go to a GPU for a
    batch, and their attention with them."""

    device: int
    count: int
    n_head: int
    n_head_kv: int
    head_dim_k: int
    head_dim_v: int
    n_swa: int
    movable: bool


class Move(msgspec.Struct, frozen=True):
    """Bytes of weights that cross from one device to another at every evaluation."""

    source: int
    target: int
    n_bytes: int


class Work(msgspec.Struct, frozen=True):
    """Everything about a config that speed depends on, but for the hardware and the depth.

    `mla_mode` 0: heads are cached; 1 and 3: the latent is; 2: the latent, without flash attention for one token.
    `cache_k`, `cache_v` in bytes an element; `n_ubatch` tokens of a micro-batch; `state_bytes` of recurrent layers by
    device; `host_changes` between CPU and GPU and `card_changes` between GPUs for one evaluation.
    """

    engine: Engine
    n_devices: int
    weights: tuple[Weights, ...]
    attention: tuple[Attention, ...]
    moves: tuple[Move, ...]
    state_bytes: tuple[int, ...]
    n_embd: int
    n_expert: int
    n_expert_used: int
    mla: Mla | None
    mla_mode: int
    n_layer: int
    gpu_layers: int
    host_layers: int
    host_changes: int
    card_changes: int
    cache_k: float
    cache_v: float
    flash: bool
    fused: bool
    repacked: bool
    copies: bool
    pinned: bool
    split_mode: str
    n_ubatch: int

    @property
    def share(self) -> float:
        """The share of the experts that one token uses."""
        return self.n_expert_used / self.n_expert if self.n_expert else 1.0

    @property
    def recurrent(self) -> bool:
        """Whether some layers keep a state in place of a cache."""
        return any(self.state_bytes)


class _Row(msgspec.Struct, frozen=True):
    """A tensor as far as speed goes. `link`: its place in the chain of a layer, -1 for none."""

    name: str
    layer: int
    use: Use
    type: GgmlType
    n_bytes: int
    n_elements: int
    chain: int
    counts: bool


class _Same(Generic[T]):
    """A key that is equal to itself only: models and placements are too large to hash."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value


def work_of(engine: Engine, model: Model, flags: Flags, placement: Placement) -> Work:
    """Return the work of one config. The last 64 answers are kept (by identity of model and placement)."""
    return _work(engine, _Same(model), flags, _Same(placement))


@lru_cache(maxsize=64)
def _work(engine: Engine, model_key: _Same[Model], flags: Flags, placement_key: _Same[Placement]) -> Work:
    model, placement = model_key.value, placement_key.value
    rows = _placed_rows(_rows(_Same(model)), placement)
    devices, moves = _evaluated_on(engine, flags, rows, placement)
    host_changes, card_changes = _changes(rows, devices, placement)
    host = placement.n_devices
    mla = model.mla if engine == "ik_llama.cpp" or model.value("attention.key_length_mla") is not None else None
    return Work(
        engine=engine,
        n_devices=host,
        weights=_sum_weights(engine, flags, rows, devices, host),
        attention=_attention(engine, model, flags, rows, placement),
        moves=moves,
        state_bytes=_state_bytes(model, placement),
        n_embd=model.n_embd,
        n_expert=model.n_expert,
        n_expert_used=max(model.n_expert_used, 1),
        mla=mla,
        mla_mode=(3 if flags.mla is None else flags.mla) if engine == "ik_llama.cpp" else 1,
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
        pinned=_pinned(engine, flags),
        split_mode=flags.split_mode,
        n_ubatch=max(min(flags.n_ubatch, flags.n_batch), 1),
    )


def quant_class(name: str) -> str:
    """Return the class of a tensor type as calibration names it: k | iqk | iq | iq1 | kt | f."""
    base = name.lower().split("_r")[0]
    if base in ("f32", "f16", "bf16"):
        return "f"
    if base.endswith("_kt"):
        return "kt"
    if base.startswith("iq") and ("_k" in base):
        return "iqk"
    if base.startswith("iq1"):
        return "iq1"
    return "iq" if base.startswith(("iq2", "iq3")) else "k"


@lru_cache(maxsize=64)
def _rows(model_key: _Same[Model]) -> dict[str, _Row]:
    """The tensors of a model by name; those that cost no time (embedding, norms) are left out."""
    model = model_key.value
    rows: dict[str, _Row] = {}
    for tensor in model.tensors:
        role = role_of(tensor.name)
        if role == "nextn" or (role == "token_embd" and not (model.tied and tensor.name == "token_embd.weight")):
            continue
        name = "output.weight" if role == "token_embd" else tensor.name
        use: Use = "expert" if role == "expert" else "head" if name.startswith("output") else "dense"
        n_elements = 1
        for d in tensor.dims:
            n_elements *= d
        layer = layer_of(tensor.name)
        chain = next((i for i, part in enumerate(_CHAIN) if f"{part}weight" in tensor.name), -1)
        rows[name] = _Row(
            name=name,
            layer=-1 if layer is None else layer,
            use=use,
            type=type_named(tensor.type),
            n_bytes=tensor.nbytes,
            n_elements=n_elements,
            chain=chain,
            counts=role != "norm" and "_norm." not in name,
        )
    return rows


def _placed_rows(rows: dict[str, _Row], placement: Placement) -> list[_Row]:
    return [rows[name] for name in placement.tensors if name in rows]


def _evaluated_on(
    engine: Engine, flags: Flags, rows: list[_Row], placement: Placement
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
        if home < host and row.counts and not _gpu_kernel(engine, row.type) and row.n_elements > _TINY:
            target = host
        elif engine == "ik_llama.cpp" and flags.fused_moe and ".ffn_gate_exps." in row.name:
            up = row.name.replace(".ffn_gate_exps.", ".ffn_up_exps.")
            target = placement.tensors.get(up, home)
        if target != home:
            devices[row.name] = target
            moves.append(Move(home, target, row.n_bytes))
    return devices, tuple(moves)


_TINY = 100_000  # elements: biases and scales are copied as activations are, at no cost that shows


def _gpu_kernel(engine: Engine, kind: GgmlType) -> bool:
    return kind.cuda_ik if engine == "ik_llama.cpp" else kind.cuda_mainline


def _sum_weights(
    engine: Engine, flags: Flags, rows: list[_Row], devices: dict[str, int], host: int
) -> tuple[Weights, ...]:
    sums: dict[tuple[int, Use, str, bool, bool, bool], list[int]] = {}
    repack = flags.runtime_repack and engine == "ik_llama.cpp"
    for row in rows:
        if not row.counts:
            continue
        device = devices[row.name]
        kind = _in_memory(row, repack and device == host)
        movable = _gpu_kernel(engine, kind) and row.n_elements > _TINY
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


def _in_memory(row: _Row, repack: bool) -> GgmlType:
    """The type of a tensor after loading: -rtr interleaves the rows of what is in RAM."""
    return type_named(row.type.repack_to) if repack and row.type.repack_to and row.n_elements > _TINY else row.type


def _changes(rows: list[_Row], devices: dict[str, int], placement: Placement) -> tuple[int, int]:
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
    engine: Engine, model: Model, flags: Flags, rows: list[_Row], placement: Placement
) -> tuple[Attention, ...]:
    host, repack = placement.n_devices, flags.runtime_repack and engine == "ik_llama.cpp"
    outputs = [r for r in rows if ".attn_output." in r.name and placement.tensors[r.name] == host]
    movable = {r.layer for r in outputs if _gpu_kernel(engine, _in_memory(r, repack))}
    found: Counter[Attention] = Counter()
    for layer in model.layers:
        device = placement.caches[layer.index] if layer.index < len(placement.caches) else None
        if device is None or layer.kind != "attention":
            continue
        found[_geometry(layer, device, device == host and layer.index in movable)] += 1
    return tuple(msgspec.structs.replace(a, count=n) for a, n in found.items())


def _geometry(layer: Layer, device: int, movable: bool) -> Attention:
    return Attention(device, 1, layer.n_head, layer.n_head_kv, layer.head_dim_k, layer.head_dim_v, layer.n_swa, movable)


def _state_bytes(model: Model, placement: Placement) -> tuple[int, ...]:
    """Bytes of recurrent state on each device (CPU last): f32, conv and delta-net state (ik llama.cpp, kv cache)."""
    total = [0] * (placement.n_devices + 1)
    r = model.recurrent
    if r is None:
        return tuple(total)
    rank = max(r.time_step_rank, 1)
    conv = max(r.conv_kernel - 1, 0) * (2 * r.state_size * r.group_count + r.inner_size)
    size = 4 * (conv + r.inner_size // rank * r.inner_size)
    for layer in model.layers:
        device = placement.caches[layer.index] if layer.index < len(placement.caches) else None
        if layer.kind == "recurrent" and device is not None:
            total[device] += size
    return tuple(total)


def _pinned(engine: Engine, flags: Flags) -> bool:
    """Whether weights in RAM are pinned for copies: ik_llama.cpp does it with overrides, both without mmap."""
    if engine == "ik_llama.cpp" and (flags.overrides or flags.cpu_moe or flags.n_cpu_moe):
        return True
    return flags.mmap is False
