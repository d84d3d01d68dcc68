"""Weights in memory: the bytes a CUDA buffer reserves, matrices made at load time, and types without a kernel.

Sources: ggml_backend_cuda_device_supports_op of both engines' ggml-cuda.cu, by the type table.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.config import Engine, Placement
from service.engine.engines import engine_spec
from service.engine.ggml_types import ROW_TABLE, type_named
from service.engine.kept import kept
from service.engine.memory.graph import CUDA_ALIGNMENT, Slot, cuda_row_padding
from service.engine.model import Model
from service.engine.units import pad


@kept
def plain_bytes(model: Model) -> dict[str, int]:
    """Return the bytes of each tensor by its name in a placement: a tied head is `output.weight`."""
    return _with_head(model, {t.name: t.nbytes for t in model.tensors})


@kept
def reserved_bytes(model: Model) -> dict[str, int]:
    """Return what a CUDA buffer reserves for each tensor: rows padded to 512, all rounded up to 128 bytes."""
    sizes = {t.name: pad(t.nbytes + cuda_row_padding(t.type, t.dims[0]), CUDA_ALIGNMENT) for t in model.tensors}
    return _with_head(model, sizes)


def _with_head(model: Model, sizes: dict[str, int]) -> dict[str, int]:
    if model.tied and "token_embd.weight" in sizes:
        sizes.setdefault("output.weight", sizes["token_embd.weight"])
    return sizes


def derived_by_layer(engine: Engine, model: Model, mode: int) -> tuple[int, ...]:
    """Return the bytes of what the engine makes of the tensors of each layer that is loaded, by latent mode."""
    known: dict[tuple[Engine, int], tuple[int, ...]] = model.__dict__.setdefault("_derived_bytes", {})
    if (engine, mode) not in known:
        memory = engine_spec(engine).memory
        anyway = memory.loaded_anyway.get(model.architecture)
        layers = range(model.n_layer if anyway else model.n_layer - model.n_layer_nextn)
        known[engine, mode] = tuple(memory.derived_bytes(model, i, mode) for i in layers)
    return known[engine, mode]


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
