"""Writes GGUF files whose data is a hole: a true header of a model of any size in a few MB of disk.

Format: ggml/docs/gguf.md of llama.cpp, version 3.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from service.engine.ggml_types import type_named
from service.engine.gguf import Tensor

ALIGNMENT = 32


class U16(int):
    """An int that is written as uint16."""


class I32(int):
    """An int that is written as int32."""


Value: TypeAlias = int | float | str | bool | Sequence[str] | Sequence[int]


def write(path: Path, metadata: Mapping[str, Value], tensors: Sequence[Tensor], sparse: bool = True) -> int:
    """Write a header, and a hole as large as the tensors if `sparse`; return the header's bytes."""
    head = bytearray(struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata)))
    for key, value in metadata.items():
        kind, body = _value(value)
        head += _string(key) + struct.pack("<I", kind) + body
    offset = 0
    for t in tensors:
        fields = (len(t.dims), *t.dims, type_named(t.type).id, offset)
        head += _string(t.name) + struct.pack(f"<I{len(t.dims)}QIQ", *fields)
        offset += -(-t.nbytes // ALIGNMENT) * ALIGNMENT
    head += bytes(-len(head) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(head)
        if sparse:
            file.truncate(len(head) + offset)
    return len(head)


def tokenizer(n_vocab: int) -> dict[str, Value]:
    """Return a byte-pair tokenizer of real size: `n_vocab` tokens and some `n_vocab` merges."""
    base = _byte_alphabet()
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": base + [f"tok{i:07d}" for i in range(256, n_vocab)],
        "tokenizer.ggml.token_type": [1] * n_vocab,
        "tokenizer.ggml.merges": [f"{base[i % 256]} {base[i * 7 % 256]}" for i in range(max(1, n_vocab - 1000))],
        "tokenizer.ggml.bos_token_id": n_vocab - 2,
        "tokenizer.ggml.eos_token_id": n_vocab - 1,
    }


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> tuple[int, bytes]:
    for kind, fmt, python in ((2, "<H", U16), (5, "<i", I32), (7, "<?", bool), (4, "<I", int), (6, "<f", float)):
        if isinstance(value, python):
            return kind, struct.pack(fmt, value)
    if isinstance(value, str):
        return 8, _string(value)
    assert isinstance(value, Sequence)
    if isinstance(value[0], str):
        return 9, struct.pack("<IQ", 8, len(value)) + b"".join(_string(str(v)) for v in value)
    return 9, struct.pack(f"<IQ{len(value)}i", 5, len(value), *value)


def _byte_alphabet() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(spare)) for b in range(256)]
