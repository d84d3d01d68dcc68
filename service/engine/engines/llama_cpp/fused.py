"""Tensors that llama.cpp keeps alive for fused CUDA kernels: they may not be overwritten before the kernel ran.

Source: llama.cpp ggml/src/ggml-cuda/ggml-cuda.cu (ggml_cuda_can_fuse and graph_optimize); not with
GGML_CUDA_DISABLE_FUSION.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.memory.graph import KeepAlive, Node

_MAX_SUMMED_EXPERTS = 15
_ROUTER_STARTS = (["RESHAPE", "ARGSORT", "VIEW", "GET_ROWS"], ["RESHAPE", "ADD", "ARGSORT", "VIEW", "GET_ROWS"])
_ROUTER_NORM = ["RESHAPE", "SUM_ROWS", "CLAMP", "DIV", "RESHAPE"]
_ROUTER_SIZES = (288, 576)


def keep_alives(nodes: Sequence[Node]) -> list[KeepAlive]:
    """Return the patterns of the graph that CUDA runs as one kernel: the experts' weighted sum, and the router."""
    found: list[KeepAlive] = []
    ops = [node.op for node in nodes]
    i = 0
    while i < len(nodes):
        length = _weighted_sum(nodes, ops, i)
        if length:
            kept = tuple(s.index for s in nodes[i].src)
            found.append(KeepAlive(nodes[i].index, nodes[i + length - 1].index, kept))
            i += length - 1
        length = _router(nodes[i], ops, i)
        if length and i + length < len(nodes):
            found.append(KeepAlive(nodes[i].index, nodes[i + length].index, _all_of(nodes[i : i + length])))
            i += length - 1
        i += 1
    return found


def _all_of(nodes: Sequence[Node]) -> tuple[int, ...]:
    """The nodes and their sources, each once, in order."""
    return tuple(dict.fromkeys(t.index for node in nodes for t in (node, *node.src)))


def _weighted_sum(nodes: Sequence[Node], ops: Sequence[str], i: int) -> int:
    """Length of MUL(experts, weights), U views and U - 1 adds starting at `i`, or 0."""
    node = nodes[i]
    if node.op != "MUL" or len(node.src) != 2:
        return 0
    experts, weights = node.src
    used = node.ne[1]
    if weights.ne[0] != 1 or weights.ne[1:] != node.ne[1:] or experts.ne != node.ne:
        return 0
    if not 2 <= used <= _MAX_SUMMED_EXPERTS:
        return 0
    pattern = ["MUL", *["VIEW"] * used, *["ADD"] * (used - 1)]
    return len(pattern) if ops[i : i + len(pattern)] == pattern else 0


def _router(node: Node, ops: Sequence[str], i: int) -> int:
    """Length of the top-k pattern of the router starting at `i`, or 0."""
    n_expert = node.ne[0]
    if node.op not in ("UNARY", "SOFT_MAX") or node.ne[2] != 1:
        return 0
    if not (n_expert <= 512 and n_expert & (n_expert - 1) == 0) and n_expert not in _ROUTER_SIZES:
        return 0
    first = 2 if ops[i + 1 : i + 2] == ["SQRT"] else 1
    for start in _ROUTER_STARTS:
        length = first + len(start)
        if ops[i + first : i + length] != start:
            continue
        if ops[i + length : i + length + len(_ROUTER_NORM)] == _ROUTER_NORM:
            length += len(_ROUTER_NORM)
        if ops[i + length : i + length + 1] == ["SCALE"]:
            length += 1
        return length
    return 0
