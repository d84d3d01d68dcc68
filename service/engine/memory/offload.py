"""Weights in RAM whose products never go to a GPU, whatever the batch: the GPU has no kernels for their type.

Sources: ggml_backend_cuda_device_supports_op of both engines' ggml-cuda.cu, by the type table; what `-rtr` makes of a
tensor in RAM: ik iqk_quantize.cpp:8448-8545.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.config import Engine, Placement
from service.engine.ggml_types import GgmlType, type_named
from service.engine.memory.graph import Slot
from service.engine.model import Model

_INPUTS = ("token_embd.", "per_layer_token_embd.")  # -rtr leaves them as they are


def stays_in_ram(
    engine: Engine, model: Model, slots: Sequence[Slot], *, repack: bool, without: Sequence[str] = ()
) -> frozenset[int]:
    """Return the indices of the slots whose weight no GPU can multiply by while it is in RAM.

    `repack`: ik's `-rtr`. `without`: types that an older build had no kernels for.
    """
    if not repack and all(name not in without and _has_kernels(engine, type_named(name)) for name in model.types):
        return frozenset()
    return frozenset(i for i, slot in enumerate(slots) if not _offloads(engine, model, slot, repack, without))


def _offloads(engine: Engine, model: Model, slot: Slot, repack: bool, without: Sequence[str]) -> bool:
    tensor = model.by_name.get(slot.name) if slot.kind == "weight" else None
    if tensor is None:
        return True
    kind = type_named(tensor.type)
    if repack and kind.repack_to is not None and not tensor.name.startswith(_INPUTS) and len(tensor.dims) > 1:
        packed = type_named(kind.repack_to)
        kind = packed if tensor.dims[1] % max(1, packed.row_interleave) == 0 else kind
    return kind.name not in without and _has_kernels(engine, kind)


def _has_kernels(engine: Engine, kind: GgmlType) -> bool:
    return kind.cuda_ik if engine == "ik_llama.cpp" else kind.cuda_mainline


def lacks_kernels(model: Model, placement: Placement) -> bool:
    """Return whether a weight on a card is of a type that ik's CUDA cannot multiply by."""
    without = {name for name in model.types if not type_named(name).cuda_ik}
    if not without:
        return False
    on_cards = (name for name, device in placement.tensors.items() if device != placement.n_devices)
    return any(tensor.type in without for name in on_cards if (tensor := model.by_name.get(name)))
