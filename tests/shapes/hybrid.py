"""Models with delta-rule layers or short convolutions alongside attention: Qwen3-Next, Qwen3.5, Kimi, Ling 3, LFM2."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.shapes.rows import Row, Rows, Shape, Values, expert_values, metadata_of


def _delta_values(n_key: int, n_value: int, dim: int = 128) -> Values:
    values: Values = {"ssm.conv_kernel": 4, "ssm.inner_size": n_value * dim, "ssm.state_size": dim}
    return values | {"ssm.time_step_rank": n_value, "ssm.group_count": n_key}


def _delta_net(rows: Rows, layer: int, n_embd: int, n_key: int, n_value: int, gates: str, joined: bool) -> None:
    """A gated delta-net layer; `gates`: joined in ssm_ba, or ssm_beta and ssm_alpha; `joined`: q, k, v, z in one."""
    p, dim = f"blk.{layer}.", 128
    n_mixed = 2 * n_key * dim + n_value * dim
    rows.f32(p + "attn_norm.weight", n_embd)
    if joined:
        rows.weight(p + "ssm_in", n_embd, n_mixed + n_value * dim)
    else:
        rows.weight(p + "attn_qkv", n_embd, n_mixed)
        rows.weight(p + "attn_gate", n_embd, n_value * dim)
    rows.f32(p + "ssm_conv1d.weight", 4, n_mixed)
    rows.f32(p + "ssm_dt.bias", n_value)
    rows.f32(p + "ssm_a", n_value)
    if gates == "joined":
        rows.weight(p + "ssm_ba", n_embd, 2 * n_value)
    else:
        rows.weight(p + "ssm_beta", n_embd, n_value)
        rows.weight(p + "ssm_alpha", n_embd, n_value)
    rows.f32(p + "ssm_norm.weight", dim)
    rows.weight(p + "ssm_out", n_value * dim, n_embd)


def _qwen3_next(joined: bool = True) -> Shape:
    """Three gated-delta-net layers, then one full-attention layer. The first files have ssm_in, later ones attn_qkv."""
    arch, n_layer, n_embd, heads, n_vocab = "qwen3next", 48, 2048, (16, 2, 256), 151936
    more = expert_values(512, 10, 512, expert_shared_feed_forward_length=512) | _delta_values(16, 32)
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        if i % 4 == 3:
            rows.attention(i, n_embd, heads, qk_norm="head", gated=True)
        else:
            _delta_net(rows, i, n_embd, 16, 32, "joined", joined)
        rows.f32(f"blk.{i}.post_attention_norm.weight", n_embd)
        rows.experts(i, n_embd, 512, 512, shared=512)
        rows.f32(f"blk.{i}.ffn_gate_inp_shexp.weight", n_embd)
    metadata = metadata_of(arch, n_layer, n_embd, 5120, heads, n_vocab, 262144, 1e7, rope_dim=64, more=more)
    return Shape(arch, metadata, rows, n_vocab)


def _qwen35(
    n_layer: int, n_embd: int, heads: tuple[int, int], n_value: int, *, n_ff: int = 0,
    moe: tuple[int, int, int] = (0, 0, 0), nextn: int = 1, tied: bool = False,
) -> Shape:  # fmt: skip
    """Qwen3.5 and 3.6, dense or with experts (how many, used, width) and a shared one; next-token layers last."""
    arch, n_vocab, sizes = "qwen35moe" if moe[0] else "qwen35", 248320, (*heads, 256)
    more = _delta_values(16, n_value) | {"full_attention_interval": 4, "rope.dimension_sections": [11, 11, 10, 0]}
    if moe[0]:
        more |= expert_values(*moe, expert_shared_feed_forward_length=moe[2])
    if nextn:
        more["nextn_predict_layers"] = nextn
    rows = Rows()
    rows.ends(n_embd, n_vocab, tied)
    for i in range(n_layer + nextn):
        p = f"blk.{i}."
        if i % 4 == 3 or i >= n_layer:
            rows.attention(i, n_embd, sizes, qk_norm="head", gated=True)
        else:
            _delta_net(rows, i, n_embd, 16, n_value, "apart", False)
        rows.f32(p + "post_attention_norm.weight", n_embd)
        if moe[0]:
            rows.experts(i, n_embd, moe[0], moe[2], shared=moe[2])
            rows.f32(p + "ffn_gate_inp_shexp.weight", n_embd)
        else:
            rows.dense(i, n_embd, n_ff)
    for i in range(n_layer, n_layer + nextn):
        rows.weight(f"blk.{i}.nextn.eh_proj", 2 * n_embd, n_embd)
        for name in ("enorm", "hnorm", "shared_head_norm"):
            rows.f32(f"blk.{i}.nextn.{name}.weight", n_embd)
    metadata = metadata_of(
        arch, n_layer + nextn, n_embd, n_ff or moe[2], sizes, n_vocab, 262144, 1e7, rope_dim=64, more=more
    )
    return Shape(arch, metadata, rows, n_vocab)


def _kimi_linear() -> Shape:
    """Kimi-Linear-48B-A3B: three layers of Kimi delta attention, then one of latent attention without rope."""
    arch, n_layer, n_embd, n_head, dim, rank, n_vocab = "kimi-linear", 27, 2304, 32, 128, 512, 163840
    full = {3, 7, 11, 15, 19, 23, 26}
    more = expert_values(
        256, 8, 1024, expert_shared_count=1, leading_dense_block_count=1, expert_weights_scale=2.446,
        expert_gating_func=2,
    )  # fmt: skip
    more |= {"attention.kv_lora_rank": rank, "attention.value_length": rank, "attention.key_length_mla": 192}
    more |= {"attention.value_length_mla": dim, "ssm.conv_kernel": 4, "kda.head_dim": dim}
    more["attention.head_count_kv"] = [1 if i in full else 0 for i in range(n_layer)]
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        p = f"blk.{i}."
        rows.f32(p + "attn_norm.weight", n_embd)
        if i in full:
            rows.weight(p + "attn_q", n_embd, n_head * 192)
            rows.weight(p + "attn_kv_a_mqa", n_embd, rank + 64)
            rows.f32(p + "attn_kv_a_norm.weight", rank)
            rows.weight(p + "attn_k_b", dim, rank, n_head)
            rows.weight(p + "attn_v_b", rank, dim, n_head)
        else:
            _kimi_delta(rows, p, n_embd, n_head, dim)
        rows.weight(p + "attn_output", n_head * dim, n_embd)
        rows.f32(p + "ffn_norm.weight", n_embd)
        if i == 0:
            rows.dense(i, n_embd, 9216)
        else:
            rows.experts(i, n_embd, 256, 1024, shared=1024, bias=True)
    metadata = metadata_of(
        arch, n_layer, n_embd, 9216, (n_head, 1, rank + 64), n_vocab, 1048576, 1e4, eps=1e-5, rope_dim=64, more=more
    )
    return Shape(arch, metadata, rows, n_vocab)


def _kimi_k3() -> Shape:
    """Kimi-K3: config.json (layers, heads, experts, blocks of 12) as ggml-org/llama.cpp 26185 and inference-sim 1638
    quote it; the ranks of queries (1536) and of the cache (512) and the dense width (33792) are assumed.
    """
    arch, n_layer, n_embd, n_head, dim, rank, n_vocab = "kimi-k3", 93, 7168, 96, 128, 512, 163840
    n_expert, n_ff, width = 896, 3072, 3584
    full = {*range(3, 92, 4), 92}
    more = expert_values(
        n_expert, 16, n_ff, expert_shared_count=2, leading_dense_block_count=1, expert_weights_scale=2.827,
        expert_weights_norm=True, expert_gating_func=2, expert_latent_length=width,
    )  # fmt: skip
    more |= _latent_values(1536, rank, dim) | {"kda.gate_lower_bound": -5.0, "attn_res.block_size": 12}
    more |= {"activation.situ_beta": 4.0, "activation.situ_linear_beta": 25.0}
    more["attention.head_count_kv"] = [1 if i in full else 0 for i in range(n_layer)]
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    rows.f32("output_res_score.weight", n_embd)
    for i in range(n_layer):
        p = f"blk.{i}."
        for name in ("attn_norm", "ffn_norm", "attn_res_score", "ffn_res_score"):
            rows.f32(f"{p}{name}.weight", n_embd)
        if i in full:
            _latent(rows, p, n_embd, n_head, 1536, rank, n_head * dim)
        else:
            _kimi_delta(rows, p, n_embd, n_head, dim, "full gate")
        rows.weight(p + "attn_output", n_head * dim, n_embd)
        if i == 0:
            rows.dense(i, n_embd, 33792)
            continue
        first = len(rows)
        rows.experts(i, width, n_expert, n_ff, bias=True)
        rows[first] = Row(p + "ffn_gate_inp.weight", (n_embd, n_expert), True)
        rows.weight(p + "ffn_routed_down", n_embd, width)
        rows.weight(p + "ffn_routed_up", width, n_embd)
        rows.f32(p + "ffn_routed_norm.weight", width)
        for part, dims in (("gate", (n_embd, 2 * n_ff)), ("up", (n_embd, 2 * n_ff)), ("down", (2 * n_ff, n_embd))):
            rows.weight(p + f"ffn_{part}_shexp", *dims)
    metadata = metadata_of(
        arch, n_layer, n_embd, 33792, (n_head, 1, rank + 64), n_vocab, 1048576, 1e4, eps=1e-5, rope_dim=64, more=more
    )
    return Shape(arch, metadata, rows, n_vocab)


def _ling3(
    n_layer: int, n_embd: int, n_head: int, group: int, q_lora: int, n_ff: int, dense: int, experts: tuple[int, int]
) -> Shape:
    """Ling 3.0: layers, experts and groups as ggml-org/llama.cpp 26608 and Rapid-MLX 1817 state them, the widths of
    experts by the published sizes (7.9B, 124B); heads and dense widths are assumed.
    """
    arch, dim, rank, n_vocab = "bailingmoe3", 128, 512, 157184
    full = {i for i in range(n_layer) if i % group == group - 1}
    more = expert_values(
        experts[0], 8, experts[1], expert_shared_count=1, expert_shared_feed_forward_length=experts[1],
        leading_dense_block_count=dense, expert_weights_scale=2.5, expert_weights_norm=True, expert_gating_func=2,
        expert_group_count=8, expert_group_used_count=4,
    )  # fmt: skip
    more |= _latent_values(q_lora, rank, dim) | {"kda.gate_lower_bound": -5.0, "kda.safe_gate": True}
    more["attention.head_count_kv"] = [1 if i in full else 0 for i in range(n_layer)]
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        p = f"blk.{i}."
        rows.f32(p + "attn_norm.weight", n_embd)
        if i in full:
            _latent(rows, p, n_embd, n_head, q_lora, rank, n_head)
        else:
            _kimi_delta(rows, p, n_embd, n_head, dim, "one matrix")
        rows.weight(p + "attn_output", n_head * dim, n_embd)
        rows.f32(p + "ffn_norm.weight", n_embd)
        if i < dense:
            rows.dense(i, n_embd, n_ff)
        else:
            rows.experts(i, n_embd, *experts, shared=experts[1], bias=True)
    metadata = metadata_of(
        arch, n_layer, n_embd, n_ff, (n_head, 1, rank + 64), n_vocab, 131072, 6e6, rope_dim=64, more=more
    )
    return Shape(arch, metadata, rows, n_vocab)


def _glm5_next() -> Shape:
    """GLM-5.3-Flash: layers, experts, ranks and the indexer as unslothai/llama.cpp 116, ggml-org/llama.cpp 27752 and
    anthony-chaudhary/fak 10782 state them; widths by the parameters (321B), heads and dense widths are assumed.
    """
    arch, n_layer, n_embd, n_head, rank, q_lora, n_vocab = "glm5-next", 45, 4096, 64, 512, 1536, 154880
    n_expert, n_ff, dense, streams, value = 288, 2048, 3, 4, 256
    full = set(range(3, n_layer, 4))
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        p = f"blk.{i}."
        rows.f32(p + "attn_norm.weight", n_embd)
        for part in ("attn", "ffn"):
            rows.f32(p + f"hc_{part}_fn.weight", streams * n_embd, (2 + streams) * streams)
            rows.f32(p + f"hc_{part}_base.weight", (2 + streams) * streams)
            rows.f32(p + f"hc_{part}_scale.weight", 3)
        if i in full:
            _pooled_attention(rows, p, n_embd, n_head, q_lora, rank, value)
        else:
            _kimi_delta(rows, p, n_embd, n_head, 128, "flat decay")
            rows.weight(p + "attn_output", n_head * 128, n_embd)
        rows.f32(p + "ffn_norm.weight", n_embd)
        if i < dense:
            rows.dense(i, n_embd, 12288)
        else:
            rows.experts(i, n_embd, n_expert, n_ff, shared=n_ff, bias=True)
    more = expert_values(
        n_expert, 8, n_ff, expert_shared_count=1, leading_dense_block_count=dense, expert_weights_scale=2.5,
        expert_weights_norm=True, expert_gating_func=2,
    )  # fmt: skip
    more |= {"attention.q_lora_rank": q_lora, "attention.kv_lora_rank": rank, "attention.value_length": rank}
    more |= {"attention.key_length_mla": value, "attention.value_length_mla": value}
    more |= {"ssm.conv_kernel": 4, "kda.head_dim": 128, "kda.gate_lower_bound": -5.0}
    more |= {"attention.indexer.head_count": 32, "attention.indexer.key_length": 128, "attention.indexer.top_k": 2048}
    more |= {"attention.indexer.kpool": 4, "attention.indexer.kpool_select_tail": True}
    more |= {"hyper_connection.count": streams, "hyper_connection.sinkhorn_iterations": 20}
    more |= {"hyper_connection.epsilon": 1e-6, "swiglu_clamp_exp": [10.0] * n_layer, "rope.dimension_count": 0}
    more["attention.head_count_kv"] = [1 if i in full else 0 for i in range(n_layer)]
    metadata = metadata_of(arch, n_layer, n_embd, 12288, (n_head, 1, rank), n_vocab, 1048576, 1e6, eps=1e-5, more=more)
    return Shape(arch, metadata, rows, n_vocab)


def _pooled_attention(rows: Rows, p: str, n_embd: int, n_head: int, q_lora: int, rank: int, value: int) -> None:
    rows.weight(p + "attn_q_a", n_embd, q_lora)
    rows.f32(p + "attn_q_a_norm.weight", q_lora)
    rows.weight(p + "attn_q_b", q_lora, n_head * value)
    rows.weight(p + "attn_kv_a_mqa", n_embd, rank)
    rows.f32(p + "attn_kv_a_norm.weight", rank)
    rows.weight(p + "attn_k_b", value, rank, n_head)
    rows.weight(p + "attn_v_b", rank, value, n_head)
    rows.weight(p + "attn_output", n_head * value, n_embd)
    rows.f32(p + "indexer.k_norm.weight", 128)
    rows.f32(p + "indexer.k_norm.bias", 128)
    rows.weight(p + "indexer.proj", n_embd, 32)
    rows.weight(p + "indexer.attn_k", n_embd, 128)
    rows.weight(p + "indexer.attn_q_b", q_lora, 32 * 128)
    rows.weight(p + "indexer_compressor_gate", n_embd, 128)
    rows.f32(p + "indexer_compressor_ape.weight", 128, 4)


def _latent_values(q_lora: int, rank: int, dim: int) -> Values:
    values: Values = {"attention.q_lora_rank": q_lora, "attention.kv_lora_rank": rank, "attention.value_length": rank}
    values |= {"attention.key_length_mla": dim + 64, "attention.value_length_mla": dim}
    return values | {"ssm.conv_kernel": 4, "kda.head_dim": dim}


def _latent(rows: Rows, p: str, n_embd: int, n_head: int, q_lora: int, rank: int, gates: int) -> None:
    """Latent attention with heads of 128, 64 of rope, and a gate behind."""
    rows.weight(p + "attn_q_a", n_embd, q_lora)
    rows.f32(p + "attn_q_a_norm.weight", q_lora)
    rows.weight(p + "attn_q_b", q_lora, n_head * 192)
    rows.weight(p + "attn_kv_a_mqa", n_embd, rank + 64)
    rows.f32(p + "attn_kv_a_norm.weight", rank)
    rows.weight(p + "attn_k_b", 128, rank, n_head)
    rows.weight(p + "attn_v_b", rank, 128, n_head)
    rows.weight(p + "attn_gate", n_embd, gates)


def _kimi_delta(rows: Rows, p: str, n_embd: int, n_head: int, dim: int, gates: str = "low rank") -> None:
    """`gates`: decay and output gate of two matrices each (low rank, flat decay), or the latter of one (full gate)."""
    for part in "qkv":
        rows.weight(p + f"attn_{part}", n_embd, n_head * dim)
        rows.f32(p + f"ssm_conv1d_{part}.weight", 4, 1, n_head * dim)
    for part in "fg":
        if gates == "one matrix":
            rows.weight(p + f"ssm_{part}_a", n_embd, n_head * dim)
        elif gates == "full gate" and part == "g":
            rows.weight(p + "ssm_g", n_embd, n_head * dim)
        else:
            rows.weight(p + f"ssm_{part}_a", n_embd, dim)
            rows.weight(p + f"ssm_{part}_b", dim, n_head * dim)
    rows.weight(p + "ssm_beta", n_embd, n_head)
    rows.f32(p + "ssm_a", *((n_head,) if gates in ("full gate", "flat decay") else (1, n_head)))
    rows.f32(p + "ssm_dt.bias", n_head * dim)
    rows.f32(p + "ssm_norm.weight", dim)


def _lfm2(
    n_layer: int, n_embd: int, full: tuple[int, ...], n_ff: int, dense: int = 0, moe: tuple[int, int, int] = (0, 0, 0)
) -> Shape:
    """LFM2: short convolutions with a few attention layers between; experts behind the first `dense` layers."""
    arch, n_vocab, heads = "lfm2moe" if moe[0] else "lfm2", 65536, (32, 8, n_embd // 32)
    more: Values = {"shortconv.l_cache": 3}
    more["attention.head_count_kv"] = [8 if i in full else 0 for i in range(n_layer)]
    if moe[0]:
        more |= expert_values(*moe, leading_dense_block_count=dense, expert_gating_func=2)
    rows = Rows()
    rows.weight("token_embd", n_embd, n_vocab)
    rows.f32("token_embd_norm.weight", n_embd)
    for i in range(n_layer):
        p = f"blk.{i}."
        if i in full:
            rows.attention(i, n_embd, heads, qk_norm="head")
        else:
            rows.f32(p + "attn_norm.weight", n_embd)
            rows.f32(p + "shortconv.conv.weight", 3, n_embd)
            rows.weight(p + "shortconv.in_proj", n_embd, 3 * n_embd)
            rows.weight(p + "shortconv.out_proj", n_embd, n_embd)
        rows.f32(p + "ffn_norm.weight", n_embd)
        if moe[0] and i >= dense:
            rows.experts(i, n_embd, moe[0], moe[2], bias=True)
        else:
            rows.dense(i, n_embd, n_ff)
    metadata = metadata_of(arch, n_layer, n_embd, n_ff, heads, n_vocab, 128000, 1e6, eps=1e-5, more=more)
    return Shape(arch, metadata, rows, n_vocab)


SHAPES: dict[str, Callable[[], Shape]] = {
    "Qwen3-Next-80B-A3B": _qwen3_next,
    "Qwen3-Next-80B-A3B-qkv": partial(_qwen3_next, joined=False),
    "Qwen3.5-0.8B": partial(_qwen35, 24, 1024, (8, 2), 16, n_ff=3584, tied=True, nextn=0),
    "Qwen3.5-27B": partial(_qwen35, 64, 5120, (24, 4), 48, n_ff=17408),
    "Qwen3.5-35B-A3B": partial(_qwen35, 40, 2048, (16, 2), 32, moe=(256, 8, 512)),
    "Qwen3.5-122B-A10B": partial(_qwen35, 48, 3072, (32, 2), 64, moe=(256, 8, 1024), nextn=0),
    "Qwen3.5-397B-A17B": partial(_qwen35, 60, 4096, (32, 2), 64, moe=(512, 10, 1024), nextn=0),
    "Kimi-Linear-48B-A3B": _kimi_linear,
    "Kimi-K3": _kimi_k3,
    "GLM-5.3-Flash": _glm5_next,
    "Ling-3.0-tiny": partial(_ling3, 24, 1536, 16, 4, 256, 4608, 1, (128, 512)),
    "Ling-3.0-flash": partial(_ling3, 42, 2560, 32, 6, 512, 9216, 2, (512, 768)),
    "LFM2-1.2B": partial(_lfm2, 16, 2048, (2, 5, 8, 10, 12, 14), 8192),
    "LFM2-8B-A1B": partial(_lfm2, 24, 2048, (2, 6, 10, 14, 18, 21), 7168, 2, (32, 4, 1792)),
}

# Sizes of which only speeds were published (tests/data/perf_delta_net_cpu.jsonl).
BESIDES: dict[str, Callable[[], Shape]] = {
    "Qwen3.5-4B": partial(_qwen35, 32, 2560, (16, 4), 32, n_ff=9216, tied=True, nextn=0),
}
