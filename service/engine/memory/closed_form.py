"""A rough compute buffer, for models that no graph description fits: the largest sum of what is live at once.

The terms are those of ggml's peaks (logits, masks, feed-forward, experts, scores without flash attention, weights
copied from RAM); on described models they are within some 20 % of the replay for nine devices in ten.
"""

from __future__ import annotations

from service.engine.config import Placement
from service.engine.engines import engine_spec
from service.engine.gguf.header import Tensor
from service.engine.kept import kept
from service.engine.layers import Layer
from service.engine.memory.spec import GraphSpec
from service.engine.model import Model


def rough_compute(model: Model, spec: GraphSpec, placement: Placement) -> tuple[int, ...]:
    """Return the compute buffer of every device in bytes, the CPU last. An approximation."""
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
