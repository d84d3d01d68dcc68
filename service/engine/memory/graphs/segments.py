"""A graph cut into its layers, of which each kind is described once: a model of 94 layers has a handful of kinds.

Within a segment (what comes before the layers, a layer, what follows them) a tensor is named by a code: its own tensors
count from 0, those of the previous layer from PREVIOUS, those before all layers from SHARED. What a sum fills in on
cards that had no part of it belongs to the sum's segment. A graph whose layers do not repeat is one segment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from service.engine.architectures import architecture
from service.engine.ggml_types import type_named
from service.engine.memory.cache import cache_owner, full_indexer
from service.engine.memory.graph import NONE, VIEW_OPS, Graph, Slot, joined_type
from service.engine.memory.spec import GraphSpec
from service.engine.model import Model
from service.engine.run.weights import can_fuse

PREVIOUS, SHARED = 1 << 20, 1 << 21
_Any = TypeVar("_Any")
_Cut: TypeAlias = tuple[str, int, tuple[int, ...]]


class NotRepeating(Exception):
    """A graph, or its schedule, depends on more than the kind of a layer and of the one before it."""


class _Owners:
    """The segment that each tensor of a graph belongs to, its number there, and whether all segments name it alike.

    `late`: by segment, what was made before all layers and is run by it.
    """

    def __init__(self, graph: Graph, late: Mapping[int, Sequence[int]]) -> None:
        bounds = [0, *graph.layer_starts, len(graph.op)]
        self.segment = [number for number, (a, b) in enumerate(pairwise(bounds)) for _ in range(a, b)]
        self.number = [n for a, b in pairwise(bounds) for n in range(b - a)]
        self.filled_in: dict[int, list[int]] = {}
        for t, total in graph.filled_in.items():
            owner = self.segment[t] = self.segment[total]
            others = self.filled_in.setdefault(owner, [])
            self.number[t] = bounds[owner + 1] - bounds[owner] + len(others)
            others.append(t)
        self.shared = [
            not owner or (graph.op[t] == NONE and graph.slot[t] < 0 and t not in graph.filled_in)
            for t, owner in enumerate(self.segment)
        ]
        self.late = late
        self._late_in: dict[int, list[int]] = {}
        for segment, tensors in late.items():
            for t in tensors:
                self._late_in.setdefault(t, []).append(segment)

    def grouped(self, items: Iterable[_Any], tensor: Callable[[_Any], int]) -> defaultdict[int, list[_Any]]:
        """Return by segment the items whose tensor it has."""
        found: defaultdict[int, list[_Any]] = defaultdict(list)
        for item in items:
            t = tensor(item)
            for segment in (self.segment[t], *self._late_in.get(t, ())):
                found[segment].append(item)
        return found


class _Lists:
    """The lists of a graph that name some tensors only, by the segment that has these."""

    def __init__(self, graph: Graph, owners: _Owners) -> None:
        self.pins = owners.grouped(graph.pins, _first)
        self.ram_pins = owners.grouped(graph.ram_pins, int)
        self.flash_layers = owners.grouped(graph.flash_layers, _first)
        self.on_cards = owners.grouped(graph.on_cards, _first)
        self.starts = owners.grouped(graph.starts, int)
        self.norms_at_weights = owners.grouped(graph.norms_at_weights, lambda norm: norm[1])
        self.keep_alives = owners.grouped(graph.keep_alives, lambda kept: kept.until)
        self.weights = owners.grouped(graph.weights, _first)


def _first(item: tuple[int, Any]) -> int:
    return item[0]


class Segment:
    """One layer's part of a graph, or what is in front of all layers or behind them. Tensors by code."""

    def __init__(self, graph: Graph, number: int, owners: _Owners, lists: _Lists) -> None:
        starts, late = graph.layer_starts, owners.late.get(number, ())
        self._graph, self._number, self._owners = graph, number, owners
        first = 0 if number == 0 else starts[number - 1]
        end = starts[number] if number < len(starts) else len(graph.op)
        self.whole = not starts
        own = [*(t for t in range(first, end) if t not in graph.filled_in), *owners.filled_in.get(number, ()), *late]
        self.late = [SHARED + t for t in late]
        self.leafs: list[int] = []
        code = {t: self._code(t) for t in own}
        self.codes = [code[t] for t in own]
        self.slots = [graph.slots[graph.slot[t]] for t in own if graph.slot[t] >= 0]
        self._slot_codes = {graph.slot[t]: i for i, t in enumerate(t for t in own if graph.slot[t] >= 0)}
        self.slot_of = {code[t]: self._slot_codes[graph.slot[t]] for t in own if graph.slot[t] >= 0}
        self.nodes: list[int] = []
        self.n_bytes = {code[t]: graph.n_bytes[t] for t in own}
        self.padding = {code[t]: graph.padding[t] for t in own}
        self.root = {code[t]: self._code(graph.root[t]) if graph.root[t] >= 0 else -1 for t in own}
        self.roots = {t: root for t, root in self.root.items() if root >= 0}
        self.sources = {code[t]: tuple(map(self._code, graph.sources[t])) for t in own if graph.sources[t]}
        self.overwrites = {code[t]: graph.overwrites[t] for t in own if graph.overwrites[t]}
        self.is_view = frozenset(code[t] for t in own if graph.op[t] in VIEW_OPS)
        self.home = {code[t]: self._slot(graph.home[t]) for t in own if graph.home[t] >= 0}
        self.weight = {code[t]: self._slot(graph.weight[t]) for t in own if graph.weight[t] >= 0}
        self.offloadable = frozenset(code[t] for t in own if graph.offloadable[t])
        self.outputs = frozenset(code[t] for t in own if t in graph.outputs)
        self.without_kernel = frozenset(code[t] for t in own if t in graph.without_kernel)
        self.stored = {code[t]: tuple(map(self._slot, graph.stored[t])) for t in own if t in graph.stored}
        self.flash_copies = {code[t]: graph.flash_copies[t] for t in own if t in graph.flash_copies}
        self.pins = [(code[t], self._layer_slot(layer)) for t, layer in lists.pins[number]]
        self.ram_pins = [code[t] for t in lists.ram_pins[number]]
        self.flash = [(code[t], self._layer_slot(layer)) for t, layer in lists.flash_layers[number]]
        self.on_cards = {code[t]: card for t, card in lists.on_cards[number]}
        self.starts = frozenset(code[t] for t in lists.starts[number])
        self.reduces = frozenset(code[t] for t in own if graph.op[t] == "REDUCE")
        self.norms_at_weights = [(code[a], code[b], self._slot(s)) for a, b, s in lists.norms_at_weights[number]]
        self.keep_alives = [
            (code[k.first], code[k.until], tuple(map(self._code, k.tensors)))
            for k in lists.keep_alives[number]
        ]  # fmt: skip
        self.weight_views = {code[t]: (ne, self._slot(graph.home[t])) for t, ne in lists.weights[number]}
        self._find_externals(own, code)

    def _find_externals(self, own: Sequence[int], code: dict[int, int]) -> None:
        """What other segments computed, with its bytes."""
        graph = self._graph
        read = {s for t in own for s in (*graph.sources[t], graph.root[t]) if s >= 0 and s not in code}
        roots = {t: graph.root[t] for t in read if graph.root[t] >= 0 and not self._owners.segment[t]}
        if any(graph.slot[t] >= 0 for t in (*read, *roots.values())):
            raise NotRepeating
        self.external_roots = {self._code(t): self._code(root) for t, root in roots.items()}
        self.external_bytes = {self._code(t): graph.n_bytes[t] for t in read}
        self.externals = tuple(sorted(self.external_bytes))
        self._code_of = code

    def add_node(self, t: int) -> None:
        """Append a node of the graph, under the segment's own number for it."""
        self.nodes.append(self._code_of[t])

    def add_leaf(self, t: int) -> None:
        """Append what the segment is the first to read of what is allocated before all nodes, in the engine's order."""
        self.leafs.append(self._code(t))

    def close(self) -> None:
        """Let go of the graph, once it has its nodes."""
        self.real = [t for t in self.nodes if t not in self.is_view]
        self.slots_by_part = [(slot, _part_of(slot)) for slot in self.slots]
        self.views = Counter(self.roots[t] for t in self.nodes if t in self.roots)
        if self._number and any(self.root[t] >= SHARED > t for t in self.nodes):
            raise NotRepeating
        del self._graph, self._owners, self._code_of

    def _code(self, t: int) -> int:
        owners = self._owners
        if owners.shared[t]:
            return SHARED + t
        owner = owners.segment[t]
        if owner == self._number:
            return owners.number[t]
        if owner != self._number - 1 or self._graph.slot[t] >= 0:
            raise NotRepeating
        return PREVIOUS + owners.number[t]

    def _layer_slot(self, layer: int) -> int:
        """The number of the slot whose device is the layer's own."""
        slot = Slot("layer", "", layer)
        if slot not in self.slots:
            self.slots.append(slot)
        return self.slots.index(slot)

    def _slot(self, slot: int) -> int:
        """The slot's number in its segment."""
        if slot not in self._slot_codes:
            raise NotRepeating
        return self._slot_codes[slot]


class SegmentedGraph:
    """The segments of a model's graph, and which of them each layer is; of a graph in one piece, without layers.

    `known`: the architecture has its own description. `memo`: what replays of the segments came to. `n_kept`: tensors
    in both.
    """

    def __init__(self, graph: Graph, known: bool, kept: Sequence[int] = (), segment_of: Sequence[int] = ()) -> None:
        starts, self.known = graph.layer_starts, known
        self.segment_of, self.kept = tuple(segment_of), tuple(kept)
        nodes = self._segments_of_nodes(graph)
        late: dict[int, list[int]] = {}
        for t, number in nodes:
            if number != bisect_right(starts, t):
                late.setdefault(number, []).append(t)
        owners = _Owners(graph, late)
        lists = _Lists(graph, owners)
        self.segments = [Segment(graph, n, owners, lists) for n in range(len(starts) + 1)]
        for t, number in nodes:
            self.segments[number].add_node(t)
        leafs, reader = [t for t in graph.leafs if graph.slot[t] < 0], 0
        readers = _first_readers(graph, nodes)
        for t in leafs:
            reader = readers.get(t, reader)  # one that nothing reads comes behind the one before it
            self.segments[reader].add_leaf(t)
        for segment in self.segments:
            segment.close()
        self.order = [0, *self.segment_of, len(starts)] if starts else [0]
        self.inputs = frozenset(SHARED + t for t in graph.inputs)
        shared = (t for t in leafs if not (starts and t in graph.filled_in))
        self.leaf_bytes = {SHARED + t: graph.n_bytes[t] for t in shared}
        if starts:
            self._check_names()
            self._check_leafs(graph)
        self.memo: dict[object, Any] = {}
        self.n_kept = len(graph.op)

    def _segments_of_nodes(self, graph: Graph) -> list[tuple[int, int]]:
        """Each node with the segment that runs it: its own; made before all layers, a layer that is there once."""
        reached, found = 0, []
        for t in graph.nodes:
            owner = bisect_right(graph.layer_starts, t)
            if owner < reached and (owner or self.segment_of.count(reached) > 1):
                raise NotRepeating
            reached = max(owner, reached)
            found.append((t, reached))
        return found

    def _check_names(self) -> None:
        for layer, segment in zip(self.kept, self.segments[1:-1], strict=True):
            for slot in segment.slots:
                if slot.kind in ("weight", "derived") and not slot.name.startswith(f"blk.{layer}."):
                    raise NotRepeating
                if slot.kind != "weight" and slot.layer != layer:
                    raise NotRepeating

    def _check_leafs(self, graph: Graph) -> None:
        """An input that a layer makes itself is one tensor only where one layer does."""
        if self.leaf_bytes.keys() != self.inputs:
            raise NotRepeating
        uses = [self.segment_of.count(n + 1) for n in range(len(self.kept))]
        for t, op in enumerate(graph.op):
            if op == NONE and graph.slot[t] < 0 and t not in graph.filled_in:
                owner = bisect_right(graph.layer_starts, t)
                if 1 <= owner <= len(uses) and uses[owner - 1] > 1:
                    raise NotRepeating

    @property
    def lacks_kernels(self) -> bool:
        """Whether there is an operation that no card computes."""
        return any(segment.without_kernel for segment in self.segments)

    @property
    def n_nodes(self) -> int:
        """Nodes of the whole graph."""
        return sum(len(self.segments[n].nodes) for n in self.order)


def _first_readers(graph: Graph, nodes: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return the segment of the first node that reads each tensor; a sum does not read what it fills in."""
    found: dict[int, int] = {}
    for t, number in nodes:
        for s in graph.sources[t]:
            if graph.filled_in.get(s) != t:
                found.setdefault(s, number)
    return found


class LayerSlots(NamedTuple):
    """What a segment reads of one layer of one model: its slots, and the types of the weights in them."""

    slots: tuple[Slot, ...]
    types: tuple[str | None, ...]


def slots_of(graph: SegmentedGraph, model: Model) -> list[LayerSlots]:
    """Return the slots of all segments in the model's own order: before the layers, each layer, behind them."""
    known: WeakKeyDictionary[SegmentedGraph, list[LayerSlots]]
    known = model.__dict__.setdefault("_slots", WeakKeyDictionary())
    found = known.get(graph)
    if found is None:
        layers = [None, *range(len(graph.segment_of)), None]
        found = known[graph] = [
            _layer_slots(model, graph.segments[n], layer) for n, layer in zip(graph.order, layers, strict=False)
        ]
    return found


def _layer_slots(model: Model, segment: Segment, layer: int | None) -> LayerSlots:
    slots = segment.slots if layer is None else [_of_layer(slot, part, layer) for slot, part in segment.slots_by_part]
    return LayerSlots(tuple(slots), tuple([weight_type(model, slot) for slot in slots]))


def _part_of(slot: Slot) -> str | None:
    """What a weight is of its layer; None for what is no weight."""
    return slot.name.split(".", 2)[-1] if slot.kind in ("weight", "derived") else None


def _of_layer(slot: Slot, part: str | None, layer: int) -> Slot:
    name = slot.name if part is None else f"blk.{layer}.{part}"
    return Slot(slot.kind, name, layer if slot.layer >= 0 else -1, slot.card)


# -- kinds of layers -------------------------------------------------------------------------------------------------


def kinds_of_layers(model: Model, spec: GraphSpec) -> list[int] | None:
    """Return a number for each layer, the same for layers that are described alike; None where more decides."""
    n_layer = model.n_layer - model.n_layer_nextn
    if architecture(model.architecture).layers_by_number or n_layer < 4:
        return None
    numbers: dict[object, int] = {}
    cuts: dict[str, list[_Cut]] = {}
    for name, axis, parts in spec.cards.cuts if spec.cards else ():
        cuts.setdefault(name.rpartition("blk.")[2].partition(".")[0], []).append((name.split(".", 2)[-1], axis, parts))
    lists = [v for v in model.metadata.values() if isinstance(v, list) and len(v) >= n_layer]
    idle = [_idle_cards(cuts.get(str(i), ())) for i in range(-1, n_layer + 1)]
    return [
        numbers.setdefault(
            (_kind(model, spec, i, lists), tuple(cuts.get(str(i), ())), idle[i], idle[i + 2], i == n_layer - 1),
            len(numbers),
        )
        for i in range(n_layer)
    ]


def _idle_cards(cuts: Iterable[_Cut]) -> tuple[tuple[str, tuple[bool, ...]], ...]:
    """The parts of a layer in which a card has no share: the layers next to it fill sums in for those cards."""
    return tuple((name, tuple(map(bool, parts))) for name, _, parts in cuts if not all(parts))


def _kind(model: Model, spec: GraphSpec, index: int, lists: list[Any]) -> object:
    layer = model.layers[index]
    if cache_owner(model, layer) != index:
        return index
    facts = (layer.kind, layer.n_head, layer.n_head_kv, layer.head_dim_k, layer.head_dim_v, layer.n_swa, layer.moe)
    tensors = tuple(sorted((t.name.split(".", 2)[2], t.dims) for t in model.by_layer[index]))
    types = {t.name.split(".", 2)[2]: t.type for t in model.by_layer[index]}
    alike = types.get("ffn_up_exps.weight") == types.get("ffn_gate_exps.weight")
    values = tuple(repr(v[index]) for v in lists)
    return (facts, tensors, alike, values, full_indexer(model, spec, index))


def layers_of_each_kind(kinds: Sequence[int]) -> tuple[tuple[int, ...], list[int]]:
    """Return layers among which every kind follows every kind that it does in `kinds`, and which of them each is like.

    The second are positions in the first, from 1: a layer is like the one of its kind behind the same kind.
    """
    kept: list[int] = []
    position: dict[tuple[int, int], int] = {}
    pending: list[int] = []
    before = -1
    for i, kind in enumerate(kinds):
        pending.append(i)
        if (before, kind) not in position:
            kept += _shortest(kept[-1:], pending, kinds)
            position[before, kind] = len(kept)
            pending = []
        before = kind
    pairs = zip([-1, *kinds], kinds, strict=False)
    return tuple(kept), [position[pair] for pair in pairs]


def _shortest(last: list[int], pending: list[int], kinds: Sequence[int]) -> list[int]:
    """The layers of `pending` without those that lead back to the kind of the last one kept."""
    same = [n for n, i in enumerate(pending[:-1]) if last and kinds[i] == kinds[last[0]]]
    return pending[same[-1] + 1 :] if same else pending


def shape_of(model: Model) -> bytes:
    """Return a digest of everything in a model that its graphs depend on, the bytes of weights aside.

    Variants of a repo, which differ in the types of their weights, share their graphs: these types decide the bytes of
    weights and of views of them, and whether ik fuses a layer's up and gate; nothing else in a graph. The allocator
    looks the first up in the model, the second is part of the shape.
    """
    known: bytes | None = model.__dict__.get("_graph_shape")
    if known is None:
        facts = {k: v for k, v in model.metadata.items() if k.startswith(f"{model.architecture}.")}
        tensors = sorted((t.name, t.dims) for t in model.tensors)
        of_model = (model.architecture, model.n_layer, model.n_layer_nextn, model.n_embd, model.n_vocab, model.n_expert)
        parts = (of_model, model.n_expert_used, model.layers, model.mla, model.recurrent, sorted(facts.items()))
        text = repr((parts, tensors, _fused_layers(model)))
        known = model.__dict__["_graph_shape"] = sha256(text.encode()).digest()
    return known


def _fused_layers(model: Model) -> list[str]:
    """The ups that ik can multiply together with their gates, by their types."""
    found = []
    for tensor in model.tensors:
        gate = model.by_name.get(tensor.name.replace(".ffn_up", ".ffn_gate")) if ".ffn_up" in tensor.name else None
        dense = "_exps." not in tensor.name
        if gate is not None and can_fuse(type_named(tensor.type), type_named(gate.type), dense=dense):
            found.append(tensor.name)
    return found


def weight_type(model: Model, slot: Slot) -> str | None:
    """Return the type of the weight in `slot`, of the file or made when it is loaded; None if it holds no weight."""
    if slot.kind in ("cache", "layer"):
        return None
    if slot.kind == "derived":
        parts = (model.by_name[f"blk.{slot.layer}.attn_{part}.weight"].type for part in ("k_b", "v_b"))
        return joined_type(*parts)
    tensor = model.by_name.get(slot.name)
    return (model.by_name["token_embd.weight"] if tensor is None else tensor).type
