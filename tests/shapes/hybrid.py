"""Models with delta-rule layers or short convolutions alongside attention: Qwen3-Next, Qwen3.5, Kimi-Linear, LFM2."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.shapes.rows import Rows, Shape, Values, expert_values, metadata_of


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


def _kimi_delta(rows: Rows, p: str, n_embd: int, n_head: int, dim: int) -> None:
    for part in "qkv":
        rows.weight(p + f"attn_{part}", n_embd, n_head * dim)
        rows.f32(p + f"ssm_conv1d_{part}.weight", 4, 1, n_head * dim)
    for part in "fg":
        rows.weight(p + f"ssm_{part}_a", n_embd, dim)
        rows.weight(p + f"ssm_{part}_b", dim, n_head * dim)
    rows.weight(p + "ssm_beta", n_embd, n_head)
    rows.f32(p + "ssm_a", 1, n_head)
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
    "LFM2-1.2B": partial(_lfm2, 16, 2048, (2, 5, 8, 10, 12, 14), 8192),
    "LFM2-8B-A1B": partial(_lfm2, 24, 2048, (2, 6, 10, 14, 18, 21), 7168, 2, (32, 4, 1792)),
}
