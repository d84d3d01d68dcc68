"""Models with latent attention to rows that an indexer chooses (DSA).

Sources: config.json of zai-org/GLM-5 and deepseek-ai/DeepSeek-V3.2; names and keys as llama.cpp's conversion/glm.py
(GlmMoeDsaModel) and conversion/deepseek.py (DeepseekV32Model) write them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.shapes.latent import latent_attention
from tests.shapes.rows import Rows, Shape, Values, expert_values, metadata_of, yarn

_RANK, _ROPE, _INDEXER_SIZE = 512, 64, 128


def _sparse(
    architecture: str, n_layer: int, n_embd: int, n_head: int, n_ff: int, n_vocab: int, n_ctx: int, *, q_lora: int,
    nope: int, value: int, indexer_heads: int, base: float, eps: float, more: Values,
) -> Shape:  # fmt: skip
    n_expert, n_ff_expert, dense = 256, 2048, 3
    values = expert_values(
        n_expert, 8, n_ff_expert, leading_dense_block_count=dense, expert_shared_count=1, expert_weights_scale=2.5,
        expert_weights_norm=True, expert_gating_func=2, nextn_predict_layers=1,
    )  # fmt: skip
    values |= {"attention.q_lora_rank": q_lora, "attention.kv_lora_rank": _RANK, "attention.value_length": _RANK}
    values |= {"attention.key_length_mla": nope + _ROPE, "attention.value_length_mla": value}
    values |= {"attention.indexer.head_count": indexer_heads, "attention.indexer.key_length": _INDEXER_SIZE}
    values |= {"attention.indexer.top_k": 2048} | more
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer + 1):
        latent_attention(rows, i, n_embd, n_head, q_lora, False, nope, value, _RANK)
        _indexer(rows, i, n_embd, q_lora, indexer_heads)
        if i < dense:
            rows.dense(i, n_embd, n_ff)
        else:
            rows.experts(i, n_embd, n_expert, n_ff_expert, shared=n_ff_expert, bias=True)
    rows.weight(f"blk.{n_layer}.nextn.eh_proj", 2 * n_embd, n_embd)
    for name in ("enorm", "hnorm", "shared_head_norm"):
        rows.f32(f"blk.{n_layer}.nextn.{name}.weight", n_embd)
    metadata = metadata_of(
        architecture, n_layer + 1, n_embd, n_ff, (n_head, 1, _RANK + _ROPE), n_vocab, n_ctx, base, eps=eps,
        rope_dim=_ROPE, more=values,
    )  # fmt: skip
    return Shape(architecture, metadata, rows, n_vocab)


def _indexer(rows: Rows, layer: int, n_embd: int, q_lora: int, n_head: int) -> None:
    p = f"blk.{layer}.indexer."
    rows.f32(p + "k_norm.weight", _INDEXER_SIZE)
    rows.f32(p + "k_norm.bias", _INDEXER_SIZE)
    rows.weight(p + "proj", n_embd, n_head)
    rows.weight(p + "attn_k", n_embd, _INDEXER_SIZE)
    rows.weight(p + "attn_q_b", q_lora, n_head * _INDEXER_SIZE)


SHAPES: dict[str, Callable[[], Shape]] = {
    "GLM-5": partial(
        _sparse, "glm-dsa", 78, 6144, 64, 12288, 154880, 202752, q_lora=2048, nope=192, value=256, indexer_heads=32,
        base=1e6, eps=1e-5, more={},
    ),
    "DeepSeek-V3.2": partial(
        _sparse, "deepseek32", 61, 7168, 128, 18432, 129280, 163840, q_lora=1536, nope=128, value=128,
        indexer_heads=64, base=1e4, eps=1e-6, more=yarn(40.0) | {"rope.scaling.yarn_log_multiplier": 0.1},
    ),
}  # fmt: skip
