"""The scheduler, layer by layer: what a layer of a kind comes to, met as it was met before, is looked up.

The same passes as in `scheduler`, each taking from one segment to the next only what it carries over: the device that
neighbours carry on, the copies that are there already, and whether the split in progress has inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from service.engine.memory.graphs.repeats import PREVIOUS, SHARED, NotRepeating, Segment

COPY = 1 << 24  # the copy of a tensor on device d has the tensor's code and d + 1 times this
Copies = frozenset[int]
NO_COPIES: Copies = frozenset()


class Entry(NamedTuple):
    """What the walk over the nodes brings to a segment: the split in progress, and the copies that exist."""

    device: int
    has_inputs: bool
    copies: Copies


class Piece(NamedTuple):
    """Nodes of one split in one segment; `starts`: the split begins here. `inputs`: what is copied to it."""

    device: int
    starts: bool
    inputs: tuple[int, ...]
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """What of a replay's options holds for all layers."""

    cpu: int
    offload: bool
    first: int
    cuda: bool
    pinned: bool
    kernels: bool
    fused: bool
    ram_pins: bool
    n_copies: int


class Placed:
    """A segment with the devices of its slots: what they fix."""

    def __init__(
        self, segment: Segment, slots: tuple[int, ...], in_ram: frozenset[int], layer_device: int, rules: Rules,
        inputs: Sequence[int],
    ) -> None:  # fmt: skip
        self.segment, self.slots, self.rules = segment, slots, rules
        self.fixed = self._fixed(in_ram, layer_device, inputs)
        self.stages: dict[tuple[int, tuple[int, ...]], Stage] = {}
        self.start = self.stage(0, tuple(self.fixed.get(t, -1) for t in segment.real))

    def stage(self, depth: int, devices: tuple[int, ...]) -> Stage:
        """Return the stage with these devices at a depth: the same object for the same ones."""
        found = self.stages.get((depth, devices))
        if found is None:
            found = self.stages[depth, devices] = Stage(self, depth, devices)
        return found

    def _fixed(self, in_ram: frozenset[int], layer_device: int, inputs: Sequence[int]) -> dict[int, int]:
        segment, slots, rules = self.segment, self.slots, self.rules
        fixed = dict.fromkeys(inputs, rules.cpu)
        for t, slot in segment.slot_of.items():
            fixed[t] = slots[slot]
        if rules.pinned:
            fixed |= dict.fromkeys(segment.pins, layer_device)
        if rules.ram_pins:
            fixed |= dict.fromkeys(segment.ram_pins, rules.cpu)
        for t in segment.nodes:
            if t in fixed:
                continue
            if t in segment.home:
                fixed[t] = slots[segment.home[t]]
            elif t in segment.weight:
                device = self._of_weight(t, segment.weight[t], in_ram)
                if device >= 0:
                    fixed[t] = device
        for norm, product, slot in segment.beside:
            fixed[norm] = fixed[product] = slots[slot]
        return fixed

    def _of_weight(self, t: int, slot: int, in_ram: frozenset[int]) -> int:
        rules, owner = self.rules, self.slots[slot]
        if owner == rules.cpu and rules.offload and t in self.segment.offloadable and slot not in in_ram:
            owner = next(d for d in range(rules.first, rules.cpu + 1) if self.runs(t, d))
        return owner if self.runs(t, owner) else -1

    def runs(self, t: int, device: int) -> bool:
        """Return whether `device` can compute `t`."""
        rules = self.rules
        if not rules.kernels or device == rules.cpu:
            return True
        if t in self.segment.without_kernel:
            return False
        return all(self.slots[s] in (device, rules.cpu) for s in self.segment.stored.get(t, ()))


class Stage:
    """The devices of a segment's real nodes after some of the passes; `followed`: the next stage, by what came in."""

    __slots__ = ("depth", "devices", "followed", "placed", "resolved")

    def __init__(self, placed: Placed, depth: int, devices: tuple[int, ...]) -> None:
        self.placed, self.depth, self.devices = placed, depth, devices
        self.followed: dict[int, tuple[Stage, int]] = {}
        self.resolved: dict[tuple[int, ...], Resolved] = {}

    def carry(self, current: int) -> tuple[Stage, int]:
        """Return the stage after one more pass, into which neighbours bring the device `current`, and what goes on."""
        found = self.followed.get(current)
        if found is None:
            found = self.followed[current] = self._carry(current)
        return found

    def _carry(self, current: int) -> tuple[Stage, int]:
        real, devices, placed = self.placed.segment.real, list(self.devices), self.placed
        barrier = placed.rules.cpu if self.depth < 2 else -1
        order = range(len(real))
        for i in reversed(order) if self.depth % 2 else order:
            d = devices[i]
            if d >= 0:
                current = -1 if d == barrier else d
            elif current >= 0 and placed.runs(real[i], current):
                devices[i] = current
        return placed.stage(self.depth + 1, tuple(devices)), current

    def resolve(self, outside: tuple[int, ...]) -> Resolved:
        """Return the devices of all tensors; `outside`: those of the segment's externals."""
        found = self.resolved.get(outside)
        if found is None:
            found = self.resolved[outside] = Resolved(self, outside)
        return found


class Resolved:
    """A segment whose tensors all have a device, its externals among them."""

    def __init__(self, stage: Stage, outside: tuple[int, ...]) -> None:
        self.placed, self.segment = stage.placed, stage.placed.segment
        segment = self.segment
        self.device = device = dict(self.placed.fixed)
        device.update(zip(segment.real, stage.devices, strict=True))
        device.update(zip(segment.externals, outside, strict=True))
        if any(d < 0 for d in device.values()):
            raise NotRepeating
        for t in segment.nodes:
            if t not in device:
                root = segment.root[t]
                device[t] = device[root] if root >= 0 else 0
            for s in segment.sources.get(t, ()):
                if s not in device:
                    raise NotRepeating
        self.pieces: dict[Entry, Pieces] = {}

    def split(self, entry: Entry) -> Pieces:
        """Return the pieces that the scheduler cuts the segment into when it is entered so: made once."""
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
    """A segment cut into pieces of splits, and what the walk takes on."""

    def __init__(self, resolved: Resolved, entry: Entry) -> None:
        self.resolved, self.segment = resolved, resolved.segment
        self.entry = entry
        self.sources = dict(self.segment.sources)
        self._copies = set(entry.copies)
        self._current = _Growing(entry.device, False)
        self._had_inputs = entry.has_inputs
        grown = [self._current]
        self._walk(grown)
        self.pieces = tuple(Piece(p.device, p.starts, tuple(p.inputs), tuple(p.nodes)) for p in grown)
        self.n_splits = sum(p.starts for p in grown)
        inherited = frozenset(c for c in self._copies if c % COPY >= SHARED)
        stored = self.segment.slot_of
        own = frozenset(c + PREVIOUS for c in self._copies if c % COPY < PREVIOUS and c % COPY not in stored)
        self.copies = frozenset(self._copies)
        self.exit = Entry(self._current.device, bool(self._current.inputs) or self._had_inputs, inherited | own)
        self.programs: dict[object, Any] = {}

    def _walk(self, grown: list[_Growing]) -> None:
        device, views, sources = self.resolved.device, self.segment.is_view, self.segment.sources
        for t in self.segment.nodes:
            if t not in views:
                here = device[t]
                if any(device[s] != here for s in sources.get(t, ())):
                    busy = self._current.inputs or self._had_inputs
                    if here != self._current.device or (busy and self._brings_weight(t, here)):
                        self._next(grown, here)
                    self._copy_in(t)
                elif here != self._current.device:
                    self._next(grown, here)
            self._current.nodes.append(t)

    def _next(self, grown: list[_Growing], device: int) -> None:
        leading = grown.pop().nodes if self._current.device < 0 else []  # views before the first real node
        self._current = _Growing(device, True, [], leading)
        self._had_inputs = False
        grown.append(self._current)

    def _brings_weight(self, t: int, here: int) -> bool:
        segment, device = self.segment, self.resolved.device
        return any(
            s in segment.slot_of and device[s] != here and segment.slots[segment.slot_of[s]].kind != "cache"
            for s in segment.sources[t]
        )

    def _copy_in(self, t: int) -> None:
        device, here = self.resolved.device, self._current.device
        replaced = list(self.segment.sources[t])
        for i, s in enumerate(replaced):
            if device[s] == here:
                continue
            copy = s + COPY * (here + 1)
            if copy not in self._copies:
                if s in self.segment.slot_of and self.segment.slots[self.segment.slot_of[s]].kind == "rope":
                    raise NotRepeating  # layers may share these
                self._copies.add(copy)
                self._current.inputs.append(s)
            replaced[i] = copy
        self.sources[t] = tuple(replaced)
