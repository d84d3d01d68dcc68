"""Memory without a graph: a lower bound of a placement's, and a rough compute buffer for models without a description.

The bound is what is stored, exactly, and a compute buffer that no replay undercuts: what a single operation on a device
must hold at once. While ggml runs a product, its sources and its result are in the arena of its device together, with
the weight if it was copied there, and the mask if a later layer reads it. Nothing else is counted, and nothing where
the device of an operation is not certain: this is for pruning, not an estimate.
"""

from __future__ import annotations

from typing import NamedTuple

from service.engine.config import Placement
from service.engine.engines import engine_spec
from service.engine.gguf.header import Tensor
from service.engine.kept import kept
from service.engine.layers import Layer
from service.engine.memory.contents import Contents
from service.engine.memory.figures import DeviceBytes, Memory
from service.engine.memory.graph import MIN_OFFLOAD_BATCH, Slot
from service.engine.memory.spec import GraphSpec
from service.engine.model import Model
from service.engine.run.resolved import ResolvedRun

_F32, _F16 = 4, 2
_COMMON_HEADS = frozenset({64, 80, 96, 112, 128, 256})  # every engine's flash attention has kernels for them
_COMMON_TYPES = frozenset({"f16", "q8_0", "q4_0"})


def least_memory(run: ResolvedRun) -> Memory:
    """Return a lower bound of every device's memory: none of its figures is above that of `predict_memory`.

    Takes about a millisecond. Where all cards share every layer (ik's `graph`, llama.cpp's `tensor`), what is stored is
    counted by whole layers, and compute is 0. Raises InvalidFlags.
    """
    contents = Contents(run)
    rough = rough_compute(contents.model, contents.spec, contents.placement)  # which stands in for an unknown graph
    compute = map(min, least_compute(contents), rough)
    outputs, over = [0] * (contents.cpu + 1), map(contents.overhead, range(contents.cpu + 1))
    stored = contents.weights(), contents.caches()
    devices = tuple(map(DeviceBytes, *stored, compute, outputs, contents.derived(), over))
    return Memory(devices, run.placement, 0, 0, "exact")


class _Product(NamedTuple):
    """A product of a layer's feed-forward: the weights it reads, and the f32 elements a token of source and result."""

    layer: int
    names: tuple[str, ...]
    n_bytes: int
    width: int
    experts: bool


def least_compute(contents: Contents) -> tuple[int, ...]:
    """Return a lower bound of the compute buffer of every device in bytes, the CPU last.

    Where no graph is known, the rough figure that is predicted instead may be lower.
    """
    bound = [0] * (contents.cpu + 1)
    if contents.flags.split_mode not in ("layer", "none"):
        return tuple(bound)
    bound[-1] = mask = _mask(contents)
    n_tokens, layers = contents.spec.n_tokens, contents.placement.layers
    together, in_ram = _undivided_layers(contents), _kept_in_ram(contents)
    last_reader = {layers[i]: i for i in together if _reads_mask(contents, i)}
    for product in _products(contents.model, _fuses(contents)):
        device, staged = _where(contents, product, in_ram)
        held = _F32 * n_tokens * product.width + staged
        if product.layer in together and device == layers[product.layer]:
            read_later = product.layer < last_reader.get(device, 0) and _reads_mask(contents, product.layer)
            held += mask if read_later and device != contents.cpu else 0
        if device is not None:
            bound[device] = max(bound[device], held)
    _raise_by_logits(contents, bound)
    return tuple(bound)


def _mask(contents: Contents) -> int:
    """The mask of full attention, which the engine fills in RAM."""
    spec = contents.spec
    if not any(la.attends and not la.n_swa for la in contents.model.layers):
        return 0
    tokens = max(1, spec.n_tokens // spec.n_stream) * spec.n_stream
    return (_F16 if spec.flash_attn else _F32) * spec.n_kv * tokens


def _undivided_layers(contents: Contents) -> frozenset[int]:
    """The layers whose norms, attention and cache are all on the layer's own device."""
    placement = contents.placement
    found = set()
    for i in range(contents.model.n_layer - contents.model.n_layer_nextn):
        device, tensors = placement.layers[i], placement.tensors
        mixing = (tensors.get(name, device) == device for name in _mixing(contents.model, i))
        if placement.caches[i] == device and all(mixing):
            found.add(i)
    return frozenset(found)


@kept
def _mixing(model: Model, layer: int) -> tuple[str, ...]:
    """The names of a layer's tensors, without those of its feed-forward."""
    names = (t.name for t in model.by_layer[layer])
    return tuple(name for name in names if "_exps." not in name and ".ffn_down." not in name)


def _reads_mask(contents: Contents, layer: int) -> bool:
    """Whether attention is certain to run on the layer's device, to which the mask is then copied."""
    facts, spec = contents.model.layers[layer], contents.spec
    common = facts.head_dim_k == facts.head_dim_v and facts.head_dim_k in _COMMON_HEADS and contents.model.mla is None
    kernels = {spec.type_k, spec.type_v} <= _COMMON_TYPES and common
    return facts.attends and not facts.n_swa and not contents.flags.no_kv_offload and kernels


def _fuses(contents: Contents) -> bool:
    """Whether up and gate, if of one type, are one operation."""
    spec = contents.spec
    return contents.allocates.fuses_up_and_gate and spec.fused_moe and spec.rules.fused_dense


@kept
def _products(model: Model, fused: bool) -> tuple[_Product, ...]:
    layers = range(model.n_layer - model.n_layer_nextn - 1)  # the last one's rows are fewer
    return tuple(p for i in layers for kind in ("_exps", "") for p in _of_layer(model, i, kind, fused))


def _of_layer(model: Model, layer: int, kind: str, fused: bool) -> list[_Product]:
    up, gate, down = (model.by_name.get(f"blk.{layer}.ffn_{part}{kind}.weight") for part in ("up", "gate", "down"))
    used = max(1, model.n_expert_used) if kind else 1
    found = []
    if down is not None:
        found.append(_Product(layer, (down.name,), down.nbytes, used * sum(down.dims[:2]), bool(kind)))
    if up is not None:
        both = (up, gate) if fused and gate is not None and gate.type == up.type else (up,)
        width = up.dims[0] + used * up.dims[1]
        found.append(_Product(layer, tuple(t.name for t in both), sum(t.nbytes for t in both), width, bool(kind)))
    return found


def _kept_in_ram(contents: Contents) -> frozenset[str]:
    """The weights in RAM whose products cannot run on a card."""
    slots = _slots_of_products(contents.model)
    return frozenset(slots[i].name for i in contents.stays_in_ram(slots))


@kept
def _slots_of_products(model: Model) -> list[Slot]:
    names = (t.name for t in model.tensors if ".ffn_" in t.name or t.name.startswith("output."))
    return [Slot("weight", name, -1) for name in names]


def _where(contents: Contents, product: _Product, in_ram: frozenset[str]) -> tuple[int | None, int]:
    """Return the device that computes the product, None where that is not certain, and the bytes copied there."""
    devices = {contents.placement.tensors[name] for name in product.names}
    if len(devices) > 1:
        return None, 0
    (device,) = devices
    if device != contents.cpu or not contents.cpu:
        return device, 0
    if not _batch_is_copied(contents, product.experts) or any(name in in_ram for name in product.names):
        return device, 0
    return contents.flags.first_gpu, product.n_bytes


def _batch_is_copied(contents: Contents, experts: bool) -> bool:
    """Whether weights in RAM are copied to a card for the worst-case batch."""
    if contents.spec.n_tokens < MIN_OFFLOAD_BATCH:
        return False
    return contents.allocates.copied_for_batch(contents, experts=experts)


def _raise_by_logits(contents: Contents, bound: list[int]) -> None:
    """Raise the bound of the head's card to what its product holds: the rows of the last norm, and the logits."""
    device = contents.placement.tensors.get("output.weight", contents.cpu)
    if device != contents.cpu or not contents.cpu:
        rows = contents.model.n_vocab + contents.model.n_embd
        bound[device] = max(bound[device], _F32 * contents.spec.n_outputs * rows)


def rough_compute(model: Model, spec: GraphSpec, placement: Placement) -> tuple[int, ...]:
    """Return about the compute buffer of every device in bytes, the CPU last: the largest sum of what is live at once.

    The terms are those of ggml's peaks (logits, masks, feed-forward, experts, scores without flash attention, weights
    copied from RAM); on described models they are within some 20 % of the replay for nine devices in ten.
    """
    cpu, u = placement.n_devices, spec.n_tokens
    hidden = 4 * u * model.n_embd
    windowed = any(layer.n_swa for layer in model.layers)
    masks = (2 if spec.flash_attn else 4) * spec.n_kv * u * (2 if windowed else 1)
    buffers = [0] * cpu + [masks + hidden]
    for index, device in set(zip(_alike(model), placement.layers, strict=False)):
        layer = model.layers[index]
        need = masks + 2 * hidden + max(_attention(model, spec, layer), _feed_forward(model, spec, index))
        buffers[device] = max(buffers[device], need)
    logits = 4 * spec.n_outputs * (model.n_vocab + 2 * model.n_embd)
    buffers[placement.head] = max(buffers[placement.head], logits)
    if cpu:
        buffers[0] = max(buffers[0], masks + 2 * hidden + _staged(model, spec, placement))
    return tuple(buffers)


@kept
def _alike(model: Model) -> list[int]:
    """For each layer that runs, the first one with the same heads and feed-forward."""
    first: dict[object, int] = {}
    return [
        first.setdefault((a.n_head, a.head_dim_k, a.head_dim_v, _widest(model, 1)[i], _widest(model, 3)[i]), i)
        for i, a in enumerate(model.layers[: model.n_layer - model.n_layer_nextn])
    ]


def _attention(model: Model, spec: GraphSpec, layer: Layer) -> int:
    heads = layer.n_head * (layer.head_dim_k + layer.head_dim_v) * 4 * spec.n_tokens
    if model.mla is not None:
        heads = layer.n_head * (2 * model.mla.kv_lora_rank + model.mla.rope) * 4 * spec.n_tokens
    return heads if spec.flash_attn else heads + 4 * spec.n_kv * spec.n_tokens * layer.n_head


def _feed_forward(model: Model, spec: GraphSpec, layer: int) -> int:
    matrices = 1 if engine_spec(spec.engine).memory.fuses_up_and_gate else 3
    return 4 * spec.n_tokens * _widest(model, matrices)[layer]


@kept
def _widest(model: Model, matrices: int) -> list[int]:
    """For each layer the values a token that its feed-forward has live at once, of this many matrices."""
    return [max((_width(model, t, matrices) for t in of), default=0) for of in model.by_layer]


def _width(model: Model, tensor: Tensor, matrices: int) -> int:
    if len(tensor.dims) < 2 or ".ffn_" not in tensor.name or "_inp" in tensor.name:
        return 0
    used = max(1, model.n_expert_used) if len(tensor.dims) > 2 else 1
    return used * (matrices * max(tensor.dims[:2]) + model.n_embd * (used > 1))


def _staged(model: Model, spec: GraphSpec, placement: Placement) -> int:
    """Weights of one operation copied from RAM to the first GPU."""
    engine = engine_spec(spec.engine)
    if spec.n_tokens < engine.offload.expert_tokens(model.n_expert, model.n_expert_used):
        return 0
    in_ram = (n for n, name in _largest_ffn(model) if placement.tensors.get(name) == placement.n_devices)
    return (2 if engine.memory.fuses_up_and_gate else 1) * next(in_ram, 0) + _feed_forward(
        model, spec, model.moe_layers[0] if model.moe_layers else 0
    )


@kept
def _largest_ffn(model: Model) -> list[tuple[int, str]]:
    """Bytes and name of each feed-forward tensor, the largest first."""
    return sorted(((t.nbytes, t.name) for t in model.tensors if ".ffn_" in t.name), reverse=True)
