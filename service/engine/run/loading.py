"""The model as it lies in memory: what loading makes of the tensors of the file.

ik_llama.cpp's `-rtr` interleaves the rows of what lies in RAM once all is loaded (llama.cpp:4912; iqk_quantize.cpp,
iqk_repack_tensor), and the graph is made of the types that are left.
"""

from __future__ import annotations

import msgspec

from service.engine.config import Engine, Flags, Placement
from service.engine.engines import engine_spec
from service.engine.ggml_types import GgmlType, type_named
from service.engine.gguf import Tensor
from service.engine.model import Model

KEPT_AS_THEY_ARE = frozenset({"token_embd.weight", "per_layer_token_embd.weight"})  # iqk_quantize.cpp:8448
# attn_kv_b is made of these before rows are interleaved (llama.cpp:6773), and their type decides its type.
_DERIVED_FROM = ("attn_k_b.weight", "attn_v_b.weight")


def interleaved(kind: GgmlType, rows: int) -> GgmlType:
    """Return what `-rtr` makes of matrices of `rows` rows in RAM: the type with its rows interleaved, if they fit."""
    if kind.repack_to is None or not rows or rows % 4:
        return kind
    packed = type_named(kind.repack_to)
    return kind if rows % max(1, packed.row_interleave) else packed


def can_fuse(up: GgmlType, gate: GgmlType, *, dense: bool) -> bool:
    """Return whether ik_llama.cpp can make one operation of up and gate of these types (after loading).

    ggml.c, ggml_moe_up_gate since pull request 229: one type; ggml_fused_up_gate since 741: one quantised type.
    """
    return up is gate and (not dense or up.block > 1)


def loaded(engine: Engine, model: Model, flags: Flags, placement: Placement) -> Model:
    """Return the model with the types that its tensors have after loading; as given where loading changes none.

    The last answer is kept with the model.
    """
    if not (engine_spec(engine).memory.repacks_at_load and flags.runtime_repack):
        return model
    in_ram = frozenset(name for name, device in placement.tensors.items() if device == placement.n_devices)
    known: dict[frozenset[str], Model] = model.__dict__.setdefault("_loaded", {})
    if in_ram not in known:
        known.clear()
        tensors = tuple(_loaded(t) if t.name in in_ram else t for t in model.tensors)
        known[in_ram] = msgspec.structs.replace(model, tensors=tensors)
    return known[in_ram]


def _loaded(tensor: Tensor) -> Tensor:
    kind = type_named(tensor.type)
    if tensor.name in KEPT_AS_THEY_ARE or len(tensor.dims) < 2:
        return tensor
    if kind.block == 1 and tensor.name.endswith(_DERIVED_FROM):
        return tensor
    return msgspec.structs.replace(tensor, type=interleaved(kind, tensor.dims[1]).name)
