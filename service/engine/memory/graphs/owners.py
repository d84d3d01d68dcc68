"""Which tensors of a graph belong to which segment, and how each segment names them.

Within a segment (what comes before the layers, a layer, what follows them) a tensor is named by a code: its own tensors
count from 0, those of the previous segment from PREVIOUS; those made before all layers, or read in more distant
segments, from SHARED, by their number in the graph. A copy made for the n-th segment from here has the code that its
tensor has there, plus AHEAD + n * FARTHER.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeVar

from service.engine.memory.graph import NONE, Graph

PREVIOUS, SHARED = 1 << 20, 1 << 21
ROPES = SHARED + (1 << 20)  # plus the device: the rope factors that all layers there share
AHEAD, FARTHER, FARTHEST = 1 << 22, 1 << 16, 180
_Any = TypeVar("_Any")


class NotRepeating(Exception):
    """A graph, or its schedule, depends on more than the kinds of a layer and of its neighbours."""


class Owners:
    """The segments that a graph's tensors belong to. A graph without layers is one segment.

    - A node belongs to the segment that runs it. If others than the next segment read it, it has one code for all of
      them nevertheless (`far`). So has what is made before all layers and run by one of them. `late` has both kinds.
    - What is stored belongs to each segment that reads it (`stored_twice`: those read by several).
    - What a layer made and nothing computes, an input or what a sum fills in, belongs to the first segment that reads
      it if no other but the next one does; else all segments share it.

    `ahead`: segments may run nodes of layers up to so many later, before the last of their own.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph, starts = graph, graph.layer_starts
        self.n_before = starts[0] if starts else len(graph.op)
        self.n_segments = len(starts) + 1
        self.ahead = 0
        self.nodes = list(self._run_by())
        self.late: dict[int, list[int]] = {}
        self._before = self._non_empty_before()
        self.far = self._read_from_afar()
        self._own: list[set[int]] = [set() for _ in range(self.n_segments)]
        self._own[0].update(range(self.n_before))
        self._readers: dict[int, set[int]] = {}
        self.stored_twice: set[int] = set()
        for t, number in self.nodes:
            self._take(t, number)
        self._shared = {t for t in graph.leafs if graph.slot[t] < 0 and t not in self._readers} | self.far
        for t, readers in self._readers.items():
            self._take_read(t, readers)
        self._numbers = [{t: n for n, t in enumerate(sorted(own))} for own in self._own]

    def _run_by(self) -> Iterator[tuple[int, int]]:
        """Yield each node with its segment: a layer's segment ends with the last node that was made in the layer.

        Nodes of later layers may run before that. Where they are not of the next layer, the layers up to it are joined.
        """
        nodes, starts = self._graph.nodes, self._graph.layer_starts
        made = [bisect_right(starts, t) for t in nodes]
        ends = [next((at for at, owner in enumerate(made) if owner), len(nodes)), *[0] * len(starts)]
        for at, owner in enumerate(made):
            if owner:
                ends[owner] = at + 1
        ends = list(accumulate(ends, max))
        number, found = 0, []
        for at in range(len(nodes)):
            while number < len(starts) and at >= ends[number]:
                number += 1
            found.append(number)
        joined = list(range(len(ends)))
        for first, owner in sorted({(n, owner) for n, owner in zip(found, made, strict=True) if n < owner - 1}):
            joined[first:owner] = [joined[first]] * (owner - first)
        for t, number, owner in zip(nodes, found, made, strict=True):
            self.ahead = max(self.ahead, owner - joined[number])
            yield t, joined[number]

    def _non_empty_before(self) -> list[int]:
        """For each segment the last one before it that runs anything: the next one may run all that a layer made."""
        running, found = {number for _, number in self.nodes}, [0]
        for number in range(1, self.n_segments):
            found.append(number - 1 if number - 1 in running else found[-1])
        return found

    def _read_from_afar(self) -> set[int]:
        """Return the nodes made in layers that other segments than their own and the next one read, and what these are
        views of."""
        graph, segment_of = self._graph, dict(self.nodes)
        found = set()
        for t, number in self.nodes:
            for s in (*graph.sources[t], graph.root[t]):
                if s >= self.n_before and segment_of.get(s, number) not in (number, self._before[number]):
                    found.add(s)
        return found | {graph.root[t] for t in found if graph.root[t] in segment_of}

    def _take(self, t: int, number: int) -> None:
        graph = self._graph
        if t >= self.n_before and t not in self.far:
            self._own[number].add(t)
        elif number:
            self.late.setdefault(number, []).append(t)
        for s in (*graph.sources[t], graph.root[t]):
            if s >= 0 and graph.op[s] == NONE:
                self._readers.setdefault(s, set()).add(number)

    def _take_read(self, t: int, readers: set[int]) -> None:
        if self._graph.slot[t] >= 0:
            for number in readers:
                self._own[number].add(t)
            if len(readers) > 1:
                self.stored_twice.add(t)
        elif t >= self.n_before:
            first = min(readers)
            if all(number == first or self._before[number] == first for number in readers):
                self._own[first].add(t)
            else:
                self._shared.add(t)

    def own(self, number: int) -> list[int]:
        """Return the tensors of a segment in the order of their codes, then its `late` ones."""
        return [*self._numbers[number], *self.late.get(number, ())]

    def code(self, number: int, t: int) -> int:
        """Return the code of a tensor in a segment. Raises NotRepeating for what is stored for a distant one only."""
        own = self._numbers[number].get(t)
        if own is not None:
            return own if number else SHARED + t
        if t < self.n_before or t in self._shared:
            return SHARED + t
        before = self._numbers[self._before[number]].get(t) if number else None
        if before is None or self._graph.slot[t] >= 0:
            raise NotRepeating
        return PREVIOUS + before

    def is_shared(self, t: int) -> bool:
        """Return whether a tensor has the same code in all segments."""
        return t < self.n_before or t in self._shared

    def grouped(self, items: Iterable[_Any], tensor: Callable[[_Any], int]) -> defaultdict[int, list[_Any]]:
        """Return the items by the segments that have their tensor."""
        found: defaultdict[int, list[_Any]] = defaultdict(list)
        for item in items:
            for number in self._owners_of.get(tensor(item), ()):
                found[number].append(item)
        return found

    @cached_property
    def _owners_of(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for number in range(self.n_segments):
            for t in self.own(number):
                found.setdefault(t, []).append(number)
        return found


class Lists:
    """Those lists of a graph that are about some tensors only, by segment."""

    def __init__(self, graph: Graph, owners: Owners) -> None:
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
