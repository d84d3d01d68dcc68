"""ggml's backend scheduler: the device of every node, the splits between devices, and the copies that they need.

Source: ggml/src/ggml-backend.cpp of both engines (ggml_backend_sched_split_graph).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.engine.memory.graph import Graph
from service.engine.memory.ops import VIEW_OPS
from service.engine.units import pad

_COPY_ALIGNMENT = 256  # ik ggml-backend.cpp:2668
_MAX_SOURCES = 10  # GGML_MAX_SRC


@dataclass(slots=True)
class Schedule:
    """What the allocator replays: the graph's lists with copies and dependencies appended, and the order to run.

    `size` counts what the device's buffer reserves, `permanent` tensors are never freed, `leafs` are (tensor, device).
    `arrivals`: for each split its device and the bytes that other cards send it, None where it waits for nothing.
    """

    order: list[int]
    leafs: list[tuple[int, int]]
    sources: list[tuple[int, ...]]
    root: list[int]
    slot: list[int]
    overwrites: list[tuple[int, ...]]
    size: list[int]
    device: list[int]
    children: list[int]
    views: list[int]
    permanent: set[int]
    n_splits: int
    arrivals: list[tuple[int, int | None]]


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """`n_copies`: pipeline copies of every tensor that crosses devices (GGML_SCHED_MAX_COPIES where it applies).

    `offload`: weights in RAM are copied to the GPU `first` for large batches. `cuda`: sizes as a CUDA buffer reserves
    them, and tensors kept for fused kernels. `pin_devices`: the device of each layer's norms, () where not pinned.
    `in_ram`: slots whose weights are not copied from RAM. `kernels`: a card runs only what it has a kernel for, and
    nothing that reads a tensor stored on another card (llama.cpp ggml-cuda.cu:5152). `ram_pins`: as the graph lists.
    `fused`: kernels keep their tensors alive.
    """

    n_copies: int = 1
    offload: bool = True
    first: int = 0
    cuda: bool = False
    pin_devices: tuple[int, ...] = ()
    in_ram: frozenset[int] = frozenset()
    kernels: bool = False
    fused: bool = True
    ram_pins: bool = False


def schedule(graph: Graph, devices_of_slots: Sequence[int], n_devices: int, options: SchedulerOptions) -> Schedule:
    """Return the order and devices in which `graph` runs on `n_devices` GPUs and the CPU (index `n_devices`)."""
    device = node_devices(graph, devices_of_slots, n_devices, options)
    splitter = _Splitter(graph, device, n_devices, options)
    splitter.split()
    return splitter.schedule()


class _Support:
    """What a card can compute."""

    def __init__(self, graph: Graph, slots: Sequence[int], cpu: int, checked: bool) -> None:
        self.graph, self.slots, self.cpu, self.checked = graph, slots, cpu, checked

    def runs(self, t: int, device: int) -> bool:
        """Return whether `device` can compute `t`."""
        if not self.checked or device == self.cpu:
            return True
        if t in self.graph.without_kernel:
            return False
        owners = (self.slots[slot] for slot in self.graph.stored.get(t, ()))
        return all(owner in (device, self.cpu) for owner in owners)

    def best(self, t: int, device: Sequence[int]) -> int:
        """Return the device that can compute `t` and has most of its sources."""
        root = self.graph.root
        owners = [device[s] if device[s] >= 0 else device[root[s]] for s in self.graph.sources[t]]
        return max((d for d in range(self.cpu + 1) if self.runs(t, d)), key=lambda d: (owners.count(d), -d))


def node_devices(graph: Graph, slots: Sequence[int], cpu: int, options: SchedulerOptions) -> list[int]:
    """Return the device of every tensor: what weights and caches fix, then neighbours carry on, GPUs before the CPU."""
    support = _Support(graph, slots, cpu, options.kernels)
    device = _fixed_devices(graph, slots, cpu, options, support)
    real = [t for t in graph.nodes if graph.op[t] not in VIEW_OPS]
    for order, gpus_only in ((real, True), (real[::-1], True), (real, False), (real[::-1], False)):
        _carry(device, order, cpu if gpus_only else -1, support)
    for t in real:
        if device[t] < 0:
            device[t] = support.best(t, device)
    for t in graph.nodes:
        if device[t] < 0:
            device[t] = device[graph.root[t]] if graph.root[t] >= 0 else 0
        for s in graph.sources[t]:
            if device[s] < 0 and graph.root[s] < 0:
                device[s] = device[t]
    return device


def _fixed_devices(
    graph: Graph, slots: Sequence[int], cpu: int, options: SchedulerOptions, support: _Support
) -> list[int]:
    """The devices of what is stored or reads a weight, -1 for the rest."""
    offload = options.offload and cpu > 0
    device = [-1] * len(graph.op)
    for t in graph.inputs:
        device[t] = cpu
    for t in graph.leafs:
        if graph.home[t] >= 0:
            device[t] = slots[graph.home[t]]
    for node, layer in graph.pins if options.pin_devices else ():
        device[node] = options.pin_devices[layer]
    for node in graph.ram_pins if options.ram_pins else ():
        device[node] = cpu
    for t, card in graph.on_cards:
        device[t] = card
    for t in graph.nodes:
        if device[t] >= 0:
            continue
        if graph.home[t] >= 0:
            device[t] = slots[graph.home[t]]
        elif graph.weight[t] >= 0:
            owner = slots[graph.weight[t]]
            copied = owner == cpu and offload and graph.offloadable[t] and graph.weight[t] not in options.in_ram
            if copied:
                owner = next(d for d in range(options.first, cpu + 1) if support.runs(t, d))
            device[t] = owner if support.runs(t, owner) else -1
    for norm, product, slot in graph.beside_weights:
        device[norm] = device[product] = slots[slot]
    return device


def _carry(device: list[int], order: list[int], barrier: int, support: _Support) -> None:
    """Give each undetermined node the device of the one before it; a node on `barrier` carries nothing on."""
    current = -1
    for t in order:
        d = device[t]
        if d >= 0:
            current = -1 if d == barrier else d
        elif current >= 0 and support.runs(t, current):
            device[t] = current


@dataclass(slots=True)
class _Split:
    """Consecutive nodes on one device; `inputs` are the tensors first copied to that device here."""

    device: int
    nodes: list[int]
    inputs: list[int]


class _Splitter:
    """The last pass: cut the nodes into splits of one device each, and copy in what lives elsewhere."""

    def __init__(self, graph: Graph, device: list[int], cpu: int, options: SchedulerOptions) -> None:
        self.graph, self.device, self.cpu, self.options = graph, device, cpu, options
        self.sources = list(graph.sources)
        self.root, self.slot = list(graph.root), list(graph.slot)
        self.overwrites = list(graph.overwrites)
        self.size = self._sizes()
        self.children, self.views = list(graph.children), list(graph.views)
        self.permanent: set[int] = set(graph.outputs)
        self.copies: dict[tuple[int, int], list[int]] = {}
        self.leafs: list[tuple[int, int]] = []
        self.splits: list[_Split] = []

    def _sizes(self) -> list[int]:
        graph, cpu = self.graph, self.cpu
        if not self.options.cuda:
            return list(graph.n_bytes)
        rows = zip(graph.n_bytes, graph.padding, self.device, strict=True)
        size = [n if device == cpu else n + padding for n, padding, device in rows]
        for t, (stored_here, copied_in) in graph.flash_copies.items():
            if self.device[t] != cpu:
                keys = graph.sources[t][1]
                size[t] += stored_here if self.device[keys] == self.device[t] else copied_in
        return size

    def split(self) -> None:
        """Walk the nodes; a split ends where the device changes, or where a weight from elsewhere follows copies."""
        graph, device = self.graph, self.device
        op, sources = graph.op, graph.sources
        current = _Split(-1, [], [])
        for t in graph.nodes:
            if op[t] not in VIEW_OPS:
                here = device[t]
                if t in graph.starts:
                    current = self._next_split(current, here)
                for s in sources[t]:
                    if device[s] != here:
                        if here != current.device or (current.inputs and self._brings_weight(t, here)):
                            current = self._next_split(current, here)
                        self._copy_in(t, current)
                        break
                else:
                    if here != current.device:
                        current = self._next_split(current, here)
            current.nodes.append(t)

    def _next_split(self, current: _Split, device: int) -> _Split:
        leading = [] if self.splits else current.nodes  # views before the first real node belong to its split
        self.splits.append(_Split(device, leading, []))
        return self.splits[-1]

    def _brings_weight(self, t: int, here: int) -> bool:
        slot, slots = self.graph.slot, self.graph.slots
        return any(
            slot[s] >= 0 and self.device[s] != here and slots[slot[s]].kind != "cache" for s in self.graph.sources[t]
        )

    def _copy_in(self, t: int, split: _Split) -> None:
        device, here, sources = self.device, split.device, self.graph.sources[t]
        replaced = list(sources)
        for i, s in enumerate(sources):
            if device[s] == here:
                continue
            copies = self.copies.get((s, here))
            if copies is None and self.graph.op[t] == "REDUCE":  # the card reads the other's memory, now and later
                copies = self.copies[s, here] = [s]
            elif copies is None:
                copies = self.copies[s, here] = [self._append_copy(s, here) for _ in range(self.options.n_copies)]
                split.inputs.append(s)
            replaced[i] = copies[0]
            self.children[s] -= 1
            self.children[copies[0]] += 1
        self.sources[t] = tuple(replaced)

    def _append(self, sources: tuple[int, ...], root: int, size: int, device: int) -> int:
        self.sources.append(sources)
        self.root.append(root)
        self.slot.append(-1)
        self.overwrites.append(())
        self.size.append(size)
        self.device.append(device)
        self.children.append(0)
        self.views.append(0)
        for s in sources:
            self.children[s] += 1
        return len(self.sources) - 1

    def _append_copy(self, t: int, device: int) -> int:
        size = self.graph.n_bytes[t]
        if self.options.cuda and device != self.cpu:
            size += self.graph.padding[t]
        copy = self._append((), -1, size, device)
        if self.options.n_copies > 1:
            self.permanent.add(copy)
        return copy

    def _append_hold(self, tensors: tuple[int, ...], device: int) -> int:
        """Append a node that does nothing but use `tensors`, which so live until it has run."""
        first = tensors[0]
        root = self.root[first]
        return self._append(tensors, first if root < 0 else root, 0, device)

    def schedule(self) -> Schedule:
        """Return the splits one after the other, each behind the copies that it needs."""
        if self.options.n_copies > 1:
            self._pipeline_leafs()
        order: list[int] = []
        keep = self._keep_alives()
        for split in self.splits:
            for s in split.inputs:
                order.append(self._append_hold((s,), self.device[s]))
                order.append(self.copies[s, split.device][0])
            for t in split.nodes:
                order.append(t)
                for tensors in keep.get(t, ()):
                    here = tuple(self.copies.get((s, split.device), (s,))[0] for s in tensors)
                    order.append(self._append_hold(here, split.device))
        leafs = self.leafs + [(t, self.device[t]) for t in self.graph.leafs]
        return Schedule(
            order, leafs, self.sources, self.root, self.slot, self.overwrites, self.size, self.device,
            self.children, self.views, self.permanent, len(self.splits),
            [(split.device, self._arriving(split)) for split in self.splits],
        )  # fmt: skip

    def _arriving(self, split: _Split) -> int | None:
        sent = (self.graph.n_bytes[s] for s in split.inputs if self.device[s] != self.cpu)
        return sum(pad(n, _COPY_ALIGNMENT) for n in sent) if split.inputs else None

    def _pipeline_leafs(self) -> None:
        """With pipeline copies, all copies of inputs and split inputs come first and are never freed."""
        for t in self.graph.inputs:
            self.permanent.add(t)
            self.leafs.append((t, self.device[t]))
            for _ in range(self.options.n_copies - 1):
                self.leafs.append((self._append_copy(t, self.device[t]), self.device[t]))
        for split in self.splits:
            for s in split.inputs:
                self.leafs += [(copy, split.device) for copy in self.copies[s, split.device]]

    def _keep_alives(self) -> dict[int, list[tuple[int, ...]]]:
        """Return, by the node behind which they are let go, the tensors that fused kernels keep on GPUs."""
        if not (self.options.cuda and self.options.fused and self.graph.keep_alives):
            return {}
        split_of = {t: i for i, split in enumerate(self.splits) if split.device != self.cpu for t in split.nodes}
        found: dict[int, list[tuple[int, ...]]] = {}
        for keep in self.graph.keep_alives:
            if keep.until in split_of and split_of.get(keep.first) == split_of[keep.until]:
                parts = range(0, len(keep.tensors), _MAX_SOURCES)
                found.setdefault(keep.until, []).extend(keep.tensors[i : i + _MAX_SOURCES] for i in parts)
        return found
