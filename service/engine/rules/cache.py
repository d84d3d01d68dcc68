"""Flash attention where a model has none, types of the cache that an engine refuses or aborts at, and where it lies."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from service.engine.ggml_types import type_named
from service.engine.model import Model
from service.engine.rules.case import Case
from service.engine.rules.rule import CACHE, WORTH_SAYING, Found, rule

UNQUANTISED = ("f16", "bf16", "f32")
FEW_BITS = 5.0  # of a value: q4_1, and less in q4_0 and iq4_nl
# Their keys have a bias of up to 900, a hundred times that of other layers, in the first and the last layer.
OUTLIERS_IN_KEYS = frozenset({"qwen2", "qwen2vl"})
_ROTATED = (64, 128, 256)  # sizes of heads


@rule(
    "flash-attention-impossible", "info", "the-cache",
    "ik_llama.cpp src/llama.cpp, llama_init_from_model; llama.cpp src/llama-context.cpp:3816", fix="leave out -fa",
)  # fmt: skip
def flash_attention_impossible(case: Case) -> Iterator[Found]:
    """Some architectures always run without flash attention."""
    named = {"-fa", "--flash-attn"} & set(case.parsed.used)
    without = case.spec.architectures.having("no_flash_attention")
    if case.flags.flash_attn == "on" and named and case.model.architecture in without:
        yield Found(f"-fa on does nothing: {case.model.architecture} always runs without flash attention")


@rule(
    "quantised-v-without-fa", "error", CACHE, "llama_init_from_model of both engines", fix="-fa on, or -ctv f16",
    refused="loading",
)  # fmt: skip
def quantised_v_without_flash_attention(case: Case) -> Iterator[Found]:
    """Both engines refuse a quantised V cache without flash attention; ik_llama.cpp's latent cache has no V."""
    kind, ignored = case.flags.cache_type_v, case.spec.memory.latent_ignores_v and case.latent_cache
    without = case.model.architecture in case.spec.memory.without_flash_attention
    if (without or case.flags.flash_attn == "off") and kind not in UNQUANTISED and not ignored:
        yield Found(f"-ctv {kind} needs flash attention, which is off; the engine does not start")


@rule(
    "cache-type-block", "error", CACHE, "llama_init_from_model of both engines (head size % block size of the type)",
    fix="-ctk f16 -ctv f16", refused="loading",
)  # fmt: skip
def cache_type_block(case: Case) -> Iterator[Found]:
    """The head size must be divisible by the block size of the cache type."""
    if case.model.mla is not None:
        return
    for option, kind, size in _heads(case):
        block = type_named(kind).block
        if size % block:
            message = f"{option} {kind}: heads of {size} elements are not a multiple of its blocks of {block}"
            yield Found(f"{message}; the engine does not start", f"{option} f16")
            return


def rotation_saves(model: Model, kind: str) -> bool:
    """Return whether keys of a type lose much less if they are rotated (Hadamard), as llama.cpp does unasked: those of
    few bits, in heads of a size that the engines rotate."""
    able = model.mla is None and all(layer.head_dim_k in _ROTATED for layer in model.layers if layer.attends)
    return able and type_named(kind).bpw <= FEW_BITS and model.architecture not in OUTLIERS_IN_KEYS


@rule(
    "keys-of-few-bits", "warning", CACHE, "llama.cpp issue 21385 (150 configurations of 26 models)",
    fix="-ctk q8_0",
)  # fmt: skip
def keys_of_few_bits(case: Case) -> Iterator[Found]:
    """Keys of Qwen2 and Qwen2.5 have outliers that 4 bits do not hold, rotated or not."""
    kind = case.flags.cache_type_k
    if case.model.architecture in OUTLIERS_IN_KEYS and type_named(kind).bpw <= FEW_BITS:
        yield Found(
            f"-ctk {kind}: keys of Qwen2 and Qwen2.5 have outliers that it does not hold; answers may be nonsense"
        )


@rule(
    "context-shared", "info", CACHE,
    "llama.cpp src/llama-context.cpp (n_ctx_seq = n_ctx / n_seq_max); ik_llama.cpp "
    "examples/server/server-context.cpp:275 (n_ctx_slot)",
)  # fmt: skip
def context_shared(case: Case) -> Iterator[Found]:
    """`-np` divides the context among the slots, unless they share one cache (`-kvu`)."""
    each, trained = case.context_each, case.model.n_ctx_train  # beyond it: `context-beyond-training`
    if case.parsed.program == "llama-server" and case.streams > 1 and each <= (trained or each):
        share = f"{each:,} of the {case.flags.n_ctx:,} tokens of -c"
        yield Found(f"each of {case.streams} slots gets {share}: no request can have more")


@rule(
    "cache-in-ram", "warning", CACHE, "computed: memory and speed of this command without -nkvo",
    fix="leave out -nkvo", about="speed",
)  # fmt: skip
def cache_in_ram(case: Case) -> Iterator[Found]:
    """`-nkvo` keeps the cache in RAM although it fits on the cards, which fetch it for every token and batch."""
    flags = case.flags
    if not flags.no_kv_offload or not case.devices or flags.n_gpu_layers <= 0:
        return
    there = msgspec.structs.replace(flags, no_kv_offload=False)
    smaller = msgspec.structs.replace(there, cache_type_k="q8_0", cache_type_v="q8_0")
    if case.fits(there):
        fixed, where, fix = there, "fits on the GPUs", "leave out -nkvo"
    elif {flags.cache_type_k, flags.cache_type_v} <= {*UNQUANTISED} and flags.flash_attn == "on" and case.fits(smaller):
        fixed, where, fix = smaller, "fits on the GPUs as q8_0", "-ctk q8_0 -ctv q8_0; leave out -nkvo"
    else:
        return
    n_kv = case.context_each // 2
    pp, tg = case.gain(n_kv, run=case.run_of(fixed))
    if max(pp, tg) >= WORTH_SAYING:
        message = f"-nkvo keeps the cache in RAM although it {where}: without it, after {n_kv:,} tokens, TG"
        yield Found(f"{message} would be {tg:.2f} times as fast, PP {pp:.2f} times", fix, pp=pp, tg=tg)


def _heads(case: Case) -> Iterator[tuple[str, str, int]]:
    """Options, types and head sizes of the layers with a cache."""
    for layer in case.model.layers:
        if layer.attends:
            yield "-ctk", case.flags.cache_type_k, layer.head_dim_k
            yield "-ctv", case.flags.cache_type_v, layer.head_dim_v
