"""Compute graphs by engine and architecture; an unknown architecture gets the graph of the nearest family."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from service.engine.engines import engine_spec
from service.engine.memory.graph import Graph, GraphTooLarge
from service.engine.memory.graphs.base import MissingTensor
from service.engine.memory.graphs.kinds import kinds_of_layers, layers_of_each_kind, shape_of, with_neighbours
from service.engine.memory.graphs.owners import NotRepeating, Owners
from service.engine.memory.graphs.segments import SegmentedGraph
from service.engine.memory.spec import GraphSpec
from service.engine.model import Model

_MAX_TENSORS = 250_000  # some 600 bytes each
_MOST_AHEAD = 2  # layers by which nodes are run early, in models whose kinds of layers are known


class GraphCache:
    """The graphs used last, with the results of their replays, up to the size of `max_tensors` tensors.

    Models of one shape share a graph. Threads may share the cache: each step leaves it consistent.
    """

    def __init__(self, max_tensors: int = _MAX_TENSORS) -> None:
        self._max_tensors = max_tensors
        self._kept: dict[tuple[bytes, GraphSpec, bool], SegmentedGraph | None] = {}

    def by_layer(self, model: Model, spec: GraphSpec) -> SegmentedGraph | None:
        """Return the graph of `model` cut into its layers, in one piece where they do not repeat.

        None where no description fits its tensors. Each layer has rope factors of its own.
        """
        found = self._get(model, msgspec.structs.replace(spec, rope_owners=()), _by_layer)
        return found or self.in_one_piece(model, spec)

    def in_one_piece(self, model: Model, spec: GraphSpec) -> SegmentedGraph | None:
        """Return the graph of `model` as one segment, None where no description fits its tensors."""
        return self._get(model, spec, _in_one_piece)

    def _get(
        self, model: Model, spec: GraphSpec, build: Callable[[Model, GraphSpec], SegmentedGraph | None]
    ) -> SegmentedGraph | None:
        key = shape_of(model), spec, build is _by_layer
        if key in self._kept:
            found = self._kept[key] = self._kept.pop(key)
            return found
        found = self._kept[key] = build(model, spec)
        self._drop_oldest()
        return found

    def _drop_oldest(self) -> None:
        """Drop what is too much; called with each new graph, as counting takes longer than looking one up."""
        graphs = list(self._kept.items())
        excess = sum(_size(graph) for _, graph in graphs) - self._max_tensors
        for key, graph in graphs:
            if excess <= 0:
                break
            self._kept.pop(key, None)
            excess -= _size(graph)


def _size(graph: SegmentedGraph | None) -> int:
    return graph.n_kept if graph else 1


def graphs_of(model: Model) -> GraphCache:
    """Return the graphs that are kept with a model, and dropped with it."""
    kept: GraphCache = model.__dict__.setdefault("_graphs", GraphCache())
    return kept


def share_graphs(models: Iterable[Model]) -> None:
    """Let these models share one set of graphs: variants of a repo differ in the types of their weights only."""
    shared: GraphCache | None = None
    for model in models:
        shared = shared or graphs_of(model)
        model.__dict__["_graphs"] = shared


def _by_layer(model: Model, spec: GraphSpec) -> SegmentedGraph | None:
    """Of one layer of each kind where their kinds are known, else of all, where those that are equal count as one.

    What is run of a layer with others depends on these: then kinds of layers are told apart by theirs, too.
    """
    kinds = kinds_of_layers(model, spec)
    if kinds is None:
        return _segmented(_described(model, spec, tuple(range(model.n_layer - model.n_layer_nextn))), None)
    for n in range(_MOST_AHEAD + 1):
        kept, like = layers_of_each_kind(with_neighbours(kinds, n))
        found = _described(model, spec, kept)
        if found is None or found.owners.ahead <= n:
            return _segmented(found, like)
    return None


class _Described(NamedTuple):
    """A graph of some layers, whether its description is the architecture's own, and what belongs to which of them."""

    graph: Graph
    known: bool
    kept: tuple[int, ...]
    owners: Owners


def _described(model: Model, spec: GraphSpec, kept: tuple[int, ...]) -> _Described | None:
    graph, known = build_graph(model, spec, kept)
    if graph is None or len(graph.layer_starts) != len(kept) + 1:
        return None
    return _Described(graph, known, kept, Owners(graph))


def _segmented(found: _Described | None, like: Sequence[int] | None) -> SegmentedGraph | None:
    if found is None or (like and found.owners.far):
        return None
    with suppress(NotRepeating):
        return SegmentedGraph(found.graph, found.owners, found.known, found.kept, like)
    return None


def _in_one_piece(model: Model, spec: GraphSpec) -> SegmentedGraph | None:
    graph, known = build_graph(model, spec)
    if graph is None:
        return None
    graph.layer_starts = []
    return SegmentedGraph(graph, Owners(graph), known)


def build_graph(model: Model, spec: GraphSpec, kept: tuple[int, ...] | None = None) -> tuple[Graph | None, bool]:
    """Return the graph of `model`, of the layers `kept` only unless None, and whether its description is its own."""
    try:
        return engine_spec(spec.engine).memory.describe_graph(model, spec, kept)
    except (MissingTensor, GraphTooLarge):
        return None, False
