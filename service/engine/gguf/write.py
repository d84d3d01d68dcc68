"""Writes GGUF headers: the true header of a model of any size is a few MB, and its data may be a hole in the file.

The format is that of ggml/docs/gguf.md of llama.cpp, version 3.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple, TypeAlias

from service.engine.ggml_types import type_named
from service.engine.gguf.header import Tensor

ALIGNMENT = 32
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' "
    "+ '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


class U16(int):
    """An int that is written as uint16."""


class I32(int):
    """An int that is written as int32."""


class Encoded(NamedTuple):
    """A value already in the format's bytes, so that a large array is encoded once for many files."""

    kind: int
    body: bytes


Value: TypeAlias = int | float | str | bool | Sequence[int | float | bool | str] | Encoded


def header_bytes(metadata: Mapping[str, Value], tensors: Sequence[Tensor]) -> bytes:
    """Return the bytes before the data section: magic, metadata, tensor table, padding."""
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
    return bytes(head)


def data_bytes(tensors: Sequence[Tensor]) -> int:
    """Return the size of the data section that these tensors fill."""
    return sum(-(-t.nbytes // ALIGNMENT) * ALIGNMENT for t in tensors)


@cache
def tokenizer(n_vocab: int) -> dict[str, Value]:
    """Return a byte-pair tokenizer of real size: `n_vocab` tokens and about as many merges, arrays already encoded."""
    base = _byte_alphabet()
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.chat_template": CHAT_TEMPLATE,
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": _encoded(base + [f"tok{i:07d}" for i in range(256, n_vocab)]),
        "tokenizer.ggml.token_type": _encoded([1] * n_vocab),
        "tokenizer.ggml.merges": _encoded(
            [f"{base[i % 256]} {base[i * 7 % 256]}" for i in range(max(1, n_vocab - 1000))]
        ),
        "tokenizer.ggml.bos_token_id": n_vocab - 2,
        "tokenizer.ggml.eos_token_id": n_vocab - 1,
    }


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _encoded(value: Value) -> Encoded:
    return Encoded(*_value(value))


def _value(value: Value) -> tuple[int, bytes]:
    if isinstance(value, Encoded):
        return value
    for kind, fmt, python in ((2, "<H", U16), (5, "<i", I32), (7, "<?", bool), (4, "<I", int), (6, "<f", float)):
        if isinstance(value, python):
            return kind, struct.pack(fmt, value)
        if python is bool and type(value) is int and not 0 <= value < 1 << 32:
            return 11, struct.pack("<q", value)
    if isinstance(value, str):
        return 8, _string(value)
    if not isinstance(value, Sequence):
        raise TypeError(f"{type(value).__name__} is not a value of a header")
    if isinstance(value[0], str):
        return 9, struct.pack("<IQ", 8, len(value)) + b"".join(_string(str(v)) for v in value)
    kind, letter = next((k, c) for k, c, python in ((7, "?", bool), (5, "i", int), (6, "f", float))
                        if isinstance(value[0], python))  # fmt: skip
    return 9, struct.pack(f"<IQ{len(value)}{letter}", kind, len(value), *value)


def _byte_alphabet() -> list[str]:
    """Return GPT-2's printable stand-ins for the 256 bytes."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(spare)) for b in range(256)]
