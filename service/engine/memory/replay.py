"""The compute buffers of a placed graph: each segment is scheduled and allocated once for each state it is entered in.

All results are kept with the graph, so that a placement which moves the experts of a few layers costs the time of those
layers, and of looking up the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from service.engine.memory.allocator import (
    NO_NEEDS,
    AllocatorState,
    Arenas,
    Conditions,
    Early,
    LiveTensor,
    Program,
    Script,
    SharedTensors,
    free_blocks,
    marks_of,
    new_arenas,
)
from service.engine.memory.graph import Slot
from service.engine.memory.graphs.owners import AHEAD, FARTHER, FARTHEST, PREVIOUS, ROPES, SHARED, NotRepeating
from service.engine.memory.graphs.segments import LayerSlots, SegmentedGraph
from service.engine.memory.scheduler import (
    NO_COPIES,
    Entry,
    Pieces,
    PlacedSegment,
    ResolvedSegment,
    SchedulerOptions,
    Stage,
)
from service.engine.units import pad

# How many steps of a program, numbers of a script, and live tensors between segments take the memory of one tensor
_STEPS_OF_A_TENSOR, _NUMBERS_OF_A_TENSOR, _HELD_OF_A_TENSOR = 3, 60, 4
_TRANSFER_ALIGNMENT = 256  # ik ggml-backend.cpp:2668
Marks = tuple[int, ...]


class _Start(NamedTuple):
    """The arenas before the first node, the highest byte of each, and the leafs that belong to each segment alone."""

    state: AllocatorState
    marks: Marks
    leafs: list[tuple[LiveTensor, ...]]


class Replay:
    """One placement of a model on `options.cpu` GPUs. Raises NotRepeating where the graph has to be in one piece."""

    def __init__(
        self, graph: SegmentedGraph, slots: Sequence[LayerSlots],
        devices_of: Callable[[Sequence[Slot]], tuple[int, ...]],
        in_ram: Callable[[Sequence[Slot]], frozenset[int]], options: SchedulerOptions,
    ) -> None:  # fmt: skip
        self.graph, self.slots, self.options = graph, slots, options
        some = in_ram([slot for part in slots for slot in part.slots])
        self._placed = [
            self._place(n, devices_of(part.slots), in_ram(part.slots) if some else frozenset())
            for n, part in zip(graph.order, slots, strict=True)
        ]
        self.resolved = self._resolve()

    def _place(self, number: int, devices: tuple[int, ...], in_ram: frozenset[int]) -> Stage:
        key = number, devices, in_ram, self.options
        start: Stage | None = self.graph.memo.get(key)
        if start is None:
            segment = self.graph.segments[number]
            placed = PlacedSegment(segment, devices, in_ram, self.options, self.graph.inputs)
            start = self.graph.memo[key] = placed.start()
            self.graph.linked.append(placed)
            self.graph.n_kept += len(segment.codes)
        return start

    def _resolve(self) -> list[ResolvedSegment]:
        stages = list(self._placed)
        for depth in range(4):
            current, order = -1, range(len(stages))
            for j in reversed(order) if depth % 2 else order:
                stages[j], current = stages[j].carry(current)
        first = stages[0].resolve(())
        found, shared = [first], dict(first.device)
        for stage in stages[1:]:
            before = found[-1].device
            outside = (shared[c] if c >= SHARED else before[c - PREVIOUS] for c in stage.placed.segment.externals)
            found.append(stage.resolve(tuple(outside)))
            shared |= {t: found[-1].device[t] for t in stage.placed.segment.late}
        return found

    def flash_attention_stays(self) -> bool:
        """Return whether every flash attention runs on its layer's device."""
        return all(
            resolved.device[t] == resolved.placed.slots[layer]
            for resolved in self.resolved
            for t, layer in resolved.segment.flash
        )

    def compute(self) -> tuple[Marks, int]:
        """Return the compute buffer of every device, the CPU last, and the number of splits."""
        entry, pieces = Entry(-1, False, NO_COPIES, NO_COPIES), []
        for resolved in self.resolved:
            pieces.append(resolved.split(entry))
            entry = pieces[-1].exit
        self.pieces = pieces
        programs = self._programs(self.pieces)
        found = self._run(programs, self._start(programs)), sum(p.n_splits for p in self.pieces)
        if len(self.pieces) == 1:
            self.graph.forget()
        return found

    def arrivals(self) -> list[tuple[int, int | None]]:
        """Return for each split its device and the bytes that other cards send it, None where it waits for nothing."""
        found: list[tuple[int, int | None]] = []
        for cut in self.pieces:
            for piece in cut.pieces:
                before = None if piece.starts or not found else found.pop()[1]
                sent = sum(self._sent(cut, s) for s in piece.inputs)
                found.append((piece.device, (before or 0) + sent if piece.inputs else before))
        return found

    def _sent(self, cut: Pieces, t: int) -> int:
        if cut.resolved.device[t] == self.options.cpu:
            return 0
        segment = cut.segment
        n_bytes = segment.external_bytes[t] if t in segment.external_bytes else segment.n_bytes[t]
        return pad(n_bytes, _TRANSFER_ALIGNMENT)

    def _programs(self, pieces: list[Pieces]) -> list[Program]:
        ahead = _ahead(pieces)
        return [self._program(p, part, tuple(more)) for p, part, more in zip(pieces, self.slots, ahead, strict=True)]

    def _program(self, pieces: Pieces, part: LayerSlots, ahead: tuple[Early, ...]) -> Program:
        types = {s: part.types[slot] for s, slot in pieces.weights}  # other weights take no place in an arena
        if ahead:
            views = pieces.segment.weight_views
            types |= {s: part.types[views[s][1]] for more in ahead for s, _ in more if s in views}
        key = tuple(types.items()), ahead
        program: Program | None = pieces.programs.get(key)
        if program is None:
            program = pieces.programs[key] = Program(pieces, types, self.options, ahead, self._shared)
            self.graph.n_kept += len(program.steps) // _STEPS_OF_A_TENSOR
        return program

    @cached_property
    def _shared(self) -> SharedTensors:
        graph = self.graph
        ropes = {ROPES + device: graph.rope_bytes for device in range(self.options.cpu + 1)}
        first = graph.segments[0]
        return SharedTensors(first.n_bytes | graph.leaf_bytes | graph.far_bytes | ropes, first.roots | graph.far_roots)

    def _start(self, programs: list[Program]) -> _Start:
        """The leafs, in the order in which ggml allocates them; with pipeline copies all copies, for ever."""
        options, graph = self.options, self.graph
        copied = tuple(copy for program in programs for copy in program.pipeline)
        leafs = tuple(self._leafs())
        key = "start", options.cpu, options.n_copies, leafs, copied
        found: _Start | None = graph.memo.get(key)
        if found is None:
            arenas, held, own = new_arenas(options.cpu), list[LiveTensor](), [list[LiveTensor]() for _ in self.slots]
            for j, t, device, size in leafs:
                (held if t >= SHARED else own[j]).append(LiveTensor(t, device, arenas[device].take(size), size, 0))
                is_input = t in graph.inputs or t in self._placed[j].placed.segment.own_inputs
                for _ in range(options.n_copies - 1 if is_input else 0):
                    arenas[device].take(size)
            for size, device in copied:
                for _ in range(options.n_copies):
                    arenas[device].take(size)
            start = self._state(Arenas(free_blocks(arenas), tuple(sorted(held)), ()))
            found = graph.memo[key] = _Start(start, marks_of(arenas), [tuple(of) for of in own])
        return found

    def _leafs(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield number of segment, code there, device and bytes of each leaf, in the engine's order."""
        seen: set[int] = set()
        for j, resolved in enumerate(self.resolved):
            for code in resolved.segment.leafs:
                if PREVIOUS <= code < SHARED:
                    before = self.resolved[j - 1]
                    yield j - 1, code - PREVIOUS, before.device[code - PREVIOUS], resolved.segment.external_bytes[code]
                elif code < PREVIOUS:
                    yield j, code, resolved.device[code], resolved.segment.n_bytes[code]
                elif code not in seen:
                    seen.add(code)
                    yield 0, code, self.resolved[0].device[code], self.graph.leaf_bytes[code]

    def _state(self, arenas: Arenas) -> AllocatorState:
        state: AllocatorState | None = self.graph.memo.get(arenas)
        if state is None:
            state = self.graph.memo[arenas] = AllocatorState(arenas)
            self.graph.linked.append(state)
        return state

    def _run(self, programs: list[Program], start: _Start) -> Marks:
        state, seen, endings = start.state, {start.marks}, _endings(programs)
        pipeline = self.options.n_copies > 1
        always = (frozenset(self.graph.inputs) if pipeline else frozenset()) | self.graph.segments[0].outputs
        needed, before = [*(program.needs for program in programs[1:]), NO_NEEDS], frozenset[int]()
        for program, needs, ending, leafs in zip(programs, needed, endings, start.leafs, strict=True):
            own = program.segment.outputs | (program.segment.own_inputs if pipeline else frozenset())
            always |= frozenset(t for t in own if t >= SHARED)
            key = program, needs, ending, leafs
            found = state.after.get(key)
            if found is None:
                arenas = state.arenas._replace(held=(*state.arenas.held, *leafs))
                held = tuple([(h.code, h.arena, h.size, h.views) for h in arenas.held])
                script = self._script(program, Conditions(needs, ending, always | before | own, held, arenas.roots))
                after, marks = script.run(arenas)
                found = state.after[key] = self._state(after), marks
                self.graph.n_kept += len(after.held) // _HELD_OF_A_TENSOR
            state, marks = found
            seen.add(marks)
            before = frozenset(t + PREVIOUS for t in own if t < PREVIOUS)
        return tuple(map(max, zip(*seen, strict=True)))

    def _script(self, program: Program, conditions: Conditions) -> Script:
        script = program.scripts.get(conditions)
        if script is None:
            script = program.scripts[conditions] = Script(program, conditions)
            self.graph.n_kept += len(script.steps) // _NUMBERS_OF_A_TENSOR
        return script


def _ahead(pieces: list[Pieces]) -> list[list[Early]]:
    """For each segment and piece, what later segments of the same split have copied at its start."""
    ahead: list[list[Early]] = [[] for _ in pieces]
    start: tuple[int, int] | None = None
    for j, cut in enumerate(pieces):
        for n, piece in enumerate(cut.pieces):
            if piece.starts:
                start = j, n
            elif piece.inputs:
                if start is None:
                    raise NotRepeating
                early = tuple(_early(cut, piece.device, s, j - start[0]) for s in piece.inputs)
                _put_ahead(ahead[start[0]], start[1], early)
    return ahead


def _put_ahead(ahead: list[Early], piece: int, early: Early) -> None:
    ahead += [()] * (piece + 1 - len(ahead))
    ahead[piece] += early


def _early(cut: Pieces, device: int, s: int, n_before: int) -> tuple[int, int | None]:
    """The code of a tensor in the segment `n_before` segments earlier, where it is copied, and the copy's bytes if they
    are not known there. Of a segment's own tensors only views can be copied earlier: all else does not exist yet."""
    segment, options = cut.segment, cut.resolved.placed.options
    if s >= SHARED:
        return s, None
    if s >= PREVIOUS and n_before == 1:
        return s - PREVIOUS, None
    if s >= FARTHER or n_before > FARTHEST or s not in segment.roots or s in segment.weight_views:
        raise NotRepeating
    padding = segment.padding[s] if options.cuda and device != options.cpu else 0
    return AHEAD + n_before * FARTHER + s, segment.n_bytes[s] + padding


def _endings(programs: list[Program]) -> list[frozenset[int]]:
    """For each segment, the shared tensors that no later one uses."""
    later: set[int] = set()
    found = []
    for program in reversed(programs):
        found.append(program.shared if not later else frozenset(program.shared - later))
        later |= program.shared
    return found[::-1]
