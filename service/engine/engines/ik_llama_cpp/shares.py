"""ik_llama.cpp's `-sm graph`: the bytes of each card's share of every layer's weights and cache.

Heads and feed-forward columns are divided in chunks that keep blocks of a quantised type whole, with what a card
holds already weighed in; norms and routers are on every card. The head and what is overridden are not shared.
Source: ik src/llama-load-tensors.cpp:395-455 (create_split), 5328-5765; llama.cpp:1248-1590 (cache).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from service.engine.config import Flags, Placement
from service.engine.engines.ik_llama_cpp import ARCHITECTURES
from service.engine.engines.ik_llama_cpp.placement import usable
from service.engine.gguf.header import Tensor
from service.engine.kept import kept
from service.engine.layers import Layer
from service.engine.memory.cache import CacheTensor
from service.engine.memory.device_shares import f32, split_shares
from service.engine.memory.graph import geometry, row_size
from service.engine.memory.spec import CardShares, GraphSpec
from service.engine.model import Model
from service.engine.run.overrides import matching_names
from service.engine.run.resolved import ResolvedRun
from service.engine.run.settings import loads_next_tokens, option_value
from service.engine.units import MIB

_OTHER_SHARES = frozenset({"-mqkv", "--merge-qkv", "-muge", "--merge-up-gate-experts", "-max-gpu", "--max-gpu"})
_MAX_EXTRA_MIB = 256
_ROW_PADDING = 512
_FEED_FORWARD = ("ffn_{}.weight", "ffn_{}_exps.weight", "ffn_{}_shexp.weight")
_LAST_OF_A_PART = ("attn_output.weight", "ffn_down.weight", "ffn_down_exps.weight", "ffn_down_shexp.weight")
_ON_EVERY_CARD = ("attn_norm.weight", "ffn_norm.weight", "post_attention_norm.weight", "exp_probs_b.bias")
_WHOLE = ("attn_q_a.weight", "attn_kv_a_mqa.weight", "ffn_gate_inp.weight")  # on every card, as vectors are


def can_share(model: Model, flags: Flags) -> bool:
    """Return whether the shares are known: these architectures, all layers on cards, attention not overridden."""
    if flags.split_mode != "graph":
        return False
    moved = [name for rule in flags.overrides for name in matching_names(model, rule.pattern)]
    next_tokens = bool(model.n_layer_nextn) and loads_next_tokens(flags)
    return (
        model.architecture in ARCHITECTURES.having("shares_described")
        and flags.n_gpu_layers > model.n_layer
        and all("_exps." in name or ".ffn_" in name for name in moved)
        and partly_moved(model, moved) is None
        and "blk.0.attn_qkv.weight" not in model.by_name
        and not (flags.no_kv_offload or next_tokens or {option.split()[0] for option in flags.other} & _OTHER_SHARES)
    )


def partly_moved(model: Model, moved: Collection[str]) -> int | None:
    """Return the first block of whose experts' matrices some, but not all, are among `moved`."""
    for layer in model.moe_layers:
        experts = [t.name for t in model.by_layer[layer] if t.name.endswith("_exps.weight")]
        if 0 < len(set(experts) & set(moved)) < len(experts):
            return layer
    return None


def reduce_type(model: Model, flags: Flags) -> str:
    """Return the type in which cards add up their parts: `-grt`, `-smf16`, `-smf32`; f16, or for gpt-oss f32."""
    kinds = {"-smf16": "f16", "--split-mode-f16": "f16", "-smf32": "f32", "--split-mode-f32": "f32"}
    found = "f16"
    for name, _, value in (option.partition(" ") for option in flags.other):
        found = value if name in ("-grt", "--graph-reduce-type") else kinds.get(name, found)
    return "f32" if found == "f16" and model.architecture == "gpt-oss" else found  # src/llama.cpp:8226


def in_parts(model: Model, spec: GraphSpec, shares: Shares) -> bool:
    """Return whether the graph in parts is described: not where the engine stops, nor Mixtral's, which stays whole."""
    mixtral = model.architecture == "llama" and bool(model.moe_layers)
    return spec.flash_attn and not mixtral and shares.left_alone() is None


def graph_split_aborts(run: ResolvedRun) -> str | None:
    """Return why ik_llama.cpp stops at its first graph with a run's `-sm graph`, None where it does not.

    Cards add up their parts, of which there have to be two. Tried with build 8337e4cd3. Raises InvalidFlags.
    """
    if len(run.devices) < 2 or not can_share(run.model, run.flags):
        return None
    found = shares_of(run).left_alone()
    if found is None:
        return None
    return f"-sm graph leaves {found[0]} to CUDA{found[1]} alone, and the engine stops: nothing to add up"


def exchange_buffer(arrivals: Sequence[int | None], limit: int) -> int:
    """Return the bytes that a card takes at its first batch to receive what others send it, by split of this card.

    Enough for as many splits as `limit` (`-mea`) allows, none where that is less than three (ggml-backend.cpp:2664).
    """
    size = most = last = 0
    for i, n in enumerate(arrivals):
        if n is None:
            continue
        if size + n > limit:
            if i - last < 3:
                return 0
            most, size, last = max(most, size), 0, i - 1
        size += n
    return max(most, size)


def exchange_limit(flags: Flags) -> int:
    """Return `-mea` in bytes; 0 where rules for tensors turn the scheduling off that it belongs to."""
    if flags.overrides and not {"-smgs", "--split-mode-graph-scheduling"} & set(flags.other):
        return 0
    asked = option_value(flags.other, ("-mea", "--max-extra-alloc")) or ""
    return (int(asked) if asked.isdecimal() and len(asked) < 7 else _MAX_EXTRA_MIB) * MIB


def apportioned(n: int, step: int, shares: Sequence[float], held: Sequence[int]) -> list[int]:
    """Return how many of `n` elements each card gets, in multiples of `step`. `shares`: running sums up to 1."""
    n_chunks, total = n // step, f32(1 + sum(held))
    wanted, last = [], 0.0
    for share, bytes_held in zip(shares, held, strict=True):
        own, last = f32(share - last), share
        wanted.append(f32(f32(own + f32(own - f32(f32(bytes_held) / total))) * n_chunks))
    parts = [max(0, math.floor(w + 0.5)) for w in wanted]
    cards = range(len(shares))
    while sum(parts) > n_chunks:
        parts[max((i for i in cards if parts[i]), key=lambda i: f32(parts[i] - wanted[i]))] -= 1
    while sum(parts) < n_chunks:
        parts[max(cards, key=lambda i: f32(wanted[i] - parts[i]))] += 1
    return [chunks * step for chunks in parts]


def _padding(kind: str, n: int) -> int:
    """Return the bytes after a slice with rows of `n`: a split buffer pads every type (ik ggml-cuda.cu:862)."""
    return row_size(kind, -n % _ROW_PADDING + n) - row_size(kind, n)


def _cut_row(kind: str, n: int) -> int:
    """Return the bytes of `n` elements where a slice may end within a block, of which it counts a part (ERNIE's)."""
    block, size, meta = geometry(kind)
    return meta + n * size // block


@lru_cache(maxsize=4096)
def _slice_bytes(kind: str, dims: tuple[int, ...], axis: int, n: int) -> tuple[int, int]:
    """Return the bytes of `n` elements along `axis` (-1: of all), and of the padding after them."""
    own = [n if i == axis else d for i, d in enumerate(dims)]
    return _cut_row(kind, own[0]) * math.prod(own[1:]), _padding(kind, own[0])


@kept
def shares_of(run: ResolvedRun) -> Shares:
    """Return the shares of a run's model by today's build."""
    return Shares(run.model, run.placement, split_shares(run.flags.tensor_split, usable(run.flags, run.free)))


class Shares:
    """The shares of one model on several cards. `weights`: bytes by card; the rest is where the placement has it."""

    def __init__(self, model: Model, placement: Placement, shares: Sequence[float]) -> None:
        self.model, self.placement, self.shares = model, placement, shares
        self.held = [0] * len(shares)
        self.weights = [0] * len(shares)
        self.cuts: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.heads: dict[int, tuple[list[int], list[int]]] = {}
        for layer in model.layers:
            if placement.layers[layer.index] < len(shares) and layer.kind == "attention":
                tensors = {t.name.split(".", 2)[2]: t for t in self.model.by_layer[layer.index]}
                everywhere = [1] * len(self.shares)
                self._put(tensors, "attn_norm.weight", -1, everywhere)
                factors = self.model.by_name.get("rope_freqs.weight")
                if factors is not None:
                    self._put({"": factors}, "", -1, everywhere)
                self._attention(layer, tensors)
                for name in _ON_EVERY_CARD[1:3]:
                    self._put(tensors, name, -1, everywhere)
                self._feed_forward(tensors)
                for name in ("ffn_gate_inp.weight", "ffn_gate_inp.bias", _ON_EVERY_CARD[3]):
                    if name == _ON_EVERY_CARD[3] or self.model.architecture != "llama":
                        self._put(tensors, name, -1, everywhere)

    def left_alone(self) -> tuple[str, int] | None:
        """Return the first matrix of which one card has all, and the card (ggml.c:6179 asserts two parts)."""
        for name, (_, parts) in self.cuts.items():
            if name.endswith(_LAST_OF_A_PART) and sum(n > 0 for n in parts) == 1:
                return name, max(range(len(parts)), key=lambda card: parts[card])
        return None

    def on_cards(self, flags: Flags) -> CardShares:
        """Return what the graph depends on."""
        cuts = tuple((name, axis, parts) for name, (axis, parts) in self.cuts.items())
        main = flags.main_gpu or 0
        return CardShares(cuts, self.placement.tensors["output.weight"], main, reduce_type(self.model, flags))

    def cache(self, layer: Layer, tensors: Sequence[CacheTensor], n_kv: int) -> list[int]:
        """Return the bytes of each card's keys and values; a layer that is not shared has none here."""
        keys, values = self.heads[layer.index]
        kind_k, kind_v = tensors[0].kind, tensors[1].kind
        found = []
        for k, v in zip(keys, values, strict=True):
            size = row_size(kind_k, layer.head_dim_k) * (k // layer.head_dim_k) * n_kv + row_size(kind_v, v * n_kv)
            found.append(size + (_padding(kind_k, layer.head_dim_k) + _padding(kind_v, v * n_kv) if v else 0))
        return found

    def _attention(self, layer: Layer, tensors: Mapping[str, Tensor]) -> None:
        ratio = layer.n_head // layer.n_head_kv
        q, k, out = (tensors[f"attn_{part}.weight"] for part in ("q", "k", "output"))
        step = max(layer.head_dim_v * ratio, geometry(out.type)[0])
        values = apportioned(out.dims[0], step, self.shares, self.held)
        queries = apportioned(q.dims[1], layer.head_dim_k * ratio, self.shares, self.held)
        keys, narrow = [n // ratio for n in queries], [n // ratio for n in values]
        self._put(tensors, "attn_output.weight", 0, values)
        self._put(tensors, "attn_output.bias", -1, values)
        self._put(tensors, "attn_sinks.weight", 0, [n // layer.head_dim_k for n in queries])
        gate = tensors.get("attn_gate.weight")
        if gate is not None:  # one a head or one an element
            by_head = gate.dims[1] != out.dims[0]
            self._put({"": gate}, "", 1, [n // layer.head_dim_k for n in queries] if by_head else values)
        self._projection(tensors, "q", q.dims[1], queries, values)
        whole = self._projection(tensors, "k", k.dims[1], keys, narrow)
        self._put(tensors, "attn_v.weight", 1, narrow)
        self._put(tensors, "attn_v.bias", 0, narrow)
        by_values = [n // layer.head_dim_v * layer.head_dim_k for n in narrow]
        self.heads[layer.index] = (by_values if whole else keys, narrow)

    def _projection(
        self, tensors: Mapping[str, Tensor], part: str, n_rows: int, own: Sequence[int], values: Sequence[int]
    ) -> bool:  # fmt: skip
        """Share the queries or keys; on every card, and then True, where one norm is over all heads."""
        norm = tensors.get(f"attn_{part}_norm.weight")
        whole = norm is not None and norm.dims[0] == n_rows
        self._put(tensors, f"attn_{part}.weight", -1 if whole else 1, values if whole else own)
        self._put(tensors, f"attn_{part}.bias", -1 if whole else 0, values if whole else own)
        self._put(tensors, f"attn_{part}_norm.weight", -1, values if whole else own)
        return whole

    def _feed_forward(self, tensors: Mapping[str, Tensor]) -> None:
        experts: list[int] = []
        for pattern in _FEED_FORWARD:
            names = [pattern.format(part) for part in ("down", "up", "gate")]
            if not all(name in tensors and self._on_cards(tensors[name]) for name in names):
                continue
            down = tensors[names[0]]
            step = max(16, geometry(down.type)[0])
            parts = apportioned(down.dims[0], step, self.shares, self.held)
            if "shexp" in pattern and experts and [n > 0 for n in parts] != [n > 0 for n in experts]:
                total = sum(experts)
                alike = [f32(f32(sum(experts[: i + 1])) / f32(total)) for i in range(len(experts))]
                parts = apportioned(down.dims[0], step, alike, self.held)
            for name in names:
                self._put(tensors, name, 0 if name is names[0] else 1, parts)
                self._put(tensors, name.removesuffix("weight") + "bias", -1 if name is names[0] else 0, parts)
            experts = parts if "exps" in pattern else experts

    def _on_cards(self, tensor: Tensor) -> bool:
        return self.placement.tensors.get(tensor.name, len(self.shares)) < len(self.shares)

    def _put(self, tensors: Mapping[str, Tensor], name: str, axis: int, parts: Sequence[int]) -> None:
        """Give each card its slice along `axis`, or all of the tensor (-1) where it has any share."""
        tensor = tensors.get(name)
        if tensor is None or self.placement.tensors.get(tensor.name, 0) >= len(self.shares):
            return
        self.cuts[tensor.name] = axis, tuple(parts)
        for card, n in enumerate(parts):
            if n:
                size, padding = _slice_bytes(tensor.type, tensor.dims, axis, n)
                self.held[card] += size
                self.weights[card] += size + padding


class RoughShares:
    """The shares where it is not described how the engine cuts: by `-ts`, of each matrix of a layer that is on cards.

    Vectors, routers and a latent model's first projections are on every card, and so is a latent model's cache
    (llama-load-tensors.cpp:4733, engine's log: "MLA replicated"); `-sm attn` leaves the feed-forward part with its
    layer. Next-token layers and what is overridden are not shared.
    """

    def __init__(self, run: ResolvedRun) -> None:
        self.model, placement = run.loaded
        self.shares = split_shares(run.flags.tensor_split, usable(run.flags, run.free))
        n_cards = len(self.shares)
        self.weights = [0] * n_cards
        self.cuts: set[str] = set()
        self.heads: set[int] = set()
        moved = {name for rule in run.flags.overrides for name in matching_names(self.model, rule.pattern)}
        for layer in self.model.layers:
            if placement.layers[layer.index] >= n_cards or layer.kind == "nextn":
                continue
            if (placement.caches[layer.index] or 0) < n_cards:
                self.heads.add(layer.index)
            for tensor in self.model.by_layer[layer.index]:
                part = tensor.name.split(".", 2)[2]
                apart = run.flags.split_mode == "attn" and part.startswith("ffn_")
                if not apart and tensor.name not in moved and placement.tensors.get(tensor.name, n_cards) < n_cards:
                    self.cuts.add(tensor.name)
                    everywhere = len(tensor.dims) == 1 or part in _WHOLE
                    own = [tensor.nbytes] * n_cards if everywhere else divided(tensor.nbytes, self.shares)
                    self.weights = [a + b for a, b in zip(self.weights, own, strict=True)]

    def cache(self, layer: Layer, tensors: Sequence[CacheTensor], n_kv: int) -> list[int]:
        """Return the bytes of each card's part of a layer's cache and state."""
        n_bytes = sum(tensor.n_bytes for tensor in tensors)
        return divided(n_bytes, self.shares) if self.model.mla is None else [n_bytes] * len(self.shares)


def divided(n_bytes: int, shares: Sequence[float]) -> list[int]:
    """Return the bytes of each card, by running sums of shares up to 1."""
    ends = [round(n_bytes * share) for share in shares]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]
