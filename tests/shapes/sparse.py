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
    values |= _latent_values(q_lora, nope, value) | {"attention.indexer.head_count": indexer_heads} | more
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


def _hy4() -> Shape:
    """Hy4-preview: layers, experts and parameters (770B) as vllm-project/vllm 54160 states them, rows of 576 and 2,048
    chosen as local-inference-lab/rtx6kpro 90; widths by the parameters, heads and every fourth indexer are assumed.
    """
    arch, n_layer, n_embd, n_head, n_vocab, q_lora, streams = "hy_v4", 78, 6144, 64, 120832, 2048, 4
    nope, value, n_ff = 192, 256, 2048
    full = [i % 4 == 0 for i in range(n_layer)]
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    rows.f32("output_hc_fn.weight", streams * n_embd, streams)
    rows.f32("output_hc_base.weight", streams)
    rows.f32("output_hc_scale.weight", 1)
    for i in range(n_layer):
        p = f"blk.{i}."
        latent_attention(rows, i, n_embd, n_head, q_lora, False, nope, value, _RANK)
        rows.f32(p + "attn_sinks.weight", n_head)
        rows.weight(p + "attn_gate", n_embd, n_head * value)
        if full[i]:
            _indexer(rows, i, n_embd, q_lora, 32)
        for part in ("attn", "ffn"):
            rows.f32(p + f"hc_{part}_fn.weight", streams * n_embd, 2 * streams)
            rows.f32(p + f"hc_{part}_base.weight", 2 * streams)
            rows.f32(p + f"hc_{part}_scale.weight", 2)
        if i:
            rows.experts(i, n_embd, 256, n_ff, shared=n_ff, bias=True)
        else:
            rows.dense(i, n_embd, 18432)
    values = expert_values(
        256, 8, n_ff, leading_dense_block_count=1, expert_shared_count=1, expert_weights_scale=2.5,
        expert_weights_norm=True, expert_gating_func=2,
    )  # fmt: skip
    values |= _latent_values(q_lora, nope, value) | {"attention.indexer.types": full}
    values |= {"swiglu_clamp_exp": [10.0] * n_layer, "hyper_connection.count": streams}
    values |= {"hyper_connection.epsilon": 1e-6, "hyper_connection.magnitude": 2.0}
    metadata = metadata_of(
        arch, n_layer, n_embd, 18432, (n_head, 1, _RANK + _ROPE), n_vocab, 1048576, 1e6, rope_dim=_ROPE, more=values
    )  # fmt: skip
    return Shape(arch, metadata, rows, n_vocab)


def _latent_values(q_lora: int, nope: int, value: int) -> Values:
    values: Values = {"attention.q_lora_rank": q_lora, "attention.kv_lora_rank": _RANK, "attention.value_length": _RANK}
    values |= {"attention.key_length_mla": nope + _ROPE, "attention.value_length_mla": value}
    values |= {"attention.indexer.head_count": 32, "attention.indexer.key_length": _INDEXER_SIZE}
    return values | {"attention.indexer.top_k": 2048}


def _dots3() -> Shape:
    """dots3-note: layers by src/models/dots3note.cpp (46, 288B-A19B); all other figures are assumed."""
    arch, n_layer, n_embd, n_vocab, q_lora, n_ff = "dots3note", 46, 4096, 151936, 1536, 1408
    windowed = [i % 4 != 3 for i in range(n_layer)]
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        n_head, nope, value, rank = (32, 192, 128, 256) if windowed[i] else (64, 128, 128, _RANK)
        latent_attention(rows, i, n_embd, n_head, q_lora, False, nope, value, rank)
        rows.f32(f"blk.{i}.attn_k_norm.weight", _ROPE)
        rows.weight(f"blk.{i}.attn_gate", n_embd, n_head)
        if not windowed[i]:
            _indexer(rows, i, n_embd, q_lora, 32)
        if i:
            rows.experts(i, n_embd, 320, n_ff, shared=n_ff, bias=True)
        else:
            rows.dense(i, n_embd, 12288)
    values = expert_values(
        320, 8, n_ff, leading_dense_block_count=1, expert_shared_count=1, expert_weights_scale=2.5,
        expert_weights_norm=True, expert_gating_func=2,
    )  # fmt: skip
    values |= _latent_values(q_lora, 128, 128) | {"attention.head_count": [32 if w else 64 for w in windowed]}
    values |= {"attention.sliding_window": 512, "attention.sliding_window_pattern": windowed}
    values |= {"attention.indexer.types": [not w for w in windowed], "attention.kv_lora_rank_swa": 256}
    values |= {"attention.key_length_swa": 256 + _ROPE, "attention.value_length_swa": 256, "rope.freq_base_swa": 1e4}
    values |= {"attention.key_length_mla_swa": 256, "attention.value_length_mla_swa": 128}
    metadata = metadata_of(
        arch, n_layer, n_embd, 12288, (64, 1, _RANK + _ROPE), n_vocab, 262144, 1e6, rope_dim=_ROPE, more=values
    )  # fmt: skip
    return Shape(arch, metadata, rows, n_vocab)


SHAPES: dict[str, Callable[[], Shape]] = {
    "GLM-5": partial(
        _sparse, "glm-dsa", 78, 6144, 64, 12288, 154880, 202752, q_lora=2048, nope=192, value=256, indexer_heads=32,
        base=1e6, eps=1e-5, more={},
    ),
    "Hy4-preview": _hy4,
    "dots3-note": _dots3,
    "DeepSeek-V3.2": partial(
        _sparse, "deepseek32", 61, 7168, 128, 18432, 129280, 163840, q_lora=1536, nope=128, value=128,
        indexer_heads=64, base=1e4, eps=1e-6, more=yarn(40.0) | {"rope.scaling.yarn_log_multiplier": 0.1},
    ),
}  # fmt: skip
