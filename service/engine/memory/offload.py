"""Weights in RAM whose products never run on a GPU, for any batch: it has no kernels for their type.

Sources: ggml_backend_cuda_device_supports_op of both engines' ggml-cuda.cu, by the type table.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.config import Engine, Placement
from service.engine.engines import engine_spec
from service.engine.ggml_types import ROW_TABLE, type_named
from service.engine.memory.graph import Slot
from service.engine.model import Model


def stays_in_ram(
    engine: Engine, model: Model, slots: Sequence[Slot], without: Sequence[str] = ()
) -> frozenset[int]:  # fmt: skip
    """Return the indices of the slots with a weight that no GPU can multiply by, so that its product stays in RAM.

    `model`: with the types after loading. `without`: types that an older build had no kernels for.
    """
    has_kernels = engine_spec(engine).types.gpu_kernels
    stuck = {name for name in model.types if name in without or not has_kernels(type_named(name))}
    if not stuck:
        return frozenset()
    tensors = ((i, model.by_name.get(slot.name)) for i, slot in enumerate(slots) if slot.kind == "weight")
    return frozenset(i for i, tensor in tensors if tensor is not None and tensor.type in stuck)


def lacks_kernels(engine: Engine, model: Model, placement: Placement) -> bool:
    """Return whether a weight on a card is of a type that the engine's CUDA build cannot multiply by."""
    multiplied = model.types.keys() - {ROW_TABLE}
    without = {name for name in multiplied if not engine_spec(engine).types.gpu_kernels(type_named(name))}
    if not without:
        return False
    on_cards = (name for name, device in placement.tensors.items() if device != placement.n_devices)
    return any(tensor.type in without for name in on_cards if (tensor := model.by_name.get(name)))
