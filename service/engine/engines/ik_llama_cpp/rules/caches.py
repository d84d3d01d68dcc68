"""Findings about ik_llama.cpp's caches and latent attention."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.engines.ik_llama_cpp.kernels import ALL_QUANTS, LATENT_HEADS, heads_of, is_before_volta, kernel
from service.engine.rules.cache import UNQUANTISED, rotation_saves
from service.engine.rules.case import Case
from service.engine.rules.rule import CACHE, Found, rule
from service.engine.units import MIB

_LATENT = "latent-attention--mla-and--amb"
_COMMON = "ik_llama.cpp common/common.cpp:1922-2300"


@rule("mla-without-effect", "info", _LATENT, _COMMON, fix="leave it out")
def mla_without_effect(case: Case) -> Iterator[Found]:
    """`-mla` only has an effect for models with latent attention."""
    if case.flags.mla is not None and case.model.mla is None:
        yield Found(
            f"-mla {case.flags.mla} does nothing: {case.model.architecture} has no latent attention", "leave out -mla"
        )


@rule("amb-without-effect", "info", _LATENT, _COMMON, fix="leave it out")
def amb_without_effect(case: Case) -> Iterator[Found]:
    """`-amb` limits a buffer that exists without flash attention, or with latent attention."""
    amb = case.flags.attn_max_batch
    if amb is None or case.parsed.program == "llama-bench":
        return
    if case.model.mla is None and case.flags.flash_attn != "off":
        yield Found(
            f"-amb {amb} does nothing: with flash attention only latent attention (DeepSeek, GLM-5) has the buffer",
            "leave out -amb",
        )


@rule("amb-too-small", "info", _LATENT, _COMMON, fix="-amb 128 or more")
def amb_too_small(case: Case) -> Iterator[Found]:
    """`-amb` below 128 MiB is raised to 128."""
    amb, least = case.flags.attn_max_batch, case.parsed.build.rules.memory.least_batch
    does = case.model.mla is not None or case.flags.flash_attn == "off"
    if amb is not None and does and 0 < amb < least and case.parsed.program != "llama-bench":
        yield Found(f"-amb {amb} is raised to {least} by the engine", f"-amb {least}")


@rule("mla-off", "warning", _LATENT, "ik_llama.cpp pull request 188", fix="-mla 3")
def mla_off(case: Case) -> Iterator[Found]:
    """`-mla 0` keeps K and V of all heads: many times the memory of a latent cache."""
    asked = case.model.mla is not None and case.flags.mla == 0
    if asked and not case.latent_cache:
        yield Found("-mla 0 keeps K and V of every head: the latent cache of -mla 3 is many times smaller")


@rule(
    "mla-slower", "warning", _LATENT, "ik_llama.cpp pull requests 188 and 253 (-mla 3: prompts as -mla 2, tokens as "
    "-mla 1); computed: memory and speed with -mla 3", fix="-mla 3", about="speed",
)  # fmt: skip
def mla_slower(case: Case) -> Iterator[Found]:
    """`-mla 1` computes prompts through the latent cache, `-mla 2` generates tokens without flash attention."""
    if case.model.mla is not None and case.flags.mla in (1, 2) and case.latent_cache:
        yield Found(f"-mla {case.flags.mla} is slower than -mla 3 with this model, increasingly with depth")


_ABORT_ON_CPU = ("q5_0", "q5_1")
_ON_CPU = ("f16", "q8_0", "q8_KV", "q6_0", "q4_0", "q4_1", "iq4_nl")  # iqk_flash_attn.cpp:121
_ASKED_FIRST = "2025-10-29"  # pull 875: the scheduler learns which types have a kernel
_LATENT_TYPES_BUILT = (("-ctk q8_0",), ("-ctk f16",))
_TYPES_BUILT = (
    ("-ctk q8_0 -ctv q8_0",), ("-ctk q8_0 -ctv q6_0",), ("-ctk q4_0 -ctv q4_0",), ("-ctk f16 -ctv f16",),
)  # fmt: skip
_HADAMARD = {
    "-khad": "cache_type_k", "--k-cache-hadamard": "cache_type_k",
    "-vhad": "cache_type_v", "--v-cache-hadamard": "cache_type_v",
}  # fmt: skip
_LEAST_SAVED = 256 * MIB


@rule(
    "cache-type-without-gpu-kernel", "error", CACHE, fix="-ctk q8_0",
    source="ik_llama.cpp ggml-cuda.cu: no copy from f32 to q8_KV, no flash attention with it", refused="loading",
)  # fmt: skip
def cache_type_without_gpu_kernel(case: Case) -> Iterator[Found]:
    """q8_KV caches exist for the CPU only."""
    on_gpu = any(device is not None and device < case.cpu for device in case.placement.caches)
    if "q8_KV" in (case.flags.cache_type_k, case.flags.cache_type_v) and on_gpu:
        yield Found("q8_KV is a cache type for the CPU only")


@rule(
    "cache-type-aborts-on-cpu", "error", CACHE, "ik_llama.cpp ggml/src/iqk/iqk_flash_attn.cpp:121-310",
    fix="q8_0, q6_0 or q4_0; or no layer's cache in RAM", refused="loading",
)  # fmt: skip
def cache_type_aborts_on_cpu(case: Case) -> Iterator[Found]:
    """Flash attention on the CPU has no q5_0 or q5_1: ik_llama.cpp aborts at the first prompt."""
    kinds = [case.flags.cache_type_k] + ([] if case.latent_cache else [case.flags.cache_type_v])
    wrong = [kind for kind in kinds if kind in _ABORT_ON_CPU]
    in_ram = [
        i for i, device in enumerate(case.placement.caches) if device == case.cpu and case.model.layers[i].attends
    ]
    if wrong and in_ram and case.flags.flash_attn != "off":
        message = f"a cache of {wrong[0]} is in RAM for {len(in_ram)} layers: attention on the CPU aborts with it"
        yield Found(message, "-ctk q8_0 -ctv q8_0")


@rule(
    "cache-types-before-volta", "warning", CACHE,
    "ik_llama.cpp ggml-cuda/fattn.cu:157-198, fattn-vec-f32.cu:111-166, ggml-cuda.cu:5156 (pull 875; before it, "
    "fattn-vec-common.cuh:840 aborts); iqk/iqk_flash_attn.cpp:121-149, 296-314 (the CPU's types)",
    fix="-ctk q8_0 -ctv q8_0, or a build with -DGGML_CUDA_FA_ALL_QUANTS=ON", costs=True, refused="loading",
)  # fmt: skip
def cache_types_before_volta(case: Case) -> Iterator[Found]:
    """Cache types for which usual builds have no flash attention on NVIDIA's cards before Volta (P40, GTX 1080)."""
    types = (case.flags.cache_type_k, case.flags.cache_type_k if case.latent_cache else case.flags.cache_type_v)
    heads = {one: kernel(one, types) for one in _heads_before_volta(case)}
    lacking = {one: has for one, has in heads.items() if has in ("all quants", "none")}
    off = case.flags.flash_attn == "off" or case.model.architecture in case.spec.memory.without_flash_attention
    if not lacking or off:
        return
    never = next((one for one, has in lacking.items() if has == "none"), None)
    where = f"only builds with {ALL_QUANTS} have a kernel for this"
    if never is not None:
        where = f"no build has a kernel for this with heads of {never[0]}"
    without = next((kind for kind in types if kind not in _ON_CPU), None)
    if without is not None:
        cpu = "a CPU without AVX512-BF16" if without == "bf16" else "the CPU"
        effect = f"the server ends at the first token, because {cpu} has none for {without} either"
    elif (128, 128) in lacking and (case.parsed.build.date or _ASKED_FIRST) < _ASKED_FIRST:
        effect = "the server ends at the first token, as it did before pull 875"
    else:
        when = "all attention" if (256, 256) in lacking else "the attention of every new token"
        effect = f"the CPU computes {when} from a copy of the cache, which is slow"
    named = f"-ctk {types[0]}" if case.latent_cache else f"-ctk {types[0]} -ctv {types[1]}"
    otherwise = "" if never else "without it "
    yield Found(
        f"{named}: on cards before Volta {where}; {otherwise}{effect}, and the figures are for a kernel on the card",
        severity="error" if never and without in _ABORT_ON_CPU else None,
        changes=lambda: iter(_LATENT_TYPES_BUILT if case.latent_cache else _TYPES_BUILT),
    )


def _heads_before_volta(case: Case) -> set[tuple[int, int]]:
    """Sizes of the heads of K and V whose caches are on NVIDIA's cards before Volta."""
    cards = [case.rig.cards[device.gpu] for device in case.devices]
    old = [i for i, c in enumerate(cards) if c.backend == "cuda" and is_before_volta(c)]
    layers = [layer for layer, at in zip(case.model.layers, case.placement.caches, strict=True) if at in old]
    if case.latent_cache:
        return {LATENT_HEADS} if layers else set()
    return heads_of(layers)


@rule(
    "v-type-without-effect", "info", CACHE, "ik_llama.cpp src/llama.cpp llama_kv_cache_init",
    fix="leave it out",
)  # fmt: skip
def v_type_without_effect(case: Case) -> Iterator[Found]:
    """A latent cache holds no V: `-ctv` is ignored, `-ctk` decides."""
    if case.latent_cache and case.flags.cache_type_v != "f16" and case.flags.mla != 0:
        yield Found(
            f"-ctv {case.flags.cache_type_v} does nothing: a latent cache has no V; -ctk sets its type",
            "leave out -ctv",
        )


@rule(
    "hadamard-without-effect", "info", CACHE, "ik_llama.cpp src/llama.cpp:8025-8054",
    fix="leave it out",
)  # fmt: skip
def hadamard_without_effect(case: Case) -> Iterator[Found]:
    """`-khad` and `-vhad` rotate only quantised caches; DeepSeek V4 refuses `-khad`."""
    for option, field in _HADAMARD.items():
        kind = getattr(case.flags, field)
        if option in case.flags.other and kind in UNQUANTISED:
            yield Found(f"{option} does nothing: a cache of {kind} is not quantised", f"leave out {option}")
        elif option in case.flags.other and field == "cache_type_k" and case.model.architecture == "deepseek4":
            yield Found(f"{option}: deepseek4 refuses it", f"leave out {option}", severity="error")


@rule(
    "keys-not-rotated", "warning", CACHE, "ik_llama.cpp pull 1034; src/llama.cpp:8043-8054", since="2025-12-04",
    fix="-khad",
)  # fmt: skip
def keys_not_rotated(case: Case) -> Iterator[Found]:
    """Keys in 4 bits lose several times as much without `-khad`, which llama.cpp does unasked."""
    kind, model = case.flags.cache_type_k, case.model
    without = not {"-khad", "--k-cache-hadamard"} & set(case.flags.other)
    if without and rotation_saves(model, kind):
        lost = "Qwen3-30B-A3B lost 11 % of perplexity with q4_0, and 0.9 % with -khad"
        yield Found(f"-ctk {kind} without -khad: keys in 4 bits lose several times as much ({lost})")


@rule(
    "sliding-window-kept-whole", "info", CACHE,
    "ik_llama.cpp src/llama.cpp llama_kv_cache_init: every layer has n_ctx rows (--swa-compress: three architectures)",
    fix="-ctk q8_0 -ctv q8_0, or a shorter -c, or llama.cpp, which keeps the window only",
)  # fmt: skip
def sliding_window_kept_whole(case: Case) -> Iterator[Found]:
    """ik_llama.cpp caches the whole context for layers that look back only one window."""
    windowed = [layer for layer in case.model.layers if layer.n_swa and layer.n_swa < case.flags.n_ctx]
    cached = sum(device is not None for device in case.placement.caches)
    if not windowed or not cached or "--swa-compress" in case.flags.other:
        return
    total = sum(device.kv for device in case.memory.devices)
    unread = sum(1 - layer.n_swa / case.flags.n_ctx for layer in windowed) / cached * total
    if unread >= _LEAST_SAVED and not case.all_fits:
        message = f"{len(windowed)} of {case.model.n_layer} layers look back only {windowed[0].n_swa:,} tokens"
        yield Found(f"{message}, but ik_llama.cpp caches everything: about {unread / MIB:,.0f} MiB that are never read")


@rule(
    "window-cache-refused", "error", CACHE, "ik_llama.cpp src/llama.cpp:1199-1266",
    fix="-np 1 and -sm layer with --swa-compress", refused="loading",
)  # fmt: skip
def window_cache_refused(case: Case) -> Iterator[Found]:
    """`--swa-compress` needs one slot and no `-sm graph`."""
    if "--swa-compress" not in case.flags.other:
        return
    if case.flags.n_parallel > 1:
        yield Found(f"--swa-compress with -np {case.flags.n_parallel}: it works with one slot only", "-np 1")
    if case.flags.split_mode in ("graph", "attn") and len(case.devices) > 1:
        yield Found(f"--swa-compress does not work with -sm {case.flags.split_mode}: the engine stops", "-sm layer")
