"""Memory of every device: weights, cache and compute buffer, as the engine will print them, and what it will not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from service.engine.builds.rules import TODAY, MemoryRules
from service.engine.config import Engine, Flags, Placement
from service.engine.estimate import Estimate
from service.engine.memory.allocator import allocate
from service.engine.memory.cache import cache_tensors
from service.engine.memory.closed_form import rough_compute
from service.engine.memory.contents import Contents
from service.engine.memory.figures import DeviceBytes, Memory
from service.engine.memory.graph import CUDA_ALIGNMENT, Slot, geometry
from service.engine.memory.graphs import graph_of, repeats_of
from service.engine.memory.graphs.repeats import NotRepeating, Repeats, slots_of
from service.engine.memory.layered import Rules
from service.engine.memory.merged import CONFIRMED, merges
from service.engine.memory.offload import lacks_kernels, stays_in_ram
from service.engine.memory.overhead import gpu_overhead
from service.engine.memory.placement import ROPE_FACTORS, place
from service.engine.memory.replay import Replay
from service.engine.memory.scheduler import Schedule, SchedulerOptions, node_devices, schedule
from service.engine.memory.shares_ik import (
    Shares,
    can_share,
    card_shares,
    exchange_buffer,
    exchange_limit,
    in_parts,
    reduce_type,
)
from service.engine.memory.slices import Slices
from service.engine.memory.spec import Allocator, GraphSpec, Tool, one_token_each
from service.engine.memory.split_modes import splits_graph
from service.engine.memory.stored import reserved_bytes
from service.engine.model import Model
from service.engine.units import MIB, pad

_EXCHANGE_BYTES = 32 * MIB
_PIPELINE_COPIES = 4  # llama.cpp GGML_SCHED_MAX_COPIES; ik builds with 1
_HEAD_COMES_FIRST = frozenset({"gemma3n", "gemma4"})  # llama.cpp makes the head before there is an embedding to share


def predict_memory(
    engine: Engine, model: Model, flags: Flags, free: Sequence[int], *, allocator: Allocator = "cuda",
    tool: Tool = "server", rules: MemoryRules | None = None,
) -> Memory:  # fmt: skip
    """Return the memory of every device. `free`: bytes free on each GPU, in the engine's order.

    `allocator` "cuda" is a real context on real cards; "lab" the rig that the lab data was measured on: devices
    without CUDA's paddings and kernels, for llama.cpp what llama-fit-params reports. `tool` decides llama.cpp's rows of
    logits: one a slot for the server, a whole batch for the benchmark. `rules`: of an older build, whose figures are
    never better than source only; None: today's. Raises InvalidFlags.
    """
    if engine == "ik_llama.cpp" and allocator == "lab" and flags.n_gpu_layers == 0:
        return _without_gpus(model, flags, free, tool, rules)
    if engine == "llama.cpp" and flags.split_mode == "tensor" and free:
        return _sliced(model, flags, free, allocator, tool, rules)
    if engine == "ik_llama.cpp" and flags.split_mode in ("graph", "attn") and len(free) > 1:
        return _shared(model, flags, free, allocator, tool, rules)
    placement = place(engine, model, flags, free, rules or TODAY)
    return predict_placed(engine, model, flags, placement, allocator=allocator, tool=tool, rules=rules)


def predict_placed(
    engine: Engine, model: Model, flags: Flags, placement: Placement, *, allocator: Allocator = "cuda",
    tool: Tool = "server", rules: MemoryRules | None = None,
) -> Memory:  # fmt: skip
    """Return the memory of every device under a placement that is known. Raises InvalidFlags."""
    return _Prediction(engine, model, flags, placement, allocator, tool, rules).memory()


def _without_gpus(
    model: Model, flags: Flags, free: Sequence[int], tool: Tool, rules: MemoryRules | None
) -> Memory:  # fmt: skip
    """ik's rig makes no device at all at -ngl 0."""
    placement = place("ik_llama.cpp", model, flags, ())
    memory = _Prediction("ik_llama.cpp", model, flags, placement, "lab", tool, rules).memory()
    idle = DeviceBytes(0, 0, 0, 0, 0, Estimate(0, 0, 0))
    return msgspec.structs.replace(
        memory,
        devices=(idle,) * len(free) + memory.devices,
        placement=place("ik_llama.cpp", model, flags, free),
    )


def _sliced(
    model: Model, flags: Flags, free: Sequence[int], allocator: Allocator, tool: Tool, rules: MemoryRules | None
) -> Memory:  # fmt: skip
    """llama.cpp's `-sm tensor`: all cards are one to the scheduler, and each has its slice of what is stored."""
    by_layer = place("llama.cpp", model, flags, free)
    together = msgspec.structs.replace(flags, split_mode="layer", tensor_split=(), flash_attn="on")
    placement = place("llama.cpp", model, together, [sum(free)])
    prediction = _Sliced("llama.cpp", model, together, placement, allocator, tool, rules)
    memory = prediction.memory()
    devices = prediction.on_cards(memory.devices, Slices(model, len(free), flags.tensor_split))
    undealt = model.recurrent is not None and not model.recurrent.state_size
    basis = "approximate" if undealt else memory.basis
    return msgspec.structs.replace(memory, devices=devices, placement=by_layer, basis=basis)


def _shared(
    model: Model, flags: Flags, free: Sequence[int], allocator: Allocator, tool: Tool, rules: MemoryRules | None
) -> Memory:  # fmt: skip
    """ik's `-sm graph`: every card has its share of each layer. The engine places other architectures by layer."""
    if not splits_graph(model):
        by_layer = msgspec.structs.replace(flags, split_mode="layer")
        return predict_memory("ik_llama.cpp", model, by_layer, free, allocator=allocator, tool=tool, rules=rules)
    placement = place("ik_llama.cpp", model, flags, free, rules or TODAY)
    if rules is not None or not can_share(model, flags):
        return predict_placed("ik_llama.cpp", model, flags, placement, allocator=allocator, tool=tool, rules=rules)
    prediction = _Shared("ik_llama.cpp", model, flags, placement, allocator, tool, rules)
    prediction.share_out(Shares(model, placement, card_shares(flags, free)))
    return prediction.memory()


class _Computed(NamedTuple):
    """Compute buffers by device, with the graph's splits and nodes; `known`: the graph is the architecture's own."""

    buffers: tuple[int, ...]
    n_splits: int
    n_nodes: int
    known: bool


class _Prediction(Contents):
    """One prediction: what all parts of it need."""

    def __init__(
        self, engine: Engine, model: Model, flags: Flags, placement: Placement, allocator: Allocator, tool: Tool,
        rules: MemoryRules | None,
    ) -> None:  # fmt: skip
        super().__init__(engine, model, flags, placement, allocator, tool, rules)
        self.older = rules is not None
        if engine == "llama.cpp" and self.cuda and flags.flash_attn == "auto" and not self._flash_attention_runs():
            self.spec = msgspec.structs.replace(self.spec, flash_attn=False)

    def memory(self) -> Memory:
        weights, kv = self.weights(), self.caches()
        derived = self.derived()
        found = self._compute(self.spec)
        compute = found.buffers
        if self._tokens_may_need_more:
            compute = tuple(map(max, compute, self._compute(one_token_each(self.spec)).buffers))
        later = compute
        if self._reserves_before_the_policy:
            found = self._compute(self.spec, as_loaded=True)
            compute = found.buffers
        over = [
            self._overhead(d, max(0, after - now)) for d, (now, after) in enumerate(zip(compute, later, strict=True))
        ]
        outputs = [0] * self.cpu + [4 * self.model.n_vocab * max(1, self.flags.n_parallel)]
        devices = tuple(map(DeviceBytes, weights, kv, compute, outputs, derived, over))
        return Memory(devices, self.given[1], found.n_splits, found.n_nodes, self._basis(found.known))

    def _overhead(self, device: int, growth: int) -> Estimate:
        """What no engine prints; `growth`: what the compute buffer takes more once the command's policy holds."""
        if device == self.cpu or not self.cuda:
            return Estimate(growth, growth, growth)
        found = gpu_overhead(self.engine, self.model, self.spec, self.placement, device)
        return Estimate(found.low + growth, found.expected + growth, found.high + growth)

    def _basis(self, known: bool) -> str:
        known = known and self.spec.rules.described
        if not known or self.flags.split_mode not in ("layer", "none"):
            return "approximate"
        if self.engine == "llama.cpp":
            return "source only" if self.older else "measured"
        if self._beyond_the_graphs:
            return "approximate"
        return "source only" if self.older or self.spec.next_tokens else "measured"

    @property
    def _beyond_the_graphs(self) -> bool:
        """Caches in q8_KV, which CUDA cannot write; weights on a card that cannot multiply by their type; `-sm none`
        with several cards, over which ik still spreads caches.
        """
        if merges(self.flags) and self.model.architecture not in CONFIRMED:
            return True
        spread = self.flags.split_mode == "none" and self.cpu > 1
        caches = "q8_KV" in (self.spec.type_k, self.spec.type_v)
        return self.cpu > 0 and (spread or caches or (self.cuda and lacks_kernels(self.model, self.placement)))

    # -- compute buffers -----------------------------------------------------------------------------------------

    def _compute(self, spec: GraphSpec, *, as_loaded: bool = False) -> _Computed:
        repeats, known = repeats_of(self.model, spec)
        if repeats is not None:
            try:
                return _Computed(*self._by_layer(repeats, as_loaded=as_loaded).compute(), known)
            except NotRepeating:
                pass
        return self._whole_graph(spec, as_loaded=as_loaded)

    def _whole_graph(self, spec: GraphSpec, *, as_loaded: bool) -> _Computed:
        graph, known = graph_of(self.model, spec)
        if graph is None:
            return _Computed(rough_compute(self.model, self.spec, self.placement), 0, 0, False)
        options = self._options(graph.slots, as_loaded=as_loaded)
        plan = schedule(graph, [self._device_of(slot) for slot in graph.slots], self.cpu, options)
        self._note(plan)
        return _Computed(allocate(plan, self.cpu), plan.n_splits, len(graph.nodes), known)

    def _note(self, plan: Schedule) -> None:
        """For what else a mode needs to know of the schedule."""

    def _by_layer(self, repeats: Repeats, *, few_tokens: bool = False, as_loaded: bool = False) -> Replay:
        options = self._options((), few_tokens=few_tokens, as_loaded=as_loaded)
        rules = Rules(
            self.cpu, options.offload, options.first, options.cuda, bool(options.pin_devices), options.kernels,
            options.fused, options.ram_pins, options.n_copies,
        )  # fmt: skip
        slots, layers = slots_of(repeats, self.model), self.placement.layers[: len(repeats.segment_of)]
        return Replay(repeats, slots, self._device_of, layers, self._stays_in_ram, rules)

    def _flash_attention_runs(self) -> bool:
        """llama.cpp's `-fa auto` is off where a layer's attention would not run on its device (llama-context.cpp:533).

        That is tried with one token a sequence. A quantised cache of values needs it, and so turns it on.
        """
        if geometry(self.spec.type_v)[0] > 1:
            return True
        spec, moved = one_token_each(self.spec), bool(self.flags.overrides or self.flags.no_kv_offload)
        repeats, _ = repeats_of(self.model, spec)
        if repeats is not None:
            if not (moved or repeats.lacks_kernels):
                return True
            try:
                return self._by_layer(repeats, few_tokens=True).flash_attention_stays(self.placement.layers)
            except NotRepeating:
                pass
        graph = graph_of(self.model, spec).graph
        if graph is None or not (graph.without_kernel or moved):
            return True
        options = self._options(graph.slots, few_tokens=True)
        devices = node_devices(graph, [self._device_of(slot) for slot in graph.slots], self.cpu, options)
        return all(devices[t] == self.placement.layers[layer] for t, layer in graph.flash_layers)

    @property
    def _tokens_may_need_more(self) -> bool:
        """Attention of layers in RAM runs on the CPU for few tokens, on a card for a batch."""
        in_ram = self.cpu > 0 and self.cpu in self.placement.caches
        large = not self.spec.flash_attn or self.model.recurrent or "f32" in (self.spec.type_k, self.spec.type_v)
        return self.engine == "llama.cpp" and self.cuda and in_ram and bool(large)

    @property
    def _reserves_before_the_policy(self) -> bool:
        """ik sets `-op` on a context whose buffers are there (common.cpp:4085); a batch may only make them larger."""
        return self.engine == "ik_llama.cpp" and not self.flags.op_offload

    def _device_of(self, slot: Slot) -> int:
        if slot.kind == "cache":
            device = self.placement.caches[slot.layer]
            return self.cpu if device is None else device
        return self.ropes[slot.layer] if slot.kind == "rope" else self.placement.tensors[slot.name]

    def _options(
        self, slots: Sequence[Slot], *, few_tokens: bool = False, as_loaded: bool = False
    ) -> SchedulerOptions:  # fmt: skip
        llama, whole = self.engine == "llama.cpp", self.flags.n_gpu_layers > self.model.n_layer
        moved = self.flags.overrides or self.flags.cpu_moe or self.flags.n_cpu_moe
        pipeline = (
            self._n_copies > 1 and self.cpu > 1 and whole and not moved and not self.flags.no_kv_offload
            and self.flags.split_mode == "layer"
        )  # fmt: skip
        pinned = llama and self.cuda and (whole or few_tokens or self.spec.n_tokens < 32)
        return SchedulerOptions(
            n_copies=self._n_copies if pipeline else 1,
            offload=self.flags.op_offload or as_loaded,
            first=(self.flags.main_gpu or 0) if self.flags.split_mode == "none" else 0,
            cuda=self.cuda,
            pin_devices=self.placement.layers if pinned else (),
            kernels=llama and self.cuda,
            ram_pins=self.cuda and self.flags.no_kv_offload,
            in_ram=self._stays_in_ram(slots),
        )

    def _stays_in_ram(self, slots: Sequence[Slot]) -> frozenset[int]:
        if not self.cuda:
            return frozenset()
        without = self.spec.rules.only_in_ram
        return stays_in_ram(self.engine, self.model, slots, repack=self._repacks, without=without)

    @property
    def _n_copies(self) -> int:
        return _PIPELINE_COPIES if self.engine == "llama.cpp" else self.spec.rules.n_copies

    @property
    def _repacks(self) -> bool:
        return self.engine == "ik_llama.cpp" and self.flags.runtime_repack


class _Shared(_Prediction):
    """Weights and caches shared out over all cards; the compute buffers are those of whole layers where the graph in
    parts is not described.
    """

    shares: Shares
    arrivals: Sequence[tuple[int, int | None]] = ()

    def share_out(self, shares: Shares) -> None:
        """Take the shares, and the graph in parts where it is described."""
        self.shares = shares
        self.in_parts = in_parts(self.model, self.spec, shares)
        if self.in_parts:
            self.spec = msgspec.structs.replace(self.spec, cards=shares.on_cards(self.flags))

    def _compute(self, spec: GraphSpec, *, as_loaded: bool = False) -> _Computed:
        if not self.in_parts:
            return super()._compute(spec, as_loaded=as_loaded)
        return self._whole_graph(spec, as_loaded=as_loaded)

    def _note(self, plan: Schedule) -> None:
        self.arrivals = plan.arrivals

    def _device_of(self, slot: Slot) -> int:
        return slot.card if slot.card >= 0 else super()._device_of(slot)

    def _basis(self, known: bool) -> str:
        exact = known and self.in_parts and self.cuda and not self._beyond_the_graphs
        return "measured" if exact and reduce_type(self.model, self.flags) != "bf16" else "approximate"

    def _overhead(self, device: int, growth: int) -> Estimate:
        """With what cards take at the first batch to exchange their parts."""
        if device < self.cpu and self.in_parts and self.cuda:
            arrivals = [n for card, n in self.arrivals if card == device]
            growth += exchange_buffer(arrivals, exchange_limit(self.flags))
        return super()._overhead(device, growth)

    def weights(self) -> list[int]:
        total = [a + b for a, b in zip(super().weights(), (*self.shares.weights, 0), strict=True)]
        reserved = reserved_bytes(self.model)
        for name in self.shares.cuts.keys() - set(ROPE_FACTORS):
            total[self.placement.tensors[name]] -= reserved[name] if self.cuda else self.model.by_name[name].nbytes
        return total

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
        return total


class _Sliced(_Prediction):
    """A model on cards that the scheduler sees as one, which takes no work on weights in RAM and fuses no kernels."""

    def _options(
        self, slots: Sequence[Slot], *, few_tokens: bool = False, as_loaded: bool = False
    ) -> SchedulerOptions:  # fmt: skip
        return replace(super()._options(slots, few_tokens=few_tokens), offload=False, fused=False)

    def on_cards(self, together: tuple[DeviceBytes, ...], slices: Slices) -> tuple[DeviceBytes, ...]:
        """Return the bytes on each card, and in RAM, of what all cards hold together."""
        one, ram = together
        weights, kv = self._sliced_weights(slices), self._sliced_caches(slices)
        cards = (
            msgspec.structs.replace(one, weights=w, kv=k, overhead=self._with_exchange(one.overhead, len(kv)))
            for w, k in zip(weights, kv, strict=True)
        )
        return (*cards, ram)

    def _sliced_weights(self, slices: Slices) -> list[int]:
        shared = sum(pad(t.nbytes, CUDA_ALIGNMENT) for t in self.model.tensors if t.name in ROPE_FACTORS)
        total = [shared if 0 in self.ropes else 0] * slices.n_cards
        for name, device in self.placement.tensors.items():
            if device == 0 and name not in ROPE_FACTORS:
                total = [a + b for a, b in zip(total, slices.weight(name), strict=True)]
        return total

    def _sliced_caches(self, slices: Slices) -> list[int]:
        total = [0] * slices.n_cards
        for layer, device in enumerate(self.placement.caches):
            if device == 0:
                facts = self.model.layers[layer]
                parts = slices.cache(facts, cache_tensors(self.model, self.spec, facts))
                total = [a + b for a, b in zip(total, parts, strict=True)]
        return total

    def _with_exchange(self, overhead: Estimate, n_cards: int) -> Estimate:
        """Two cards add up their results in a buffer of 32 MiB each (ggml-cuda/allreduce.cu:242), or by NCCL."""
        if n_cards != 2 or not self.cuda:
            return overhead
        low, expected, high = (n + _EXCHANGE_BYTES for n in (overhead.low, overhead.expected, overhead.high))
        return Estimate(low, expected, high, overhead.basis)
