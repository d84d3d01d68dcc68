"""Models with sliding windows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.shapes.rows import Rows, Shape, expert_values, metadata_of, yarn


def _gpt_oss(n_layer: int, n_expert: int) -> Shape:
    arch, n_embd, heads, n_vocab = "gpt-oss", 2880, (64, 8, 64), 201088
    more = expert_values(n_expert, 4, n_embd) | {"attention.sliding_window": 128} | yarn(32.0)
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        p = f"blk.{i}."
        rows.attention(i, n_embd, heads, bias=True)
        rows.f32(p + "attn_output.bias", n_embd)
        rows.f32(p + "attn_sinks.weight", heads[0])
        rows.f32(p + "post_attention_norm.weight", n_embd)
        rows.f32(p + "ffn_gate_inp.bias", n_expert)
        rows.experts(i, n_embd, n_expert, n_embd, expert_bias=True)
    metadata = metadata_of(arch, n_layer, n_embd, n_embd, heads, n_vocab, 131072, 150000, eps=1e-5, more=more)
    return Shape(arch, metadata, rows, n_vocab)


def _llama4(n_expert: int, step: int) -> Shape:
    arch, n_embd, heads, n_ff, n_ff_expert, n_vocab = "llama4", 5120, (40, 8, 128), 16384, 8192, 202048
    more = expert_values(n_expert, 1, n_ff_expert, interleave_moe_layer_step=step)
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    rows.f32("rope_freqs.weight", 64)
    for i in range(48):
        rows.attention(i, n_embd, heads)
        rows.f32(f"blk.{i}.ffn_norm.weight", n_embd)
        if i % step == step - 1:
            rows.experts(i, n_embd, n_expert, n_ff_expert, shared=n_ff_expert)
        else:
            rows.dense(i, n_embd, n_ff)
    return Shape(
        arch, metadata_of(arch, 48, n_embd, n_ff, heads, n_vocab, 1048576, 5e5, eps=1e-5, more=more), rows, n_vocab
    )


SHAPES: dict[str, Callable[[], Shape]] = {
    "gpt-oss-120b": partial(_gpt_oss, 36, 128),
    "gpt-oss-20b": partial(_gpt_oss, 24, 32),
    "Llama-4-Maverick": partial(_llama4, 128, 2),
    "Llama-4-Scout": partial(_llama4, 16, 1),
}
