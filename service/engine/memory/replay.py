"""The compute buffers of a model whose layers repeat: each layer is replayed once for each way in which it is met.

What comes out is what `schedule` and `allocate` say of the whole graph. Everything is kept with the segments, so that a
placement which moves the experts of a few layers costs those layers, and looking the others up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from service.engine.memory.allocator import Arena
from service.engine.memory.graph import CUDA_ALIGNMENT, Slot
from service.engine.memory.graphs.repeats import PREVIOUS, SHARED, LayerSlots, NotRepeating, Repeats
from service.engine.memory.layered import NO_COPIES, Entry, Pieces, Placed, Resolved, Rules
from service.engine.memory.layered_arenas import (
    HOST_ALIGNMENT,
    NOTHING,
    Arenas,
    Held,
    Program,
    Run,
    State,
    free_blocks,
    marks_of,
)

_MAX_RUNS = 2000  # segments replayed and kept, some tens of kB each
Ahead = list[list[tuple[int, ...]]]
Marks = tuple[int, ...]


class Replay:
    """One placement of a model on `rules.cpu` GPUs. Raises NotRepeating where the whole graph has to be replayed."""

    def __init__(
        self, repeats: Repeats, slots: Sequence[LayerSlots], device_of: Callable[[Slot], int],
        layers: Sequence[int], in_ram: Callable[[Sequence[Slot]], frozenset[int]], rules: Rules,
    ) -> None:  # fmt: skip
        self.repeats, self.slots, self.rules = repeats, slots, rules
        self.order = [0, *repeats.segment_of, len(repeats.segments) - 1]
        kept = in_ram([slot for part in slots for slot in part.slots])
        none: frozenset[int] = frozenset()
        self._placed = [
            self._place(n, tuple(map(device_of, part.slots)), in_ram(part.slots) if kept else none, device)
            for n, part, device in zip(self.order, slots, [-1, *layers, -1], strict=True)
        ]
        self.resolved = self._resolve()

    def _place(self, number: int, devices: tuple[int, ...], in_ram: frozenset[int], layer_device: int) -> Placed:
        key = number, devices, in_ram, layer_device if self.rules.pinned else -1, self.rules
        placed: Placed | None = self.repeats.memo.get(key)
        if placed is None:
            segment = self.repeats.segments[number]
            placed = Placed(segment, devices, in_ram, layer_device, self.rules, self.repeats.inputs)
            self.repeats.memo[key] = placed
        return placed

    def _resolve(self) -> list[Resolved]:
        stages = [placed.start for placed in self._placed]
        for depth in range(4):
            current, order = -1, range(len(stages))
            for j in reversed(order) if depth % 2 else order:
                stages[j], current = stages[j].carry(current)
        first = stages[0].resolve(())
        found, shared = [first], dict(first.device)
        for stage in stages[1:]:
            before = found[-1].device
            outside = (
                shared[c] if c >= SHARED else before[c - PREVIOUS] for c in stage.placed.segment.externals
            )  # fmt: skip
            found.append(stage.resolve(tuple(outside)))
            shared |= {t: found[-1].device[t] for t in stage.placed.segment.late}
        return found

    def flash_attention_stays(self, layers: Sequence[int]) -> bool:
        """Return whether every flash attention runs on its layer's device."""
        return all(
            resolved.device[t] == device
            for resolved, device in zip(self.resolved[1:-1], layers, strict=False)
            for t in resolved.segment.flash
        )

    def compute(self) -> tuple[Marks, int, int]:
        """Return the compute buffer of every device, and the graph's splits and nodes."""
        entry, pieces = Entry(-1, False, NO_COPIES), []
        for resolved in self.resolved:
            pieces.append(resolved.split(entry))
            entry = pieces[-1].exit
        programs = self._programs(pieces)
        marks = self._run(programs, *self._start(programs))
        return marks, sum(p.n_splits for p in pieces), self.repeats.n_nodes

    def _programs(self, pieces: list[Pieces]) -> list[Program]:
        ahead = _ahead(pieces)
        return [self._program(p, part, tuple(more)) for p, part, more in zip(pieces, self.slots, ahead, strict=True)]

    def _program(self, pieces: Pieces, part: LayerSlots, ahead: tuple[tuple[int, ...], ...]) -> Program:
        key = part.kinds, ahead
        program: Program | None = pieces.programs.get(key)
        if program is None:
            shared = self.repeats.segments[0].n_bytes | self.repeats.input_bytes
            program = pieces.programs[key] = Program(pieces, part.kinds, self.rules, ahead, shared)
        return program

    def _start(self, programs: list[Program]) -> tuple[State, Marks]:
        """The inputs, in the order in which ggml allocates them; with pipeline copies all copies, for ever."""
        rules, repeats = self.rules, self.repeats
        copied = tuple(copy for program in programs for copy in program.pipeline)
        key = "start", rules.cpu, rules.n_copies, copied
        found: tuple[State, Marks] | None = repeats.memo.get(key)
        if found is None:
            arenas = [Arena(CUDA_ALIGNMENT) for _ in range(rules.cpu)] + [Arena(HOST_ALIGNMENT)]
            held = []
            for t in repeats.inputs:
                size = repeats.input_bytes[t]
                held.append(Held(t, rules.cpu, arenas[-1].take(size), size, 0))
                for _ in range(rules.n_copies - 1):
                    arenas[-1].take(size)
            for size, device in copied:
                for _ in range(rules.n_copies):
                    arenas[device].take(size)
            start = self._state(Arenas(free_blocks(arenas), tuple(sorted(held)), ()))
            found = repeats.memo[key] = start, marks_of(arenas)
        return found

    def _state(self, arenas: Arenas) -> State:
        state: State | None = self.repeats.memo.get(arenas)
        if state is None:
            state = self.repeats.memo[arenas] = State(arenas)
        return state

    def _run(self, programs: list[Program], state: State, marks: Marks) -> Marks:
        seen, endings = {marks}, _endings(programs)
        always = frozenset(self.repeats.inputs) if self.rules.n_copies > 1 else frozenset()
        permanent = always | self.repeats.segments[0].outputs
        for program, following, ending in zip(programs, [*programs[1:], None], endings, strict=True):
            asks = following.asks if following else NOTHING
            key = program, asks, ending
            found = state.after.get(key)
            if found is None:
                run = Run(program, state.arenas, asks, ending, permanent | program.segment.outputs)
                run.replay()
                self._count()
                arenas, marks = run.result()
                found = state.after[key] = self._state(arenas), marks
            state, marks = found
            seen.add(marks)
            outputs = frozenset(t + PREVIOUS for t in program.segment.outputs if t < PREVIOUS)
            permanent = always | self.repeats.segments[0].outputs | outputs
        return tuple(map(max, zip(*seen, strict=True)))

    def _count(self) -> None:
        self.repeats.n_runs += 1
        if self.repeats.n_runs > _MAX_RUNS:
            self.repeats.n_runs = 0
            self.repeats.memo.clear()


def _ahead(pieces: list[Pieces]) -> Ahead:
    """For each segment and piece, what later segments of the same split have copied at its start."""
    ahead: Ahead = [[] for _ in pieces]
    start: tuple[int, int] | None = None
    for j, cut in enumerate(pieces):
        for n, piece in enumerate(cut.pieces):
            if piece.starts:
                start = j, n
            elif piece.inputs:
                if start is None:
                    raise NotRepeating
                _put_ahead(ahead[start[0]], start[1], [_seen_from(s, j - start[0]) for s in piece.inputs])
    return ahead


def _put_ahead(ahead: list[tuple[int, ...]], piece: int, inputs: list[int]) -> None:
    ahead += [()] * (piece + 1 - len(ahead))
    ahead[piece] += tuple(inputs)


def _seen_from(code: int, n_before: int) -> int:
    """The code of a tensor in the segment `n_before` segments ahead of the one that reads it."""
    if code >= SHARED:
        return code
    if code >= PREVIOUS and n_before == 1:
        return code - PREVIOUS
    raise NotRepeating


def _endings(programs: list[Program]) -> list[frozenset[int]]:
    """For each segment, the shared tensors that no later one uses."""
    later: set[int] = set()
    found = []
    for program in reversed(programs):
        found.append(program.shared if not later else frozenset(program.shared - later))
        later |= program.shared
    return found[::-1]
