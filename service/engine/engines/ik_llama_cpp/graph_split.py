"""Memory where ik_llama.cpp does not place by layers: `-sm graph` and `-sm attn`; and its rig without GPUs.

Weights and caches of `-sm graph` are shared out over all cards (`shares.py`), roughly where the engine's cuts are not
described; the compute buffers are those of the graph in parts where that is described, else those of whole layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from service.engine.engines.ik_llama_cpp import ARCHITECTURES
from service.engine.engines.ik_llama_cpp.merged import merges
from service.engine.engines.ik_llama_cpp.shares import (
    RoughShares,
    Shares,
    can_share,
    divided,
    exchange_buffer,
    exchange_limit,
    in_parts,
    reduce_type,
    shares_of,
)
from service.engine.estimate import Estimate
from service.engine.memory.cache import cache_tensors
from service.engine.memory.contents import Contents, reserved_bytes
from service.engine.memory.figures import DeviceBytes, Memory
from service.engine.memory.predict import Computed, MemoryPrediction, predict_memory
from service.engine.memory.replay import Replay
from service.engine.model import Model
from service.engine.run.placement import ROPE_FACTORS
from service.engine.run.resolved import ResolvedRun

_MODES = ("graph", "attn")
_CONFIRMED_MERGES = ARCHITECTURES.having("merges_confirmed")


def splits_graph(model: Model) -> bool:
    """Return whether `-sm graph` and `-sm attn` work on `model`'s architecture (src/llama.cpp:3895).

    Anything else is placed by layer, with a line in the log.
    """
    per_layer = model.architecture == "gemma4" and model.int_value("embedding_length_per_layer_input") > 0
    return model.architecture in ARCHITECTURES.having("graph_split") and not per_layer


def predict_graph_split(run: ResolvedRun) -> Memory | None:
    """Return the memory where it is not a sum over a placement by layers, None where it is."""
    if run.allocator == "lab" and run.flags.n_gpu_layers == 0:
        return _without_gpus(run)
    if run.flags.split_mode in _MODES and len(run.devices) > 1:
        return _shared(run)
    return None


def _without_gpus(run: ResolvedRun) -> Memory:
    """The rig makes no device at all at -ngl 0."""
    memory = MemoryPrediction(msgspec.structs.replace(run, devices=()).with_flags(run.flags)).memory()
    idle = DeviceBytes(0, 0, 0, 0, 0, Estimate(0, 0, 0))
    devices = (idle,) * len(run.devices) + memory.devices
    return msgspec.structs.replace(memory, devices=devices, placement=run.placement)


def _shared(run: ResolvedRun) -> Memory:
    """`-sm graph`: every card has its share of each layer. The engine places other architectures by layer."""
    if not splits_graph(run.model):
        return predict_memory(run.with_flags(msgspec.structs.replace(run.flags, split_mode="layer")))
    prediction = _SharedOut(run)
    prediction.share_out(shares_of(run) if can_share(run.model, run.flags) else RoughShares(run))
    return prediction.memory()


class _SharedOut(MemoryPrediction):
    """Weights and caches shared out over all cards; the compute buffers are those of whole layers where the graph in
    parts is not described.
    """

    shares: Shares | RoughShares
    in_parts = False
    arrivals: Sequence[tuple[int, int | None]] = ()

    def share_out(self, shares: Shares | RoughShares) -> None:
        """Take the shares, and the graph in parts where it is described."""
        self.shares = shares
        if isinstance(shares, Shares) and in_parts(self.model, self.spec, shares):
            self.in_parts = True
            self.spec = msgspec.structs.replace(self.spec, cards=shares.on_cards(self.flags))

    def _computed(self, replay: Replay) -> Computed:
        found = super()._computed(replay)
        self.arrivals = replay.arrivals()
        return found

    def basis(self, known: bool) -> str:
        exact = known and self.in_parts and self.cuda and not self.run.older and not beyond_the_graphs(self)
        return "measured" if exact and reduce_type(self.model, self.flags) != "bf16" else "approximate"

    def overhead(self, device: int, growth: int = 0) -> Estimate:
        """With what cards take at the first batch to exchange their parts."""
        if device < self.cpu and self.in_parts and self.cuda:
            arrivals = [n for card, n in self.arrivals if card == device]
            growth += exchange_buffer(arrivals, exchange_limit(self.flags))
        return super().overhead(device, growth)

    def weights(self) -> list[int]:
        total = [a + b for a, b in zip(super().weights(), (*self.shares.weights, 0), strict=True)]
        reserved = reserved_bytes(self.model)
        for name in set(self.shares.cuts) - ROPE_FACTORS:
            total[self.placement.tensors[name]] -= reserved[name] if self.cuda else self.model.by_name[name].nbytes
        return total

    def derived(self) -> list[int]:
        """Made of each card's heads (llama-load-tensors.cpp:4728)."""
        *on_cards, in_ram = super().derived()
        return [*divided(sum(on_cards), self.shares.shares), in_ram]

    def _add_rope_factors(self, total: list[int]) -> None:
        """Shared layers have theirs among the shares."""
        if not self.shares.heads:
            super()._add_rope_factors(total)

    def caches(self) -> list[int]:
        total = [0] * (self.cpu + 1)
        for layer in self.model.layers:
            if layer.index in self.shares.heads:
                parts = self.shares.cache(layer, cache_tensors(self.model, self.spec, layer), self.spec.n_kv)
                total = [a + b for a, b in zip(total, (*parts, 0), strict=True)]
            elif (device := self.placement.caches[layer.index]) is not None:
                total[device] += sum(t.n_bytes for t in cache_tensors(self.model, self.spec, layer))
        return total


def beyond_the_graphs(contents: Contents) -> bool:
    """Return whether figures are rough although the graph is described.

    Caches in q8_KV, which CUDA cannot write; weights on a card that cannot multiply by their type; `-sm none` with
    several cards, over which caches are still spread; merged weights of architectures where they were not compared;
    a cache of which `-nkvo` moves a part.
    """
    if merges(contents.flags) and contents.model.architecture not in _CONFIRMED_MERGES:
        return True
    spread = contents.flags.split_mode == "none" and contents.cpu > 1
    types = "q8_KV" in (contents.spec.type_k, contents.spec.type_v)
    apart = contents.model.architecture == "deepseek4" and contents.flags.no_kv_offload  # compressed rows stay
    return contents.cpu > 0 and (spread or types or apart or contents.lacks_kernels())
