"""Models of true widths that are filled with weights, for measuring speed: no download, and any type.

A model is the first layers of a published shape (`tests/models.py`). Quantised weights are random blocks whose scales
give values of a deviation of some 0.02, so that activations stay finite and a router sends tokens to all experts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from service.engine.ggml_types import GgmlType, type_named
from service.engine.gguf.header import Tensor
from tests.models import ALIGNMENT, build_header, gguf_files

Bytes = NDArray[np.uint8]
_CHUNK = 16 << 20  # of random data, then the same again: far more than any cache holds
_DEVIATION = 0.02

# Where the f16 factors of a block lie, and the values by which weights get a deviation of _DEVIATION: ggml-common.h of
# both engines. Types with a factor in front of each row are in _ROWS.
_FACTORS: dict[str, tuple[tuple[int, float], ...]] = {
    "q4_0": ((0, 4.3e-3),), "q4_1": ((0, 4.3e-3), (2, -3.3e-2)), "q5_0": ((0, 2.2e-3),),
    "q5_1": ((0, 2.2e-3), (2, -3.4e-2)), "q8_0": ((0, 2.7e-4),),
    "q2_K": ((80, 1.3e-3), (82, 2e-3)), "q3_K": ((108, 4.7e-4),), "q4_K": ((0, 1e-4), (2, 7.5e-4)),
    "q5_K": ((0, 5e-5), (2, 7.5e-4)), "q6_K": ((208, 1.5e-5),),
    "iq4_nl": ((0, 2.8e-4),), "iq4_xs": ((0, 1.5e-5),), "iq3_xxs": ((0, 1.8e-4),), "iq3_s": ((0, 2e-4),),
    "iq2_xxs": ((0, 2.3e-4),), "iq2_s": ((0, 2.3e-4),), "iq1_s": ((0, 3e-3),),
    "iq2_k": ((0, 1.4e-4),), "iq3_k": ((0, 4e-5),), "iq4_k": ((0, 1.5e-5),), "iq5_k": ((0, 8e-6),),
    "iq6_k": ((0, 4e-6),),
}  # fmt: skip
_ROWS = {
    "iq2_ks": 1.4e-4, "iq3_ks": 4e-5, "iq4_ks": 1.5e-5, "iq5_ks": 8e-6, "iq2_kl": 4e-5, "iq2_kt": 1e-4,
    "iq3_kt": 1e-4, "iq4_kt": 1e-4,
}  # fmt: skip
_FLOATS = {"f32", "f16", "bf16"}
_EXPERTS = 64  # no model with a table of its tokens' experts (DeepSeek-V4) has fewer
_POWERS = {"mxfp4": 119}  # the exponent of a block: 2^(119 - 127), a half of that a step


def can_fill(kind: str) -> bool:
    """Return whether random blocks of a type can be made here."""
    return kind in _FACTORS or kind in _ROWS or kind in _FLOATS or kind in _POWERS or kind == "i32"


def file_name(model: str, mix: str) -> str:
    """Return what the file of a model is called."""
    return f"{model.replace('@', '-first-')}-{mix.replace('=', '-').replace(',', '-').replace('*', 'rest')}.gguf"


def write_model(folder: Path, model: str, mix: str) -> tuple[Path, str]:
    """Write a model with weights, unless it is there; return its path and the SHA-256 of its content.

    The same names give the same bytes. Raises ValueError for a type that cannot be filled.
    """
    path = folder / file_name(model, mix)
    noted = path.with_suffix(".sha256")
    if path.exists() and noted.exists():
        return path, noted.read_text()
    folder.mkdir(parents=True, exist_ok=True)
    digest, new = hashlib.sha256(), path.with_suffix(".new")
    with new.open("wb") as file:
        for part in _parts(model, mix):
            digest.update(part)
            file.write(part)
    noted.write_text(digest.hexdigest())
    new.replace(path)
    return path, digest.hexdigest()


def _parts(model: str, mix: str) -> Iterator[bytes]:
    (made,) = gguf_files(model, mix)
    yield made.head
    rng = np.random.default_rng(1)
    for tensor in build_header(model, mix).tensors:
        yield from _repeated(weights(tensor, rng), tensor.nbytes)
        yield bytes(-tensor.nbytes % ALIGNMENT)


def _repeated(data: bytes, n_bytes: int) -> Iterator[bytes]:
    whole, rest = divmod(n_bytes, len(data))
    yield from (data for _ in range(whole))
    yield data[:rest]


def weights(tensor: Tensor, rng: np.random.Generator) -> bytes:
    """Return the first rows of a tensor's data, _CHUNK bytes or all of them; it goes on by repeating them.

    Raises ValueError for a type that cannot be filled.
    """
    kind, row = type_named(tensor.type), tensor.dims[0]
    rows = tensor.nbytes // (kind.row_meta_bytes + row // kind.block * kind.bytes)
    rows = min(rows, max(1, _CHUNK // (kind.row_meta_bytes + row // kind.block * kind.bytes)))
    if tensor.name.endswith(".ssm_a"):  # a state decays: convert_hf_to_gguf.py writes -exp(A_log)
        return np.full(prod(tensor.dims), -1, np.float32).tobytes()
    if kind.name == "i32":  # as routers choose: no expert twice for a token
        all_of_them = np.tile(np.arange(_EXPERTS, dtype=np.int32), (rows, 1))
        return rng.permuted(all_of_them, axis=1)[:, :row].tobytes()
    if len(tensor.dims) == 1:
        return np.ones(row, np.float32).tobytes()
    if kind.name in _FLOATS:
        return _floats(kind.name, rng.standard_normal(rows * row, dtype=np.float32) * np.float32(_DEVIATION))
    if not can_fill(kind.name):
        raise ValueError(f"{kind.name}: where its factors lie is not known here")
    blocks = rng.integers(0, 256, (rows * (row // kind.block), kind.bytes), dtype=np.uint8)
    if kind.name in _POWERS:
        blocks[:, 0] = _POWERS[kind.name]
    for offset, value in _FACTORS.get(kind.name, ()):
        blocks[:, offset : offset + 2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)
    return _with_row_factors(kind, blocks.reshape(rows, -1)).tobytes()


def _with_row_factors(kind: GgmlType, rows: Bytes) -> Bytes:
    if not kind.row_meta_bytes:
        return rows
    factor = (np.float32 if kind.row_meta_bytes == 4 else np.float16)(_ROWS[kind.name])
    front = np.broadcast_to(np.frombuffer(factor.tobytes(), np.uint8), (len(rows), kind.row_meta_bytes))
    return np.concatenate([front, rows], axis=1)


def _floats(kind: str, values: NDArray[np.float32]) -> bytes:
    if kind == "f32":
        return values.tobytes()
    if kind == "f16":
        return values.astype(np.float16).tobytes()
    return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
