"""For which types of the cache ik_llama.cpp has kernels of flash attention on NVIDIA's cards before Volta.

They have no tensor cores, so batches of up to 8 tokens, and all with heads of 256, take a kernel made for one pair of
types (ggml/src/ggml-cuda/fattn.cu:77-104, fattn-vec-f32.cu:111-166, fattn-vec-f16.cu:105-151 of 8337e4cd3). Later cards
convert the cache to f16 first, whatever its types.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from service.engine.hardware import Card
from service.engine.layers import Layer

VOLTA = 7.0  # common.cuh:210, fp16_mma_available
ALL_QUANTS = "-DGGML_CUDA_FA_ALL_QUANTS=ON"

LATENT_HEADS = (576, 512)  # of DeepSeek's kin, whose K and V are parts of one row

_Pairs = frozenset[tuple[str, str]]
_ALIKE: _Pairs = frozenset((("f16", "f16"), ("q8_0", "q8_0")))
_BUILT: dict[tuple[int, int], _Pairs] = {
    (64, 64): frozenset((("f16", "f16"),)),
    (128, 128): _ALIKE | {
        ("q4_0", "q4_0"), ("iq4_nl", "iq4_nl"), ("q8_0", "iq4_nl"), ("q6_0", "q5_0"), ("q8_0", "q6_0"),
    },
    (192, 128): _ALIKE, (256, 256): _ALIKE, (576, 512): _ALIKE,
}  # fmt: skip
_OLDER = ("f16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0")
_WITH_ALL: dict[tuple[int, int], _Pairs] = {
    (64, 64): frozenset(("f16", v) for v in _OLDER),
    (128, 128): frozenset((k, v) for k in _OLDER for v in _OLDER) | {("q6_0", "q6_0")},
}


def is_before_volta(card: Card) -> bool:
    """Return whether a card is NVIDIA's and older than Volta."""
    return (card.compute_capability or VOLTA) < VOLTA


def heads_of(layers: Iterable[Layer]) -> set[tuple[int, int]]:
    """Return the sizes of the heads of K and V in layers with attention."""
    return {(layer.head_dim_k, layer.head_dim_v) for layer in layers if layer.attends}


def kernel(heads: tuple[int, int], types: tuple[str, str]) -> Literal["built", "all quants", "none", "never"]:
    """Return which builds have a kernel for head sizes and types, both of K and V.

    built: all; all quants: those with ALL_QUANTS; none: no build, though there are some for these heads; never: no type
    has one with such heads.
    """
    if heads not in _BUILT:
        return "never"
    return "built" if types in _BUILT[heads] else "all quants" if types in _WITH_ALL.get(heads, ()) else "none"
