"""What is worth trying for one engine and variant: cards and their order, micro-batches, cache types, split modes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from service.engine.commands.tables import cache_types
from service.engine.config import Engine, Flags
from service.engine.goal import Constraints, Goal
from service.engine.hardware import Rig
from service.engine.memory.split_modes import split_refused, splits_graph
from service.engine.model import Model
from service.engine.planner.cards import Cards, card_sets, orders
from service.engine.planner.support import runs_on_gpu
from service.engine.tensor_names import role_of

Strategy: TypeAlias = Literal["all on GPU", "FFN in RAM", "layers in RAM", "CPU only"]

# From ik_llama.cpp's threshold (32 * n_expert / n_expert_used) on, every micro-batch copies the experts in RAM once, so
# larger ones pay: x 2.4, 3.6 and 4.3 for 2048, 4096 and 8192 against 512 (ik_llama.cpp pull request 529).
MICRO_BATCHES = (512, 1024, 2048, 4096, 8192)
_SHARE_OF_CONTEXT = 4  # prompts that fill a larger part of the context at once are rare
_BATCH = 2048  # both engines' default
_TOGETHER: dict[Engine, str] = {"ik_llama.cpp": "graph", "llama.cpp": "tensor"}


def micro_batches(goal: Goal) -> list[int]:
    """Return the micro-batches worth trying: up to the goal's prompt, or a quarter of its context."""
    most = max(goal.prompt, goal.context // _SHARE_OF_CONTEXT)
    return [n for n in MICRO_BATCHES if n <= most] or [MICRO_BATCHES[0]]


class CachePair(NamedTuple):
    """The types of K and V."""

    k: str
    v: str


class Candidate(msgspec.Struct, frozen=True):
    """A strategy on some cards (indices into the rig, in the engine's order), with the flags it starts from.

    `kept`: the names of flags that the user keeps.
    """

    strategy: Strategy
    cards: Cards
    flags: Flags
    kept: tuple[str, ...] = ()

    def with_flags(self, **values: object) -> Flags:
        """Return the flags with these values, but for those that are kept."""
        return msgspec.structs.replace(self.flags, **{n: value for n, value in values.items() if n not in self.kept})


def candidates(engine: Engine, model: Model, rig: Rig, goal: Goal, pairs: Sequence[CachePair]) -> Iterator[Candidate]:
    """Yield every candidate of one engine and model. `strategy` is how much of the model is hoped to lie on the cards:

    everything where that can be, else all but the FFN in RAM; what really fits is for `forecast` and the placement.
    """
    for cards in card_sets(rig) if rig.cards and dense_part_runs_on_gpu(engine, model) else ():
        for order in orders(rig, cards):
            for pair in pairs:
                for n_ubatch in micro_batches(goal):
                    for mode in _split_modes(engine, model, rig, order, pair):
                        flags = base_flags(engine, model, rig, goal, "FFN in RAM", n_ubatch, *pair)
                        yield Candidate("FFN in RAM", order, msgspec.structs.replace(flags, split_mode=mode))
    for pair in pairs:
        for n_ubatch in (512, 2048):
            yield Candidate("CPU only", (), base_flags(engine, model, rig, goal, "CPU only", n_ubatch, *pair))


def _split_modes(engine: Engine, model: Model, rig: Rig, cards: Cards, pair: CachePair) -> tuple[str, ...]:
    """By layers, and with all cards on every layer where engine and architecture have it; CUDA only.

    llama.cpp's `-sm tensor` refuses a quantised cache (docs/multi-gpu.md); ik_llama.cpp's speed there is unknown too.
    """
    if len(cards) < 2 or pair != ("f16", "f16") or any(rig.cards[i].backend != "cuda" for i in cards):
        return ("layer",)
    mode = _TOGETHER[engine]
    if engine == "ik_llama.cpp":
        return ("layer", mode) if splits_graph(model) else ("layer",)
    return ("layer",) if split_refused(model, Flags(split_mode=mode)) else ("layer", mode)


def dense_part_runs_on_gpu(engine: Engine, model: Model) -> bool:
    """Return whether everything but experts, dense FFN and embeddings has types with GPU kernels."""
    return all(
        runs_on_gpu(engine, t.type)
        for t in model.tensors
        if role_of(t.name) not in ("expert", "dense_ffn", "token_embd")
    )


def stated_kv_types(engine: Engine, constraints: Constraints) -> list[str]:
    """Return the cache types asked for that both tools of the engine take: a config has a line for each."""
    known = cache_types(engine, "bench")
    return [kind for kind in dict.fromkeys(constraints.kv_types or ()) if kind in known]


def lacks_cache_types(engine: Engine, constraints: Constraints) -> str | None:
    """Return why an engine has none of the cache types asked for, or None when it has one."""
    if not constraints.kv_types or stated_kv_types(engine, constraints):
        return None
    known = ", ".join(cache_types(engine, "bench"))
    return f"{engine} has no cache type {' or '.join(constraints.kv_types)}: it takes {known}"


def cache_pairs(engine: Engine, model: Model, constraints: Constraints) -> list[list[CachePair]]:
    """Return the types of K and V to try: those asked for, else f16 and q8_0; then ever smaller ones.

    A later group is for what does not fit with the groups before it: what fewer bits cost in quality is not known here.
    Unlike types of K and V are for ik_llama.cpp: llama.cpp's builds have kernels for them only with
    GGML_CUDA_FA_ALL_QUANTS (ggml/CMakeLists.txt). ik_llama.cpp keeps one latent cache and ignores `-ctv`.
    """
    latent = engine == "ik_llama.cpp" and model.mla is not None
    if stated := stated_kv_types(engine, constraints):
        return [[CachePair(kind, "f16" if latent else kind) for kind in stated]]
    plain = CachePair("f16", "f16")
    if not all(layer.head_dim_k % 32 == 0 and layer.head_dim_v % 32 == 0 for layer in model.layers):
        return [[plain]]
    if latent:
        return [[plain, CachePair("q8_0", "f16")], [CachePair("q6_0", "f16")]]
    smaller = [("q8_0", "q6_0"), ("q6_0", "q6_0"), ("q4_0", "q4_0")] if engine == "ik_llama.cpp" else [("q4_0", "q4_0")]
    return [[plain, CachePair("q8_0", "q8_0")], *([CachePair(*pair)] for pair in smaller)]


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
    is_ik, on_cpu = engine == "ik_llama.cpp", strategy != "all on GPU"
    mla = is_ik and model.mla is not None
    return Flags(
        n_ctx=goal.context,
        n_batch=max(_BATCH, n_ubatch),
        n_ubatch=n_ubatch,
        n_gpu_layers=0 if strategy == "CPU only" else 999,
        cache_type_k=type_k,
        cache_type_v="f16" if mla else type_v or type_k,
        mla=3 if mla else None,
        attn_max_batch=512 if mla else None,
        n_parallel=goal.parallel,
        threads=rig.physical_cores if on_cpu else None,
        mmap=False if on_cpu and not is_ik and rig.cards else None,
        numa="distribute" if on_cpu and rig.sockets > 1 else None,
        jinja="tokenizer.chat_template" in model.metadata,
    )


def with_strategy(rig: Rig, engine: Engine, candidate: Candidate, strategy: Strategy) -> Candidate:
    """Return the candidate with another strategy and its flags: work in RAM needs threads and pinned memory."""
    flags = candidate.flags
    if strategy == "all on GPU":
        flags = candidate.with_flags(threads=None, mmap=None, numa=None)
    elif candidate.strategy == "all on GPU":
        numa = "distribute" if rig.sockets > 1 else None
        mmap = None if engine == "ik_llama.cpp" else False
        flags = candidate.with_flags(threads=rig.physical_cores, mmap=mmap, numa=numa)
    return msgspec.structs.replace(candidate, strategy=strategy, flags=flags)
