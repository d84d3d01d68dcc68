"""Attention and its cache: flags that contradict each other, and flags that do nothing for this model."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.memory.spec import latent_mode
from service.engine.rules.case import Case
from service.engine.rules.found import Found, error, info, warning

_UNQUANTISED = ("f16", "bf16", "f32")
_COMMON = "ik_llama.cpp common/common.cpp:1922-2300"


def quantised_v_without_flash_attention(case: Case) -> Iterator[Found]:
    """Both engines refuse a quantised V cache without flash attention; ik_llama.cpp's latent cache has no V."""
    kind, ignored = case.flags.cache_type_v, case.ik and _latent(case)
    if case.flags.flash_attn == "off" and kind not in _UNQUANTISED and not ignored:
        message = f"-ctv {kind} needs flash attention, which is off: the engine refuses to start"
        yield error("quantised-v-without-fa", message, "-fa on, or -ctv f16", "llama_init_from_model of both engines")


def latent_cache_types_differ(case: Case) -> Iterator[Found]:
    """llama.cpp keeps K and V of a latent cache in one tensor, and refuses two types."""
    kinds = (case.flags.cache_type_k, case.flags.cache_type_v)
    if not case.ik and _latent(case) and kinds[0] != kinds[1]:
        message = f"-ctk {kinds[0]} with -ctv {kinds[1]}: a latent cache has one type, the engine refuses to start"
        source = "llama.cpp src/llama-context.cpp:3865"
        yield error("latent-cache-types-differ", message, f"-ctk {kinds[0]} -ctv {kinds[0]}", source)


def cache_type_without_gpu_kernel(case: Case) -> Iterator[Found]:
    """q8_KV caches exist for the CPU only."""
    kinds = {case.flags.cache_type_k, case.flags.cache_type_v}
    on_gpu = any(device is not None and device < case.cpu for device in case.placement.caches)
    if "q8_KV" in kinds and on_gpu:
        source = "ik_llama.cpp ggml-cuda.cu: no copy from f32 to q8_KV, no flash attention with it"
        yield error("cache-type-without-gpu-kernel", "q8_KV is a cache type of the CPU only", "-ctk q8_0", source)


def mla_without_effect(case: Case) -> Iterator[Found]:
    """`-mla` does something for models with latent attention only."""
    if case.ik and case.flags.mla is not None and case.model.mla is None:
        message = f"-mla {case.flags.mla} does nothing: {case.model.architecture} has no latent attention"
        yield info("mla-without-effect", message, "leave it out", _COMMON)


def amb_without_effect(case: Case) -> Iterator[Found]:
    """`-amb` limits a buffer that exists without flash attention, or with latent attention."""
    amb = case.flags.attn_max_batch
    if not case.ik or amb is None or case.parsed.program == "llama-bench":
        return
    if case.model.mla is None and case.flags.flash_attn != "off":
        message = (
            f"-amb {amb} does nothing: with flash attention only latent attention (DeepSeek, GLM-5) has the buffer"
        )
        yield info("amb-without-effect", message, "leave it out", _COMMON)
    elif 0 < amb < case.parsed.build.rules.memory.least_batch:
        yield info("amb-too-small", f"-amb {amb} is raised to 128", "-amb 128 or more", _COMMON)


def v_type_without_effect(case: Case) -> Iterator[Found]:
    """A latent cache holds no V: `-ctv` is ignored, `-ctk` decides."""
    if case.ik and _latent(case) and case.flags.cache_type_v != "f16" and case.flags.mla != 0:
        message = f"-ctv {case.flags.cache_type_v} does nothing: a latent cache has no V, -ctk decides its type"
        yield info("v-type-without-effect", message, "leave it out", "ik_llama.cpp src/llama.cpp llama_kv_cache_init")


def mla_off(case: Case) -> Iterator[Found]:
    """`-mla 0` keeps K and V of all heads: many times the memory of a latent cache."""
    if (
        case.ik
        and case.model.mla is not None
        and case.flags.mla == 0
        and latent_mode("ik_llama.cpp", case.model, case.flags, case.parsed.build.rules.memory) == 0
    ):
        message = "-mla 0 keeps K and V of every head: the latent cache of -mla 3 is many times smaller"
        yield warning("mla-off", message, "-mla 3", "ik_llama.cpp pull request 188")


def _latent(case: Case) -> bool:
    return latent_mode(case.engine, case.model, case.flags, case.parsed.build.rules.memory) > 0
