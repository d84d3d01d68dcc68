"""DeepSeek V4: attention to compressed rows, several residual streams.

Sources: the headers of DeepSeek-V4-Flash as logs show them (ggml-org/llama.cpp 22319, noonghunna/club-3090 1106,
antirez/llama.cpp-deepseek-v4-flash 11) and tenstorrent/tt-metal 45408 (ranks, groups, hash layers); names and keys as
llama.cpp's conversion/deepseek.py (DeepseekV4Model) writes them. Of DeepSeek-V4-Pro only experts (384, 6 used) were
found; its other figures are assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.shapes.rows import Row, Rows, Shape, Values, expert_values, metadata_of

_HEAD, _INDEXER, _STREAMS = 512, 128, 4


def _deepseek4(
    n_layer: int, n_embd: int, n_head: int, q_lora: int, n_expert: int, n_ff: int, *, o_groups: int, top_k: int
) -> Shape:
    arch, n_vocab, o_rank, n_hash = "deepseek4", 129280, 1024, 3
    ratios = [0, 0, 4] + [128, 4] * (n_layer // 2)
    ratios = [*ratios[:n_layer], 0]
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    rows.f32("output_hc_fn.weight", _STREAMS * n_embd, _STREAMS)
    rows.f32("output_hc_base.weight", _STREAMS)
    rows.f32("output_hc_scale.weight", 1)
    for i in range(n_layer):
        _layer(rows, i, ratios[i], n_embd, n_head, q_lora, o_groups, o_rank)
        if i < n_hash:
            rows.append(Row(f"blk.{i}.ffn_gate_tid2eid.weight", (6, n_vocab), False, "i32"))
        rows.f32(f"blk.{i}.ffn_norm.weight", n_embd)
        rows.experts(i, n_embd, n_expert, n_ff, shared=n_ff, bias=i >= n_hash)
    more = expert_values(
        n_expert, 6, n_ff, expert_shared_count=1, expert_weights_scale=1.5, expert_weights_norm=True,
        expert_gating_func=4, hash_layer_count=n_hash,
    )  # fmt: skip
    more |= {"swiglu_clamp_exp": [10.0] * n_layer, "swiglu_clamp_shexp": [10.0] * n_layer}
    more |= {"attention.q_lora_rank": q_lora, "attention.sliding_window": 128, "attention.output_group_count": o_groups}
    more |= {"attention.output_lora_rank": o_rank, "attention.compress_ratios": ratios}
    more |= {"attention.compress_rope_freq_base": 160000.0, "attention.indexer.head_count": 64}
    more |= {"attention.indexer.key_length": _INDEXER, "attention.indexer.top_k": top_k}
    more |= {"hyper_connection.count": _STREAMS, "hyper_connection.sinkhorn_iterations": 20}
    more |= {"hyper_connection.epsilon": 1e-6, "embedding_length_out": n_embd * _STREAMS}
    more |= _yarn()
    heads = (n_head, 1, _HEAD)
    metadata = metadata_of(arch, n_layer, n_embd, 0, heads, n_vocab, 1048576, 1e4, rope_dim=64, more=more)
    return Shape(arch, metadata, rows, n_vocab)


def _yarn() -> Values:
    return {"rope.scaling.type": "yarn", "rope.scaling.factor": 16.0, "rope.scaling.original_context_length": 65536}


def _layer(
    rows: Rows, layer: int, ratio: int, n_embd: int, n_head: int, q_lora: int, o_groups: int, o_rank: int
) -> None:
    p, n_mixes = f"blk.{layer}.", (2 + _STREAMS) * _STREAMS
    rows.f32(p + "attn_norm.weight", n_embd)
    rows.f32(p + "attn_sinks.weight", n_head)
    rows.weight(p + "attn_q_a", n_embd, q_lora)
    rows.f32(p + "attn_q_a_norm.weight", q_lora)
    rows.weight(p + "attn_q_b", q_lora, n_head * _HEAD)
    rows.weight(p + "attn_kv", n_embd, _HEAD)
    rows.f32(p + "attn_kv_a_norm.weight", _HEAD)
    rows.weight(p + "attn_output_a", n_head * _HEAD // o_groups, o_rank * o_groups)
    rows.weight(p + "attn_output_b", o_groups * o_rank, n_embd)
    for part in ("attn", "ffn"):
        rows.f32(p + f"hc_{part}_fn.weight", _STREAMS * n_embd, n_mixes)
        rows.f32(p + f"hc_{part}_base.weight", n_mixes)
        rows.f32(p + f"hc_{part}_scale.weight", 3)
    if ratio:
        _compressor(rows, p + "attn_compressor", n_embd, _HEAD, ratio)
    if ratio == 4:
        rows.weight(p + "indexer.proj", n_embd, 64)
        rows.weight(p + "indexer.attn_q_b", q_lora, 64 * _INDEXER)
        _compressor(rows, p + "indexer_compressor", n_embd, _INDEXER, ratio)


def _compressor(rows: Rows, name: str, n_embd: int, dim: int, ratio: int) -> None:
    width = 2 * dim if ratio == 4 else dim
    rows.weight(name + "_kv", n_embd, width)
    rows.weight(name + "_gate", n_embd, width)
    rows.f32(name + "_ape.weight", width, ratio)
    rows.f32(name + "_norm.weight", dim)


SHAPES: dict[str, Callable[[], Shape]] = {
    "DeepSeek-V4-Flash": partial(_deepseek4, 43, 4096, 64, 1024, 256, 2048, o_groups=8, top_k=512),
    "DeepSeek-V4-Pro": partial(_deepseek4, 61, 7168, 128, 1536, 384, 3072, o_groups=16, top_k=1024),
}
