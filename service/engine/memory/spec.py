"""What a compute graph depends on besides the model: batch, context, cache types and the engine's switches."""

from __future__ import annotations

import msgspec

from service.engine.builds import TODAY, MemoryRules
from service.engine.config import Engine, Flags
from service.engine.engines import engine_spec
from service.engine.errors import InvalidFlags, InvalidHeader
from service.engine.ggml_types import type_named
from service.engine.model import Model
from service.engine.run.settings import PADDING, loads_next_tokens, micro_batch, padded_context
from service.engine.units import pad


class CardShares(msgspec.Struct, frozen=True):
    """What each card has of a model with ik's `-sm graph`.

    `cuts`: name, axis (-1: whole on every card that has a share) and elements by card of each tensor. `head`: the
    device of the head, `main`: the card whose norms what is not shared reads. `reduce_type`: in which cards add up.
    """

    cuts: tuple[tuple[str, int, tuple[int, ...]], ...]
    head: int
    main: int
    reduce_type: str


class GraphSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in tokens. `n_kv`: cache rows of one sequence's stream; `n_outputs`: rows of logits.

    `n_tokens` is the worst-case batch; llama.cpp rounds it up to the same number for each sequence, beyond `n_ubatch`.

    `transposed_v`: llama.cpp's values are stored by column, as they are where flash attention was not even tried.
    `n_stream`: separate caches (llama.cpp with several slots and no `-kvu`). `n_seq`: sequences. `mla`: 0 where
    the cache is not latent. `next_tokens`: the next-token layers are loaded, to draft with. `n_snapshots`: copies of a
    recurrent state to go back to. `rope_owners`: for each layer, the first that shares its copy of the rope factors.
    `swa_full`: layers with a window cache the whole context.
    `type_indexer`: ik's type of the keys by which sparse attention chooses rows. `sparse`: ik attends to the chosen
    rows only.
    `cards`: the shares of ik's `-sm graph`, None in other modes.
    `rules`: those of the build.
    """

    engine: Engine
    n_tokens: int
    n_ubatch: int
    n_kv: int
    n_outputs: int
    n_stream: int
    n_seq: int
    flash_attn: bool
    transposed_v: bool
    type_k: str
    type_v: str
    mla: int
    attn_max_batch: int
    fused_moe: bool
    cpu_only: bool = False
    next_tokens: bool = False
    n_snapshots: int = 0
    rope_owners: tuple[int, ...] = ()
    swa_full: bool = False
    type_indexer: str = "f16"
    sparse: bool = False
    cards: CardShares | None = None
    rules: MemoryRules = TODAY


def cache_type(name: str, field: str) -> str:
    """Return the type name as the type table spells it. Raises InvalidFlags for an unknown one."""
    try:
        return type_named(name).name
    except InvalidHeader as unknown:
        raise InvalidFlags(f"{field} is {name!r}, which no engine knows: try f16 or q8_0", field=field) from unknown


def attention_batch(flags: Flags, rules: MemoryRules = TODAY) -> int:
    """Return ik's effective `-amb` in MiB, 0 for no limit (llama-server and llama-sweep-bench)."""
    if flags.attn_max_batch is None:
        return rules.attn_max_batch
    return max(flags.attn_max_batch, rules.least_batch) if flags.attn_max_batch > 0 else 0


def make_spec(engine: Engine, model: Model, flags: Flags, *, rules: MemoryRules = TODAY) -> GraphSpec:
    """Return what a server's worst-case graph of these flags depends on. Raises InvalidFlags for other cache types."""
    return engine_spec(engine).memory.graph_spec(model, flags, "server", rules=rules)


def spec_for(
    engine: Engine, model: Model, flags: Flags, rules: MemoryRules, *, n_logits: int, n_stream: int = 1
) -> GraphSpec:  # fmt: skip
    """Return a spec with what every engine decides alike. `n_logits`: rows of logits unless the flags say."""
    memory = engine_spec(engine).memory
    n_ctx, n_tokens = padded_context(engine, model, flags), micro_batch(engine, model, flags)
    flash_attn = flags.flash_attn != "off" and model.architecture not in memory.without_flash_attention
    return GraphSpec(
        engine=engine,
        n_tokens=n_tokens,
        n_ubatch=n_tokens,
        n_kv=n_ctx if n_stream == 1 else pad(n_ctx // n_stream, PADDING),
        n_outputs=min(n_tokens, flags.n_logits or n_logits),
        n_stream=n_stream,
        n_seq=max(1, flags.n_parallel),
        flash_attn=flash_attn,
        transposed_v=not flash_attn,
        type_k=cache_type(flags.cache_type_k, "cache_type_k"),
        type_v=cache_type(flags.cache_type_v, "cache_type_v"),
        mla=memory.latent_mode(model, flags, rules),
        attn_max_batch=attention_batch(flags, rules),
        fused_moe=flags.fused_moe,
        next_tokens=loads_next_tokens(flags),
        rules=rules,
    )


def one_token_each(spec: GraphSpec) -> GraphSpec:
    """Return the spec of llama.cpp's graph for one token a sequence, which it reserves as well."""
    return msgspec.structs.replace(spec, n_tokens=spec.n_seq, n_outputs=spec.n_seq)
