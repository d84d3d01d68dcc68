"""Memory of every device: weights, cache and compute buffer as the engine prints them, and what it does not print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

import msgspec

from service.engine.engines import engine_spec
from service.engine.kept import kept
from service.engine.memory.contents import Contents
from service.engine.memory.figures import DeviceBytes, Memory
from service.engine.memory.graph import Slot, geometry
from service.engine.memory.graphs import graphs_of
from service.engine.memory.graphs.owners import NotRepeating
from service.engine.memory.graphs.segments import slots_of
from service.engine.memory.least import rough_compute
from service.engine.memory.overhead import expert_cache
from service.engine.memory.replay import Replay
from service.engine.memory.scheduler import SchedulerOptions
from service.engine.memory.spec import GraphSpec, one_token_each
from service.engine.run.resolved import ResolvedRun

Found = TypeVar("Found")


@kept
def predict_memory(run: ResolvedRun) -> Memory:
    """Return the memory of every device. Figures for an older build are `source only` at best.

    Raises InvalidFlags for cache types and split modes that the engine refuses.
    """
    split = engine_spec(run.engine).memory.predict_split(run)
    return MemoryPrediction(run).memory() if split is None else split


def as_started(run: ResolvedRun) -> ResolvedRun:
    """Return the run as its engine starts it: without pipeline parallelism if the copies for it do not fit, and the
    build then continues without. Raises InvalidFlags.
    """
    if len(run.devices) < 2 or not run.rules.gives_up_pipeline or run.allocator != "cuda":
        return run
    memory = predict_memory(run)
    if all(memory.total(i).expected <= device.free for i, device in enumerate(run.devices)):
        return run
    without = msgspec.structs.replace(run, build=msgspec.structs.replace(run.build, max_copies=1))
    return run if predict_memory(without).devices == memory.devices else without


class Computed(NamedTuple):
    """Compute buffers by device, with the graph's splits and nodes; `known`: the graph is the architecture's own."""

    buffers: tuple[int, ...]
    n_splits: int
    n_nodes: int
    known: bool


class MemoryPrediction(Contents):
    """One prediction: what all parts of it need."""

    def __init__(self, run: ResolvedRun) -> None:
        super().__init__(run)
        tries = self.allocates.tries_flash_attention and self.cuda and run.flags.flash_attn == "auto"
        if tries and not self._flash_attention_runs():
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
            self.overhead(d, max(0, after - now)) for d, (now, after) in enumerate(zip(compute, later, strict=True))
        ]
        outputs = [0] * self.cpu + [4 * self.model.n_vocab * max(1, self.flags.n_parallel)]
        devices = tuple(map(DeviceBytes, weights, kv, compute, outputs, derived, over))
        return Memory(devices, self.run.placement, found.n_splits, found.n_nodes, self.basis(found.known))

    def basis(self, known: bool) -> str:
        """Return how certain the figures are. `known`: the graph is the architecture's own."""
        known = known and self.spec.rules.described
        if not known or self.flags.split_mode not in ("layer", "none"):
            return "approximate"
        found = self.allocates.basis(self, older=self.run.older)
        cached = any(expert_cache(self.model, self.flags, self.placement, d) for d in range(self.cpu))
        return "source only" if cached and found == "measured" else found

    def _compute(self, spec: GraphSpec, *, as_loaded: bool = False) -> Computed:
        found = self._replayed(spec, self._options(as_loaded=as_loaded), self._computed)
        return found or Computed(rough_compute(self.model, self.spec, self.placement), 0, 0, False)

    def _computed(self, replay: Replay) -> Computed:
        buffers, n_splits = replay.compute()
        return Computed(buffers, n_splits, replay.graph.n_nodes, replay.graph.known)

    def _replayed(self, spec: GraphSpec, options: SchedulerOptions, use: Callable[[Replay], Found]) -> Found | None:
        """Return the result of `use` on the graph's replay, by layer if possible; None where there is no graph."""
        graphs = graphs_of(self.run.model)
        for graph_of in (graphs.by_layer, graphs.in_one_piece):
            graph = graph_of(self.model, spec)
            if graph is None:
                break
            slots = slots_of(graph, self.model)
            with suppress(NotRepeating):
                return use(Replay(graph, slots, self._devices_of, self.stays_in_ram, options))
        return None

    def _flash_attention_runs(self) -> bool:
        """llama.cpp's `-fa auto` is off where a layer's attention would not run on its device (llama-context.cpp:533).

        That is tried with one token a sequence. A quantised cache of values needs it, and so turns it on.
        """
        if geometry(self.spec.type_v)[0] > 1:
            return True
        spec = one_token_each(self.spec)
        graph = graphs_of(self.run.model).by_layer(self.model, spec)
        if graph is None or not (self.flags.overrides or self.flags.no_kv_offload or graph.lacks_kernels):
            return True
        return self._replayed(spec, self._options(few_tokens=True), Replay.flash_attention_stays) is not False

    @property
    def _tokens_may_need_more(self) -> bool:
        """Whether the graph of single tokens may need larger buffers on a card than the batch's.

        What is in RAM runs on the CPU for few tokens, but on a card for a batch. So does attention, and the
        feed-forward, whose result then goes to a card that may hold nothing but the head.
        """
        if not (self.allocates.reserves_single_tokens and self.cuda and self.cpu > 0):
            return False
        chooses = self.model.int_value("attention.indexer.key_length")
        large = not self.spec.flash_attn or "f32" in (self.spec.type_k, self.spec.type_v)
        if self.cpu in self.placement.caches and (large or self.model.recurrent or chooses):
            return True
        flags = self.flags
        moved = flags.overrides or flags.cpu_moe or flags.n_cpu_moe
        return bool(moved) and self.placement.head not in self.placement.caches

    @property
    def _reserves_before_the_policy(self) -> bool:
        """Whether the engine reserves buffers before it reads that nothing is copied for batches, which then may only
        enlarge them."""
        return self.allocates.reserves_before_policy and not self.flags.op_offload

    def _devices_of(self, slots: Sequence[Slot]) -> tuple[int, ...]:
        tensors = self.placement.tensors
        return tuple([
            tensors[slot.name] if slot.kind == "weight" and slot.card < 0 else self._device_of(slot) for slot in slots
        ])  # fmt: skip

    def _device_of(self, slot: Slot) -> int:
        if slot.card >= 0:
            return slot.card
        if slot.kind == "cache":
            device = self.placement.caches[slot.layer]
            return self.cpu if device is None else device
        if slot.kind == "layer":
            return self.placement.layers[slot.layer]
        return self.ropes[slot.layer] if slot.kind == "rope" else self.placement.tensors[slot.name]

    def _options(self, *, few_tokens: bool = False, as_loaded: bool = False) -> SchedulerOptions:
        kernels, whole = self.allocates.checks_kernels and self.cuda, self.flags.n_gpu_layers > self.model.n_layer
        pipeline = self._n_copies > 1 and self.cpu > 1 and self.run.may_pipeline
        return SchedulerOptions(
            cpu=self.cpu,
            n_copies=self._n_copies if pipeline else 1,
            offload=self.cpu > 0 and (self.flags.op_offload or as_loaded),
            first=self.flags.first_gpu,
            cuda=self.cuda,
            pinned=kernels and (whole or few_tokens or self.spec.n_tokens < 32),
            kernels=kernels,
            ram_pins=self.cuda and self.flags.no_kv_offload,
            most_inputs=self.allocates.most_split_inputs,
            shares_ropes=self.allocates.rope_factors_for_each != "layer",
        )

    @property
    def _n_copies(self) -> int:
        return self.allocates.pipeline_copies or self.spec.rules.n_copies
