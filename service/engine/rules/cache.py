"""Types of the cache that an engine refuses or aborts at, and where the cache lies."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from service.engine.ggml_types import type_named
from service.engine.memory.spec import latent_mode
from service.engine.rules.case import Case
from service.engine.rules.rule import WORTH_SAYING, Found, rule
from service.engine.units import MIB

_CACHE = "the-cache"
_UNQUANTISED = ("f16", "bf16", "f32")
_ABORT_ON_CPU = ("q5_0", "q5_1")
_HADAMARD = {
    "-khad": "cache_type_k", "--k-cache-hadamard": "cache_type_k",
    "-vhad": "cache_type_v", "--v-cache-hadamard": "cache_type_v",
}  # fmt: skip
_LEAST_SAVED = 256 * MIB


@rule(
    "quantised-v-without-fa", "error", _CACHE, "llama_init_from_model of both engines", mend="-fa on, or -ctv f16"
)  # fmt: skip
def quantised_v_without_flash_attention(case: Case) -> Iterator[Found]:
    """Both engines refuse a quantised V cache without flash attention; ik_llama.cpp's latent cache has no V."""
    kind, ignored = case.flags.cache_type_v, case.ik and _latent(case)
    if case.flags.flash_attn == "off" and kind not in _UNQUANTISED and not ignored:
        yield Found(f"-ctv {kind} needs flash attention, which is off: the engine refuses to start")


@rule(
    "latent-cache-types-differ", "error", _CACHE, "llama.cpp src/llama-context.cpp:3865", only="llama.cpp",
    mend="the same type for -ctk and -ctv",
)  # fmt: skip
def latent_cache_types_differ(case: Case) -> Iterator[Found]:
    """llama.cpp keeps K and V of a latent cache in one tensor, and refuses two types."""
    kinds = (case.flags.cache_type_k, case.flags.cache_type_v)
    if _latent(case) and kinds[0] != kinds[1]:
        message = f"-ctk {kinds[0]} with -ctv {kinds[1]}: a latent cache has one type, the engine refuses to start"
        yield Found(message, f"-ctk {kinds[0]} -ctv {kinds[0]}")


@rule(
    "cache-type-without-gpu-kernel", "error", _CACHE, only="ik_llama.cpp", mend="-ctk q8_0",
    source="ik_llama.cpp ggml-cuda.cu: no copy from f32 to q8_KV, no flash attention with it",
)  # fmt: skip
def cache_type_without_gpu_kernel(case: Case) -> Iterator[Found]:
    """q8_KV caches exist for the CPU only."""
    on_gpu = any(device is not None and device < case.cpu for device in case.placement.caches)
    if "q8_KV" in (case.flags.cache_type_k, case.flags.cache_type_v) and on_gpu:
        yield Found("q8_KV is a cache type of the CPU only")


@rule(
    "cache-type-aborts-on-cpu", "error", _CACHE, "ik_llama.cpp ggml/src/iqk/iqk_flash_attn.cpp:121-310",
    only="ik_llama.cpp", mend="q8_0, q6_0 or q4_0; or no layer's cache in RAM",
)  # fmt: skip
def cache_type_aborts_on_cpu(case: Case) -> Iterator[Found]:
    """Flash attention on the CPU has no q5_0 and no q5_1: ik_llama.cpp aborts at the first prompt."""
    kinds = [case.flags.cache_type_k] + ([] if _latent(case) else [case.flags.cache_type_v])
    wrong = [kind for kind in kinds if kind in _ABORT_ON_CPU]
    in_ram = [i for i, device in enumerate(case.placement.caches) if device == case.cpu and _attends(case, i)]
    if wrong and in_ram and case.flags.flash_attn != "off":
        message = f"a cache of {wrong[0]} is in RAM for {len(in_ram)} layers: attention on the CPU aborts at it"
        yield Found(message)


@rule(
    "cache-type-block", "error", _CACHE, "llama_init_from_model of both engines (head size % block size of the type)",
    mend="-ctk f16 -ctv f16",
)  # fmt: skip
def cache_type_block(case: Case) -> Iterator[Found]:
    """The size of a head must be divisible by the block of the cache's type."""
    if case.model.mla is not None:
        return
    for option, kind, size in _heads(case):
        block = type_named(kind).block
        if size % block:
            message = f"{option} {kind}: heads of {size} elements are no multiple of its blocks of {block}"
            yield Found(f"{message}, the engine refuses to start", f"{option} f16")
            return


@rule(
    "v-type-without-effect", "info", _CACHE, "ik_llama.cpp src/llama.cpp llama_kv_cache_init", only="ik_llama.cpp",
    mend="leave it out",
)  # fmt: skip
def v_type_without_effect(case: Case) -> Iterator[Found]:
    """A latent cache holds no V: `-ctv` is ignored, `-ctk` decides."""
    if _latent(case) and case.flags.cache_type_v != "f16" and case.flags.mla != 0:
        yield Found(f"-ctv {case.flags.cache_type_v} does nothing: a latent cache has no V, -ctk decides its type")


@rule(
    "hadamard-without-effect", "info", _CACHE, "ik_llama.cpp src/llama.cpp:8025-8054", only="ik_llama.cpp",
    mend="leave it out",
)  # fmt: skip
def hadamard_without_effect(case: Case) -> Iterator[Found]:
    """`-khad` and `-vhad` rotate quantised caches only; DeepSeek V4 refuses `-khad`."""
    for option, field in _HADAMARD.items():
        kind = getattr(case.flags, field)
        if option in case.flags.other and kind in _UNQUANTISED:
            yield Found(f"{option} does nothing: a cache of {kind} is not quantised")
        elif option in case.flags.other and field == "cache_type_k" and case.model.architecture == "deepseek4":
            yield Found(f"{option}: deepseek4 refuses it", severity="error")


@rule(
    "cache-in-ram", "warning", _CACHE, "computed: memory and speed of this command without -nkvo",
    mend="leave -nkvo out",
)  # fmt: skip
def cache_in_ram(case: Case) -> Iterator[Found]:
    """`-nkvo` keeps the cache in RAM, where attention over it then runs, although it fits on the cards."""
    if not case.flags.no_kv_offload or not case.devices or case.flags.n_gpu_layers <= 0:
        return
    mended = msgspec.structs.replace(case.flags, no_kv_offload=False)
    if not case.fits(mended):
        return
    pp, tg = case.gain(flags=mended, placement=case.predict(mended).placement)
    if max(pp, tg) >= WORTH_SAYING:
        message = "-nkvo keeps the cache in RAM although it fits on the GPUs"
        yield Found(f"{message}: without it TG would be {tg:.1f} times as fast, PP {pp:.1f} times", pp=pp, tg=tg)


@rule(
    "sliding-window-kept-whole", "info", _CACHE,
    "ik_llama.cpp src/llama.cpp llama_kv_cache_init: every layer has n_ctx rows (--swa-compress: three architectures)",
    only="ik_llama.cpp", mend="a quantised cache, a shorter -c, or llama.cpp, which keeps the window only",
)  # fmt: skip
def sliding_window_kept_whole(case: Case) -> Iterator[Found]:
    """ik_llama.cpp caches the whole context for layers that look back a window only."""
    windowed = [layer for layer in case.model.layers if layer.n_swa and layer.n_swa < case.flags.n_ctx]
    cached = sum(device is not None for device in case.placement.caches)
    if not windowed or not cached or "--swa-compress" in case.flags.other:
        return
    total = sum(device.kv for device in case.memory.devices)
    unread = sum(1 - layer.n_swa / case.flags.n_ctx for layer in windowed) / cached * total
    if unread >= _LEAST_SAVED and not all(row.fits for row in case.table):
        message = f"{len(windowed)} of {case.model.n_layer} layers look back {windowed[0].n_swa:,} tokens only"
        yield Found(f"{message}, but ik_llama.cpp caches all: about {unread / MIB:,.0f} MiB that are never read")


@rule(
    "window-cache-refused", "error", _CACHE, "ik_llama.cpp src/llama.cpp:1199-1266", only="ik_llama.cpp",
    mend="-np 1 and -sm layer with --swa-compress",
)  # fmt: skip
def window_cache_refused(case: Case) -> Iterator[Found]:
    """`--swa-compress` wants one slot and no `-sm graph`."""
    if "--swa-compress" not in case.flags.other:
        return
    if case.flags.n_parallel > 1:
        yield Found(f"--swa-compress with -np {case.flags.n_parallel}: it is done for one slot only", "-np 1")
    if case.flags.split_mode in ("graph", "attn") and len(case.devices) > 1:
        yield Found(f"--swa-compress is not done with -sm {case.flags.split_mode}: the engine stops", "-sm layer")


def _heads(case: Case) -> Iterator[tuple[str, str, int]]:
    """Options, types and head sizes of the layers with a cache."""
    for layer in case.model.layers:
        if layer.attends:
            yield "-ctk", case.flags.cache_type_k, layer.head_dim_k
            yield "-ctv", case.flags.cache_type_v, layer.head_dim_v


def _attends(case: Case, index: int) -> bool:
    return case.model.layers[index].attends


def _latent(case: Case) -> bool:
    return latent_mode(case.engine, case.model, case.flags, case.parsed.build.rules.memory) > 0
