"""The weights of a run: the type of each after loading, the device that computes with it, and which cross to another.

ik_llama.cpp's `-rtr` interleaves the rows of weights in RAM once all are loaded (llama.cpp:4912; iqk_quantize.cpp,
iqk_repack_tensor), and the graph is made with the resulting types.

In ik_llama.cpp, where up and gate are one operation (`can_fuse`), it runs where up lies, and gate crosses to it
at every evaluation (ggml-backend.cpp, ggml_backend_sched_backend_id_from_cur: the first weight decides; issue 521: 8.7
to 1.6 t/s with two such layers).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from service.engine.builds import MemoryRules
from service.engine.config import Engine, Flags, Placement
from service.engine.engines import engine_spec
from service.engine.ggml_types import ROW_TABLE, GgmlType, type_named
from service.engine.gguf.header import Tensor
from service.engine.kept import kept
from service.engine.model import Model
from service.engine.run.copies import FUSED_UP_GATE, MOE_FUSED_UP_GATE, MUL_MAT, MUL_MAT_ID, NEVER, Copies
from service.engine.tensor_names import NAMES_KEPT, layer_of, role_of

T = TypeVar("T")
Use: TypeAlias = Literal["dense", "expert", "head"]
TINY = 100_000  # elements: smaller tensors (biases, scales) are copied at no measurable cost
# Both engines evaluate a layer in this order; a change of device between two of them costs a copy.
CHAIN = (
    *("attn_output.", "ffn_norm.", "gate_inp.", "up_exps.", "gate_exps.", "gate_up_exps.", "down_exps."),
    *("gate_shexp.", "ffn_up.", "ffn_down."),
)
_KEPT_AS_THEY_ARE = frozenset({"token_embd.weight", "per_layer_token_embd.weight"})  # iqk_quantize.cpp:8448
# attn_kv_b is made of these before rows are interleaved (llama.cpp:6773), and their type decides its type.
_DERIVED_FROM = ("attn_k_b.weight", "attn_v_b.weight")
_MAX_RULES = 8
_UNFUSED = frozenset({"-no-fug", "--no-fused-up-gate"})


class Row(msgspec.Struct, frozen=True):
    """One tensor of a model. `layer` -1: none; `chain`: its place in the order of a layer, -1: none; `counts`: not a
    norm. `rows`: those of one matrix, 0 for a vector. `up`: of a gate, the name of the up that it may be fused with;
    `gate`: the other way round.
    """

    name: str
    layer: int
    use: Use
    type: GgmlType
    n_bytes: int
    n_elements: int
    rows: int
    chain: int
    counts: bool
    up: str = ""
    gate: str = ""


class UsedWeight(msgspec.Struct, frozen=True):
    """A tensor in a run. Devices are indices, the CPU last.

    `type`: after loading. `stored`: where it lies. `computed`: the device that computes with it for a token; another
    than `stored`: it crosses at every evaluation. `copied_from`: the tokens of a batch from which the first GPU
    computes with it, and it crosses to there unless it lies there (NEVER: for no batch). `fused`: up and gate of its
    layer (or of its expert layer) are one operation.
    """

    row: Row
    type: GgmlType
    stored: int
    computed: int
    copied_from: int
    fused: bool


class WeightRules(msgspec.Struct, frozen=True):
    """How an engine, of some build and with some flags, treats weights. `cpu`: the index of the CPU.

    `interleaves`: `-rtr`. `up_before_gate`: the order of the two where they are two operations. `without_kernels`:
    types that no GPU of this build multiplies by, in addition to those of the table.
    """

    engine: Engine
    cpu: int
    interleaves: bool
    fuses_experts: bool
    fuses_dense: bool
    up_before_gate: bool
    without_kernels: tuple[str, ...]
    copies: Copies

    def has_gpu_kernel(self, kind: GgmlType) -> bool:
        """Return whether a GPU multiplies by weights of this type."""
        return engine_spec(self.engine).types.gpu_kernels(kind) and kind.name not in self.without_kernels

    def loaded_type(self, row: Row, device: int) -> GgmlType:
        """Return the type of a tensor on `device` after loading."""
        return interleaved(row.name, row.type, row.rows) if self.interleaves and device == self.cpu else row.type

    def fuses(self, up: Row, gate: Row, up_device: int, gate_device: int) -> bool:
        """Return whether up and gate on these devices are one operation."""
        if up.rows != gate.rows or up.n_elements != gate.n_elements:
            return False
        expert = up.use == "expert"
        if not (self.fuses_experts if expert else self.fuses_dense):
            return False
        return can_fuse(self.loaded_type(up, up_device), self.loaded_type(gate, gate_device), dense=not expert)


def interleaved(name: str, kind: GgmlType, rows: int) -> GgmlType:
    """Return the type that `-rtr` leaves a tensor of `rows` rows (0: a vector) in RAM: with rows interleaved, if they
    fit.
    """
    if kind.repack_to is None or not rows or rows % 4 or name in _KEPT_AS_THEY_ARE:
        return kind
    if kind.block == 1 and name.endswith(_DERIVED_FROM):
        return kind
    packed = type_named(kind.repack_to)
    return kind if rows % max(1, packed.row_interleave) else packed


def can_fuse(up: GgmlType, gate: GgmlType, *, dense: bool) -> bool:
    """Return whether ik_llama.cpp can make one operation of up and gate of these types (after loading).

    ggml.c, ggml_moe_up_gate since pull request 229: one type; ggml_fused_up_gate since 741: one quantised type.
    """
    return up is gate and (not dense or up.block > 1)


def loaded(engine: Engine, model: Model, flags: Flags, placement: Placement) -> Model:
    """Return the model with the types that its tensors have after loading; as given where loading changes none.

    The last answer is kept with the model.
    """
    if not (engine_spec(engine).memory.repacks_at_load and flags.runtime_repack):
        return model
    in_ram = frozenset(name for name, device in placement.tensors.items() if device == placement.n_devices)
    known: dict[frozenset[str], Model] = model.__dict__.setdefault("_loaded", {})
    if in_ram not in known:
        known.clear()
        tensors = tuple(_loaded(t) if t.name in in_ram else t for t in model.tensors)
        known[in_ram] = msgspec.structs.replace(model, tensors=tensors)
    return known[in_ram]


def _loaded(tensor: Tensor) -> Tensor:
    rows = tensor.dims[1] if len(tensor.dims) > 1 else 0
    return msgspec.structs.replace(tensor, type=interleaved(tensor.name, type_named(tensor.type), rows).name)


def weight_rules(engine: Engine, flags: Flags, cpu: int, rules: MemoryRules, copies: Copies) -> WeightRules:
    """Return how these flags treat weights, in a build of which `rules` hold."""
    memory = engine_spec(engine).memory
    return WeightRules(
        engine=engine,
        cpu=cpu,
        interleaves=memory.repacks_at_load and flags.runtime_repack,
        fuses_experts=memory.fuses_up_and_gate and flags.fused_moe,
        fuses_dense=memory.fuses_up_and_gate and rules.fused_dense and not _UNFUSED & set(flags.other),
        up_before_gate=memory.up_before_gate and rules.up_before_gate,
        without_kernels=rules.only_in_ram,
        copies=copies,
    )


def used_weights(
    rules: WeightRules, model: Model, places: Mapping[str, int], names: Iterable[str] | None = None
) -> list[UsedWeight]:
    """Return the tensors of `places` (all, or those of `names`) as a run uses them. `places`: device by name.

    What was found under one of the last 8 rules is kept with the model: most placements differ in a few tensors.
    """
    rows, found = rows_of(model), []
    kept: dict[WeightRules, dict[tuple[str, int, int | None], UsedWeight]] = model.__dict__.setdefault("_used", {})
    known = kept.setdefault(rules, {})
    for oldest in list(kept)[:-_MAX_RULES]:
        kept.pop(oldest, None)
    for name in places if names is None else names:
        row = rows.get(name)
        if row is not None:
            key = name, places[name], places.get(row.up or row.gate)
            used = known.get(key)
            if used is None:
                used = known[key] = _used(rules, rows, places, row)
            found.append(used)
    return found


def _used(rules: WeightRules, rows: Mapping[str, Row], places: Mapping[str, int], row: Row) -> UsedWeight:
    stored, fused = places[row.name], False
    kind, computed = rules.loaded_type(row, stored), stored
    if row.up or row.gate:
        up, gate = row.up or row.name, row.gate or row.name
        if up in places and gate in places and rules.fuses(rows[up], rows[gate], places[up], places[gate]):
            fused, computed = True, places[up]
    if row.n_elements <= TINY or not row.counts:
        return UsedWeight(row, kind, stored, computed, NEVER, fused)
    on_gpu = rules.has_gpu_kernel(kind)
    if not on_gpu:  # the CPU multiplies, wherever it lies (discussion 491: 17 to 1.3 t/s)
        return UsedWeight(row, kind, stored, rules.cpu, NEVER, fused)
    least = rules.copies.least_tokens(_operation(row, fused), kind) if computed == rules.cpu else NEVER
    return UsedWeight(row, kind, stored, computed, least, fused)


def _operation(row: Row, fused: bool) -> int:
    if row.use == "expert":
        return MOE_FUSED_UP_GATE if fused else MUL_MAT_ID
    return FUSED_UP_GATE if fused else MUL_MAT


class Same(Generic[T]):
    """A key by identity, for models and placements, which are too large to hash."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value


@kept
def rows_of(model: Model) -> dict[str, Row]:
    """Return the tensors of a model by name; those that cost no time (embedding, row tables) are left out."""
    rows: dict[str, Row] = {}
    for tensor in model.tensors:
        of = _of_name(tensor.name, model.tied)
        if of is None or tensor.type == ROW_TABLE:
            continue
        rows[of.name] = Row(
            name=of.name,
            layer=of.layer,
            use=of.use,
            type=type_named(tensor.type),
            n_bytes=tensor.nbytes,
            n_elements=tensor.n_elements,
            rows=tensor.dims[1] if len(tensor.dims) > 1 else 0,
            chain=of.chain,
            counts=of.counts,
            up=of.up if of.up in model.by_name else "",
            gate=of.gate if of.gate in model.by_name else "",
        )
    return rows


class _OfName(NamedTuple):
    """The fields of a row that follow from its name."""

    name: str
    layer: int
    use: Use
    chain: int
    counts: bool
    up: str
    gate: str


@lru_cache(maxsize=NAMES_KEPT)
def _of_name(name: str, tied: bool) -> _OfName | None:
    """Return the fields of a row that follow from its name; None for tensors that cost no time."""
    role, layer = role_of(name), layer_of(name)
    if role == "nextn" or (role == "token_embd" and not (tied and name == "token_embd.weight")):
        return None
    chain = next((i for i, part in enumerate(CHAIN) if f"{part}weight" in name), -1)
    up, gate = _pair(name)
    counts = role != "norm" and "_norm." not in name
    name = "output.weight" if role == "token_embd" else name
    use: Use = "expert" if role == "expert" else "head" if name.startswith("output") else "dense"
    return _OfName(name, -1 if layer is None else layer, use, chain, counts, up, gate)


def _pair(name: str) -> tuple[str, str]:
    """Return (up, gate): for a gate the name of its up, for an up that of its gate."""
    for suffix in ("_exps", "_shexp", ""):
        up, gate = f".ffn_up{suffix}.weight", f".ffn_gate{suffix}.weight"
        if name.endswith(gate):
            return name.removesuffix(gate) + up, ""
        if name.endswith(up):
            return "", name.removesuffix(up) + gate
    return "", ""
