"""The Gemma family: windows, norms on both sides, and from 3n on inputs of every layer's own and shared caches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.shapes.rows import Rows, Shape, Values, expert_values, metadata_of

Heads = tuple[int, int, int]


def _norms(rows: Rows, layer: int, n_embd: int) -> None:
    for name in ("ffn_norm", "post_attention_norm", "post_ffw_norm"):
        rows.f32(f"blk.{layer}.{name}.weight", n_embd)


def _gemma(
    arch: str, n_layer: int, n_embd: int, heads: Heads, n_ff: int, n_vocab: int, n_ctx: int, window: int, qk_norm: str,
    more: Values,
) -> Shape:  # fmt: skip
    rows = Rows()
    rows.ends(n_embd, n_vocab, tied=True)
    for i in range(n_layer):
        rows.attention(i, n_embd, heads, qk_norm=qk_norm)
        rows.dense(i, n_embd, n_ff)
        _norms(rows, i, n_embd)
    more = {"attention.sliding_window": window} | more
    return Shape(arch, metadata_of(arch, n_layer, n_embd, n_ff, heads, n_vocab, n_ctx, 1e6, more=more), rows, n_vocab)


def _gemma3n(n_layer: int, n_ff: int) -> Shape:
    arch, n_embd, heads, n_vocab, n_altup, n_own = "gemma3n", 2048, (8, 2, 256), 262400, 4, 256
    rows = Rows()
    rows.ends(n_embd, n_vocab, tied=True)
    rows.weight("altup_proj", n_embd, n_embd, n_altup - 1)
    rows.weight("altup_unembd_proj", n_embd, n_embd, n_altup - 1)
    _inputs_by_layer(rows, n_embd, n_own * n_layer, n_vocab, n_own)
    for i in range(n_layer):
        p = f"blk.{i}."
        rows.attention(i, n_embd, heads, qk_norm="head")
        rows.dense(i, n_embd, n_ff)
        _norms(rows, i, n_embd)
        _own_input(rows, i, n_embd, n_own)
        rows.f32(p + "altup_correct_coef.weight", n_altup, n_altup)
        rows.f32(p + "altup_correct_scale.weight", n_embd)
        rows.f32(p + "altup_predict_coef.weight", n_altup, n_altup * n_altup)
        rows.f32(p + "altup_router.weight", n_embd, n_altup)
        rows.f32(p + "altup_router_norm.weight", n_embd)
        rows.weight(p + "laurel_l", n_embd, 64)
        rows.weight(p + "laurel_r", 64, n_embd)
        rows.f32(p + "laurel_post_norm.weight", n_embd)
    more: Values = {
        "attention.sliding_window": 512, "attention.shared_kv_layers": n_layer - 20, "altup.num_inputs": n_altup,
        "altup.active_idx": 0, "embedding_length_per_layer_input": n_own, "final_logit_softcapping": 30.0,
        "attention.sliding_window_pattern": [i % 5 != 4 for i in range(n_layer)],
    }  # fmt: skip
    return Shape(arch, metadata_of(arch, n_layer, n_embd, n_ff, heads, n_vocab, 32768, 1e6, more=more), rows, n_vocab)


def _inputs_by_layer(rows: Rows, n_embd: int, n_all: int, n_vocab: int, n_own: int) -> None:
    rows.weight("per_layer_token_embd", n_all, n_vocab)
    rows.weight("per_layer_model_proj", n_embd, n_all)
    rows.f32("per_layer_proj_norm.weight", n_own)


def _own_input(rows: Rows, layer: int, n_embd: int, n_own: int) -> None:
    rows.weight(f"blk.{layer}.inp_gate", n_embd, n_own)
    rows.weight(f"blk.{layer}.proj", n_own, n_embd)
    rows.f32(f"blk.{layer}.post_norm.weight", n_embd)


def _gemma4(
    n_layer: int, n_embd: int, heads: tuple[int, int, int], n_ff: int, window: int, *, period: int = 6, shared: int = 0,
    n_own: int = 0, wide: bool = False, n_expert: int = 0, v_from_k: bool = False,
) -> Shape:  # fmt: skip
    """Heads: query, KV in windowed layers, KV in full ones. `wide`: layers that share a cache have twice the width.

    The files of the 31B, E4B and E2B hold 833, 720 and 601 tensors, as these do (logs in ggml-org/llama.cpp 21760,
    21328 and animehacker/llama-turboquant 3).
    """
    arch, n_vocab, (n_head, n_kv, n_kv_full) = "gemma4", 262144, heads
    windowed = [i % period != period - 1 for i in range(n_layer)]
    rows = Rows()
    rows.ends(n_embd, n_vocab, tied=True)
    rows.f32("rope_freqs.weight", 256)
    if n_own:
        _inputs_by_layer(rows, n_embd, n_own * n_layer, n_vocab, n_own)
    widths = [n_ff * 2 if wide and i >= n_layer - shared else n_ff for i in range(n_layer)]
    for i in range(n_layer):
        sizes = (n_head, n_kv, 256) if windowed[i] else (n_head, n_kv_full, 512)
        rows.attention(i, n_embd, sizes, qk_norm="head")
        if v_from_k and not windowed[i]:
            rows[:] = [row for row in rows if row.name != f"blk.{i}.attn_v.weight"]
        rows.dense(i, n_embd, widths[i])
        _norms(rows, i, n_embd)
        rows.f32(f"blk.{i}.layer_output_scale.weight", 1)
        if n_own:
            _own_input(rows, i, n_embd, n_own)
        if n_expert:
            _experts(rows, i, n_embd, n_expert, 704)
    more: Values = {
        "attention.sliding_window": window, "attention.sliding_window_pattern": windowed,
        "attention.shared_kv_layers": shared, "embedding_length_per_layer_input": n_own,
        "attention.key_length_swa": 256, "attention.value_length_swa": 256, "final_logit_softcapping": 30.0,
        "rope.dimension_count_swa": 256, "rope.freq_base_swa": 10000.0,
    }  # fmt: skip
    if n_kv != n_kv_full:
        more["attention.head_count_kv"] = [n_kv if w else n_kv_full for w in windowed]
    if wide:
        more["feed_forward_length"] = widths
    if n_expert:
        more |= expert_values(n_expert, 8, 704)
    metadata = metadata_of(arch, n_layer, n_embd, n_ff, (n_head, n_kv, 512), n_vocab, 262144, 1e6, more=more)
    return Shape(arch, metadata, rows, n_vocab)


def _experts(rows: Rows, layer: int, n_embd: int, n_expert: int, n_ff: int) -> None:
    p = f"blk.{layer}."
    rows.f32(p + "ffn_gate_inp.weight", n_embd, n_expert)
    rows.f32(p + "ffn_gate_inp.scale", n_embd)
    rows.weight(p + "ffn_gate_up_exps", n_embd, 2 * n_ff, n_expert)
    rows.weight(p + "ffn_down_exps", n_ff, n_embd, n_expert)
    rows.f32(p + "ffn_down_exps.scale", n_expert)
    for name in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
        rows.f32(p + name + ".weight", n_embd)


_STRETCHED: Values = {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
_SQUASHED: Values = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
_GEMMA3 = partial(_gemma, "gemma3", n_vocab=262208, n_ctx=131072, window=1024, qk_norm="head", more=_STRETCHED)
_GEMMA2 = partial(_gemma, "gemma2", n_vocab=256000, n_ctx=8192, window=4096, qk_norm="", more=_SQUASHED)

SHAPES: dict[str, Callable[[], Shape]] = {
    "Gemma-2-27B": partial(_GEMMA2, 46, 4608, (32, 16, 128), 36864),
    "Gemma-2-9B": partial(_GEMMA2, 42, 3584, (16, 8, 256), 14336),
    "Gemma-3-27B": partial(_GEMMA3, 62, 5376, (32, 16, 128), 21504),
    "Gemma-3-12B": partial(_GEMMA3, 48, 3840, (16, 8, 256), 15360),
    "Gemma-3n-E4B": partial(_gemma3n, 35, 16384),
    "Gemma-3n-E2B": partial(_gemma3n, 30, 8192),
    "Gemma-4-31B": partial(_gemma4, 60, 5376, (32, 16, 4), 21504, 1024, v_from_k=True),
    "Gemma-4-26B-A4B": partial(_gemma4, 30, 2816, (16, 8, 2), 2112, 1024, n_expert=128, v_from_k=True),
    "Gemma-4-E4B": partial(_gemma4, 42, 2560, (8, 2, 2), 10240, 512, shared=18, n_own=256),
    "Gemma-4-E2B": partial(_gemma4, 35, 1536, (8, 1, 1), 6144, 512, period=5, shared=20, n_own=256, wide=True),
}

# Sizes of published speeds alone.
BESIDES: dict[str, Callable[[], Shape]] = {"Gemma-2-2B": partial(_GEMMA2, 26, 2304, (8, 4, 256), 9216)}
