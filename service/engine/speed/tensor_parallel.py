"""Tensor parallelism: GPUs that share every layer (`-sm graph` of ik_llama.cpp, `-sm tensor` of llama.cpp).

Split by layer, one card works at a time and their times add up. Here each card has its share of every layer: the
slowest share counts, and twice a layer the cards add up their results. Few measured runs exist, so this is a formula,
in which the cost of a reduction follows from published ratios (Qwen3-30B-A3B on two RTX 3090: tokens as fast as with
layers, ik_llama.cpp pull request 1080).
"""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.calibration import Coefficients
from service.engine.engines import engine_spec
from service.engine.speed.machine import Machine
from service.engine.speed.work import Work

_MODES = ("graph", "tensor")
_PIPELINES = ("cuda", "rocm")
_REDUCTIONS = 2  # a layer: after attention and after the FFN
_BYTES = 2  # an activation: f16


def is_parallel(work: Work) -> bool:
    """Return whether all GPUs work on a layer at the same time."""
    return work.split_mode in _MODES and work.n_devices > 1


def is_by_rows(work: Work) -> bool:
    """Return whether the rows of each tensor are split between GPUs (`-sm row`), which then wait for each other."""
    return work.split_mode == "row" and work.n_devices > 1


def pipeline_gain(work: Work, machine: Machine, p: Coefficients, batches: int) -> float:
    """Return how many times faster a prompt of some micro-batches is on cards that work on several of them at a time.

    llama.cpp does so where all layers are on GPUs that are split by layers (GGML_SCHED_MAX_COPIES, pull request 6017);
    Vulkan and SYCL lack the events that it takes. The card with the longest share of a micro-batch is waited for, so a
    card with a layer or two gains next to nothing.
    """
    copies = engine_spec(work.engine).memory.pipeline_copies if work.pipeline else None
    if not copies or work.split_mode != "layer" or work.host_layers or machine.first_card.backend not in _PIPELINES:
        return 1.0
    by_card = [0.0] * work.n_devices
    for weights in work.weights:
        if weights.device < work.n_devices and weights.use != "head":
            used = work.share if weights.use == "expert" else 1.0
            by_card[weights.device] += used * weights.n_elements / machine.cards[weights.device].operations
    longest = max(max(by_card, default=0.0) / max(sum(by_card), 1e-30), 1 / copies)
    most = batches / (1 + (batches - 1) * longest)
    return float(max(most ** p["pipeline"], 1.0))


def cards_seconds(work: Work, by_card: Sequence[float], ways: int | None = None) -> float:
    """Return the time of work that takes `by_card` seconds on each card when split by layers.

    `ways`: into how many parts a layer can be cut at most (attention: its KV heads; ik_llama.cpp pull request 1347).
    """
    whole = sum(by_card)
    if not is_parallel(work):
        return whole
    return max(max(by_card), whole / min(ways or work.parallel_cards, work.parallel_cards))


def attention_ways(work: Work) -> int | None:
    """Return into how many parts attention can be cut: its KV heads, without limit for latent attention."""
    if work.mla is not None:
        return None
    return max((layer.n_head_kv for layer in work.attention), default=1)


def reduction_seconds(work: Work, machine: Machine, p: Coefficients, n_tokens: int) -> tuple[float, float]:
    """Return the seconds of (waiting, sending) of all reductions of one evaluation of `n_tokens`."""
    if not is_parallel(work):
        return 0.0, 0.0
    count = _REDUCTIONS * work.gpu_layers * (work.parallel_cards - 1)
    link = min(card.link for card in machine.cards) / p["reduction.send"]
    n_bytes = 2 / work.n_devices * n_tokens * work.n_embd * _BYTES
    return count * p["reduction"], count * n_bytes * p["copy"] / link
