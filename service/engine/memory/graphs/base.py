"""What the graph descriptions of both engines share: a model's weights and caches as tensors of one graph."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Literal, TypeAlias, TypeVar

from service.engine.architectures import architecture
from service.engine.layers import Layer
from service.engine.memory.cache import CacheTensor, attention_cache, indexer_cache, recurrent_state
from service.engine.memory.graph import GraphBuilder, Node, Slot
from service.engine.memory.spec import GraphSpec
from service.engine.model import Model

T = TypeVar("T")
Hidden: TypeAlias = Literal["", "raw", "normed"]
Gating: TypeAlias = Literal["softmax", "sigmoid", "weight", "softplus"]

_MAX_EXPERTS_USED = 64
_SQRT_SOFTPLUS = 4  # expert_gating_func
# of the long and the short ones, which have one size, the context decides which are used
ROPE_FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


class MissingTensor(Exception):
    """The model lacks a tensor that the description of its family needs."""


def family_of(model: Model, families: Collection[str]) -> str:
    """Return which of an engine's descriptions is for a model: its architecture's, else the nearest by its header."""
    if model.architecture in families:
        return model.architecture
    if model.recurrent is not None:
        return "qwen3next"
    return "generic" if model.mla is None else "deepseek2"


def by_name(described: Mapping[str, T]) -> dict[str, T]:
    """Return descriptions by architecture; a key names one or several, divided by blanks."""
    return {name: description for names, description in described.items() for name in names.split()}


class ModelGraph(GraphBuilder):
    """A graph under construction for one model and spec. Sizes carry llama.cpp's names (n_embd, n_head, …).

    `positions`: the input that tokens are rotated by. `ids`: that with the rows that logits are wanted for.
    """

    positions: Node
    ids: Node
    hidden: Hidden = ""  # which hidden states, before or after the last norm, are an output: those of all rows

    def __init__(self, model: Model, spec: GraphSpec) -> None:
        super().__init__()
        self.model, self.spec = model, spec
        self.n_tokens, self.n_kv = spec.n_tokens, spec.n_kv
        self.n_layer = model.n_layer - model.n_layer_nextn
        self.kept: tuple[int, ...] = tuple(range(self.n_layer))
        self._stored: dict[tuple[str, int], Node] = {}
        self._caches: dict[tuple[int, int], tuple[Node, ...]] = {}

    def layers(self) -> Iterator[int]:
        """Yield the layers to describe, all of them or one of each kind, and note where the tensors of each begin."""
        for layer in self.kept:
            self.layer_starts.append(len(self.all))
            yield layer
        self.layer_starts.append(len(self.all))

    def find(self, name: str) -> Node | None:
        tensor = self.model.by_name.get(name)
        if tensor is None:
            return None
        node = self._stored.get((name, -1))
        if node is None:
            node = self._stored[name, -1] = self.stored(Slot("weight", name, -1), tensor.type, *tensor.dims)
        return node

    def weight(self, layer: int, part: str) -> Node:
        """Return `blk.<layer>.<part>`. Raises MissingTensor."""
        node = self.find(f"blk.{layer}.{part}")
        if node is None:
            raise MissingTensor(f"blk.{layer}.{part}")
        return node

    def optional(self, layer: int, part: str) -> Node | None:
        return self.find(f"blk.{layer}.{part}")

    def first_of(self, layer: int, *parts: str) -> Node:
        """Return the first of `parts` that the layer has. Raises MissingTensor."""
        found = next((node for part in parts if (node := self.optional(layer, part)) is not None), None)
        if found is None:
            raise MissingTensor(f"blk.{layer}.{parts[0]}")
        return found

    def required(self, name: str) -> Node:
        """Return the weight called `name`. Raises MissingTensor."""
        node = self.find(name)
        if node is None:
            raise MissingTensor(name)
        return node

    def output_head(self) -> Node:
        """Return the head's matrix, a copy of the token embedding where they are tied."""
        if not self.model.tied:
            return self.required("output.weight")
        tensor = self.model.by_name.get("token_embd.weight")
        if tensor is None:
            raise MissingTensor("token_embd.weight")
        return self.stored(Slot("weight", "output.weight", -1), tensor.type, *tensor.dims)

    def rope_factors(self, layer: int) -> Node | None:
        """Return the layer's copy of the rope factors, None for models without."""
        tensor = next((t for name in ROPE_FACTORS if (t := self.model.by_name.get(name)) is not None), None)
        if tensor is None:
            return None
        owner = self.spec.rope_owners[layer] if self.spec.rope_owners else layer
        node = self._stored.get((tensor.name, owner))
        if node is None:
            slot = Slot("rope", tensor.name, owner)
            node = self._stored[tensor.name, owner] = self.stored(slot, tensor.type, *tensor.dims)
        return node

    def mask_input(self, *ne: int) -> Node:
        """Return an attention mask as the engine fills it; older builds fill f32 and cast it for flash attention."""
        if self.spec.flash_attn and self.spec.rules.f32_masks:
            return self.cast(self.input("f32", *ne), "f16")
        return self.input("f16" if self.spec.flash_attn else "f32", *ne)

    def product(self, layer: int, part: str, x: Node) -> Node:
        """Return the product with `blk.<layer>.<part>`, and its bias if it has one. Raises MissingTensor."""
        product = self.mul_mat(self.weight(layer, f"{part}.weight"), x)
        bias = self.optional(layer, f"{part}.bias")
        return product if bias is None else self.add(product, bias)

    def rope(self, x: Node, factors: Node | None = None) -> Node:
        """Return x rotated by its positions."""
        return self.new("ROPE", x.kind, x.ne, x, self.positions, factors)

    def last_rows(self, layer: int, *tensors: Node) -> tuple[Node, ...]:
        """In the last layer, return only the rows that logits are wanted for."""
        if layer != self.n_layer - 1 or self.hidden:
            return tensors
        return tuple(self.get_rows(t, self.ids) for t in tensors)

    def with_residual(self, layer: int, y: Node, x: Node) -> Node:
        """Return y added to the residual x, in the last layer in the wanted rows only."""
        y, x = self.last_rows(layer, y, x)
        return self.add(y, x)

    def cache(self, layer: int) -> tuple[Node, ...]:
        """Return what the layer's attention reads, as `attention_cache` shapes it."""
        return self._cached(layer, 0, attention_cache(self.model, self.spec, self.model.layers[layer]))

    def indexer_keys(self, layer: int) -> Node:
        """Return the layer's keys of the indexer, as `indexer_cache` shapes them."""
        return self._cached(layer, 2, indexer_cache(self.model, self.spec, self.model.layers[layer]))[0]

    def state(self, layer: int) -> tuple[Node, ...]:
        """Return the layer's recurrent state, as `recurrent_state` shapes it."""
        return self._cached(layer, 1, recurrent_state(self.model, self.spec, self.model.layers[layer]))

    def _cached(self, layer: int, part: int, tensors: tuple[CacheTensor, ...]) -> tuple[Node, ...]:
        nodes = self._caches.get((layer, part))
        if nodes is None:
            if not tensors:
                raise MissingTensor(f"a cache of layer {layer}")
            nodes = tuple(self.stored(Slot("cache", "", layer), t.kind, *t.ne) for t in tensors)
            self._caches[layer, part] = nodes
        return nodes

    def layer(self, index: int) -> Layer:
        return self.model.layers[index]

    @property
    def n_expert_used(self) -> int:
        """Experts a token. Raises MissingTensor where the header does not say."""
        if not 0 < self.model.n_expert_used <= _MAX_EXPERTS_USED:
            raise MissingTensor("the number of experts used")
        return self.model.n_expert_used

    @property
    def expert_weights_scale(self) -> bool:
        """Whether the experts' weights are scaled: by a factor that is neither 0 nor 1."""
        scale = self.model.value("expert_weights_scale")
        return isinstance(scale, int | float) and scale != 0 and abs(scale - 1) > 1e-5

    @property
    def expert_weights_norm(self) -> bool:
        """Whether the chosen experts' weights are made to sum up to 1."""
        return bool(self.model.value("expert_weights_norm"))

    @property
    def gating(self) -> Gating:
        """The router's activation: softmax | sigmoid | softplus, of which DeepSeek V4 takes the root."""
        default = 2 if architecture(self.model.architecture).sigmoid_router else 1
        function = self.model.int_value("expert_gating_func", default)
        return "sigmoid" if function == 2 else "softplus" if function == _SQRT_SOFTPLUS else "softmax"

    def chances(self, layer: int, logits: Node, gating: Gating) -> Node:
        """Return what the router makes of its logits; with softplus before the root is taken."""
        bias = self.optional(layer, "ffn_gate_inp.bias")
        if bias is not None:
            logits = self.add(logits, bias)
        return logits if gating == "weight" else self.apply("SOFT_MAX" if gating == "softmax" else "UNARY", logits)

    def expert_weights(self, chances: Node, ids: Node, gating: Gating, *, norm: bool, scale: bool) -> Node:
        """Return the weights [1, used, tokens] of the chosen experts, made to sum up to 1 (`norm`), and scaled."""
        (n_expert, n_tokens), used = chances.ne[:2], ids.ne[0]
        weights = self.get_rows(self.reshape(chances, 1, n_expert, n_tokens), ids)
        if gating == "weight":
            weights = self.apply("SOFT_MAX", self.reshape(weights, used, n_tokens))
            weights = self.reshape(weights, 1, used, n_tokens)
        if norm:
            weights = self.reshape(weights, used, n_tokens)
            total = self.guarded(self.new("SUM_ROWS", "f32", (1, n_tokens), weights))
            weights = self.reshape(self.apply("DIV", weights, total), 1, used, n_tokens)
        if scale:
            weights = self.apply("SCALE", weights)
        self.expand(weights)
        return weights

    def guarded(self, total: Node) -> Node:
        """Return a sum of weights that is kept off zero."""
        return self.apply("CLAMP", total)

    def limited(self, key: str, layer: int) -> bool:
        """Whether the header's `key`, a number or one a layer, is above zero for `layer`."""
        value = self.model.value(key)
        if isinstance(value, list):
            value = value[layer] if layer < len(value) else 0
        return isinstance(value, int | float) and value > 1e-6

    def given(self, key: str, default: float = 0.0) -> bool:
        """Whether the header's number `key` is not zero."""
        value = self.model.value(key, default)
        return isinstance(value, int | float) and value != 0
