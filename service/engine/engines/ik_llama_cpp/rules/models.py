"""Findings about models that ik_llama.cpp loads in some forms only, each tried on build 8337e4cd3."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.engines.ik_llama_cpp.graphs.compressed import rows_reached
from service.engine.planner.pricing.support import indexer_refused
from service.engine.rules.case import Case
from service.engine.rules.rule import CACHE, UNASKED, Found, rule

_COMPRESSED_TYPES = ("f16", "bf16", "q8_0")


@rule(
    "compressed-cache-refused", "error", CACHE, "ik_llama.cpp src/llama-dsv4.cpp:21, ggml.c:9166 (contiguous mask)",
    fix="-ctk q8_0 or f16, flash attention on", refused="loading",
)  # fmt: skip
def compressed_cache_refused(case: Case) -> Iterator[Found]:
    """DeepSeek V4 allows only three cache types, and without flash attention only contexts within its window."""
    if case.model.architecture != "deepseek4":
        return
    kind, n_ctx = case.flags.cache_type_k, case.run.n_ctx
    if kind not in _COMPRESSED_TYPES:
        yield Found(f"-ctk {kind}: DeepSeek V4's cache is f16, bf16 or q8_0; the engine does not start", "-ctk q8_0")
    if case.flags.flash_attn == "off" and n_ctx > rows_reached(case.model, case.run.n_ubatch):
        yield Found("-fa off: the engine stops at its first graph where -c is beyond DeepSeek V4's window", "-fa on")


@rule(
    "indexer-not-loaded", "error", UNASKED, "ik_llama.cpp src/llama-load-tensors.cpp:4341 (wrong number of tensors)",
    fix="a file from before llama.cpp's pull request 24908", refused="loading",
)  # fmt: skip
def indexer_not_loaded(case: Case) -> Iterator[Found]:
    """ik_llama.cpp does not load files of MiniMax-M3 that contain its indexer."""
    if indexer_refused(case.engine, case.model):
        yield Found("the file has MiniMax-M3's indexer, which ik_llama.cpp does not know; it does not load")
