"""What the scheduler and the allocator need of a described graph: its tensors as plain lists, indexed by tensor."""

from __future__ import annotations

from math import prod

from service.engine.memory.graph import Graph, GraphBuilder, Node, Shape, Slot, cuda_row_padding
from service.engine.memory.ops import IN_PLACE_IK, IN_PLACE_LLAMA, MIN_OFFLOAD_BATCH


def finish(builder: GraphBuilder, *, llama: bool, by_experts: bool = True) -> Graph:
    """Return the graph as lists. `llama`: by the rules of llama.cpp instead of ik_llama.cpp's.

    `by_experts`: ik's threshold for copying experts to a GPU counts how many of them a batch hits.
    """
    every = builder.all
    layouts: dict[tuple[str, Shape, Shape], int] = {}
    layout = [layouts.setdefault((n.kind, n.ne, n.nb), len(layouts)) for n in every]
    in_place = IN_PLACE_LLAMA if llama else IN_PLACE_IK
    graph = Graph(
        op=[n.op for n in every],
        n_bytes=[n.n_bytes for n in every],
        root=[-1 if n.root is None else n.root.index for n in every],
        sources=[tuple(s.index for s in n.src) for n in every],
        overwrites=[_overwrites(n, layout) if n.op in in_place else () for n in every],
        slot=[n.slot for n in every],
        home=[n.slot if n.root is None else n.root.slot for n in every],
        weight=[_weight(n, builder.slots, llama) for n in every],
        offloadable=[_offloadable_llama(n) if llama else _offloadable_ik(n, by_experts) for n in every],
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
    if not llama:
        graph.beside_weights = _beside_weights(builder)
        graph.on_cards, graph.starts = _on_cards(builder), frozenset(builder.starts)
    _count_uses(graph)
    return graph


def _beside_weights(builder: GraphBuilder) -> list[tuple[int, int, int]]:
    """Each norm with a mean, its product and the slot of its weight, where ik runs both (ggml-backend.cpp:1494)."""
    return [
        (n.src[0].index, n.index, n.src[1].slot)
        for n in builder.nodes
        if n.op == "MUL" and n.src[0].op == "NORM" and n.src[1].slot >= 0
    ]


def _on_cards(builder: GraphBuilder) -> list[tuple[int, int]]:
    """The card of each part of a sum, and of the sum itself where its root is one of them (ggml-backend.cpp:1472)."""
    found = []
    for node in builder.nodes:
        for part, card in zip(node.src, builder.reduced.get(node.index, ()), strict=False):
            found += [(part.index, card), (node.index, card)] if part is node.root else [(part.index, card)]
    return found


def _shows_weight(node: Node, slots: list[Slot]) -> bool:
    home = node.slot if node.root is None else node.root.slot
    return home >= 0 and slots[home].kind != "cache"


def _overwrites(node: Node, layout: list[int]) -> tuple[int, ...]:
    """Sources of the node's own layout; views and weights too, for the copy of one on another device is neither."""
    own = layout[node.index]
    return tuple(i for i, s in enumerate(node.src) if layout[s.index] == own)


def _weight(node: Node, slots: list[Slot], llama: bool) -> int:
    if llama and node.op in ("ROPE", "FLASH_ATTN_EXT"):  # ggml-backend.cpp of llama.cpp skips rope factors and sinks
        return -1
    for s in node.src:
        if s.slot >= 0 and slots[s.slot].kind != "cache":
            return s.slot
    return -1


def _offloadable_ik(node: Node, by_experts: bool) -> bool:
    """ik ggml-cuda.cu:5180: experts only where a batch hits most of them (`by_experts`)."""
    if node.op in ("MUL_MAT_ID", "MOE_FUSED_UP_GATE"):
        used = node.src[2 if node.op == "MUL_MAT_ID" else 3].ne[0]
        enough = not by_experts or node.ne[2] * used >= MIN_OFFLOAD_BATCH * node.src[0].ne[2]
        return enough and node.ne[2] >= MIN_OFFLOAD_BATCH
    return node.op != "GET_ROWS" and node.ne[1] >= MIN_OFFLOAD_BATCH


def _offloadable_llama(node: Node) -> bool:
    """llama.cpp ggml-cuda.cu:5636."""
    if node.op == "GET_ROWS":
        return False
    if node.op == "MUL_MAT":
        return node.ne[1] >= MIN_OFFLOAD_BATCH
    if node.op in ("MUL_MAT_ID", "ROPE"):
        return node.ne[2] >= MIN_OFFLOAD_BATCH
    return prod(node.ne[1:]) >= MIN_OFFLOAD_BATCH


def _count_uses(graph: Graph) -> None:
    for index in graph.nodes:
        root = graph.root[index]
        if root >= 0:
            graph.views[root] += 1
        for s in graph.sources[index]:
            graph.children[s] += 1
