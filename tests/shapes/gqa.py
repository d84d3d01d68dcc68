"""Models with grouped-query attention, dense and with experts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.shapes.rows import Rows, Shape, expert_values, metadata_of, yarn


def _gqa(
    arch: str, n_layer: int, n_embd: int, heads: tuple[int, int, int], n_ff: int, n_vocab: int, n_ctx: int, *,
    moe: tuple[int, int, int] | None = None, qk_norm: str = "", base: float = 1e6, tied: bool = False,
    bias: bool = False,
) -> Shape:  # fmt: skip
    more = expert_values(*moe) if moe else {}
    rows = Rows()
    rows.ends(n_embd, n_vocab, tied)
    for i in range(n_layer):
        rows.attention(i, n_embd, heads, qk_norm=qk_norm, bias=bias)
        rows.f32(f"blk.{i}.ffn_norm.weight", n_embd)
        if moe:
            rows.experts(i, n_embd, moe[0], moe[2])
        else:
            rows.dense(i, n_embd, n_ff)
    return Shape(arch, metadata_of(arch, n_layer, n_embd, n_ff, heads, n_vocab, n_ctx, base, more=more), rows, n_vocab)


def _minimax_m2() -> Shape:
    arch, n_embd, heads, n_expert, n_ff, n_vocab = "minimax-m2", 3072, (48, 8, 128), 256, 1536, 200064
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(62):
        rows.attention(i, n_embd, heads, qk_norm="row")
        rows.f32(f"blk.{i}.ffn_norm.weight", n_embd)
        rows.experts(i, n_embd, n_expert, n_ff, bias=True)
    more = expert_values(n_expert, 8, n_ff, expert_gating_func=2)
    metadata = metadata_of(arch, 62, n_embd, n_ff, heads, n_vocab, 196608, 5e6, rope_dim=64, more=more)
    return Shape(arch, metadata, rows, n_vocab)


def _glm4moe(
    n_layer: int, n_embd: int, heads: tuple[int, int, int], n_ff: int, dense: int, moe: tuple[int, int],
    n_ctx: int, qk_norm: str,
) -> Shape:  # fmt: skip
    arch, n_vocab, (n_expert, n_ff_expert) = "glm4moe", 151552, moe
    more = expert_values(
        n_expert, 8, n_ff_expert, expert_shared_count=1, leading_dense_block_count=dense, expert_gating_func=2,
        expert_weights_scale=2.5, expert_weights_norm=True, nextn_predict_layers=1,
    )  # fmt: skip
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer + 1):
        rows.attention(i, n_embd, heads, qk_norm=qk_norm, bias=True)
        rows.f32(f"blk.{i}.post_attention_norm.weight", n_embd)
        if i < dense:
            rows.dense(i, n_embd, n_ff)
        else:
            rows.experts(i, n_embd, n_expert, n_ff_expert, shared=n_ff_expert, bias=True)
    rows.weight(f"blk.{n_layer}.nextn.eh_proj", 2 * n_embd, n_embd)
    for name in ("enorm", "hnorm", "shared_head_norm"):
        rows.f32(f"blk.{n_layer}.nextn.{name}.weight", n_embd)
    metadata = metadata_of(
        arch, n_layer + 1, n_embd, n_ff, heads, n_vocab, n_ctx, 1e6, eps=1e-5, rope_dim=64, more=more
    )  # fmt: skip
    return Shape(arch, metadata, rows, n_vocab)


_GLM_4_6 = partial(_glm4moe, 92, 5120, (96, 8, 128), 12288, 3, (160, 1536), 202752, "head")
_QWEN3 = partial(_gqa, "qwen3", n_vocab=151936, n_ctx=40960, qk_norm="head")
_QWEN3_MOE = partial(_gqa, "qwen3moe", n_vocab=151936, qk_norm="head")
_QWEN2 = partial(_gqa, "qwen2", n_vocab=152064, n_ctx=32768, bias=True)
_LLAMA3 = partial(_gqa, "llama", n_vocab=128256, n_ctx=131072, base=5e5)
_LLAMA2 = partial(_gqa, "llama", n_vocab=32000, n_ctx=4096, base=1e4)


def _ministral3(n_layer: int, n_embd: int, n_ff: int, tied: bool = False) -> Shape:
    """Ministral 3 (mistralai/Ministral-3-*-Instruct-2512): 32 heads, 8 for K and V, positions stretched from 16,384."""
    shape = _gqa("mistral3", n_layer, n_embd, (32, 8, 128), n_ff, 131072, 262144, base=1e6, tied=tied)
    scaling = yarn(16.0) | {"rope.scaling.original_context_length": 16384, "attention.temperature_scale": 0.1}
    return shape._replace(metadata=shape.metadata | {f"mistral3.{key}": value for key, value in scaling.items()})


def _shared_experts(
    arch: str, n_layer: int, n_embd: int, heads: tuple[int, int, int], n_ff: int, moe: tuple[int, int, int],
    shared: int, n_vocab: int, n_ctx: int, *, joined: bool = False,
) -> Shape:  # fmt: skip
    """One dense layer, then `moe` experts (all, used, width) with shared ones; `joined`: Q, K and V are one weight."""
    n_expert, used, n_ff_expert = moe
    more = expert_values(
        n_expert, used, n_ff_expert, expert_shared_count=shared, leading_dense_block_count=1, expert_gating_func=2,
        expert_weights_scale=2.5, expert_weights_norm=True, expert_shared_feed_forward_length=n_ff_expert * shared,
    )  # fmt: skip
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(n_layer):
        rows.attention(i, n_embd, heads, qk_norm="head")
        rows.f32(f"blk.{i}.ffn_norm.weight", n_embd)
        if i < 1:
            rows.dense(i, n_embd, n_ff)
        else:
            rows.experts(i, n_embd, n_expert, n_ff_expert, shared=n_ff_expert * shared, bias=True)
    if joined:
        rows = _with_joined_heads(rows, n_embd, heads)
        more |= {"expert_group_count": 8, "expert_group_used_count": 4}
    return Shape(arch, metadata_of(arch, n_layer, n_embd, n_ff, heads, n_vocab, n_ctx, 6e5, more=more), rows, n_vocab)


def _with_joined_heads(rows: Rows, n_embd: int, heads: tuple[int, int, int]) -> Rows:
    n_head, n_head_kv, dim = heads
    joined = Rows()
    for row in rows:
        if row.name.endswith("attn_q.weight"):
            joined.weight(row.name.replace("attn_q.weight", "attn_qkv"), n_embd, (n_head + 2 * n_head_kv) * dim)
        elif not row.name.endswith(("attn_k.weight", "attn_v.weight")):
            joined.append(row)
    return joined


SHAPES: dict[str, Callable[[], Shape]] = {
    "Qwen3-235B-A22B": partial(_QWEN3_MOE, 94, 4096, (64, 4, 128), 12288, n_ctx=40960, moe=(128, 8, 1536)),
    "Qwen3-30B-A3B": partial(_QWEN3_MOE, 48, 2048, (32, 4, 128), 6144, n_ctx=40960, moe=(128, 8, 768)),
    "Qwen3-Coder-480B-A35B": partial(
        _QWEN3_MOE, 62, 6144, (96, 8, 128), 8192, n_ctx=262144, moe=(160, 8, 2560), base=1e7
    ),
    "Qwen3-32B": partial(_QWEN3, 64, 5120, (64, 8, 128), 25600),
    "Qwen3-14B": partial(_QWEN3, 40, 5120, (40, 8, 128), 17408),
    "Qwen3-4B": partial(_QWEN3, 36, 2560, (32, 8, 128), 9728, tied=True),
    "Qwen3-8B": partial(_QWEN3, 36, 4096, (32, 8, 128), 12288),
    "Qwen3-0.6B": partial(_QWEN3, 28, 1024, (16, 8, 128), 3072, tied=True),
    "Llama-3.3-70B": partial(_LLAMA3, 80, 8192, (64, 8, 128), 28672),
    "Llama-3.1-8B": partial(_LLAMA3, 32, 4096, (32, 8, 128), 14336),
    "Llama-3.2-3B": partial(_LLAMA3, 28, 3072, (24, 8, 128), 8192, tied=True),
    "Llama-2-7B": partial(_LLAMA2, 32, 4096, (32, 32, 128), 11008),
    "Llama-2-70B": partial(_LLAMA2, 80, 8192, (64, 8, 128), 28672),
    "Mixtral-8x22B": partial(_gqa, "llama", 56, 6144, (48, 8, 128), 16384, 32000, 65536, moe=(8, 2, 16384)),
    "Mistral-Small-24B": partial(_gqa, "llama", 40, 5120, (32, 8, 128), 32768, 131072, 131072, base=1e9),
    "Mistral-Large-123B": partial(_gqa, "llama", 88, 12288, (96, 8, 128), 28672, 32768, 131072),
    "Qwen2.5-72B": partial(_QWEN2, 80, 8192, (64, 8, 128), 29568),
    "Qwen2.5-32B": partial(_QWEN2, 64, 5120, (40, 8, 128), 27648),
    "Qwen2.5-7B": partial(_QWEN2, 28, 3584, (28, 4, 128), 18944),
    "Ministral-3-14B": partial(_ministral3, 40, 5120, 16384),
    "Ministral-3-8B": partial(_ministral3, 34, 4096, 14336),
    "Ministral-3-3B": partial(_ministral3, 26, 3072, 9216, tied=True),
    "Ling-flash-2.0": partial(
        _shared_experts, "bailingmoe2", 32, 4096, (32, 4, 128), 9216, (256, 8, 1024), 1, 157184, 32768, joined=True
    ),
    "dots.llm1": partial(_shared_experts, "dots1", 62, 4096, (32, 32, 128), 10944, (128, 6, 1408), 2, 152064, 32768),
    "MiniMax-M2": _minimax_m2,
    "GLM-4.6": _GLM_4_6,
    "GLM-4.5": _GLM_4_6,
    "GLM-4.7": _GLM_4_6,
    "GLM-4.5-Air": partial(_glm4moe, 46, 4096, (96, 8, 128), 10944, 1, (128, 1408), 131072, ""),
}

# Sizes of published speeds alone.
BESIDES: dict[str, Callable[[], Shape]] = {
    "Llama-3.2-1B": partial(_LLAMA3, 16, 2048, (32, 8, 64), 8192, tied=True),
    "Mistral-7B": partial(_gqa, "llama", 32, 4096, (32, 8, 128), 14336, 32768, 32768),
    "Qwen2.5-1.5B": partial(_QWEN2, 28, 1536, (12, 2, 128), 8960),
    "Qwen2.5-14B": partial(_QWEN2, 48, 5120, (40, 8, 128), 13824),
    "TinyLlama-1.1B": partial(_gqa, "llama", 22, 2048, (32, 4, 64), 5632, 32000, 2048),
}
