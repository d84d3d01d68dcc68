"""ggml's backend scheduler: the device of every node, the splits between devices, and the copies that they need.

Source: ggml/src/ggml-backend.cpp of both engines (ggml_backend_sched_split_graph). Each pass goes from segment to
segment and takes along only what it carries over: the device that neighbours take, the copies that exist already, and
whether the split in progress has inputs. A segment's results are kept with it, by the state in which it was entered:
the next layer of the same kind is looked up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from service.engine.memory.graphs.owners import PREVIOUS, ROPES, SHARED, NotRepeating
from service.engine.memory.graphs.segments import Segment

COPY = 1 << 24  # the copy of a tensor on device d has the tensor's code and d + 1 times this
Copies = frozenset[int]
NO_COPIES: Copies = frozenset()


class Entry(NamedTuple):
    """The state in which the walk over the nodes enters a segment: the split in progress, and the copies that exist.

    `n_inputs`: how many copies the split has, at most one where there is no limit. `peers`: what a card reads in
    another card's memory, under the code that a copy would have.
    """

    device: int
    n_inputs: int
    copies: Copies
    peers: Copies


class Piece(NamedTuple):
    """Nodes of one split within one segment. `starts`: the split begins here; `inputs`: what is copied for it."""

    device: int
    starts: bool
    inputs: tuple[int, ...]
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """What holds for all segments of a replay. `cpu`: the index of the CPU, which follows the last GPU's.

    `offload`: weights in RAM are copied to the GPU `first` for large batches. `cuda`: sizes as a CUDA buffer reserves
    them. `pinned`: norms run on their layer's device. `kernels`: a card runs only what it has a kernel for, and nothing
    that reads a tensor stored on another card (llama.cpp ggml-cuda.cu:5152). `fused`: tensors are kept for fused
    kernels. `ram_pins`: as the graph lists. `n_copies`: pipeline copies of every tensor that crosses devices
    (GGML_SCHED_MAX_COPIES where it applies). `most_inputs`: of one split, None where it takes any number.
    `shares_ropes`: all layers on a device read the same rope factors.
    """

    cpu: int
    offload: bool = True
    first: int = 0
    cuda: bool = False
    pinned: bool = False
    kernels: bool = False
    fused: bool = True
    ram_pins: bool = False
    n_copies: int = 1
    most_inputs: int | None = None
    shares_ropes: bool = False


class PlacedSegment:
    """A segment with the devices of its slots, and of the tensors that these fix.

    `in_ram`: slots whose weights no card copies.
    """

    def __init__(
        self, segment: Segment, slots: tuple[int, ...], in_ram: frozenset[int], options: SchedulerOptions,
        inputs: frozenset[int],
    ) -> None:  # fmt: skip
        self.segment, self.slots, self.options = segment, slots, options
        self.fixed = self._fixed(in_ram, inputs)
        self.stages: dict[tuple[int, tuple[int, ...]], Stage] = {}

    def start(self) -> Stage:
        """Return the stage before the first pass."""
        return self.stage(0, tuple(self.fixed.get(t, -1) for t in self.segment.real))

    def stage(self, depth: int, devices: tuple[int, ...]) -> Stage:
        """Return the stage with these devices at a depth: the same object for the same ones."""
        found = self.stages.get((depth, devices))
        if found is None:
            found = self.stages[depth, devices] = Stage(self, depth, devices)
        return found

    def unlink(self) -> None:
        """Forget the stages and what came of them, all of which refer to this."""
        for stage in list(self.stages.values()):
            for resolved in list(stage.resolved.values()):
                for pieces in list(resolved.pieces.values()):
                    pieces.programs.clear()
                resolved.pieces.clear()
            stage.resolved.clear()
            stage.followed.clear()
        self.stages.clear()

    def _fixed(self, in_ram: frozenset[int], inputs: frozenset[int]) -> dict[int, int]:
        segment, slots, options = self.segment, self.slots, self.options
        fixed = dict.fromkeys((*inputs, *segment.own_inputs), options.cpu)
        for t, slot in segment.slot_of.items():
            fixed[t] = slots[slot]
        if options.pinned:
            fixed |= {t: slots[slot] for t, slot in segment.pins}
        if options.ram_pins:
            fixed |= dict.fromkeys(segment.ram_pins, options.cpu)
        fixed |= segment.on_cards
        for t in segment.nodes:
            if t in fixed:
                continue
            if t in segment.home:
                fixed[t] = slots[segment.home[t]]
            elif t in segment.weight:
                device = self._of_weight(t, segment.weight[t], in_ram)
                if device >= 0:
                    fixed[t] = device
        for norm, product, slot in segment.norms_at_weights:
            fixed[norm] = fixed[product] = slots[slot]
        return fixed

    def _of_weight(self, t: int, slot: int, in_ram: frozenset[int]) -> int:
        options, owner = self.options, self.slots[slot]
        if owner == options.cpu and options.offload and t in self.segment.offloadable and slot not in in_ram:
            owner = next(d for d in range(options.first, options.cpu + 1) if self.runs(t, d))
        return owner if self.runs(t, owner) else -1

    def runs(self, t: int, device: int) -> bool:
        options = self.options
        if not options.kernels or device == options.cpu:
            return True
        if t in self.segment.without_kernel:
            return False
        return all(self.slots[s] in (device, options.cpu) for s in self.segment.stored.get(t, ()))


class Stage:
    """The devices of a segment's real nodes after some passes. `followed`: the next stage, by the device carried in."""

    __slots__ = ("depth", "devices", "followed", "placed", "resolved")

    def __init__(self, placed: PlacedSegment, depth: int, devices: tuple[int, ...]) -> None:
        self.placed, self.depth, self.devices = placed, depth, devices
        self.followed: dict[int, tuple[Stage, int]] = {}
        self.resolved: dict[tuple[int, ...], ResolvedSegment] = {}

    def carry(self, current: int) -> tuple[Stage, int]:
        """Return the stage after one more pass that carries in the device `current`, and the device it carries on.

        Each undetermined node takes the device of the node before it (in odd passes: after it); in the first two
        passes nodes on the CPU do not pass theirs on.
        """
        found = self.followed.get(current)
        if found is None:
            found = self.followed[current] = self._carry(current)
        return found

    def _carry(self, current: int) -> tuple[Stage, int]:
        real, devices, placed = self.placed.segment.real, list(self.devices), self.placed
        barrier = placed.options.cpu if self.depth < 2 else -1
        order = range(len(real))
        for i in reversed(order) if self.depth % 2 else order:
            d = devices[i]
            if d >= 0:
                current = -1 if d == barrier else d
            elif current >= 0 and placed.runs(real[i], current):
                devices[i] = current
        return placed.stage(self.depth + 1, tuple(devices)), current

    def resolve(self, outside: tuple[int, ...]) -> ResolvedSegment:
        """Return the devices of all tensors; `outside`: those of the segment's externals."""
        found = self.resolved.get(outside)
        if found is None:
            found = self.resolved[outside] = ResolvedSegment(self, outside)
        return found


class ResolvedSegment:
    """A segment whose tensors all have a device, its externals among them."""

    def __init__(self, stage: Stage, outside: tuple[int, ...]) -> None:
        self.placed, self.segment = stage.placed, stage.placed.segment
        segment = self.segment
        self.device = device = dict(self.placed.fixed)
        device.update(zip(segment.externals, outside, strict=True))
        device.update((t, d) for t, d in zip(segment.real, stage.devices, strict=True) if d >= 0)
        for t in segment.real:
            if t not in device:
                device[t] = self._nearest(t)
        for t in segment.nodes:
            if t not in device:
                device[t] = device.get(segment.root[t], 0)
            for s in segment.sources.get(t, ()):
                if s not in device:
                    device[s] = device[t]
        self.pieces: dict[Entry, Pieces] = {}

    def _nearest(self, t: int) -> int:
        """Of the devices that can compute `t`, the one with the most of its sources."""
        segment, device = self.segment, self.device
        devices = [device.get(s, device.get(segment.root.get(s, -1))) for s in segment.sources.get(t, ())]
        able = (d for d in range(self.placed.options.cpu + 1) if self.placed.runs(t, d))
        return max(able, key=lambda d: (devices.count(d), -d))

    def split(self, entry: Entry) -> Pieces:
        """Return the pieces that the scheduler cuts the segment into if it enters in this state; each made once."""
        found = self.pieces.get(entry)
        if found is None:
            found = self.pieces[entry] = Pieces(self, entry)
        return found


@dataclass(slots=True)
class _Growing:
    device: int
    starts: bool
    inputs: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)


class Pieces:
    """A segment cut into pieces of splits, and the state in which the walk leaves it (`exit`).

    `weights`: what is copied of weights, by the numbers of their slots.
    A split ends where the device changes, where a weight from elsewhere follows copies, or where a node asks for it.
    """

    def __init__(self, resolved: ResolvedSegment, entry: Entry) -> None:
        self.resolved, self.segment = resolved, resolved.segment
        self.sources = dict(self.segment.sources)
        self._copies, self._peers = set(entry.copies), set(entry.peers)
        self._current = _Growing(entry.device, False)
        self._n_before = entry.n_inputs
        grown = [self._current]
        self._walk(grown)
        self.pieces = tuple(Piece(p.device, p.starts, tuple(p.inputs), tuple(p.nodes)) for p in grown)
        self.n_splits = sum(p.starts for p in grown)
        views = self.segment.weight_views
        self.weights = tuple((s, views[s][1]) for p in grown for s in p.inputs if s in views)
        self.copies = frozenset(self._copies)
        n_inputs, most = len(self._current.inputs) + self._n_before, resolved.placed.options.most_inputs
        n_inputs = min(n_inputs, most or 1)
        self.exit = Entry(
            self._current.device, n_inputs, self._seen_by_next(self._copies), self._seen_by_next(self._peers)
        )
        self.programs: dict[object, Any] = {}

    def _seen_by_next(self, copies: set[int]) -> Copies:
        """The copies that the next segment may read, by its codes."""
        shared = {c for c in copies if c % COPY >= SHARED}
        own = {c for c in copies if c % COPY < PREVIOUS and c % COPY not in self.segment.slot_of}
        return frozenset(shared | {c + PREVIOUS for c in own})

    def _walk(self, grown: list[_Growing]) -> None:
        device, segment = self.resolved.device, self.segment
        for t in segment.nodes:
            if t not in segment.is_view:
                here = device[t]
                if t in segment.starts:
                    self._next(grown, here)
                if any(device[s] != here for s in segment.sources.get(t, ())):
                    busy = self._current.inputs or self._n_before
                    if here != self._current.device or (busy and self._brings_weight(t, here)) or self._is_full(t):
                        self._next(grown, here)
                    self._copy_in(t)
                elif here != self._current.device:
                    self._next(grown, here)
            self._current.nodes.append(t)

    def _next(self, grown: list[_Growing], device: int) -> None:
        leading = grown.pop().nodes if self._current.device < 0 else []  # views before the first real node
        self._current = _Growing(device, True, [], leading)
        self._n_before = 0
        grown.append(self._current)

    def _brings_weight(self, t: int, here: int) -> bool:
        segment, device = self.segment, self.resolved.device
        return any(
            s in segment.slot_of and device[s] != here and segment.slots[segment.slot_of[s]].kind != "cache"
            for s in segment.sources[t]
        )

    def _is_full(self, t: int) -> bool:
        """Whether the split can take no more copies, and `t` needs one."""
        most = self.resolved.placed.options.most_inputs
        if most is None or len(self._current.inputs) + self._n_before < most:
            return False
        device, here = self.resolved.device, self._current.device
        copies = ((s, self._named(s) + COPY * (here + 1)) for s in self.segment.sources[t])
        return any(device[s] != here and copy not in self._copies and copy not in self._peers for s, copy in copies)

    def _named(self, s: int) -> int:
        """The code of what is copied for `s`: one copy of rope factors serves all layers that share these."""
        segment = self.segment
        if self.resolved.placed.options.shares_ropes and not segment.whole and s in segment.slot_of:
            return ROPES + self.resolved.device[s] if segment.slots[segment.slot_of[s]].kind == "rope" else s
        return s

    def _copy_in(self, t: int) -> None:
        device, here, segment = self.resolved.device, self._current.device, self.segment
        replaced = list(segment.sources[t])
        for i, s in enumerate(replaced):
            name = self._named(s)
            copy = name + COPY * (here + 1)
            if device[s] == here or copy in self._peers:
                continue
            if copy not in self._copies:
                if t in segment.reduces:  # the card reads the other's memory, now and later
                    self._peers.add(copy)
                    continue
                if name in segment.stored_twice and not segment.whole:
                    raise NotRepeating  # layers share the copy
                self._copies.add(copy)
                self._current.inputs.append(name)
            replaced[i] = copy
        self.sources[t] = tuple(replaced)
