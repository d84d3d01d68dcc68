"""Models with recurrent layers beside attention."""

from __future__ import annotations

from collections.abc import Callable

from tests.shapes.rows import Rows, Shape, expert_values, metadata_of


def _qwen3_next() -> Shape:
    """Hybrid: three gated-delta-net layers, then one full-attention layer."""
    arch, n_layer, n_embd, heads, n_vocab = "qwen3next", 48, 2048, (16, 2, 256), 151936
    n_key, n_value, dim = 16, 32, 128
    more = expert_values(512, 10, 512, expert_shared_feed_forward_length=512)
    more |= {"ssm.conv_kernel": 4, "ssm.inner_size": n_value * dim, "ssm.state_size": dim}
    more |= {"ssm.time_step_rank": n_value, "ssm.group_count": n_key}
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        p = f"blk.{i}."
        if i % 4 == 3:
            rows.attention(i, n_embd, heads, qk_norm="head", gated=True)
        else:
            rows.f32(p + "attn_norm.weight", n_embd)
            rows.weight(p + "ssm_in", n_embd, 2 * n_key * dim + 2 * n_value * dim)
            rows.f32(p + "ssm_conv1d.weight", 4, 2 * n_key * dim + n_value * dim)
            rows.f32(p + "ssm_dt.bias", n_value)
            rows.f32(p + "ssm_a", n_value)
            rows.weight(p + "ssm_ba", n_embd, 2 * n_value)
            rows.f32(p + "ssm_norm.weight", dim)
            rows.weight(p + "ssm_out", n_value * dim, n_embd)
        rows.f32(p + "post_attention_norm.weight", n_embd)
        rows.experts(i, n_embd, 512, 512, shared=512)
        rows.f32(p + "ffn_gate_inp_shexp.weight", n_embd)
    metadata = metadata_of(arch, n_layer, n_embd, 5120, heads, n_vocab, 262144, 1e7, rope_dim=64, more=more)
    return Shape(arch, metadata, rows, n_vocab)


SHAPES: dict[str, Callable[[], Shape]] = {
    "Qwen3-Next-80B-A3B": _qwen3_next,
}
