"""What is worth trying for one engine and variant: cards and their order, micro-batches, cache types, split modes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import msgspec

from service.engine.config import Engine, Flags
from service.engine.engines import engine_spec
from service.engine.engines.spec import EngineSpec
from service.engine.ggml_types import ROW_TABLE, type_named
from service.engine.goal import Constraints, Goal
from service.engine.hardware import Card, Rig
from service.engine.kept import kept
from service.engine.model import Model
from service.engine.planner.pricing.candidate import Candidate, Cards, base_flags
from service.engine.planner.pricing.support import runs_on_gpu
from service.engine.planner.ranking.utility import FOUR_BITS
from service.engine.rules.cache import FEW_BITS, OUTLIERS_IN_KEYS
from service.engine.tensor_names import role_of

# From ik_llama.cpp's threshold (32 * n_expert / n_expert_used) on, every micro-batch copies the experts in RAM once, so
# larger ones pay: x 2.4, 3.6 and 4.3 for 2048, 4096 and 8192 against 512 (ik_llama.cpp pull request 529).
MICRO_BATCHES = (512, 1024, 2048, 4096, 8192)
_SHARE_OF_CONTEXT = 4  # prompts longer than a quarter of the context are rare
_ABOUT = 1.05  # so that 1,000 tokens, or 2 % less of a context of 4,096, still allow what 1,024 do
_MOST_SETS = 40  # of cards: with more, cards of one kind are used or left out together


def micro_batches(goal: Goal) -> list[int]:
    """Return the micro-batches worth trying: up to about the goal's prompt, or a quarter of a request's context."""
    most = max(goal.prompt, goal.context_each // _SHARE_OF_CONTEXT) * _ABOUT
    return [n for n in MICRO_BATCHES if n <= most] or [MICRO_BATCHES[0]]


class CachePair(NamedTuple):
    """The cache types of K and V."""

    k: str
    v: str


_PLAIN = CachePair("f16", "f16")


def candidates(
    engine: Engine, model: Model, rig: Rig, goal: Goal, pairs: Sequence[CachePair], date: str | None
) -> Iterator[Candidate]:
    """Yield every candidate of one engine and model for a build of this date (None: today's).

    Their strategy is only where the forecast and the placement start: these find what has to lie in RAM. Where the
    engine has an option for it, it keeps logits of as many tokens as there are requests, which is what a server needs.
    """
    since = engine_spec(engine).memory.limits_logits_from
    n_logits = goal.parallel if since is not None and (date or since) >= since else None
    for cards in card_sets(rig) if rig.cards and dense_part_runs_on_gpu(engine, model) else ():
        for order in orders(rig, cards):
            for pair in pairs:
                for n_ubatch in micro_batches(goal):
                    for mode in _split_modes(engine, model, rig, order, pair, date):
                        flags = base_flags(engine, model, rig, goal, "FFN in RAM", n_ubatch, *pair)
                        rows = n_logits if mode == "layer" else None
                        flags = msgspec.structs.replace(flags, split_mode=mode, n_logits=rows)
                        yield Candidate("FFN in RAM", order, flags)
    for pair in pairs:
        for n_ubatch in (512, 2048):
            yield Candidate("CPU only", (), base_flags(engine, model, rig, goal, "CPU only", n_ubatch, *pair))


def _split_modes(
    engine: Engine, model: Model, rig: Rig, cards: Cards, pair: CachePair, date: str | None
) -> tuple[str, ...]:
    """`layer`, and the mode with all cards on every layer where the engine has it for model and cache; CUDA only."""
    memory = engine_spec(engine).memory
    since = memory.together_from if pair == ("f16", "f16") else memory.shares_quantised_from
    if len(cards) < 2 or since is None or (date or since) < since or any(rig.cards[i].backend != "cuda" for i in cards):
        return ("layer",)
    old = any((rig.cards[i].compute_capability or 0) < memory.together_capability for i in cards)
    flags = Flags(cache_type_k=pair.k, cache_type_v=pair.v)
    return ("layer", memory.together[0]) if memory.works_together(model, flags, len(cards)) and not old else ("layer",)


def dense_part_runs_on_gpu(engine: Engine, model: Model) -> bool:
    """Return whether everything but experts, dense FFN and embeddings has types with GPU kernels."""
    return all(runs_on_gpu(engine, kind) for kind in _dense_types(model))


@kept
def _dense_types(model: Model) -> frozenset[str]:
    movable = ("expert", "dense_ffn", "token_embd")
    return frozenset(t.type for t in model.tensors if role_of(t.name) not in movable) - {ROW_TABLE}


def stated_kv_types(engine: Engine, constraints: Constraints) -> list[str]:
    """Return the cache types asked for that the engine's server and benchmark both take: a config has both commands."""
    known = engine_spec(engine).commands.cache_types("bench")
    return [kind for kind in dict.fromkeys(constraints.kv_types or ()) if kind in known]


def cache_types_refusal(engine: Engine, constraints: Constraints) -> str | None:
    """Return why an engine has none of the cache types asked for, or None when it has one."""
    if not constraints.kv_types or stated_kv_types(engine, constraints):
        return None
    known = ", ".join(engine_spec(engine).commands.cache_types("bench"))
    return f"{engine} has no cache type {' or '.join(constraints.kv_types)}: it takes {known}"


def cache_pairs(engine: Engine, model: Model, cards: Sequence[Card], constraints: Constraints) -> list[list[CachePair]]:
    """Return groups of cache types to try: those asked for; else f16 and q8_0, then smaller ones, a group each; without
    those for which usual builds have no kernel on one of the cards.

    A group is tried only where nothing fits with those before it: what fewer bits cost in quality is not known here.
    K and V of different types are for ik_llama.cpp: llama.cpp's builds have kernels for them only with
    GGML_CUDA_FA_ALL_QUANTS (ggml/CMakeLists.txt). ik_llama.cpp keeps one latent cache and ignores `-ctv`. Without flash
    attention both engines refuse a quantised V (llama_init_from_model).
    """
    spec = engine_spec(engine)
    latent = spec.memory.latent_ignores_v and model.mla is not None
    without_flash = model.architecture in spec.memory.without_flash_attention
    if stated := stated_kv_types(engine, constraints):
        return [[CachePair(kind, "f16" if latent or without_flash else kind) for kind in stated]]
    groups = [
        [pair for pair in group if pair == _PLAIN or spec.commands.has_kernels(model, pair, cards)]
        for group in _pairs_of(spec, model, latent=latent, without_flash=without_flash)
    ]
    return [group for group in groups if group]


def _pairs_of(spec: EngineSpec, model: Model, *, latent: bool, without_flash: bool) -> list[list[CachePair]]:
    if not all(layer.head_dim_k % 32 == 0 and layer.head_dim_v % 32 == 0 for layer in model.layers):
        return [[_PLAIN]]
    if without_flash:
        return [[_PLAIN, CachePair("q8_0", "f16")]]
    if latent:
        return [[_PLAIN, CachePair("q8_0", "f16")], [CachePair("q6_0", "f16")]]
    return [[_PLAIN, CachePair("q8_0", "q8_0")], *([CachePair(*pair)] for pair in spec.commands.smaller_caches)]


def keeps_quality(engine: Engine, model: Model, pair: CachePair, date: str | None) -> bool:
    """Return whether a cache of these types loses little: of 4 bits only if the build (None: today's) rotates it.

    Keys of some models have outliers that make 4 unrotated bits useless (mlx-lm pull request 1555: Qwen3). llama.cpp
    rotates heads of a multiple of 64 values (src/llama-kv-cache.cpp). No rotation saves keys of Qwen2 (issue 21385).
    """
    if model.architecture in OUTLIERS_IN_KEYS and type_named(pair.k).bpw <= FEW_BITS:
        return False
    if min(type_named(kind).bpw for kind in pair) > FOUR_BITS:
        return True
    since = engine_spec(engine).commands.rotates_caches_from
    return since is not None and (date or since) >= since and all(la.head_dim_k % 64 == 0 for la in model.layers)


def card_sets(rig: Rig) -> list[Cards]:
    """Return the sets of cards worth trying, the largest sets first; in each, the fastest cards first.

    Cards of one kind are interchangeable, so a set is how many of each kind it has. Where these are too many, a kind is
    used or left out as a whole, unless it is alone. With Vulkan all cards are used, or one where all are alike: hiding
    others takes the driver's order, which is unknown.
    """
    kinds = _kinds(rig.cards)
    if any(card.backend == "vulkan" for card in rig.cards):
        whole = tuple(range(len(rig.cards)))
        return [whole, (0,)] if len(kinds) == 1 < len(whole) else [whole]
    counts = [range(len(kind) + 1) for kind in kinds]
    if math.prod(map(len, counts)) > _MOST_SETS:
        counts = [range(0, len(kind) + 1, len(kind)) for kind in kinds]
    sets = [
        tuple(sorted(i for kind, n in zip(kinds, chosen, strict=True) for i in kind[:n])) for chosen in product(*counts)
    ]
    fastest = [tuple(range(n)) for n in range(1, len(rig.cards) + 1)]
    of_one_kind = [tuple(kind[:n]) for kind in kinds for n in range(1, len(kind) + 1)]
    largest = sorted(sets, key=len)[-_MOST_SETS:]
    return sorted({*fastest, *of_one_kind, *largest} - {()}, key=lambda cards: (-len(cards), cards))


def orders(rig: Rig, cards: Cards) -> Iterator[Cards]:
    """Yield the orders of cards worth trying with weights in RAM: with the fastest card first, then the one with the
    widest link, then the one with the most memory.

    The first card takes the weights that are copied from RAM for a batch, over its link and into its compute buffer
    (ggml-backend.cpp of both engines: the backend of highest priority that supports the operation).
    """
    if any(rig.cards[i].backend == "vulkan" for i in cards):
        yield cards
        return
    seen = set()
    by_link = max(cards, key=lambda i: (rig.cards[i].pcie_gbs, -i))
    by_memory = max(cards, key=lambda i: (rig.cards[i].free, -i))
    for leader in (cards[0], by_link, by_memory):
        kind = _kind(rig.cards[leader])
        if kind not in seen:
            seen.add(kind)
            yield (leader, *(i for i in cards if i != leader))


def _kinds(cards: Sequence[Card]) -> list[list[int]]:
    found: dict[object, list[int]] = {}
    for i, card in enumerate(cards):
        found.setdefault(_kind(card), []).append(i)
    return list(found.values())


def _kind(card: Card) -> object:
    return card.name, card.free, card.pcie_gbs, card.bandwidth_gbs
