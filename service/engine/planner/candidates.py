"""What is worth trying: strategies, sets of cards, micro-batches and cache types for one engine and variant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from service.engine.config import Engine, Flags
from service.engine.goal import Goal
from service.engine.hardware import Rig
from service.engine.model import Model
from service.engine.planner.support import runs_on_gpu
from service.engine.tensor_names import role_of

Strategy: TypeAlias = Literal["all on GPU", "FFN in RAM", "layers in RAM", "CPU only"]

# A micro-batch below ik_llama.cpp's threshold (32 * n_expert / n_expert_used) leaves prompt processing of experts in
# RAM to the CPU; above it every micro-batch copies them once, so larger ones pay (ik_llama.cpp discussion #258).
_MICRO_BATCHES: dict[Strategy, tuple[int, ...]] = {
    "all on GPU": (2048, 512),
    "FFN in RAM": (4096, 2048, 512),
    "layers in RAM": (2048, 512),
    "CPU only": (512,),
}
_BATCH = 2048  # both engines' default


class Candidate(msgspec.Struct, frozen=True):
    """A strategy on a set of cards (indices into the rig), with the flags it starts from."""

    strategy: Strategy
    cards: tuple[int, ...]
    flags: Flags


def candidates(engine: Engine, model: Model, rig: Rig, goal: Goal, kv_types: list[str]) -> Iterator[Candidate]:
    """Yield every candidate of one engine and model, the most desirable strategies first."""
    gpu_able = bool(rig.cards) and _dense_part_runs_on_gpu(engine, model)
    strategies: tuple[Strategy, ...] = ("all on GPU", "FFN in RAM", "layers in RAM") if gpu_able else ()
    for strategy in (*strategies, "CPU only"):
        for cards in _card_sets(strategy, rig):
            for kv_type in kv_types:
                for n_ubatch in _MICRO_BATCHES[strategy]:
                    yield Candidate(strategy, cards, base_flags(engine, model, rig, goal, strategy, n_ubatch, kv_type))


def _dense_part_runs_on_gpu(engine: Engine, model: Model) -> bool:
    return all(
        runs_on_gpu(engine, t.type)
        for t in model.tensors
        if role_of(t.name) not in ("expert", "dense_ffn", "token_embd")
    )


def _card_sets(strategy: Strategy, rig: Rig) -> list[tuple[int, ...]]:
    """Fastest cards first: every prefix when all is on GPUs, else all cards and the fastest alone."""
    n = len(rig.cards)
    if strategy == "CPU only":
        return [()]
    if strategy == "all on GPU":
        return [tuple(range(k)) for k in range(1, n + 1)]
    return [tuple(range(n))] + ([(0,)] if n > 1 else [])


def base_flags(
    engine: Engine, model: Model, rig: Rig, goal: Goal, strategy: Strategy, n_ubatch: int, kv_type: str
) -> Flags:
    """Return the flags of a strategy before anything is moved to RAM.

    MLA: `-mla 3 -amb 512` in ik_llama.cpp (engine default and the author's advice); llama.cpp needs one cache type for
    K and V of MLA models. llama.cpp gets `-lm none` with weights in RAM: pinned memory is what its copies need.
    """
    is_ik, on_cpu = engine == "ik_llama.cpp", strategy != "all on GPU"
    mla = is_ik and model.mla is not None
    return Flags(
        n_ctx=goal.context,
        n_batch=max(_BATCH, n_ubatch),
        n_ubatch=n_ubatch,
        n_gpu_layers=0 if strategy == "CPU only" else 999,
        cache_type_k=kv_type,
        cache_type_v="f16" if mla else kv_type,  # ik_llama.cpp keeps K alone and ignores -ctv
        mla=3 if mla else None,
        attn_max_batch=512 if mla else None,
        n_parallel=goal.parallel,
        threads=rig.physical_cores if on_cpu else None,
        mmap=False if on_cpu and not is_ik and rig.cards else None,
        numa="distribute" if on_cpu and rig.sockets > 1 else None,
        jinja="tokenizer.chat_template" in model.metadata,
    )


def with_split(candidate: Candidate, shares: tuple[float, ...]) -> Candidate:
    """Return the candidate with an explicit `-ts`: without one the engine splits by what is free when it starts."""
    if len(candidate.cards) < 2:
        return candidate
    return msgspec.structs.replace(candidate, flags=msgspec.structs.replace(candidate.flags, tensor_split=shares))
