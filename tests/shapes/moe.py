"""Models with experts beyond Qwen's, GLM's and MiniMax's, windowed ones among them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.shapes.rows import Rows, Shape, Values, expert_values, metadata_of

Heads = tuple[int, int, int]


def _moe(
    arch: str, n_layer: int, n_embd: int, heads: Heads, n_vocab: int, experts: tuple[int, int, int], *,
    n_ff: int = 0, dense: int = 0, shared: int = 0, shared_gate: bool = False, probs_bias: bool = False,
    qk_norm: str = "", bias: bool = False, tied: bool = False, norms: tuple[str, ...] = ("ffn_norm",),
    gates: int = 0, nextn: int = 0, dense_nextn: bool = False, more: Values | None = None,
) -> Shape:  # fmt: skip
    """Experts: how many, used, width. The first `dense` layers have none. `gates`: of attention, a head or element."""
    n_expert, used, width = experts
    rows = Rows()
    rows.ends(n_embd, n_vocab, tied)
    for i in range(n_layer + nextn):
        p = f"blk.{i}."
        rows.attention(i, n_embd, heads, qk_norm=qk_norm, bias=bias)
        if gates:
            rows.weight(p + "attn_gate", n_embd, gates)
        for name in norms:
            rows.f32(f"{p}{name}.weight", n_embd)
        if i < dense or (dense_nextn and i >= n_layer):
            rows.dense(i, n_embd, n_ff)
            continue
        rows.experts(i, n_embd, n_expert, width, shared=shared, bias=probs_bias)
        if shared_gate:
            rows.f32(p + "ffn_gate_inp_shexp.weight", n_embd)
    _next_tokens(rows, n_layer, nextn, n_embd)
    values = expert_values(n_expert, used, width, leading_dense_block_count=dense)
    if shared:
        values["expert_shared_feed_forward_length"] = shared
    if nextn:
        values["nextn_predict_layers"] = nextn
    metadata = metadata_of(
        arch, n_layer + nextn, n_embd, n_ff or width, heads, n_vocab, 131072, 1e6, more=values | (more or {})
    )  # fmt: skip
    return Shape(arch, metadata, rows, n_vocab)


def _next_tokens(rows: Rows, n_layer: int, nextn: int, n_embd: int) -> None:
    for i in range(n_layer, n_layer + nextn):
        rows.weight(f"blk.{i}.nextn.eh_proj", 2 * n_embd, n_embd)
        for name in ("enorm", "hnorm", "shared_head_norm"):
            rows.f32(f"blk.{i}.nextn.{name}.weight", n_embd)


def _step35() -> Shape:
    """Step-3.5-Flash: 64 heads in full layers, 96 in windowed ones; limits on the last layers' experts."""
    arch, n_layer, n_embd, n_vocab, n_expert, n_ff = "step35", 45, 4096, 128896, 288, 1280
    windowed = [i % 4 != 0 for i in range(n_layer)]
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    rows.f32("rope_freqs.weight", 64)
    for i in range(n_layer):
        n_head = 96 if windowed[i] else 64
        rows.attention(i, n_embd, (n_head, 8, 128), qk_norm="head")
        rows.weight(f"blk.{i}.attn_gate", n_embd, n_head)
        rows.f32(f"blk.{i}.ffn_norm.weight", n_embd)
        if i < 3:
            rows.dense(i, n_embd, 11264)
        else:
            rows.experts(i, n_embd, n_expert, n_ff, shared=n_ff, bias=True)
    more = expert_values(
        n_expert, 8, n_ff, expert_shared_feed_forward_length=n_ff, leading_dense_block_count=3, expert_gating_func=2,
        expert_weights_scale=3.0, expert_weights_norm=True,
    )  # fmt: skip
    more |= {"attention.sliding_window": 512, "attention.sliding_window_pattern": windowed, "rope.freq_base_swa": 1e4}
    more |= {"attention.head_count": [96 if w else 64 for w in windowed], "attention.head_count_kv": [8] * n_layer}
    more |= {"swiglu_clamp_exp": [7.0 if i >= 43 else 0.0 for i in range(n_layer)]}
    more |= {"swiglu_clamp_shexp": [16.0 if i == 44 else 0.0 for i in range(n_layer)]}
    metadata = metadata_of(
        arch, n_layer, n_embd, 11264, (64, 8, 128), n_vocab, 262144, 5e6, eps=1e-5, rope_dim=128, more=more
    )  # fmt: skip
    return Shape(arch, metadata, rows, n_vocab)


def _mimo2() -> Shape:
    """MiMo-V2-Flash: values narrower than keys, four KV heads in full layers and eight with sinks in windowed ones."""
    arch, n_layer, n_embd, n_vocab = "mimo2", 48, 4096, 152576
    full = {0, 5, 11, 17, 23, 29, 35, 41, 47}
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        p, n_kv = f"blk.{i}.", 4 if i in full else 8
        rows.f32(p + "attn_norm.weight", n_embd)
        for part, n_row in (("q", 64 * 192), ("k", n_kv * 192), ("v", n_kv * 128)):
            rows.weight(p + "attn_" + part, n_embd, n_row)
        rows.weight(p + "attn_output", 64 * 128, n_embd)
        if i not in full:
            rows.f32(p + "attn_sinks.weight", 64)
        rows.f32(p + "ffn_norm.weight", n_embd)
        if i:
            rows.experts(i, n_embd, 256, 2048, bias=True)
        else:
            rows.dense(i, n_embd, 16384)
    more = expert_values(256, 8, 2048, expert_gating_func=2)
    more |= {"attention.value_length": 128, "attention.value_scale": 0.707, "attention.sliding_window": 128}
    more |= {"rope.freq_base_swa": 1e4}
    more |= {"attention.sliding_window_pattern": [int(i not in full) for i in range(n_layer)]}
    more |= {"attention.head_count_kv": [4 if i in full else 8 for i in range(n_layer)]}
    metadata = metadata_of(
        arch, n_layer, n_embd, 16384, (64, 4, 192), n_vocab, 262144, 5e6, rope_dim=64, more=more
    )  # fmt: skip
    return Shape(arch, metadata, rows, n_vocab)


def _laguna() -> Shape:
    """Laguna XS.2: 48 heads in full layers, 64 in windowed ones, a gate for each (the dense layer's width is ours)."""
    arch, n_layer, n_embd, n_vocab = "laguna", 40, 2048, 100352
    windowed = [i % 4 != 0 for i in range(n_layer)]
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        n_head = 64 if windowed[i] else 48
        rows.attention(i, n_embd, (n_head, 8, 128), qk_norm="head")
        rows.weight(f"blk.{i}.attn_gate", n_embd, n_head)
        rows.f32(f"blk.{i}.ffn_norm.weight", n_embd)
        if i:
            rows.experts(i, n_embd, 256, 512, shared=512, bias=True)
        else:
            rows.dense(i, n_embd, 8192)
    more = expert_values(
        256, 8, 512, expert_shared_feed_forward_length=512, leading_dense_block_count=1, expert_gating_func=2,
        expert_weights_scale=2.5, expert_weights_norm=True,
    )  # fmt: skip
    more |= {"attention.sliding_window": 512, "attention.sliding_window_pattern": windowed}
    more |= {"attention.head_count": [64 if w else 48 for w in windowed]}
    more |= {"rope.dimension_count_swa": 128}
    metadata = metadata_of(arch, n_layer, n_embd, 8192, (48, 8, 128), n_vocab, 131072, 5e5, rope_dim=64, more=more)
    return Shape(arch, metadata, rows, n_vocab)


def _grok() -> Shape:
    """Grok 2: a dense layer alongside two experts of eight."""
    arch, n_layer, n_embd, n_vocab = "grok", 64, 8192, 131072
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        rows.attention(i, n_embd, (64, 8, 128))
        for name in ("attn_output_norm", "ffn_norm", "post_ffw_norm"):
            rows.f32(f"blk.{i}.{name}.weight", n_embd)
        rows.dense(i, n_embd, 32768)
        rows.experts(i, n_embd, 8, 16384)
    more = expert_values(8, 2, 16384, attn_logit_softcapping=30.0, final_logit_softcapping=50.0, logit_scale=0.5)
    metadata = metadata_of(arch, n_layer, n_embd, 32768, (64, 8, 128), n_vocab, 131072, 2e8, eps=1e-5, more=more)
    return Shape(arch, metadata, rows, n_vocab)


def _cohere2_moe(arch: str) -> Shape:
    """North Mini Code: 128 experts of which 8 are used, a dense layer first (its sizes are ours)."""
    more: Values = {"logit_scale": 0.25, "attention.layer_norm_epsilon": 1e-5, "attention.sliding_window": 4096}
    more |= {"expert_gating_func": 2, "expert_weights_norm": True}
    more |= {"attention.sliding_window_pattern": [i % 4 != 0 for i in range(48)]}
    shape = _moe(
        arch, 48, 2048, (32, 4, 128), 256000, (128, 8, 768), n_ff=6144, dense=1, tied=True, norms=(), more=more
    )  # fmt: skip
    if arch == "cohere2moe":  # ik's converter writes the other epsilon too, and its graph goes by that
        del shape.metadata[f"{arch}.attention.layer_norm_rms_epsilon"]
    return shape


def _hy3(arch: str, *sizes: Any, **more: Any) -> Shape:
    shape = _moe(arch, *sizes, **more)
    renamed = [row._replace(name=row.name.replace("exp_probs_b.bias", "exp_probs_b")) for row in shape.rows]
    return shape._replace(rows=renamed)


_SIGMOID: Values = {"expert_gating_func": 2, "expert_weights_norm": True}
_ERNIE: Values = {"interleave_moe_layer_step": 1}
_QWEN3_VL: Values = {"rope.dimension_sections": [24, 20, 20, 0], "n_deepstack_layers": 3}
_HUNYUAN: Values = {"expert_shared_count": 1}
_ON_BOTH_SIDES = ("ffn_norm", "post_attention_norm", "post_ffw_norm")
_TRINITY = _SIGMOID | {"expert_weights_scale": 2.826, "expert_shared_count": 1, "attention.sliding_window": 2048}
_K_EXAONE = _SIGMOID | {"expert_weights_scale": 2.5, "expert_shared_count": 1, "attention.sliding_window": 128}

_SMALLTHINKER: Values = {"attention.sliding_window": 4096, "expert_gating_func": 2}


def _minimax_m3(*, indexer: bool = True) -> Shape:
    """MiniMax-M3: config.json as mlx-lm 1398, lablup/mlxcel 763 and tests of the model in SGLang quote it.

    Files of before llama.cpp's pull request 24908 lack the indexer; ik_llama.cpp loads only those.
    """
    arch, n_layer, n_embd, heads, n_vocab, n_dense, size = "minimax-m3", 60, 6144, (64, 4, 128), 200064, 3, 128
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        p = f"blk.{i}."
        rows.attention(i, n_embd, heads, qk_norm="head")
        rows.f32(p + "ffn_norm.weight", n_embd)
        if i < n_dense:
            rows.dense(i, n_embd, 12288)
            continue
        rows.experts(i, n_embd, 128, 3072, shared=3072, bias=True)
        if not indexer:
            continue
        rows.f32(p + "indexer.q_proj.weight", n_embd, heads[1] * size)
        rows.f32(p + "indexer.k_proj.weight", n_embd, size)
        rows.f32(p + "indexer.q_norm.weight", size)
        rows.f32(p + "indexer.k_norm.weight", size)
    more = expert_values(
        128, 4, 3072, leading_dense_block_count=n_dense, expert_shared_count=1, expert_weights_scale=2.0,
        expert_weights_norm=True, expert_gating_func=2,
    )  # fmt: skip
    if indexer:
        more |= {"attention.indexer.head_count": heads[1], "attention.indexer.key_length": size}
        more |= {"attention.indexer.top_k": 16, "attention.indexer.block_size": 128}
        more |= {"attention.indexer.local_blocks": 1}
    metadata = metadata_of(arch, n_layer, n_embd, 12288, heads, n_vocab, 524288, 5e6, rope_dim=64, more=more)
    return Shape(arch, metadata, rows, n_vocab)


SHAPES: dict[str, Callable[[], Shape]] = {
    "ERNIE-4.5-300B-A47B": partial(
        _moe, "ernie4_5-moe", 54, 8192, (64, 8, 128), 103424, (64, 8, 3584), n_ff=28672, dense=3, probs_bias=True,
        more=_ERNIE,
    ),
    "ERNIE-4.5-21B-A3B": partial(
        _moe, "ernie4_5-moe", 28, 2560, (20, 4, 128), 103424, (64, 6, 1536), n_ff=12288, dense=1, shared=3072,
        probs_bias=True, tied=True, more=_ERNIE,
    ),
    "Hunyuan-A13B": partial(
        _moe, "hunyuan-moe", 32, 4096, (32, 8, 128), 128167, (64, 8, 3072), shared=3072, qk_norm="head", tied=True,
        more=_HUNYUAN,
    ),
    "Hy3": partial(
        _hy3, "hy_v3", 80, 4096, (64, 8, 128), 120832, (192, 8, 1536), n_ff=13312, dense=1, shared=1536,
        probs_bias=True, qk_norm="head", nextn=1, more=_SIGMOID | {"expert_weights_scale": 2.826},
    ),
    "Qwen2-57B-A14B": partial(
        _moe, "qwen2moe", 28, 3584, (28, 4, 128), 151936, (64, 8, 2560), shared=20480, shared_gate=True, bias=True
    ),
    "Qwen3-VL-30B-A3B": partial(
        _moe, "qwen3vlmoe", 48, 2048, (32, 4, 128), 151936, (128, 8, 768), qk_norm="head", more=_QWEN3_VL
    ),
    "K-EXAONE-236B-A23B": partial(
        _moe, "exaone-moe", 48, 6144, (64, 8, 128), 153600, (128, 8, 2048), n_ff=18432, dense=1, shared=2048,
        probs_bias=True, qk_norm="head", nextn=1, dense_nextn=True, more=_K_EXAONE,
    ),
    "Trinity-Mini": partial(
        _moe, "afmoe", 32, 2048, (32, 4, 128), 200192, (128, 8, 1024), n_ff=6144, dense=2, shared=1024,
        probs_bias=True, qk_norm="head", norms=_ON_BOTH_SIDES, gates=4096, more=_TRINITY,
    ),
    "North-Mini-Code": partial(_cohere2_moe, "cohere2moe"),
    "North-Mini-Code-ik": partial(_cohere2_moe, "cohere2_moe"),
    "Step-3.5-Flash": _step35,
    "MiMo-V2-Flash": _mimo2,
    "Laguna-XS.2": _laguna,
    "Grok-2": _grok,
    "MiniMax-M3": _minimax_m3,
    "MiniMax-M3-without-indexer": partial(_minimax_m3, indexer=False),
    "SmallThinker-21B-A3B": partial(
        _moe, "smallthinker", 52, 2560, (28, 4, 128), 151936, (64, 6, 768), more=_SMALLTHINKER
    ),
    "SmallThinker-4B-A0.6B": partial(
        _moe, "smallthinker", 32, 1536, (12, 2, 128), 151936, (32, 4, 768), tied=True, more={"expert_gating_func": 2}
    ),
}  # fmt: skip
