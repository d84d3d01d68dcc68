"""Memory of what runs alongside a model: a draft model, the model's own next-token layers, a multimodal projector.

Weights and caches follow from their own headers, exactly; what their graphs need is a range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from service.engine.config import Flags
from service.engine.estimate import Estimate
from service.engine.gguf.header import Header
from service.engine.memory.encoder import Images, encoder_bytes
from service.engine.memory.graph import cuda_row_padding
from service.engine.memory.graphs import share_graphs
from service.engine.memory.predict import MemoryPrediction, predict_memory
from service.engine.model import Model
from service.engine.run.resolved import ResolvedRun
from service.engine.run.settings import drafts_next_tokens
from service.engine.tensor_names import layer_of

Kind: TypeAlias = Literal["draft", "next-token layers", "projector"]

_DRAFT_SPREAD = (0.9, 1.1)  # a context like any other, but the rows of logits depend on what drafts
_TAIL_SPREAD = (0.75, 1.35)  # the hidden state of the model joins the embeddings; no family's graph is replayed exactly
_NOTHING = Estimate(0, 0, 0)


class Companion(msgspec.Struct, frozen=True):
    """What one companion takes of each device in bytes, the CPU last. `compute` is a range."""

    kind: Kind
    weights: tuple[int, ...]
    kv: tuple[int, ...]
    compute: tuple[Estimate, ...]


def draft_model(run: ResolvedRun, devices: Sequence[int], n_devices: int, contexts: int = 1) -> Companion:
    """Return the memory of a draft model with so many contexts, as it runs on the GPUs that it may use.

    `devices`: the places of these GPUs in the command's list of `n_devices`. Raises InvalidFlags.
    """
    memory = predict_memory(run)
    weights, kv = [0] * (n_devices + 1), [0] * (n_devices + 1)
    compute = [_NOTHING] * (n_devices + 1)
    for place, d in zip((*devices, n_devices), memory.devices, strict=True):
        weights[place], kv[place] = d.weights + d.derived, contexts * d.kv
        compute[place] = _around(contexts * (d.compute + d.output), *_DRAFT_SPREAD)
    return Companion("draft", tuple(weights), tuple(kv), tuple(compute))


def next_token_context(run: ResolvedRun, draft: Flags) -> Companion | None:
    """Return the memory of the second context that drafts with the model's own layers, or None.

    The layers' weights are counted with the model's. `draft`: flags with the cache types of the draft. The context has
    a cache of the next-token layers alone (ik src/llama.cpp:1361, llama.cpp src/llama-model.cpp:2799), and its graph
    is nearly that of a model of these layers. Raises InvalidFlags.
    """
    model, flags, placement = run.model, run.flags, run.placement
    if not drafts_next_tokens(run.engine, flags) or not model.n_layer_nextn:
        return None
    tail, cpu = _next_token_model(model), placement.n_devices
    layers = placement.layers[model.n_layer - model.n_layer_nextn : model.n_layer] * 2
    own = msgspec.structs.replace(
        placement,
        tensors={t.name: placement.tensors[_name_in(model, t.name)] for t in tail.tensors},
        layers=layers,
        caches=tuple(cpu if flags.no_kv_offload else device for device in layers),
    )
    if model.tied:
        own.tensors["output.weight"] = placement.tensors["output.weight"]
    kept = tuple(option for option in draft.other if not option.startswith("--spec-type "))
    names = ("n_gpu_layers", "overrides", "cpu_moe", "n_cpu_moe")
    taken = {name: getattr(flags, name) for name in names} | {"other": kept}
    drafting = msgspec.structs.replace(draft, **taken)
    share_graphs((model, tail))
    alone = msgspec.structs.replace(run, model=tail, flags=drafting, placement=own, tool="server")
    memory = MemoryPrediction(alone).memory()
    compute = tuple(_around(d.compute + d.output, *_TAIL_SPREAD) for d in memory.devices)
    return Companion("next-token layers", (0,) * (cpu + 1), tuple(d.kv // 2 for d in memory.devices), compute)


def _next_token_model(model: Model) -> Model:
    """The next-token layers as a model of their own, with the embedding and the head, each layer twice.

    An engine reduces the batch to the tokens whose logits it wants within the last layer of a model, but only after the
    next-token layers: so of the two the first runs with all tokens, as those do.
    """
    count, first = model.n_layer_nextn, model.n_layer - model.n_layer_nextn
    ends = [t for t in model.tensors if layer_of(t.name) is None]
    own = [t for layer in model.by_layer[first:] for t in layer]
    again = [msgspec.structs.replace(t, name=_renumbered(t.name, by - first)) for by in (0, count) for t in own]
    layers = [
        msgspec.structs.replace(layer, index=layer.index - first + by, kind="attention")
        for by in (0, count)
        for layer in model.layers[first:]
    ]
    return msgspec.structs.replace(
        model, tensors=(*ends, *again), layers=tuple(layers), n_layer=2 * count, n_layer_nextn=0, recurrent=None
    )


def _name_in(model: Model, name: str) -> str:
    """The name in the file of a tensor of the layers' own model."""
    layer, first = layer_of(name), model.n_layer - model.n_layer_nextn
    return name if layer is None else _renumbered(name, first + layer % model.n_layer_nextn - layer)


def _renumbered(name: str, by: int) -> str:
    layer = layer_of(name)
    return name if layer is None else f"blk.{layer + by}.{name.split('.', 2)[2]}"


def _around(size: int, low: float, high: float) -> Estimate:
    return Estimate(size * low, size, size * high)


def projector(header: Header, n_devices: int, device: int, images: Images) -> Companion:
    """Return the memory of a multimodal projector on `device` (`n_devices` is the CPU) from its own header."""
    weights, compute = [0] * (n_devices + 1), [_NOTHING] * (n_devices + 1)
    weights[device] = sum(t.nbytes for t in header.tensors)
    if device != n_devices:
        weights[device] += sum(cuda_row_padding(t.type, t.dims[0]) for t in header.tensors)
    compute[device] = encoder_bytes(header, images)
    return Companion("projector", tuple(weights), (0,) * (n_devices + 1), tuple(compute))
