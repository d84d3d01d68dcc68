"""What the scheduler and the allocator need of a described graph: its tensors as plain lists, indexed by tensor."""

from __future__ import annotations

from collections.abc import Callable, Collection

from service.engine.memory.graph import Graph, GraphBuilder, Node, Shape, Slot, cuda_row_padding


def finish(
    builder: GraphBuilder, *, in_place: Collection[str], offloadable: Callable[[Node], bool],
    weightless: Collection[str] = (),
) -> Graph:  # fmt: skip
    """Return the graph as lists, by an engine's rules.

    `in_place`: operations that may overwrite a source. `offloadable`: whether a card takes an operation whose weight is
    in RAM. `weightless`: operations that are not drawn to where their weights are.
    """
    every = builder.all
    layouts: dict[tuple[str, Shape, Shape], int] = {}
    layout = [layouts.setdefault((n.kind, n.ne, n.nb), len(layouts)) for n in every]
    graph = Graph(
        op=[n.op for n in every],
        n_bytes=[n.n_bytes for n in every],
        root=[-1 if n.root is None else n.root.index for n in every],
        sources=[tuple(s.index for s in n.src) for n in every],
        overwrites=[_overwrites(n, layout) if n.op in in_place else () for n in every],
        slot=[n.slot for n in every],
        home=[n.slot if n.root is None else n.root.slot for n in every],
        weight=[-1 if n.op in weightless else _weight(n, builder.slots) for n in every],
        offloadable=[offloadable(n) for n in every],
        padding=[cuda_row_padding(n.kind, n.ne[0]) for n in every],
        children=[0] * len(every),
        views=[0] * len(every),
        slots=builder.slots,
        weights=[(n.index, n.ne) for n in every if _shows_weight(n, builder.slots)],
        nodes=[n.index for n in builder.nodes],
        leafs=[n.index for n in builder.leafs],
        inputs=[n.index for n in builder.leafs if n.index in builder.inputs],
        outputs=frozenset(builder.outputs),
        pins=builder.pins,
        ram_pins=builder.ram_pins,
        stored={n.index: read for n in builder.nodes if (read := tuple(s.slot for s in n.src if s.slot >= 0))},
    )
    _count_uses(graph)
    return graph


def _shows_weight(node: Node, slots: list[Slot]) -> bool:
    home = node.slot if node.root is None else node.root.slot
    return home >= 0 and slots[home].kind != "cache"


def _overwrites(node: Node, layout: list[int]) -> tuple[int, ...]:
    """Sources of the node's own layout; views and weights too, for the copy of one on another device is neither."""
    own = layout[node.index]
    return tuple(i for i, s in enumerate(node.src) if layout[s.index] == own)


def _weight(node: Node, slots: list[Slot]) -> int:
    for s in node.src:
        if s.slot >= 0 and slots[s.slot].kind != "cache":
            return s.slot
    return -1


def _count_uses(graph: Graph) -> None:
    for index in graph.nodes:
        root = graph.root[index]
        if root >= 0:
            graph.views[root] += 1
        for s in graph.sources[index]:
            graph.children[s] += 1
