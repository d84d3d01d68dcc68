"""Kinds of layers: those whose graphs are alike, so that the graph of one layer of each kind stands for the model's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, TypeAlias

from service.engine.architectures import architecture
from service.engine.ggml_types import type_named
from service.engine.kept import kept
from service.engine.memory.cache import cache_owner, full_indexer
from service.engine.memory.spec import GraphSpec
from service.engine.model import Model
from service.engine.run.weights import can_fuse

_Cut: TypeAlias = tuple[str, int, tuple[int, ...]]


def kinds_of_layers(model: Model, spec: GraphSpec) -> list[int] | None:
    """Return the kind of each layer, a number; None where a layer's graph depends on more than its kind."""
    n_layer = model.n_layer - model.n_layer_nextn
    if architecture(model.architecture).layers_by_number or n_layer < 4:
        return None
    numbers: dict[object, int] = {}
    cuts: dict[str, list[_Cut]] = {}
    for name, axis, parts in spec.cards.cuts if spec.cards else ():
        cuts.setdefault(name.rpartition("blk.")[2].partition(".")[0], []).append((name.split(".", 2)[-1], axis, parts))
    lists = [v for v in model.metadata.values() if isinstance(v, list) and len(v) >= n_layer]
    idle = [_idle_cards(cuts.get(str(i), ())) for i in range(-1, n_layer + 1)]
    return [
        numbers.setdefault(
            (_kind(model, spec, i, lists), tuple(cuts.get(str(i), ())), idle[i], idle[i + 2], i == n_layer - 1),
            len(numbers),
        )
        for i in range(n_layer)
    ]


def _idle_cards(cuts: Iterable[_Cut]) -> tuple[tuple[str, tuple[bool, ...]], ...]:
    """The parts of a layer in which some card has no share, where neighbouring layers fill in sums for that card."""
    return tuple((name, tuple(map(bool, parts))) for name, _, parts in cuts if not all(parts))


def _kind(model: Model, spec: GraphSpec, index: int, lists: list[Any]) -> object:
    layer = model.layers[index]
    if cache_owner(model, layer) != index:
        return index
    facts = (layer.kind, layer.n_head, layer.n_head_kv, layer.head_dim_k, layer.head_dim_v, layer.n_swa, layer.moe)
    tensors = tuple(sorted((t.name.split(".", 2)[2], t.dims) for t in model.by_layer[index]))
    types = {t.name.split(".", 2)[2]: t.type for t in model.by_layer[index]}
    alike = types.get("ffn_up_exps.weight") == types.get("ffn_gate_exps.weight")
    values = tuple(repr(v[index]) for v in lists)
    return (facts, tensors, alike, values, full_indexer(model, spec, index))


def with_neighbours(kinds: Sequence[int], n: int) -> list[int]:
    """Return a number for each layer, the same for those of one kind whose `n` neighbours on each side have the same
    kinds too."""
    numbers: dict[object, int] = {}
    ends = [-1] * n
    padded = [*ends, *kinds, *ends]
    around = (tuple(padded[i : i + 2 * n + 1]) for i in range(len(kinds)))
    return [numbers.setdefault(of, len(numbers)) for of in around]


def layers_of_each_kind(kinds: Sequence[int]) -> tuple[tuple[int, ...], list[int]]:
    """Return a short list of layers that has every pair of successive kinds in `kinds`, and for each layer of the model
    the position in that list, from 1, of the one that it is like: of its kind, and after a layer of the same kind.
    """
    kept: list[int] = []
    position: dict[tuple[int, int], int] = {}
    pending: list[int] = []
    before = -1
    for i, kind in enumerate(kinds):
        pending.append(i)
        if (before, kind) not in position:
            kept += _shortest(kept[-1:], pending, kinds)
            position[before, kind] = len(kept)
            pending = []
        before = kind
    pairs = zip([-1, *kinds], kinds, strict=False)
    return tuple(kept), [position[pair] for pair in pairs]


def _shortest(last: list[int], pending: list[int], kinds: Sequence[int]) -> list[int]:
    """The layers of `pending` after the last one of the kind that the last layer kept has."""
    same = [n for n, i in enumerate(pending[:-1]) if last and kinds[i] == kinds[last[0]]]
    return pending[same[-1] + 1 :] if same else pending


@kept
def shape_of(model: Model) -> bytes:
    """Return a digest of everything in a model that its graphs depend on, the bytes of weights aside.

    Variants of a repo, which differ in the types of their weights, share their graphs: these types decide the bytes of
    weights and of views of them, and whether ik fuses a layer's up and gate; nothing else in a graph. The allocator
    looks the first up in the model, the second is part of the shape.
    """
    facts = {k: v for k, v in model.metadata.items() if k.startswith(f"{model.architecture}.")}
    tensors = sorted((t.name, t.dims) for t in model.tensors)
    of_model = (model.architecture, model.n_layer, model.n_layer_nextn, model.n_embd, model.n_vocab, model.n_expert)
    parts = (of_model, model.n_expert_used, model.layers, model.mla, model.recurrent, sorted(facts.items()))
    # Names of the ups whose type lets ik multiply them together with their gates.
    fused = []
    for tensor in model.tensors:
        gate = model.by_name.get(tensor.name.replace(".ffn_up", ".ffn_gate")) if ".ffn_up" in tensor.name else None
        dense = "_exps." not in tensor.name
        if gate is not None and can_fuse(type_named(tensor.type), type_named(gate.type), dense=dense):
            fused.append(tensor.name)
    return sha256(repr((parts, tensors, fused)).encode()).digest()
