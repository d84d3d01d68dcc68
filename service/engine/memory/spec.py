"""What a compute graph depends on besides the model: batch, context, cache types and the engine's switches."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from service.engine.builds.rules import TODAY, MemoryRules
from service.engine.config import Engine, Flags
from service.engine.errors import InvalidFlags, InvalidHeader
from service.engine.ggml_types import type_named
from service.engine.model import Model
from service.engine.units import pad

Tool: TypeAlias = Literal["server", "bench"]
Allocator: TypeAlias = Literal["cuda", "lab"]

_PARTIAL_MLA = 3
LATENT_ARCHITECTURES_IK = frozenset({"deepseek2", "glm-dsa", "mistral4", "bailingmoe3"})  # ik llama-model.h:593
_SWITCHED_OFF = {
    "fused_dense": ("-no-fug", "--no-fused-up-gate"),
    "fused_sums": ("-no-mmad", "--no-fused-mul-multiadd"),
}
_ROLLS_BACK = frozenset({"draft-mtp", "draft-eagle3", "draft-dflash", "draft-dspark"})
_DRAFTED_LLAMA, _MOST_DRAFTED = 3, 1024
_INDEXER_TYPE, _TOP_K = ("-ictk", "--indexer-cache-type-k"), ("-dsatk", "--dsa-top-k")
_UNIFIED, _SEPARATE = ("-kvu", "--kv-unified"), ("-no-kvu", "--no-kv-unified")


class CardShares(msgspec.Struct, frozen=True):
    """What each card has of a model with ik's `-sm graph`.

    `cuts`: name, axis (-1: whole on every card that has a share) and elements by card of each tensor. `head`: the
    device of the head. `reduce_type`: the type in which cards add up.
    """

    cuts: tuple[tuple[str, int, tuple[int, ...]], ...]
    head: int
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
    rows only. `n_top_k`: how many, -1 for as many as the header says.
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
    cpu_only: bool
    next_tokens: bool = False
    n_snapshots: int = 0
    rope_owners: tuple[int, ...] = ()
    swa_full: bool = False
    type_indexer: str = "f16"
    sparse: bool = False
    n_top_k: int = -1
    cards: CardShares | None = None
    rules: MemoryRules = TODAY


def padded_context(engine: Engine, model: Model, flags: Flags) -> int:
    """Return the rows of the whole cache: `-c` padded (ik llama-context.h:74: 256, 32 without flash attention)."""
    n_ctx = flags.n_ctx or model.n_ctx_train
    return pad(n_ctx, 32 if engine == "ik_llama.cpp" and flags.flash_attn == "off" else 256)


def uses_flash_attention(engine: Engine, model: Model, flags: Flags) -> bool:
    """Return whether attention is one operation; never for Grok in llama.cpp (llama-context.cpp:3816)."""
    return flags.flash_attn != "off" and not (engine == "llama.cpp" and model.architecture == "grok")


def micro_batch(engine: Engine, model: Model, flags: Flags) -> int:
    """Return the tokens of the worst-case batch: min(n_ctx, -b, -ub)."""
    return max(1, min(padded_context(engine, model, flags), flags.n_batch, flags.n_ubatch))


def cache_type(name: str, field: str) -> str:
    """Return the type name as the type table spells it. Raises InvalidFlags for an unknown one."""
    try:
        return type_named(name).name
    except InvalidHeader as unknown:
        raise InvalidFlags(f"{field} is {name!r}, which no engine knows: try f16 or q8_0", field=field) from unknown


def latent_mode(engine: Engine, model: Model, flags: Flags, rules: MemoryRules = TODAY) -> int:
    """Return ik's effective `-mla`, 1 for llama.cpp's latent cache, or 0 for plain K and V caches."""
    if model.mla is None:
        return 0
    if engine == "llama.cpp":  # llama.cpp: only files that name the absorbed head sizes are latent
        known = model.int_value("attention.key_length_mla") and rules.latent_cache != "heads"
        return 1 if known else 0
    if model.architecture not in LATENT_ARCHITECTURES_IK:
        return 0
    if rules.partial_latent and 0 < flags.n_gpu_layers < model.n_layer:
        return _PARTIAL_MLA  # ik llama.cpp: partial offload runs as -mla 3 whatever was asked
    return rules.mla if flags.mla is None else flags.mla


def attention_batch(flags: Flags, rules: MemoryRules = TODAY) -> int:
    """Return ik's effective `-amb` in MiB, 0 for no limit (llama-server and llama-sweep-bench)."""
    if flags.attn_max_batch is None:
        return rules.attn_max_batch
    return max(flags.attn_max_batch, rules.least_batch) if flags.attn_max_batch > 0 else 0


def unified_cache(flags: Flags) -> bool:
    """Return whether llama.cpp's slots share one cache: `-kvu`, its server's default where `-np` is not given."""
    asked = [flag for flag in flags.other if flag in _UNIFIED or flag in _SEPARATE]
    return bool(asked) and asked[-1] in _UNIFIED


def loads_next_tokens(flags: Flags) -> bool:
    """Return whether the model's own next-token layers are loaded to draft with: `--spec-type` names mtp.

    ik common/common.cpp:4287 (mparams.mtp); llama.cpp common/common.cpp:1625 (load_mtp: draft-mtp without `-md`).
    """
    types = {kind.partition(":")[0] for kind in speculation_types(flags)}
    return bool(types & {"mtp", "draft-mtp"})


def speculation_types(flags: Flags) -> tuple[str, ...]:
    """Return the entries of all `--spec-type` options; in ik_llama.cpp each may carry `:key=value,…`."""
    values = [option.partition(" ")[2] for option in flags.other if option.startswith("--spec-type ")]
    return tuple(part for value in values for part in ([value] if ":" in value else value.split(",")) if part)


def _snapshots(engine: Engine, flags: Flags) -> int:
    """llama.cpp common/common.h:396 need_n_rs_seq: as many states as tokens are drafted, 3 by default."""
    if engine == "ik_llama.cpp" or not set(speculation_types(flags)) & _ROLLS_BACK:
        return 0
    asked = [o.partition(" ")[2] for o in flags.other if o.startswith("--spec-draft-n-max ")]
    return min(int(asked[-1]), _MOST_DRAFTED) if asked and asked[-1].isdecimal() else _DRAFTED_LLAMA


def _option(flags: Flags, names: tuple[str, ...], default: str) -> str:
    """Return the value of the last of the options called `names`."""
    values = [value for name, _, value in (o.partition(" ") for o in flags.other) if name in names]
    return values[-1] if values else default


def _top_k(flags: Flags) -> int:
    asked = _option(flags, _TOP_K, "-1")
    return int(asked) if asked.isdecimal() and len(asked) < 10 else -1


def _switched(flags: Flags, rules: MemoryRules) -> MemoryRules:
    """The build's rules with what the command switches off: `-no-fug`, `-no-mmad` (ik common/common.cpp)."""
    off = {name for name, options in _SWITCHED_OFF.items() if set(options) & set(flags.other)}
    return msgspec.structs.replace(rules, **dict.fromkeys(off, False)) if off else rules


def make_spec(
    engine: Engine, model: Model, flags: Flags, tool: Tool, *, cpu_only: bool, rules: MemoryRules = TODAY
) -> GraphSpec:  # fmt: skip
    """Return what the worst-case graph of these flags depends on. Raises InvalidFlags for unknown cache types."""
    ik, n_seq = engine == "ik_llama.cpp", max(1, flags.n_parallel)
    n_ctx, n_tokens = padded_context(engine, model, flags), micro_batch(engine, model, flags)
    n_stream = 1 if ik or unified_cache(flags) else n_seq
    server_rows = n_tokens if ik or rules.whole_logits else min(n_tokens, n_seq)
    return GraphSpec(
        engine=engine,
        n_tokens=n_tokens if ik else pad(n_tokens, n_seq),  # llama.cpp llama-context.cpp:2528
        n_ubatch=n_tokens,
        n_kv=n_ctx if n_stream == 1 else pad(n_ctx // n_stream, 256),
        n_outputs=min(n_tokens, flags.n_logits or (server_rows if tool == "server" else n_tokens)),
        n_stream=n_stream,
        n_seq=n_seq,
        flash_attn=uses_flash_attention(engine, model, flags),
        transposed_v=not uses_flash_attention(engine, model, flags),
        swa_full=not ik and ("--swa-full" in flags.other or not rules.window_caches),
        type_k=cache_type(flags.cache_type_k, "cache_type_k"),
        type_v=cache_type(flags.cache_type_v, "cache_type_v"),
        type_indexer=cache_type(_option(flags, _INDEXER_TYPE, "f16"), "other"),
        sparse=ik and bool({"-dsa", "--dsa"} & set(flags.other)),
        n_top_k=_top_k(flags),
        mla=latent_mode(engine, model, flags, rules),
        attn_max_batch=attention_batch(flags, rules),
        fused_moe=flags.fused_moe,
        cpu_only=cpu_only,
        next_tokens=loads_next_tokens(flags),
        n_snapshots=_snapshots(engine, flags),
        rules=_switched(flags, rules),
    )


def one_token_each(spec: GraphSpec) -> GraphSpec:
    """Return the spec of llama.cpp's graph for one token a sequence, which it reserves as well."""
    return msgspec.structs.replace(spec, n_tokens=spec.n_seq, n_outputs=spec.n_seq)
