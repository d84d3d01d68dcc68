"""A graph cut into segments, one a layer; layers of one kind have one segment: 94 layers are a handful of kinds.

A graph whose layers do not repeat is one segment. Which segment a tensor belongs to: `owners.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from service.engine.memory.graph import VIEW_OPS, Graph, Slot, joined_type
from service.engine.memory.graphs.owners import PREVIOUS, SHARED, Lists, NotRepeating, Owners
from service.engine.model import Model

_OF_LAYER = re.compile(r"blk\.(\d+)\.(.*)")


class _Codes(dict[int, int]):
    """The codes of tensors in a segment: each is asked for many times, and found once."""

    def __init__(self, owners: Owners, number: int) -> None:
        self._owners, self._number = owners, number

    def __missing__(self, t: int) -> int:
        code = self[t] = self._owners.code(self._number, t)
        return code


class _SlotCodes(dict[int, int]):
    """The numbers of slots in a segment."""

    def __missing__(self, slot: int) -> int:
        raise NotRepeating


class Segment:
    """One layer's part of a graph, or what comes before or after all layers. Tensors are named by their codes."""

    def __init__(self, graph: Graph, number: int, owners: Owners, lists: Lists) -> None:
        self._graph, self._owners = graph, owners
        self.whole = not graph.layer_starts
        own = owners.own(number)
        self.late = [SHARED + t for t in owners.late.get(number, ())]
        self.leafs: list[int] = []
        code = self._code = _Codes(owners, number)
        self.codes = [code[t] for t in own]
        self.slots = [graph.slots[graph.slot[t]] for t in own if graph.slot[t] >= 0]
        slot = self._slot_codes = _SlotCodes(
            {graph.slot[t]: i for i, t in enumerate(t for t in own if graph.slot[t] >= 0)}
        )
        of_layer = 0 < number < owners.n_segments - 1
        self.stored_twice = frozenset(
            code[t]
            for t in own
            if t in owners.stored_twice or (of_layer and graph.slot[t] >= 0 and _is_of_all(graph.slots[graph.slot[t]]))
        )
        inputs = frozenset(graph.inputs)
        self.own_inputs = frozenset(code[t] for t in own if t in inputs and code[t] < PREVIOUS)
        self.slot_of = {code[t]: slot[graph.slot[t]] for t in own if graph.slot[t] >= 0}
        self.nodes: list[int] = []
        self.n_bytes = {code[t]: graph.n_bytes[t] for t in own}
        self.padding = {code[t]: graph.padding[t] for t in own}
        self.root = {code[t]: code[graph.root[t]] if graph.root[t] >= 0 else -1 for t in own}
        self.roots = {t: root for t, root in self.root.items() if root >= 0}
        self.sources = {code[t]: tuple([code[s] for s in graph.sources[t]]) for t in own if graph.sources[t]}
        self.overwrites = {code[t]: graph.overwrites[t] for t in own if graph.overwrites[t]}
        self.is_view = frozenset(code[t] for t in own if graph.op[t] in VIEW_OPS)
        self.home = {code[t]: slot[graph.home[t]] for t in own if graph.home[t] >= 0}
        self.weight = {code[t]: slot[graph.weight[t]] for t in own if graph.weight[t] >= 0}
        self.offloadable = frozenset(code[t] for t in own if graph.offloadable[t])
        self.outputs = frozenset(code[t] for t in own if t in graph.outputs)
        self.without_kernel = frozenset(code[t] for t in own if t in graph.without_kernel)
        self.stored = {code[t]: tuple([slot[s] for s in graph.stored[t]]) for t in own if t in graph.stored}
        self.flash_copies = {code[t]: graph.flash_copies[t] for t in own if t in graph.flash_copies}
        self.pins = [(code[t], self._layer_slot(layer)) for t, layer in lists.pins[number]]
        self.ram_pins = [code[t] for t in lists.ram_pins[number]]
        self.flash = [(code[t], self._layer_slot(layer)) for t, layer in lists.flash_layers[number]]
        self.on_cards = {code[t]: card for t, card in lists.on_cards[number]}
        self.starts = frozenset(code[t] for t in lists.starts[number])
        self.reduces = frozenset(code[t] for t in own if graph.op[t] == "REDUCE")
        self.norms_at_weights = [(code[a], code[b], slot[s]) for a, b, s in lists.norms_at_weights[number]]
        self.keep_alives = [
            (code[k.first], code[k.until], tuple([code[t] for t in k.tensors])) for k in lists.keep_alives[number]
        ]
        self.weight_views = {code[t]: (ne, slot[graph.home[t]]) for t, ne in lists.weights[number]}
        self._find_externals(own)

    def _find_externals(self, own: Sequence[int]) -> None:
        """Note the tensors read here that other segments compute, with their bytes."""
        graph, code = self._graph, self._code
        read = {s for t in own for s in graph.sources[t]} | {graph.root[t] for t in own}
        read = read.difference(own, (-1,))
        roots = {t: graph.root[t] for t in read if graph.root[t] >= 0 and self._owners.is_shared(graph.root[t])}
        if any(graph.slot[t] >= 0 for t in (*read, *roots.values())):
            raise NotRepeating
        self.external_roots = {code[t]: code[root] for t, root in roots.items()}
        self.external_bytes = {code[t]: graph.n_bytes[t] for t in read}
        self.externals = tuple(sorted(self.external_bytes))

    def add_node(self, t: int) -> None:
        """Append a node of the graph, by its code here."""
        self.nodes.append(self._code[t])

    def add_leaf(self, t: int) -> None:
        """Append a leaf, allocated before all nodes, that this segment is the first to read; in the engine's order."""
        self.leafs.append(self._code[t])

    def close(self) -> None:
        """Finish the segment once it has its nodes, and let go of the graph."""
        self.real = [t for t in self.nodes if t not in self.is_view]
        self.views = Counter(self.roots[t] for t in self.nodes if t in self.roots)
        del self._graph, self._owners, self._code, self._slot_codes

    def _layer_slot(self, layer: int) -> int:
        """The number of the slot whose device is the layer's own."""
        slot = Slot("layer", "", layer)
        if slot not in self.slots:
            self.slots.append(slot)
        return self.slots.index(slot)


class Linked(Protocol):
    """A part of what a replay came to that is linked to others in circles, which only collecting cycles would free."""

    def unlink(self) -> None:
        """Forget what is linked to it and can be computed again."""


class SegmentedGraph:
    """The segments of a model's graph, and the one of each layer; a graph in one piece has no layers.

    `kept`: the layers that the graph describes. `segment_of`: for each layer of the model the number, from 1, of the
    one of these that it is like (None: layers are alike if their segments are equal). `running`: the layers that run
    anything, with their segments. `known`: the architecture has a description of its own. `memo`: results of replays.
    `n_kept`: the size of segments and results, in tensors. `rope_bytes`: of the rope factors of one layer. `far_bytes`:
    of each tensor that more segments than the next one read; `far_roots`: what those that are views show a part of.
    """

    def __init__(
        self, graph: Graph, owners: Owners, known: bool, kept: Sequence[int] = (),
        segment_of: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        starts, self.known = graph.layer_starts, known
        lists = Lists(graph, owners)
        self.segments = {n: Segment(graph, n, owners, lists) for n in range(owners.n_segments)}
        for t, number in owners.nodes:
            self.segments[number].add_node(t)
        leafs, reader = [t for t in graph.leafs if graph.slot[t] < 0], 0
        readers = _first_readers(graph, owners.nodes)
        for t in leafs:
            reader = readers.get(t, reader)  # one that nothing reads follows the leaf before it
            self.segments[reader].add_leaf(t)
        for segment in self.segments.values():
            segment.close()
        self.inputs = frozenset(SHARED + t for t in graph.inputs)
        self.leaf_bytes = {SHARED + t: graph.n_bytes[t] for t in leafs if owners.is_shared(t)}
        if starts and not self.leaf_bytes.keys() <= self.inputs:
            raise NotRepeating
        self.far_bytes = {SHARED + t: graph.n_bytes[t] for t in owners.far}
        self.far_roots = {SHARED + t: SHARED + graph.root[t] for t in owners.far if graph.root[t] >= 0}
        place = {layer: n for n, layer in enumerate(kept)}
        self.slots = [_relative(self.segments[n + 1].slots, n, place) for n in range(len(kept))]
        self.segment_of = tuple(self._alike() if segment_of is None and starts else segment_of or ())
        self.running = [(i, n) for i, n in enumerate(self.segment_of) if self.segments[n].nodes]
        self.order = [0, *(n for _, n in self.running), len(starts)] if starts else [0]
        self.segments = {n: self.segments[n] for n in dict.fromkeys(self.order)}
        ropes = (
            s.n_bytes[t] for s in self.segments.values() for t, n in s.slot_of.items() if s.slots[n].kind == "rope"
        )
        self.rope_bytes = next(ropes, 0)
        self.memo: dict[object, Any] = {}
        self.linked: list[Linked] = []
        self.n_kept = self._n_tensors = len(graph.op)

    def forget(self) -> None:
        """Drop what replays came to: a graph in one piece is met in each way only once."""
        self.memo.clear()
        linked, self.linked = self.linked, []
        for part in linked:
            part.unlink()
        self.n_kept = self._n_tensors

    def __del__(self) -> None:
        for part in getattr(self, "linked", ()):  # without them where the layers do not repeat
            part.unlink()

    def _alike(self) -> Iterator[int]:
        """Yield for each layer the first segment that is equal to its own."""
        known: dict[object, list[int]] = {}
        for number, segment in list(self.segments.items())[1:-1]:
            same = known.setdefault((tuple(segment.nodes), tuple(segment.codes)), [])
            first = next((n for n in same if self._are_alike(n, number)), number)
            if first == number:
                same.append(number)
            yield first

    def _are_alike(self, one: int, other: int) -> bool:
        a, b = vars(self.segments[one]), vars(self.segments[other])
        return self.slots[one - 1] == self.slots[other - 1] and all(a[k] == b[k] for k in a if k != "slots")

    @cached_property
    def slots_in_order(self) -> list[tuple[Slot, ...]]:
        """The slots of all segments in the model's order: before the layers, each layer, after them."""
        of_layers = (tuple([_slot_in(place, i) for place in self.slots[n - 1]]) for i, n in self.running)
        ends = [tuple(self.segments[n].slots) for n in dict.fromkeys((self.order[0], self.order[-1]))]
        return [ends[0], *of_layers, *ends[1:]]

    @property
    def lacks_kernels(self) -> bool:
        """Whether there is an operation that no card computes."""
        return any(segment.without_kernel for segment in self.segments.values())

    @property
    def n_nodes(self) -> int:
        return sum(len(self.segments[n].nodes) for n in self.order)


def _first_readers(graph: Graph, nodes: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return the segment of the first node that reads each tensor; a sum does not read what it fills in."""
    found: dict[int, int] = {}
    for t, number in nodes:
        for s in graph.sources[t]:
            if graph.filled_in.get(s) != t:
                found.setdefault(s, number)
    return found


class _Place(NamedTuple):
    """A slot as any layer of the kind has it: without a layer's number, the end of the weight's name (None: no weight
    of a layer), and its layer, counted from the one that reads it."""

    slot: Slot
    part: str | None
    offset: int


class LayerSlots(NamedTuple):
    """What a segment reads of one layer of one model: its slots, and the types of the weights in them."""

    slots: tuple[Slot, ...]
    types: tuple[str | None, ...]


def slots_of(graph: SegmentedGraph, model: Model) -> list[LayerSlots]:
    """Return the slots of all segments in the model's own order, with the types that its weights have."""
    known: WeakKeyDictionary[SegmentedGraph, list[LayerSlots]]
    known = model.__dict__.setdefault("_slots", WeakKeyDictionary())
    found = known.get(graph)
    if found is None:
        found = known[graph] = [
            LayerSlots(slots, tuple([weight_type(model, slot) for slot in slots])) for slots in graph.slots_in_order
        ]
    return found


def _is_of_all(slot: Slot) -> bool:
    """Whether all layers may read a weight."""
    return slot.kind == "weight" and _OF_LAYER.match(slot.name) is None


def _relative(slots: Sequence[Slot], number: int, place: Mapping[int, int]) -> list[_Place]:
    """The slots of a segment relative to its layer, which is the one of this number among those in `place`.

    Raises NotRepeating where a slot is of a layer that is not in `place`.
    """
    found = []
    for slot in slots:
        of, part = slot.layer, None
        if slot.kind in ("weight", "derived"):
            match = _OF_LAYER.match(slot.name)
            if match is None and slot.kind == "weight":  # any layer may read it
                found.append(_Place(slot, None, 0))
                continue
            if match is None:
                raise NotRepeating
            of, part = int(match[1]), match[2]
        if of not in place:
            raise NotRepeating
        plain = Slot(slot.kind, "" if part else slot.name, min(slot.layer, 0), slot.card)
        found.append(_Place(plain, part, place[of] - number))
    return found


def _slot_in(place: _Place, layer: int) -> Slot:
    (kind, name, layer_given, card), part, offset = place
    at = layer + offset
    return Slot(kind, name if part is None else f"blk.{at}.{part}", at if layer_given >= 0 else -1, card)


def weight_type(model: Model, slot: Slot) -> str | None:
    """Return the type of the weight in `slot`, of the file or made when it is loaded; None if it holds no weight."""
    if slot.kind in ("cache", "layer"):
        return None
    if slot.kind == "derived":
        parts = (model.by_name[f"blk.{slot.layer}.attn_{part}.weight"].type for part in ("k_b", "v_b"))
        return joined_type(*parts)
    tensor = model.by_name.get(slot.name)
    return (model.by_name["token_embd.weight"] if tensor is None else tensor).type
