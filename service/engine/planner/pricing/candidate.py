"""A candidate: a strategy on some cards, and the flags that it starts from."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from service.engine.config import Engine, Flags, Placement
from service.engine.engines import engine_spec
from service.engine.goal import Goal
from service.engine.hardware import Rig
from service.engine.model import Model
from service.engine.purpose import purpose_of

Strategy: TypeAlias = Literal["all on GPU", "FFN in RAM", "layers in RAM", "CPU only", "experts from a drive"]
Cards: TypeAlias = tuple[int, ...]  # indices into the rig's cards, in the engine's order

_OF_A_SOCKET = 0.9  # of a socket's memory, which a model may fill where the cache is there too
_BATCH = 2048  # both engines' default


class Candidate(msgspec.Struct, frozen=True):
    """A strategy on some cards (indices into the rig, in the engine's order), with the flags it starts from.

    `user_fields`: the fields of `flags` that the user sets.
    """

    strategy: Strategy
    cards: Cards
    flags: Flags
    user_fields: tuple[str, ...] = ()

    @property
    def splits_by_layer(self) -> bool:
        """Whether each card gets whole layers (`-sm layer`); with other split modes the cards share layers."""
        return self.flags.split_mode == "layer"

    def with_flags(self, **values: object) -> Flags:
        """Return the flags with these values, except for fields that the user sets."""
        return msgspec.structs.replace(
            self.flags, **{n: value for n, value in values.items() if n not in self.user_fields}
        )


def base_flags(
    engine: Engine,
    model: Model,
    rig: Rig,
    goal: Goal,
    strategy: Strategy,
    n_ubatch: int,
    type_k: str,
    type_v: str | None = None,
) -> Flags:
    """Return the flags of a strategy before anything is moved to RAM. `type_v`: as `type_k` if not given.

    MLA: `-mla 3 -amb 512` in ik_llama.cpp (engine default and the author's advice); llama.cpp needs one cache type for
    K and V of MLA models. llama.cpp gets `-lm none` with weights in RAM: pinned memory is what its copies need.
    """
    spec, on_cpu = engine_spec(engine), strategy != "all on GPU"
    latent = spec.commands.latent_flags if model.mla is not None else {}
    numa = _numa(rig, model) if on_cpu else None
    return Flags(
        n_ctx=goal.context,
        n_batch=max(_BATCH, n_ubatch),
        n_ubatch=n_ubatch,
        n_gpu_layers=0 if strategy == "CPU only" else 999,
        cache_type_k=type_k,
        cache_type_v="f16" if latent else type_v or type_k,
        mla=latent.get("mla"),
        attn_max_batch=latent.get("attn_max_batch"),
        n_parallel=goal.parallel,
        threads=_threads(rig, numa) if on_cpu else None,
        mmap=_mmap(rig, engine, strategy),
        numa=numa,
        jinja="tokenizer.chat_template" in model.metadata and purpose_of(model) == "text",
    )


def _numa(rig: Rig, model: Model) -> str | None:
    """Return `--numa` for work in RAM: bound to one socket where its memory holds the whole model.

    None where all memory is one NUMA node: firmware or a virtual machine spreads it, and there is nothing to bind to.
    Without a GPU the cache lies there as well. Two sockets read prompts faster, one generates faster (ik_llama.cpp
    discussion 396: 40 t/s bound, 27 over both; pull request 612: 13.4 t/s of Kimi-K2 on one of two EPYC 9965).
    """
    if rig.sockets < 2 or not rig.nodes_a_socket:
        return None
    one = rig.ram_bytes // rig.sockets
    return "numactl" if model.n_bytes < (one if rig.cards else int(_OF_A_SOCKET * one)) else "distribute"


def over_all_sockets(rig: Rig, candidate: Candidate) -> Candidate:
    """Return a candidate that is bound to one socket spread over all of them, for more than the memory of one."""
    flags = candidate.with_flags(numa="distribute", threads=_threads(rig, "distribute"))
    return msgspec.structs.replace(candidate, flags=flags)


def _mmap(rig: Rig, engine: Engine, strategy: Strategy) -> bool | None:
    """Return False where the file is to be read, None where it may be mapped, as the engines do by default.

    A file whose weights a GPU computes from memory that it shares with the CPU is read: mapped, DGX Spark took 224 s to
    load what it reads in 22 (llama.cpp pull 27742; lms issue 366), and Strix Halo's owners find that it crawls or
    crashes (README of kyuz0/amd-strix-halo-toolboxes). Apple's GPUs use mapped files as they are.
    """
    if strategy == "all on GPU":
        return False if any(card.unified and card.backend != "metal" for card in rig.cards) else None
    return None if engine_spec(engine).offload.pins_overridden or not rig.cards else False


def _threads(rig: Rig, numa: str | None) -> int:
    return max(rig.physical_cores // (rig.sockets if numa == "numactl" else 1), 1)


def with_strategy(rig: Rig, engine: Engine, model: Model, candidate: Candidate, strategy: Strategy) -> Candidate:
    """Return the candidate with another strategy and its flags: work in RAM needs threads and pinned memory."""
    flags = candidate.flags
    if strategy == "all on GPU":
        flags = candidate.with_flags(threads=None, mmap=_mmap(rig, engine, strategy), numa=None, op_offload=True)
    elif candidate.strategy == "all on GPU":
        numa = _numa(rig, model)
        flags = candidate.with_flags(threads=_threads(rig, numa), mmap=_mmap(rig, engine, strategy), numa=numa)
    return msgspec.structs.replace(candidate, strategy=strategy, flags=flags)


def strategy_of(placement: Placement) -> Strategy:
    """Return the strategy that a placement amounts to."""
    cpu = placement.n_devices
    if not cpu or all(device == cpu for device in placement.layers):
        return "CPU only"
    if cpu in placement.layers:
        return "layers in RAM"
    in_ram = any(device == cpu and ".ffn_" in name for name, device in placement.tensors.items())
    return "FFN in RAM" if in_ram else "all on GPU"


def larger_batch(candidate: Candidate, other: Candidate) -> bool:
    """Return whether a candidate has a larger micro-batch than another, and the same cards, cache and split mode."""
    alike = candidate.cards == other.cards and kind(candidate) == kind(other)
    return alike and candidate.flags.n_ubatch > other.flags.n_ubatch


def same_setup(candidate: Candidate, other: Candidate) -> bool:
    """Return whether two candidates have the same cards in the same order, cache, split mode and micro-batch: they may
    differ in what lies in RAM."""
    alike = candidate.cards == other.cards and kind(candidate) == kind(other)
    return alike and candidate.flags.n_ubatch == other.flags.n_ubatch


def needs_no_less(candidate: Candidate, other: Candidate) -> bool:
    """Return whether a candidate needs at least the memory of another: it has the same cards, perhaps in another order,
    the same strategy, cache and split mode, and a micro-batch as large or larger."""
    alike = candidate.strategy == other.strategy and kind(candidate) == kind(other)
    return alike and set(candidate.cards) == set(other.cards) and candidate.flags.n_ubatch >= other.flags.n_ubatch


def smaller_batch(candidate: Candidate, tried: Candidate) -> bool:
    """Return whether a candidate has a smaller micro-batch than one that was tried, and as many cards and the same
    split mode."""
    flags, other = candidate.flags, tried.flags
    alike = flags.split_mode == other.split_mode and len(candidate.cards) == len(tried.cards)
    return alike and flags.n_ubatch < other.n_ubatch


def fewer_cards_and_smaller_batch(candidate: Candidate, other: Candidate) -> bool:
    """Return whether a candidate has some of the cards of another and a smaller micro-batch, and the same strategy,
    cache and split mode."""
    fewer = set(candidate.cards) < set(other.cards) and candidate.flags.n_ubatch < other.flags.n_ubatch
    return fewer and differs_in_cards_only(candidate, other)


def differs_in_cards_only(candidate: Candidate, other: Candidate) -> bool:
    """Return whether a candidate has other cards than another (not in another order), and the same strategy, cache and
    split mode; its micro-batch may differ as well."""
    flags, others = candidate.flags, other.flags
    caches = (flags.cache_type_k, flags.cache_type_v) == (others.cache_type_k, others.cache_type_v)
    alike = caches and (candidate.strategy, flags.split_mode) == (other.strategy, others.split_mode)
    return alike and set(candidate.cards) != set(other.cards)


def more_cards(candidate: Candidate, tried: Candidate) -> bool:
    """Return whether a candidate has more cards than one that was tried, and the same split mode."""
    return candidate.flags.split_mode == tried.flags.split_mode and len(candidate.cards) > len(tried.cards)


def is_neighbour(one: Candidate, other: Candidate) -> bool:
    """Return whether two candidates differ in exactly one of micro-batch, cards (one card, or the order of all), cache
    types and split mode."""
    a, b = one.flags, other.flags
    differs = (
        a.n_ubatch != b.n_ubatch,
        one.cards != other.cards,
        (a.cache_type_k, a.cache_type_v) != (b.cache_type_k, b.cache_type_v),
        a.split_mode != b.split_mode,
    )
    return sum(differs) == 1 and len(set(one.cards) ^ set(other.cards)) <= 1


def adds_cards(one: Candidate, best: Candidate) -> bool:
    """Return whether a candidate has all cards of the best one and more, where the best one leaves weights in RAM."""
    return best.strategy != "all on GPU" and set(one.cards) > set(best.cards)


def kind(candidate: Candidate) -> tuple[object, ...]:
    """Return the kind of a candidate, of which one placement is enough to show: cache types, number of cards, split."""
    flags = candidate.flags
    return flags.cache_type_k, flags.cache_type_v, len(candidate.cards), flags.split_mode


def complexity(candidate: Candidate) -> tuple[object, ...]:
    """Return a sort key that puts the plainer of equally good candidates first: f16 cache, few cards, in the runtime's
    own order, a small micro-batch."""
    flags = candidate.flags
    in_order = candidate.cards == tuple(sorted(candidate.cards))
    return flags.cache_type_k != "f16", len(candidate.cards), not in_order, flags.n_ubatch
