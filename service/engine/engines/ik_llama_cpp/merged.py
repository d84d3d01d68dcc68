"""The weights that ik_llama.cpp puts together when it loads a model: `-mqkv` (Q, K and V) and `-muge` (gate and up).

Source: ik src/llama-load-tensors.cpp:2871 (latent attention), 4403 (merge_up_gate_exps), 4532 (merge_qkv), and the
calls of both. The parts become views of one tensor, and the graph multiplies by that.
"""

from __future__ import annotations

import msgspec

from service.engine.config import Flags, Placement
from service.engine.engines.ik_llama_cpp import ARCHITECTURES
from service.engine.ggml_types import tensor_bytes
from service.engine.gguf.header import Tensor
from service.engine.model import Model
from service.engine.run.overrides import overridden

_QKV_OPTIONS = frozenset({"-mqkv", "--merge-qkv"})
_UP_GATE_OPTIONS = frozenset({"-muge", "--merge-up-gate-experts", "--merge-up-gate-exps"})

_QKV, _SCALED_QKV = ARCHITECTURES.having("merges_qkv"), ARCHITECTURES.having("merges_scaled_qkv")
_LATENT_QKV, _UP_GATE = ARCHITECTURES.having("merges_latent"), ARCHITECTURES.having("merges_up_gate")
_ALSO_SKIPPED = ARCHITECTURES.having("sparse")  # made for next-token layers too, whose parts are not loaded (line 3175)

_Merge = tuple[str, tuple[str, ...]]


def merged(model: Model, flags: Flags, placement: Placement) -> tuple[Model, Placement]:
    """Return the model with the tensors that these flags make, and where they are; both as given if none is made."""
    asked = {option.split(" ")[0] for option in flags.other}
    qkv, up_gate = bool(asked & _QKV_OPTIONS), bool(asked & _UP_GATE_OPTIONS)
    if not (qkv or up_gate):
        return model, placement
    joined: list[_Merge] = []
    rules = _ruled(model, flags, placement)
    own = model.n_layer - model.n_layer_nextn
    for layer in range(model.n_layer if model.architecture in _ALSO_SKIPPED else own):
        if qkv:
            joined += _attention(model, layer)
        if up_gate and model.architecture in _UP_GATE and layer < own:
            joined += _experts(model, layer, placement, rules)
    return (_joined_model(model, tuple(joined)), _joined_placement(placement, joined)) if joined else (model, placement)


def merges(flags: Flags) -> bool:
    """Return whether `-mqkv` or `-muge` is asked for."""
    return bool({option.split(" ")[0] for option in flags.other} & (_QKV_OPTIONS | _UP_GATE_OPTIONS))


def _ruled(model: Model, flags: Flags, placement: Placement) -> frozenset[str]:
    """The tensors that an `-ot` rule names: on the CPU they are in another buffer than those of CPU layers."""
    if flags.n_gpu_layers <= 0:
        return frozenset()
    return frozenset(overridden(model, flags.overrides, placement.n_devices))


def _types(model: Model, layer: int, parts: tuple[str, ...]) -> list[str]:
    found = (model.by_name.get(f"blk.{layer}.{part}") for part in parts)
    return [tensor.type for tensor in found if tensor is not None]


def attention_types(model: Model, layer: int) -> list[str]:
    """Return the types of a layer's Q, K and V, as far as it has them."""
    return _types(model, layer, tuple(f"attn_{part}.weight" for part in "qkv"))


def _attention(model: Model, layer: int) -> list[_Merge]:
    """Q, K and V of one type become one matrix, or Q and K where V is of another; latent: Q and the latent rows."""
    if model.architecture in _LATENT_QKV:
        query = "attn_q_a" if f"blk.{layer}.attn_q_a.weight" in model.by_name else "attn_q"
        parts: tuple[str, ...] = (f"{query}.weight", "attn_kv_a_mqa.weight")
        types = _types(model, layer, parts)
        return [(f"blk.{layer}.attn_qk_a_mqa.weight", parts)] if len(types) == 2 and len(set(types)) == 1 else []
    scaled = model.value("attention.scale") not in (None, 0.0)
    if model.architecture not in _SCALED_QKV and (model.architecture not in _QKV or scaled):
        return []
    types = attention_types(model, layer)
    if len(types) != 3 or types[0] != types[1]:
        return []
    parts = ("q", "k", "v") if types[0] == types[2] else ("q", "k")
    name = f"blk.{layer}.attn_{''.join(parts)}"
    found: list[_Merge] = [(f"{name}.weight", tuple(f"attn_{part}.weight" for part in parts))]
    if f"blk.{layer}.attn_q.bias" in model.by_name:
        found.append((f"{name}.bias", tuple(f"attn_{part}.bias" for part in parts)))
    return found


def _experts(model: Model, layer: int, placement: Placement, rules: frozenset[str]) -> list[_Merge]:
    """Gate and up of one type, in one buffer; where they have biases, in the layer's own."""
    parts = ("ffn_gate_exps.weight", "ffn_up_exps.weight")
    names = [f"blk.{layer}.{part}" for part in parts]
    tensors = [model.by_name[name] for name in names if name in model.by_name]
    if len(tensors) != 2 or tensors[0].type != tensors[1].type:
        return []
    devices = [placement.tensors[name] for name in names]
    in_ram = devices[0] == placement.n_devices
    apart = devices[0] != devices[1] or (in_ram and (names[0] in rules) != (names[1] in rules))
    biased = f"blk.{layer}.ffn_up_exps.bias" in model.by_name
    elsewhere = devices[0] != placement.layers[layer] or (in_ram and names[0] in rules)
    if apart or (biased and elsewhere):
        return []
    found: list[_Merge] = [(f"blk.{layer}.ffn_gate_up_exps.weight", parts)]
    if biased:
        found.append((f"blk.{layer}.ffn_gate_up_exps.bias", ("ffn_gate_exps.bias", "ffn_up_exps.bias")))
    return found


def _sources(merge: _Merge) -> list[str]:
    prefix = ".".join(merge[0].split(".", 2)[:2])
    return [f"{prefix}.{part}" for part in merge[1]]


def _joined_model(model: Model, joined: tuple[_Merge, ...]) -> Model:
    known: dict[tuple[_Merge, ...], Model] = model.__dict__.setdefault("_merged", {})
    if joined not in known:
        known.clear()
        gone = {name for merge in joined for name in _sources(merge)}
        made = (_joined_tensor(model, merge) for merge in joined)
        known[joined] = msgspec.structs.replace(
            model, tensors=tuple(t for t in model.tensors if t.name not in gone) + tuple(made)
        )
    return known[joined]


def _joined_tensor(model: Model, merge: _Merge) -> Tensor:
    parts = [model.by_name[name] for name in _sources(merge)]
    first, axis = parts[0], 0 if merge[0].endswith(".bias") else 1
    dims = list(first.dims)
    dims[axis] = sum(part.dims[axis] for part in parts)
    if merge[0].endswith("_exps.bias"):  # ik gives it as many rows as an expert has (line 4455), not one an expert
        dims[1] = model.by_name[_sources(merge)[0].replace(".bias", ".weight")].dims[1]
    return Tensor(merge[0], first.type, tuple(dims), first.offset, tensor_bytes(first.type, tuple(dims)))


def _joined_placement(placement: Placement, joined: list[_Merge]) -> Placement:
    """A merged attention matrix is always with its layer, whatever `-ot` says of its parts."""
    tensors = dict(placement.tensors)
    for merge in joined:
        devices = [tensors.pop(name, -1) for name in _sources(merge)]
        layer = int(merge[0].split(".", 2)[1])
        tensors[merge[0]] = devices[0] if "_exps" in merge[0] else placement.layers[layer]
    return msgspec.structs.replace(placement, tensors=tensors)
