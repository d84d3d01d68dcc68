"""llama.cpp's flash attention on CUDA: what its kernels can do, and the f16 copies of a cache that they work on.

Source: llama.cpp ggml/src/ggml-cuda/fattn.cu, ggml_cuda_get_best_fattn_kernel and …_get_alloc_size;
the same for all cards from Turing on for batches of more than two tokens a sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from service.engine.memory.graph import CUDA_ALIGNMENT, Node, Slot, geometry
from service.engine.units import pad

_ROW_STRIDE = 256  # FATTN_KQ_STRIDE: cache rows that the kernels with grouped heads take at a time
_EQUAL_SIZES = frozenset({40, 64, 72, 80, 96, 112, 128, 256})
# Heads of K, the size of V's, and by what the query heads of one KV head must be divisible; only with grouped heads.
_LARGE_SIZES = {192: (128, 8), 320: (256, 32), 512: (512, 1), 576: (512, 1)}
_CACHE_TYPES = frozenset({"f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"})


def without_kernel(nodes: Iterable[Node]) -> frozenset[int]:
    """Return the indices of the flash attentions that no CUDA kernel computes."""
    return frozenset(n.index for n in nodes if n.op == "FLASH_ATTN_EXT" and not _has_kernel(n))


def _has_kernel(node: Node) -> bool:
    q, k, v, mask = node.src[:4]
    if k.kind not in _CACHE_TYPES or v.kind not in _CACHE_TYPES or mask.ne[2] != 1:
        return False
    if k.ne[0] in _EQUAL_SIZES:
        return v.ne[0] == k.ne[0]
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


def flash_copies(nodes: Iterable[Node]) -> dict[int, tuple[int, int]]:
    """Return the bytes behind each result that hold f16 copies of a cache of another type.

    The second figure is for a cache on another device: copied over, latent values are not part of the keys any more.
    """
    found = {}
    for node in nodes:
        if node.op != "FLASH_ATTN_EXT" or not _has_kernel(node):
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
