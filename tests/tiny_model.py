"""A model of some hundred kilobytes with random weights, which both engines load and run in milliseconds a token."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType

N_VOCAB = 256


def write_tiny_model(
    path: Path, *, n_layer: int = 2, n_embd: int = 64, n_head: int = 4, n_ff: int = 128, vocabulary: bool = False
) -> Path:
    """Write a dense Llama of F32 weights drawn with one seed and return its path.

    `vocabulary`: three special tokens and one for each byte, without which a server cannot answer.
    """
    n_vocab = 3 + N_VOCAB if vocabulary else N_VOCAB
    random = np.random.default_rng(1)
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(1 << 15)
    writer.add_embedding_length(n_embd)
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(n_head)
    writer.add_head_count_kv(n_head)
    writer.add_rope_dimension_count(n_embd // n_head)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(n_vocab)
    writer.add_tokenizer_model("llama" if vocabulary else "none")
    if vocabulary:
        writer.add_token_list(["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(N_VOCAB))])
        writer.add_token_scores([0.0] * n_vocab)
        writer.add_token_types([TokenType.UNKNOWN, *[TokenType.CONTROL] * 2, *[TokenType.BYTE] * N_VOCAB])

    def add(name: str, *shape: int) -> None:
        values = (
            random.standard_normal(shape, dtype=np.float32) * 0.05 if len(shape) > 1 else np.ones(shape, np.float32)
        )
        writer.add_tensor(name, values, raw_dtype=GGMLQuantizationType.F32)

    add("token_embd.weight", n_vocab, n_embd)
    for i in range(n_layer):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{i}.{name}.weight", n_embd, n_embd)
        for name in ("ffn_gate", "ffn_up"):
            add(f"blk.{i}.{name}.weight", n_ff, n_embd)
        add(f"blk.{i}.ffn_down.weight", n_embd, n_ff)
        add(f"blk.{i}.attn_norm.weight", n_embd)
        add(f"blk.{i}.ffn_norm.weight", n_embd)
    add("output_norm.weight", n_embd)
    add("output.weight", n_vocab, n_embd)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
