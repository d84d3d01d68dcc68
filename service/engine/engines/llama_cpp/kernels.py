"""What llama.cpp's CUDA kernels ask of a graph: tensors kept alive for fused ones, and flash attention's f16 copies.

Sources: llama.cpp ggml/src/ggml-cuda/ggml-cuda.cu (ggml_cuda_can_fuse and graph_optimize; not with
GGML_CUDA_DISABLE_FUSION: what is kept alive may not be overwritten before the kernel ran), fattn.cu
(ggml_cuda_get_best_fattn_kernel and …_get_alloc_size: what flash attention can do, the same for all cards from Turing
on for batches of more than two tokens a sequence). With pull 16208 (27 September 2025) the kernels for single tokens
took quantised caches with heads of 64 and 256; before, with heads of 128 only, and the CPU attended with others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from service.engine.builds import MemoryRules
from service.engine.memory.graph import CUDA_ALIGNMENT, KeepAlive, Node, Slot, geometry
from service.engine.units import pad

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


_ROW_STRIDE = 256  # FATTN_KQ_STRIDE: cache rows that the kernels with grouped heads take at a time
_EQUAL_SIZES = frozenset({40, 64, 72, 80, 96, 112, 128, 256})
# Heads of K, the size of V's, and by what the query heads of one KV head must be divisible; only with grouped heads.
_LARGE_SIZES = {192: (128, 8), 320: (256, 32), 512: (512, 1), 576: (512, 1)}
_CACHE_TYPES = frozenset({"f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"})


_FIRST_SIZE = 128  # of heads: with it a quantised cache had kernels first


def not_yet(heads: int, types: tuple[str, str], rules: MemoryRules) -> bool:
    """Return whether no kernel of a build's time attends to a cache with heads of one size and types of K and V, which
    today's builds attend to."""
    if set(types) & set(rules.caches_without_kernel):
        return True
    return rules.quantised_only_with_128 and heads != _FIRST_SIZE and any(geometry(kind)[0] > 1 for kind in types)


def without_kernel(nodes: Iterable[Node], rules: MemoryRules) -> frozenset[int]:
    """Return the indices of the flash attentions that no CUDA kernel computes."""
    return frozenset(n.index for n in nodes if n.op == "FLASH_ATTN_EXT" and not _has_kernel(n, rules))


def _has_kernel(node: Node, rules: MemoryRules) -> bool:
    q, k, v, mask = node.src[:4]
    if k.kind not in _CACHE_TYPES or v.kind not in _CACHE_TYPES or mask.ne[2] != 1:
        return False
    if k.ne[0] in _EQUAL_SIZES:
        return v.ne[0] == k.ne[0] and not not_yet(k.ne[0], (k.kind, v.kind), rules)
    if k.ne[0] not in _LARGE_SIZES:
        return False
    size, divisor = _LARGE_SIZES[k.ne[0]]
    ratio = q.ne[2] // k.ne[2]
    return v.ne[0] == size and ratio % divisor == 0 and ratio >= 2 and _groups_heads((q, k, v, mask))


def _groups_heads(tensors: tuple[Node, ...]) -> bool:
    aligned = all(stride % 16 == 0 for t in tensors if geometry(t.kind)[0] == 1 for stride in t.nb[1:])
    return aligned and tensors[1].ne[1] % _ROW_STRIDE == 0


def flash_layers(nodes: Iterable[Node], slots: Sequence[Slot]) -> list[tuple[int, int]]:
    """Return (node, layer) of every flash attention on a cache."""
    found = ((n.index, n.src[1].root) for n in nodes if n.op == "FLASH_ATTN_EXT")
    return [(index, slots[keys.slot].layer) for index, keys in found if keys is not None and keys.slot >= 0]


def flash_copies(nodes: Iterable[Node], rules: MemoryRules) -> dict[int, tuple[int, int]]:
    """Return the bytes after each result that hold f16 copies of a cache of another type.

    The second figure is for a cache on another device: copied over, latent values are not part of the keys any more.
    """
    found = {}
    for node in nodes:
        if node.op != "FLASH_ATTN_EXT" or not _has_kernel(node, rules):
            continue
        k, v = node.src[1], node.src[2]
        keys = _with_copy(node.n_bytes, k)
        apart = _with_copy(keys, v)
        together = keys if v.root is not None and v.root is k.root else apart
        if apart > node.n_bytes:
            found[node.index] = (together - node.n_bytes, apart - node.n_bytes)
    return found


def _with_copy(size: int, cache: Node) -> int:
    return size if cache.kind == "f16" else pad(size, CUDA_ALIGNMENT) + 2 * prod(cache.ne)
