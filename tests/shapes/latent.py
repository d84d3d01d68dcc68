"""Models with latent attention (MLA)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.shapes.rows import Rows, Shape, expert_values, metadata_of, yarn


def _mla(
    n_layer: int, n_embd: int, n_head: int, n_ff: int, dense: int, n_expert: int, n_ff_expert: int, shared: int,
    n_vocab: int, n_ctx: int, *, used: int = 8, q_lora: int = 1536, scale: float = 2.5, sigmoid: bool = True,
    with_kv_b: bool = False, kv_b_alone: bool = False, nope: int = 128, value: int = 128, rank: int = 512,
    architecture: str = "deepseek2",
) -> Shape:  # fmt: skip
    rope = 64
    more = expert_values(
        n_expert, used, n_ff_expert, leading_dense_block_count=dense, expert_shared_count=shared,
        expert_weights_scale=scale, expert_weights_norm=True, expert_gating_func=2 if sigmoid else 1,
    )  # fmt: skip
    more |= {"attention.kv_lora_rank": rank, "attention.value_length": rank}
    more |= {"attention.key_length_mla": nope + rope, "attention.value_length_mla": value}
    more |= yarn(40.0) | {"rope.scaling.yarn_log_multiplier": 0.1}
    if q_lora:
        more["attention.q_lora_rank"] = q_lora
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        latent_attention(rows, i, n_embd, n_head, q_lora, with_kv_b, nope, value, rank, kv_b_alone=kv_b_alone)
        if i < dense:
            rows.dense(i, n_embd, n_ff)
        else:
            rows.experts(i, n_embd, n_expert, n_ff_expert, shared=n_ff_expert * shared, bias=sigmoid)
    metadata = metadata_of(
        architecture, n_layer, n_embd, n_ff, (n_head, 1, rank + rope), n_vocab, n_ctx, 1e4, rope_dim=rope, more=more
    )
    return Shape(architecture, metadata, rows, n_vocab)


def latent_attention(
    rows: Rows, layer: int, n_embd: int, n_head: int, q_lora: int, with_kv_b: bool, nope: int, value: int, rank: int,
    *, kv_b_alone: bool = False,
) -> None:  # fmt: skip
    """Add a layer's latent attention and the norms before and behind it."""
    p, rope = f"blk.{layer}.", 64
    rows.f32(p + "attn_norm.weight", n_embd)
    if q_lora:
        rows.weight(p + "attn_q_a", n_embd, q_lora)
        rows.f32(p + "attn_q_a_norm.weight", q_lora)
        rows.weight(p + "attn_q_b", q_lora, n_head * (nope + rope))
    else:
        rows.weight(p + "attn_q", n_embd, n_head * (nope + rope))
    rows.weight(p + "attn_kv_a_mqa", n_embd, rank + rope)
    rows.f32(p + "attn_kv_a_norm.weight", rank)
    if with_kv_b or kv_b_alone:  # alone in files for llama.cpp before it knew latent caches
        rows.weight(p + "attn_kv_b", rank, n_head * (nope + value))
    if with_kv_b:  # the older layout, in which the others have two dimensions
        rows.weight(p + "attn_k_b", nope, rank * n_head)
        rows.weight(p + "attn_v_b", rank, value * n_head)
    elif not kv_b_alone:
        rows.weight(p + "attn_k_b", nope, rank, n_head)
        rows.weight(p + "attn_v_b", rank, value, n_head)
    rows.weight(p + "attn_output", n_head * value, n_embd)
    rows.f32(p + "ffn_norm.weight", n_embd)


_DEEPSEEK_V2_5 = partial(_mla, 60, 5120, 128, 12288, 1, 160, 1536, 2, 102400, 163840, used=6, scale=16.0, sigmoid=False)
_DEEPSEEK_V3 = partial(_mla, 61, 7168, 128, 18432, 3, 256, 2048, 1, 129280, 163840)


def _mistral4() -> Shape:
    """Mistral Small 4 (mistralai/Mistral-Small-4-119B): 128 experts, 4 used; queries scaled by position."""
    shape = _mla(
        36, 4096, 32, 12288, 0, 128, 2048, 1, 131072, 262144, used=4, q_lora=1024, scale=1.0, sigmoid=False, nope=64,
        rank=256, architecture="mistral4",
    )  # fmt: skip
    return shape._replace(metadata=shape.metadata | {"mistral4.attention.temperature_scale": 0.1})


# Layouts that nobody makes any more, in files that people still have.
OLD_FILES: dict[str, Callable[[], Shape]] = {"DeepSeek-R1-kv_b-alone": partial(_DEEPSEEK_V3, kv_b_alone=True)}
SHAPES: dict[str, Callable[[], Shape]] = {
    "DeepSeek-R1-0528": _DEEPSEEK_V3,
    "DeepSeek-V3-0324": _DEEPSEEK_V3,
    "DeepSeek-R1-with-kv_b": partial(_DEEPSEEK_V3, with_kv_b=True),
    "Kimi-K2-Instruct": partial(_mla, 61, 7168, 64, 18432, 1, 384, 2048, 1, 163840, 131072, scale=2.827),
    "DeepSeek-V2.5": _DEEPSEEK_V2_5,
    "DeepSeek-V2.5-with-kv_b": partial(_DEEPSEEK_V2_5, with_kv_b=True),
    "Mistral-Small-4": _mistral4,
    "DeepSeek-V2-Lite": partial(
        _mla, 27, 2048, 16, 10944, 1, 64, 1408, 2, 102400, 163840, used=6, q_lora=0, scale=1.0, sigmoid=False
    ),
    "GLM-4.7-Flash": partial(
        _mla,
        47,
        2048,
        20,
        10240,
        1,
        64,
        1536,
        1,
        154880,
        202752,
        used=4,
        q_lora=768,
        scale=1.8,
        nope=192,
        value=256,
    ),
}
