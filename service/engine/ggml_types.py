"""The table of ggml tensor types of both engines: block sizes, row prefixes, and which engine can use each where.

Source of the values: `ggml/src/ggml.c` of both engines (type_traits), read out of a compiled ik_llama.cpp 8337e4cd3
and of llama.cpp 0c1e57098; the mainline rows are written by `make types` from the `gguf` package.
"""

from __future__ import annotations

from functools import cache
from math import prod

import msgspec

from service.engine.errors import InvalidHeader
from service.engine.tables import table_of

ROW_TABLE = "i32"  # not multiplied but read by rows, which GPUs can as well (supports_op, GET_ROWS)
_LARGEST_ID = 1023  # the largest of ik_llama.cpp is 399


class GgmlType(msgspec.Struct, frozen=True):
    """One tensor type: `block` elements take `bytes`; a row has `row_meta_bytes` in front."""

    id: int
    name: str
    block: int
    bytes: int
    row_meta_bytes: int
    ik: bool
    mainline: bool
    cuda_ik: bool
    cuda_mainline: bool
    cuda_mmq_ik: bool
    row_interleave: int
    repack_to: str | None
    note: str

    @property
    def bpw(self) -> float:
        """Bits per weight, without the row prefix."""
        return self.bytes * 8 / self.block


@cache
def all_types() -> tuple[GgmlType, ...]:
    """Return every known type, in the order of its id."""
    return table_of("ggml_types.json", tuple[GgmlType, ...])


@cache
def _by_name() -> dict[str, GgmlType]:
    return {t.name.lower(): t for t in all_types()}


@cache
def _by_id() -> dict[int, GgmlType]:
    return {t.id: t for t in all_types()}


def type_named(name: str) -> GgmlType:
    """Return the type called `name` (any case). Raises InvalidHeader for a name that neither engine has."""
    found = _by_name().get(name.lower())
    if found is None:
        raise InvalidHeader(f"unknown tensor type {name!r}")
    return found


def type_with_id(type_id: int) -> GgmlType | None:
    """Return the type with ggml id `type_id`; None for an id that neither engine has yet.

    Raises InvalidHeader for one that no engine is likely to have soon.
    """
    if type_id > _LARGEST_ID:
        raise InvalidHeader(f"unknown tensor type id {type_id}: a damaged file")
    return _by_id().get(type_id)


def unknown_type(type_id: int) -> str:
    """Return what a type that neither engine has is called here."""
    return f"type_{type_id}"


def is_known(name: str) -> bool:
    """Whether either engine has a type of this name (any case)."""
    return name.lower() in _by_name()


def row_bytes(name: str, n: int) -> int:
    """Return the bytes of one row of `n` elements (ggml_row_size)."""
    t = type_named(name)
    return t.row_meta_bytes + n // t.block * t.bytes


def tensor_bytes(name: str, dims: tuple[int, ...]) -> int:
    """Return the bytes of a contiguous tensor (ggml_nbytes); `dims[0]` is the row length."""
    rows = prod(dims[1:])
    if name == "i2_s":  # ik ggml.c:4785: a BitNet container, n/4 bytes and a 32-byte scale, not block * bytes
        return dims[0] * rows // 4 + 32
    return row_bytes(name, dims[0]) * rows
