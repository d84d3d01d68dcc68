"""Bytes that a weight takes beyond its own: what a CUDA buffer reserves, and matrices that ik makes at load time."""

from __future__ import annotations

from service.engine.memory.graph import CUDA_ALIGNMENT, cuda_row_padding, row_size
from service.engine.memory.graphs.ik.latent import derived_kv_b
from service.engine.model import Model
from service.engine.units import pad


def plain_bytes(model: Model) -> dict[str, int]:
    """Return the bytes of each tensor by its name in a placement: a tied head is `output.weight`."""
    known: dict[str, int] | None = model.__dict__.get("_plain_bytes")
    if known is None:
        known = _with_head(model, {t.name: t.nbytes for t in model.tensors})
        model.__dict__["_plain_bytes"] = known
    return known


def reserved_bytes(model: Model) -> dict[str, int]:
    """Return what a CUDA buffer reserves for each tensor: rows padded to 512, all rounded up to 128 bytes."""
    known: dict[str, int] | None = model.__dict__.get("_reserved_bytes")
    if known is None:
        sizes = {t.name: pad(t.nbytes + cuda_row_padding(t.type, t.dims[0]), CUDA_ALIGNMENT) for t in model.tensors}
        known = model.__dict__["_reserved_bytes"] = _with_head(model, sizes)
    return known


def _with_head(model: Model, sizes: dict[str, int]) -> dict[str, int]:
    if model.tied and "token_embd.weight" in sizes:
        sizes.setdefault("output.weight", sizes["token_embd.weight"])
    return sizes


def derived_by_layer(model: Model, mode: int) -> tuple[int, ...]:
    """Return `derived_bytes` of each of the model's own layers."""
    known: dict[int, tuple[int, ...]] = model.__dict__.setdefault("_derived_bytes", {})
    if mode not in known:
        known[mode] = tuple(derived_bytes(model, i, mode) for i in range(model.n_layer - model.n_layer_nextn))
    return known[mode]


def derived_bytes(model: Model, layer: int, mode: int) -> int:
    """Return the bytes of the matrices that ik makes of a latent layer's tensors at `-mla` `mode`.

    ik llama.cpp:2975-3424: attn_kv_b in every mode but 1, which has no use for it; attn_k_b and attn_v_b in every mode
    but 0. Counted in its CUDA build for DeepSeek-V2-Lite: 27, 0, 27 and 27 of them in modes 0 to 3.
    """
    k_b, v_b, kv_b = (model.by_name.get(f"blk.{layer}.attn_{part}.weight") for part in ("k_b", "v_b", "kv_b"))
    mla = model.mla
    if mla is None:
        return 0
    n_head = model.layers[layer].n_head
    if kv_b is None and k_b is not None and v_b is not None and mode != 1:
        return row_size(derived_kv_b(k_b.type, v_b.type), mla.kv_lora_rank) * n_head * (mla.nope + mla.value)
    missing = (mla.nope * (k_b is None) + mla.value * (v_b is None)) if kv_b is not None and mode else 0
    return row_size("q8_0", mla.kv_lora_rank) * n_head * missing
