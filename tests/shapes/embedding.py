"""Models that write no text as others do: for embeddings, for ranking, and by diffusion.

Sources: config.json of BAAI/bge-m3, Qwen/Qwen3-Embedding-0.6B and GSAI-ML/LLaDA-8B-Instruct; tensor names of
llama.cpp's src/models/bert.cpp, qwen3.cpp and llada.cpp; pooling types of its convert_hf_to_gguf.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.shapes.gqa import SHAPES as OTHERS
from tests.shapes.rows import Rows, Shape, Values, metadata_of

_CLS, _LAST, _RANK = 2, 3, 4


def _bert(pooling: int) -> Shape:
    n_layer, n_embd, n_ff, n_vocab, n_ctx = 24, 1024, 4096, 250002, 8192
    rows = Rows()
    rows.weight("token_embd", n_embd, n_vocab)
    rows.f32("token_types.weight", n_embd, 1)
    rows.f32("position_embd.weight", n_embd, n_ctx)
    norms = ["token_embd_norm"]
    for i in range(n_layer):
        p = f"blk.{i}."
        for part in ("q", "k", "v", "output"):
            rows.weight(f"{p}attn_{part}", n_embd, n_embd)
            rows.f32(f"{p}attn_{part}.bias", n_embd)
        rows.weight(f"{p}ffn_up", n_embd, n_ff)
        rows.f32(f"{p}ffn_up.bias", n_ff)
        rows.weight(f"{p}ffn_down", n_ff, n_embd)
        rows.f32(f"{p}ffn_down.bias", n_embd)
        norms += [f"{p}attn_output_norm", f"{p}layer_output_norm"]
    for norm in norms:
        rows.f32(f"{norm}.weight", n_embd)
        rows.f32(f"{norm}.bias", n_embd)
    if pooling == _RANK:
        rows.weight("cls", n_embd, n_embd)
        rows.weight("cls.output", n_embd, 1)
    values: Values = {
        "block_count": n_layer, "context_length": n_ctx, "embedding_length": n_embd, "feed_forward_length": n_ff,
        "attention.head_count": 16, "attention.layer_norm_epsilon": 1e-5, "attention.causal": False,
        "pooling_type": pooling,
    }  # fmt: skip
    return Shape("bert", {f"bert.{key}": value for key, value in values.items()}, rows, n_vocab)


def _qwen3(pooling: int) -> Shape:
    """The shape of Qwen3-0.6B, with the word of the header that says what it is for."""
    shape = OTHERS["Qwen3-0.6B"]()
    return shape._replace(metadata=shape.metadata | {"qwen3.pooling_type": pooling, "qwen3.context_length": 32768})


def _llada() -> Shape:
    n_embd, n_ff, heads, n_vocab = 4096, 12288, (32, 32, 128), 126464
    rows = Rows()
    rows.ends(n_embd, n_vocab)
    for i in range(32):
        rows.attention(i, n_embd, heads)
        rows.f32(f"blk.{i}.ffn_norm.weight", n_embd)
        rows.dense(i, n_embd, n_ff)
    more: Values = {"attention.causal": False}
    return Shape("llada", metadata_of("llada", 32, n_embd, n_ff, heads, n_vocab, 4096, 5e5, more=more), rows, n_vocab)


BESIDES: dict[str, Callable[[], Shape]] = {
    "bge-m3": partial(_bert, _CLS),
    "bge-reranker-v2-m3": partial(_bert, _RANK),
    "Qwen3-Embedding-0.6B": partial(_qwen3, _LAST),
    "Qwen3-Reranker-0.6B": partial(_qwen3, _RANK),
    "LLaDA-8B": _llada,
}
