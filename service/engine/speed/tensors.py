"""Tensors as far as speed goes: what each is for, the class of its type, and where in a layer it is used."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec

from service.engine.config import Engine
from service.engine.ggml_types import GgmlType, type_named
from service.engine.model import Model
from service.engine.tensor_names import layer_of, role_of

T = TypeVar("T")
Use: TypeAlias = Literal["dense", "expert", "head"]
TINY = 100_000  # elements: biases and scales are copied as activations are, at no cost that shows
# Both engines evaluate a layer in this order; a change of device between two of them costs a copy.
CHAIN = (
    *("attn_output.", "ffn_norm.", "gate_inp.", "up_exps.", "gate_exps.", "gate_up_exps.", "down_exps."),
    *("gate_shexp.", "ffn_up.", "ffn_down."),
)


class Row(msgspec.Struct, frozen=True):
    """One tensor. `layer` -1: none; `chain`: its place in the order of a layer, -1 for none; `counts`: not a norm."""

    name: str
    layer: int
    use: Use
    type: GgmlType
    n_bytes: int
    n_elements: int
    chain: int
    counts: bool


class Same(Generic[T]):
    """A key that is equal to itself only: models and placements are too large to hash."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value


@cache
def quant_class(name: str) -> str:
    """Return the class of a tensor type as calibration names it: k | iqk | iq | iq1 | kt | f."""
    base = name.lower().split("_r")[0]
    if base in ("f32", "f16", "bf16"):
        return "f"
    if base.endswith("_kt"):
        return "kt"
    if base.startswith("iq") and ("_k" in base):
        return "iqk"
    if base.startswith("iq1"):
        return "iq1"
    return "iq" if base.startswith(("iq2", "iq3")) else "k"


@lru_cache(maxsize=64)
def rows_of(model_key: Same[Model]) -> dict[str, Row]:
    """Return the tensors of a model by name; those that cost no time (embedding, norms) are left out."""
    model = model_key.value
    rows: dict[str, Row] = {}
    for tensor in model.tensors:
        role = role_of(tensor.name)
        if role == "nextn" or (role == "token_embd" and not (model.tied and tensor.name == "token_embd.weight")):
            continue
        name = "output.weight" if role == "token_embd" else tensor.name
        use: Use = "expert" if role == "expert" else "head" if name.startswith("output") else "dense"
        n_elements = 1
        for d in tensor.dims:
            n_elements *= d
        layer = layer_of(tensor.name)
        chain = next((i for i, part in enumerate(CHAIN) if f"{part}weight" in tensor.name), -1)
        rows[name] = Row(
            name=name,
            layer=-1 if layer is None else layer,
            use=use,
            type=type_named(tensor.type),
            n_bytes=tensor.nbytes,
            n_elements=n_elements,
            chain=chain,
            counts=role != "norm" and "_norm." not in name,
        )
    return rows


def has_gpu_kernel(engine: Engine, kind: GgmlType) -> bool:
    """Return whether the engine multiplies weights of this type on a GPU."""
    return kind.cuda_ik if engine == "ik_llama.cpp" else kind.cuda_mainline


def type_in_memory(row: Row, repack: bool) -> GgmlType:
    """Return the type of a tensor after loading: -rtr interleaves the rows of what is in RAM."""
    return type_named(row.type.repack_to) if repack and row.type.repack_to and row.n_elements > TINY else row.type
