"""Dense models whose layers differ from Llama's: where norms stand, which weights are one, which layers turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.shapes.rows import Row, Rows, Shape, Values, metadata_of

Heads = tuple[int, int, int]
_NORM_EPS = "attention.layer_norm_epsilon"


def _dense(
    arch: str, n_layer: int, n_embd: int, heads: Heads, n_ff: int, n_vocab: int, *,
    norms: tuple[str, ...] = ("ffn_norm",), attn_norm: bool = True, qk_norm: str = "", bias: bool = False,
    tied: bool = False, joined_qkv: bool = False, joined_up: bool = False, gate: bool = True, rope_dim: int = 0,
    more: Values | None = None,
) -> Shape:  # fmt: skip
    """`norms`: those of each layer besides attn_norm. `joined_qkv`, `joined_up`: one weight for several."""
    rows = Rows()
    rows.ends(n_embd, n_vocab, tied)
    for i in range(n_layer):
        p = f"blk.{i}."
        rows.attention(i, n_embd, heads, qk_norm=qk_norm, bias=bias, norm=attn_norm)
        if joined_qkv:
            _join_qkv(rows, i, n_embd, heads)
        for name in norms:
            rows.f32(f"{p}{name}.weight", n_embd)
        if joined_up or not gate:
            rows.weight(p + "ffn_up", n_embd, n_ff * (2 if joined_up else 1))
            rows.weight(p + "ffn_down", n_ff, n_embd)
        else:
            rows.dense(i, n_embd, n_ff)
    metadata = metadata_of(
        arch, n_layer, n_embd, n_ff, heads, n_vocab, 131072, 1e6, rope_dim=rope_dim, more=more or {}
    )  # fmt: skip
    return Shape(arch, metadata, rows, n_vocab)


def _join_qkv(rows: Rows, layer: int, n_embd: int, heads: Heads) -> None:
    split = {f"blk.{layer}.attn_{part}.weight" for part in "qkv"}
    rows[:] = [row for row in rows if row.name not in split]
    rows.weight(f"blk.{layer}.attn_qkv", n_embd, (heads[0] + 2 * heads[1]) * heads[2])


def _phi(
    n_layer: int, n_embd: int, heads: Heads, n_ff: int, n_vocab: int, *, factors: int = 0, tied: bool = False
) -> Shape:  # fmt: skip
    shape = _dense("phi3", n_layer, n_embd, heads, n_ff, n_vocab, tied=tied, joined_qkv=True, joined_up=True,
                   rope_dim=2 * factors)  # fmt: skip
    shape.metadata["phi3.rope.scaling.original_context_length"] = 4096
    shape.metadata["phi3.attention.sliding_window"] = 262144
    if factors:
        for name in ("long", "short"):
            shape.rows.append(Row(f"rope_factors_{name}.weight", (factors,), True))
    return shape


def _cohere(arch: str, n_layer: int, n_embd: int, heads: Heads, n_ff: int, *, window: int = 0) -> Shape:
    more: Values = {"logit_scale": 0.25, _NORM_EPS: 1e-5}
    if window:
        more["attention.sliding_window"] = window
    shape = _dense(arch, n_layer, n_embd, heads, n_ff, 256000, norms=(), tied=True, more=more)
    del shape.metadata[f"{arch}.attention.layer_norm_rms_epsilon"]
    return shape


def _deci() -> Shape:
    """Layers without attention, with a product in its place, and of several widths, as Nemotron Super and Ultra mix
    them (which layers is ours)."""
    arch, n_layer, n_embd, n_vocab = "deci", 80, 8192, 128256
    heads_kv = [0 if i % 7 in (5, 6) else 8 for i in range(n_layer)]
    heads = [0 if i % 7 == 6 else 64 for i in range(n_layer)]
    widths = [(14336, 28672, 5632)[i % 3] for i in range(n_layer)]
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    rows.f32("rope_freqs.weight", 64)
    for i in range(n_layer):
        if heads_kv[i]:
            rows.attention(i, n_embd, (64, 8, 128))
        elif heads[i]:
            rows.f32(f"blk.{i}.attn_norm.weight", n_embd)
            rows.weight(f"blk.{i}.attn_output", n_embd, n_embd)
        rows.f32(f"blk.{i}.ffn_norm.weight", n_embd)
        rows.dense(i, n_embd, widths[i])
    more: Values = {"attention.head_count": heads, "attention.head_count_kv": heads_kv, "feed_forward_length": widths}
    return Shape(
        arch, metadata_of(arch, n_layer, n_embd, 0, (64, 8, 128), n_vocab, 131072, 5e5, more=more), rows, n_vocab
    )  # fmt: skip


_AFTER = ("post_attention_norm", "post_ffw_norm")
_GLM4 = partial(
    _dense, "glm4", n_vocab=151552, norms=("ffn_norm", *_AFTER), joined_up=True, rope_dim=64,
)  # fmt: skip
_EXAONE4 = partial(_dense, "exaone4", n_vocab=102400, norms=_AFTER, attn_norm=False, qk_norm="head")
_OLMO = partial(
    _dense, "olmo2", 64, 5120, (40, 8, 128), 27648, 100352, norms=_AFTER, attn_norm=False, qk_norm="row"
)  # fmt: skip
_QWEN3_VL: Values = {"rope.dimension_sections": [24, 20, 20, 0], "n_deepstack_layers": 3}

SHAPES: dict[str, Callable[[], Shape]] = {
    "ERNIE-4.5-0.3B": partial(_dense, "ernie4_5", 18, 1024, (16, 2, 128), 3072, 103424, tied=True),
    "Hunyuan-7B": partial(_dense, "hunyuan-dense", 32, 4096, (32, 8, 128), 14336, 128167, qk_norm="head", tied=True),
    "Seed-OSS-36B": partial(
        _dense, "seed_oss", 64, 5120, (80, 8, 128), 27648, 155136, norms=("post_attention_norm",), bias=True
    ),
    "GLM-4-32B": partial(_GLM4, 61, 6144, (48, 2, 128), 23040),
    "GLM-4-9B": partial(_GLM4, 40, 4096, (32, 2, 128), 13696, bias=True),
    "SmolLM3-3B": partial(_dense, "smollm3", 36, 2048, (16, 4, 128), 11008, 128256, tied=True),
    "Phi-4": partial(_phi, 40, 5120, (40, 10, 128), 17920, 100352),
    "Phi-4-mini": partial(_phi, 32, 3072, (24, 8, 128), 8192, 200064, factors=48, tied=True),
    "Qwen3-VL-8B": partial(_dense, "qwen3vl", 36, 4096, (32, 8, 128), 12288, 151936, qk_norm="head", more=_QWEN3_VL),
    "EXAONE-4.0-32B": partial(_EXAONE4, 64, 5120, (40, 8, 128), 27392, more={"attention.sliding_window": 4096}),
    "EXAONE-4.0-1.2B": partial(_EXAONE4, 30, 2048, (32, 8, 64), 4096, tied=True),
    "OLMo-2-32B": _OLMO,
    "OLMo-3-32B": partial(_OLMO, more={"attention.sliding_window": 4096}),
    "AFM-4.5B": partial(_dense, "arcee", 36, 2560, (20, 4, 128), 18432, 128004, gate=False),
    "Command-R-35B": partial(_cohere, "command-r", 40, 8192, (64, 64, 128), 22528),
    "Command-A-111B": partial(_cohere, "cohere2", 64, 12288, (96, 8, 128), 36864, window=4096),
    "Nemotron-Super": _deci,
}
