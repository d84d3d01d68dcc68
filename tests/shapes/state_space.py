"""Models with Mamba layers, alone or alongside attention: Nemotron-H, Granite 4, Falcon-H1, Jamba; plain Granite."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.shapes.rows import Rows, Shape, Values, expert_values, metadata_of

Mamba = tuple[int, int, int, int]  # heads, their size, state, groups
_NANO_9B = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"
_NANO_30B = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
_SUPER_120B = "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"


def _values(mamba: Mamba) -> Values:
    n_head, dim, n_state, n_group = mamba
    return {
        "ssm.conv_kernel": 4, "ssm.inner_size": n_head * dim, "ssm.state_size": n_state, "ssm.time_step_rank": n_head,
        "ssm.group_count": n_group,
    }  # fmt: skip


def _mamba2(rows: Rows, layer: int, n_embd: int, mamba: Mamba, *, norm: bool = True, own_norm: bool = True) -> None:
    p, (n_head, dim, n_state, n_group) = f"blk.{layer}.", mamba
    inner, mixed = n_head * dim, n_head * dim + 2 * n_group * n_state
    if norm:
        rows.f32(p + "attn_norm.weight", n_embd)
    rows.weight(p + "ssm_in", n_embd, inner + mixed + n_head)
    rows.f32(p + "ssm_conv1d.weight", 4, mixed)
    rows.f32(p + "ssm_conv1d.bias", mixed)
    rows.f32(p + "ssm_dt.bias", n_head)
    rows.f32(p + "ssm_a", 1, n_head)
    rows.f32(p + "ssm_d", 1, n_head)
    if own_norm:
        rows.f32(p + "ssm_norm.weight", inner // n_group, n_group)
    rows.weight(p + "ssm_out", inner, n_embd)


def _nemotron_h(
    pattern: str, n_embd: int, heads: tuple[int, int], mamba: Mamba, n_ff: int, *,
    moe: tuple[int, int] = (0, 0), shared: int = 0, latent: int = 0,
) -> Shape:  # fmt: skip
    """One kind of work a layer: M Mamba, * attention, - dense, E experts (of one up and one down each, no gate)."""
    arch, n_layer, n_vocab, sizes = "nemotron_h_moe" if moe[0] else "nemotron_h", len(pattern), 131072, (*heads, 128)
    more = _values(mamba) | {"attention.head_count_kv": [heads[1] if c == "*" else 0 for c in pattern]}
    more |= {"attention.layer_norm_epsilon": 1e-5, "feed_forward_length": [n_ff if c in "-E" else 0 for c in pattern]}
    if moe[0]:
        more |= expert_values(*moe, n_ff, expert_shared_feed_forward_length=shared, expert_shared_count=1)
        more |= {"expert_weights_norm": True, "expert_weights_scale": 2.5, "expert_group_count": 1}
    if latent:
        more["moe_latent_size"] = latent
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i, kind in enumerate(pattern):
        p = f"blk.{i}."
        if kind == "M":
            _mamba2(rows, i, n_embd, mamba)
        elif kind == "*":
            rows.attention(i, n_embd, sizes)
        else:
            rows.f32(p + "attn_norm.weight", n_embd)
            _relu_squared(rows, p, n_embd, n_ff, moe[0], shared, latent)
    metadata = metadata_of(arch, n_layer, n_embd, 0, sizes, n_vocab, 262144, 1e4, eps=1e-5, more=more)
    return Shape(arch, metadata, rows, n_vocab)


def _relu_squared(rows: Rows, p: str, n_embd: int, n_ff: int, n_expert: int, shared: int, latent: int) -> None:
    if not n_expert:
        rows.weight(p + "ffn_up", n_embd, n_ff)
        rows.weight(p + "ffn_down", n_ff, n_embd)
        return
    width = latent or n_embd
    rows.f32(p + "ffn_gate_inp.weight", n_embd, n_expert)
    rows.f32(p + "exp_probs_b.bias", n_expert)
    if latent:
        rows.weight(p + "ffn_latent_down", n_embd, latent)
        rows.weight(p + "ffn_latent_up", latent, n_embd)
    rows.weight(p + "ffn_up_exps", width, n_ff, n_expert)
    rows.weight(p + "ffn_down_exps", n_ff, width, n_expert)
    rows.weight(p + "ffn_up_shexp", n_embd, shared)
    rows.weight(p + "ffn_down_shexp", shared, n_embd)


def _granite_values() -> Values:
    return {"attention.scale": 0.0078125, "embedding_scale": 12.0, "residual_scale": 0.22, "logit_scale": 16.0}


def _granite_hybrid(
    n_embd: int, heads: tuple[int, int], mamba: Mamba, full: tuple[int, ...], n_ff: int,
    moe: tuple[int, int] = (0, 0), shared: int = 0,
) -> Shape:  # fmt: skip
    """Granite 4 H: 36 Mamba layers and 4 of attention without rope, each with a dense layer or experts."""
    arch, n_layer, n_vocab, sizes = "granitehybrid", 40, 100352, (*heads, n_embd // heads[0])
    more = _values(mamba) | _granite_values() | {"rope.scaling.finetuned": False}
    more["attention.head_count_kv"] = [heads[1] if i in full else 0 for i in range(n_layer)]
    if moe[0]:
        more |= expert_values(*moe, n_ff, expert_shared_feed_forward_length=shared)
    rows = Rows()
    rows.ends(n_embd, n_vocab, tied=True)
    for i in range(n_layer):
        if i in full:
            rows.attention(i, n_embd, sizes)
        else:
            _mamba2(rows, i, n_embd, mamba)
        rows.f32(f"blk.{i}.ffn_norm.weight", n_embd)
        if moe[0]:
            rows.experts(i, n_embd, moe[0], n_ff, shared=shared)
        else:
            rows.dense(i, n_embd, n_ff)
    metadata = metadata_of(arch, n_layer, n_embd, n_ff, sizes, n_vocab, 131072, 1e4, eps=1e-5, more=more)
    return Shape(arch, metadata, rows, n_vocab)


def _granite(
    n_layer: int, n_embd: int, heads: tuple[int, int], n_ff: int, n_vocab: int, moe: tuple[int, int] = (0, 0)
) -> Shape:
    """Granite 3 and the plain Granite 4 ones: llama with scaled embeddings, residuals and logits."""
    arch, sizes = "granitemoe" if moe[0] else "granite", (*heads, n_embd // heads[0])
    more = _granite_values() | (expert_values(*moe, n_ff) if moe[0] else {})
    rows = Rows()
    rows.ends(n_embd, n_vocab, tied=True)
    for i in range(n_layer):
        rows.attention(i, n_embd, sizes)
        rows.f32(f"blk.{i}.ffn_norm.weight", n_embd)
        if moe[0]:
            rows.experts(i, n_embd, moe[0], n_ff)
        else:
            rows.dense(i, n_embd, n_ff)
    metadata = metadata_of(arch, n_layer, n_embd, n_ff, sizes, n_vocab, 131072, 1e7, eps=1e-5, more=more)
    return Shape(arch, metadata, rows, n_vocab)


def _falcon_h1(
    n_layer: int, n_embd: int, heads: tuple[int, int], mamba: Mamba, n_ff: int, n_vocab: int, *, own_norm: bool
) -> Shape:
    """Attention and Mamba side by side in every layer."""
    sizes = (*heads, 128)
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        rows.attention(i, n_embd, sizes)
        _mamba2(rows, i, n_embd, mamba, norm=False, own_norm=own_norm)
        rows.f32(f"blk.{i}.ffn_norm", n_embd)
        rows.dense(i, n_embd, n_ff)
    more = _values(mamba)
    metadata = metadata_of("falcon-h1", n_layer, n_embd, n_ff, sizes, n_vocab, 262144, 1e11, eps=1e-5, more=more)
    return Shape("falcon-h1", metadata, rows, n_vocab)


def _jamba() -> Shape:
    """Jamba: one attention layer in eight, Mamba 1 else, experts in every other layer."""
    arch, n_layer, n_embd, heads, n_ff, n_vocab = "jamba", 32, 4096, (32, 8, 128), 14336, 65536
    inner, n_state, n_rank = 2 * n_embd, 16, 256
    more = expert_values(16, 2, n_ff) | {"ssm.conv_kernel": 4, "ssm.inner_size": inner, "ssm.state_size": n_state}
    more["ssm.time_step_rank"] = n_rank
    more["attention.head_count_kv"] = [8 if i % 8 == 4 else 0 for i in range(n_layer)]
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        p = f"blk.{i}."
        if i % 8 == 4:
            rows.attention(i, n_embd, heads)
        else:
            _mamba1(rows, p, n_embd, inner, n_state, n_rank)
        rows.f32(p + "ffn_norm.weight", n_embd)
        if i % 2:
            rows.experts(i, n_embd, 16, n_ff)
        else:
            rows.dense(i, n_embd, n_ff)
    metadata = metadata_of(arch, n_layer, n_embd, n_ff, heads, n_vocab, 262144, 1e4, more=more)
    return Shape(arch, metadata, rows, n_vocab)


def _mamba1(rows: Rows, p: str, n_embd: int, inner: int, n_state: int, n_rank: int) -> None:
    rows.f32(p + "attn_norm.weight", n_embd)
    rows.weight(p + "ssm_in", n_embd, 2 * inner)
    rows.f32(p + "ssm_conv1d.weight", 4, inner)
    rows.f32(p + "ssm_conv1d.bias", inner)
    rows.weight(p + "ssm_x", inner, n_rank + 2 * n_state)
    for part, size in (("dt", n_rank), ("b", n_state), ("c", n_state)):
        rows.f32(p + f"ssm_{part}_norm.weight", size)
    rows.weight(p + "ssm_dt", n_rank, inner)
    rows.f32(p + "ssm_dt.bias", inner)
    rows.f32(p + "ssm_a", n_state, inner)
    rows.f32(p + "ssm_d", inner)
    rows.weight(p + "ssm_out", inner, n_embd)


def _codestral() -> Shape:
    """Mamba-Codestral-7B: Mamba 2 alone."""
    arch, n_layer, n_embd, n_vocab, mamba = "mamba2", 64, 4096, 32768, (128, 64, 128, 8)
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        _mamba2(rows, i, n_embd, mamba)
    more = _values(mamba) | {"attention.head_count": 0, "attention.head_count_kv": 0}
    metadata = metadata_of(arch, n_layer, n_embd, 0, (0, 0, 1), n_vocab, 1048576, 1e4, eps=1e-5, more=more)
    for key in ("key_length", "value_length", "head_count_kv"):
        del metadata[f"{arch}.attention.{key}"]
    del metadata[f"{arch}.rope.dimension_count"]
    return Shape(arch, metadata, rows, n_vocab)


SHAPES: dict[str, Callable[[], Shape]] = {
    "Nemotron-Nano-9B-v2": partial(_nemotron_h, _NANO_9B, 4480, (40, 8), (128, 80, 128, 8), 15680),
    "Nemotron-3-Nano-30B-A3B": partial(
        _nemotron_h, _NANO_30B, 2688, (32, 2), (64, 64, 128, 8), 1856, moe=(128, 6), shared=3712
    ),
    "Nemotron-3-Super-120B-A12B": partial(
        _nemotron_h, _SUPER_120B, 4096, (32, 2), (128, 64, 128, 8), 2688, moe=(512, 22), shared=5376, latent=1024
    ),
    "Granite-4.0-H-Small": partial(
        _granite_hybrid, 4096, (32, 8), (128, 64, 128, 1), (5, 15, 25, 35), 768, (72, 10), 1536
    ),
    "Granite-4.0-H-Micro": partial(_granite_hybrid, 2048, (32, 8), (64, 64, 128, 1), (5, 15, 25, 35), 8192),
    "Granite-4.0-Micro": partial(_granite, 40, 2560, (40, 8), 8192, 100352),
    "Granite-3.1-3B-A800M": partial(_granite, 32, 1536, (24, 8), 512, 49155, (40, 8)),
    "Falcon-H1-34B": partial(_falcon_h1, 72, 5120, (20, 4), (32, 128, 256, 2), 21504, 261120, own_norm=True),
    "Falcon-H1-7B": partial(_falcon_h1, 44, 3072, (12, 2), (24, 128, 256, 1), 12288, 130048, own_norm=False),
    "Jamba-v0.1": _jamba,
    "Mamba-Codestral-7B": _codestral,
}
