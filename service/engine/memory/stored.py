"""Bytes that weights take in memory: what a CUDA buffer reserves for them, and matrices made of them at load time."""

from __future__ import annotations

from service.engine.config import Engine
from service.engine.engines import engine_spec
from service.engine.kept import kept
from service.engine.memory.graph import CUDA_ALIGNMENT, cuda_row_padding
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
