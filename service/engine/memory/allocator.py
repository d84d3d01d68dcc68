"""ggml's graph allocator: one best-fit arena a device, whose high-water mark is the engine's compute buffer.

Source: ggml/src/ggml-alloc.c of both engines (ggml_dyn_tallocr_alloc, ggml_gallocr_alloc_graph_impl). It goes from
segment to segment: from the same free blocks and tensors, a segment leads to the same ones again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from service.engine.memory.graph import CUDA_ALIGNMENT, Shape, contiguous_bytes, cuda_row_padding
from service.engine.memory.graphs.owners import AHEAD, FARTHER, PREVIOUS, SHARED, NotRepeating
from service.engine.memory.scheduler import COPY, Pieces, SchedulerOptions

_HOST_ALIGNMENT = 32  # TENSOR_ALIGNMENT of both engines
_MAX_SOURCES = 10  # GGML_MAX_SRC
_ENDLESS = 1 << 62


class Arena:
    """Free blocks in the order of their address, the last one endless; `mark` is the highest byte ever used."""

    __slots__ = ("alignment", "free", "mark")

    def __init__(self, alignment: int) -> None:
        self.alignment = alignment
        self.free = [[0, _ENDLESS]]
        self.mark = 0

    def take(self, size: int) -> int:
        """Return the offset of `size` bytes: the smallest free block that fits, the endless one last."""
        size = -(-size // self.alignment) * self.alignment
        free = self.free
        best, best_size = len(free) - 1, _ENDLESS
        for i in range(len(free) - 1):
            if size <= free[i][1] <= best_size:
                best, best_size = i, free[i][1]
        block = free[best]
        offset = block[0]
        block[0] += size
        block[1] -= size
        if not block[1]:
            del free[best]
        if offset + size > self.mark:
            self.mark = offset + size
        return offset

    def give(self, offset: int, size: int) -> None:
        """Take back `size` bytes at `offset`, joined with the free blocks next to them.

        The blocks are tried in order, as ggml does: it matters where a block of no bytes lies at the same address.
        """
        size = -(-size // self.alignment) * self.alignment
        free, end = self.free, offset + size
        for i, block in enumerate(free):
            if block[0] + block[1] == offset:
                block[1] += size
                self._join(i)
                return
            if block[0] == end:
                block[0] = offset
                block[1] += size
                if i > 0:
                    self._join(i - 1)
                return
        free.insert(next((i for i, block in enumerate(free) if block[0] >= offset), len(free)), [offset, size])

    def _join(self, i: int) -> None:
        """Make one of the blocks `i` and `i + 1` if they touch."""
        free = self.free
        if i + 1 < len(free) and free[i][0] + free[i][1] == free[i + 1][0]:
            free[i][1] += free[i + 1][1]
            del free[i + 1]


def new_arenas(n_devices: int) -> list[Arena]:
    """Return empty arenas of that many GPUs and the CPU."""
    return [Arena(CUDA_ALIGNMENT) for _ in range(n_devices)] + [Arena(_HOST_ALIGNMENT)]


Counts = tuple[tuple[int, int], ...]
Early = tuple[tuple[int, int | None], ...]  # what a later segment has copied: its code, and the copy's bytes if farther


class Needs(NamedTuple):
    """What a segment needs of the one before it, by the codes there: how often tensors are used, and views of them."""

    uses: Counts
    views: Counts


NO_NEEDS = Needs((), ())


_Step = tuple[int, int, tuple[int, ...], tuple[int, ...]]
"""One node, copy or hold: code (-1: takes no memory of its own), device, sources, and those it may overwrite."""


class SharedTensors(NamedTuple):
    """Tensors that have one code in all segments: the bytes of each, and what those that are views show a part of."""

    n_bytes: Mapping[int, int]
    roots: Mapping[int, int]


class Program:
    """What a segment does to the arenas: its steps, the bytes of its tensors, and how often each is used.

    `pipeline`: bytes and device of each copy that is there from the start, where there are pipeline copies. `scripts`:
    the script for each of the conditions met so far.
    """

    def __init__(
        self, pieces: Pieces, types: Mapping[int, str | None], options: SchedulerOptions,
        ahead: tuple[Early, ...], shared: SharedTensors,
    ) -> None:  # fmt: skip
        self.segment, self.pieces, self.options, self._types = pieces.segment, pieces, options, types
        self._device, self._shared = pieces.resolved.device, shared
        self.size: dict[int, int] = {}
        self.root = self.segment.roots
        self.steps: list[_Step] = []
        self.pipeline: list[tuple[int, int]] = []
        self.scripts: dict[Conditions, Script] = {}
        keep = self._kept_alive()
        for n, piece in enumerate(pieces.pieces):
            more = ahead[n] if n < len(ahead) else ()
            for s in piece.inputs if piece.starts else ():
                self._copy(s, self._copy_bytes(s, piece.device), piece.device)
            for s, size in more:
                self._copy(s, self._copy_bytes(s, piece.device) if size is None else size, piece.device)
            for t in piece.nodes:
                self._node(t)
                if t in keep:
                    self._hold(keep[t], piece.device)
        self._count()

    def _copy_bytes(self, t: int, device: int) -> int:
        """The bytes of a copy of `t` on `device`."""
        segment, on_card = self.segment, self.options.cuda and device != self.options.cpu
        kind = self._types.get(t)
        if kind is not None:
            shape: Shape = segment.weight_views[t][0]
            return contiguous_bytes(kind, shape) + (cuda_row_padding(kind, shape[0]) if on_card else 0)
        if t in segment.n_bytes:
            n_bytes: int = segment.n_bytes[t] + (segment.padding[t] if on_card else 0)
            return n_bytes
        return segment.external_bytes[t] if t in segment.external_bytes else self._shared.n_bytes[t]

    def _node(self, t: int) -> None:
        sources, segment = self.pieces.sources.get(t, ()), self.segment
        if t in self.root or t in segment.slot_of:
            self.steps.append((-1, 0, sources, ()))
            return
        device, size = self._device[t], segment.n_bytes[t]
        if self.options.cuda and device != self.options.cpu:
            size += segment.padding[t]
            if t in segment.flash_copies:
                stored_here, copied_in = segment.flash_copies[t]
                size += stored_here if self._device[segment.sources[t][1]] == device else copied_in
        self.size[t] = size
        overwrites = segment.overwrites.get(t, ())
        self.steps.append((t, device, sources, tuple([sources[i] for i in overwrites]) if overwrites else ()))

    def _copy(self, s: int, size: int, device: int) -> None:
        self.steps.append((-1, 0, (s,), ()))
        if self.options.n_copies > 1:
            self.pipeline.append((size, device))
            return
        copy = s + COPY * (device + 1)
        self.size[copy] = size
        self.steps.append((copy, device, (), ()))

    def _hold(self, kept: list[tuple[int, ...]], device: int) -> None:
        """Use tensors here, so that they stay allocated until now."""
        copies = self.pieces.copies
        for tensors in kept:
            here = tuple(c if (c := s + COPY * (device + 1)) in copies else s for s in tensors)
            self.steps.append((-1, 0, here, ()))

    def _kept_alive(self) -> dict[int, list[tuple[int, ...]]]:
        """Return the tensors that fused kernels keep on GPUs, by the node after which they are released."""
        if not (self.options.cuda and self.options.fused and self.segment.keep_alives):
            return {}
        pieces = self.pieces.pieces
        piece_of = {t: n for n, p in enumerate(pieces) if p.device != self.options.cpu for t in p.nodes}
        found: dict[int, list[tuple[int, ...]]] = {}
        for first, until, tensors in self.segment.keep_alives:
            if until in piece_of and piece_of.get(first) == piece_of[until]:
                parts = range(0, len(tensors), _MAX_SOURCES)
                found.setdefault(until, []).extend(tensors[i : i + _MAX_SOURCES] for i in parts)
        return found

    def _count(self) -> None:
        uses: dict[int, int] = {}
        for _, _, sources, _ in self.steps:
            for s in sources:
                uses[s] = uses.get(s, 0) + 1
        roots = self.segment.external_roots | {t: self._shared.roots[t] for t in uses if t in self._shared.roots}
        self.external_roots = {view: root for view, root in roots.items() if view in uses}
        for root in self.external_roots.values():
            uses.setdefault(root, 0)
        copied = {s for piece in self.pieces.pieces if not piece.starts for s in piece.inputs}
        done = Counter(self.root[s] for s in copied if s in self.root and s not in uses)  # in a segment before
        self.uses, self.views = uses, self.segment.views - done if done else self.segment.views
        self.shared = frozenset(t for t in uses if SHARED <= t % COPY < AHEAD)
        self.needs = Needs(_before(uses, set(self.size)), _before(self.views, set()))


def _before(counts: dict[int, int], made_here: set[int]) -> Counts:
    """The counts of tensors of the previous segment, by their codes there; without copies that are made here."""
    found = ((t - PREVIOUS, n) for t, n in counts.items() if PREVIOUS <= t % COPY < SHARED and t not in made_here)
    return tuple(sorted(found))


class LiveTensor(NamedTuple):
    """A tensor in an arena that is still needed: the bytes that it will free, and the number of unused views of it."""

    code: int
    arena: int
    offset: int
    size: int
    views: int


class Arenas(NamedTuple):
    """The arenas between two segments: free blocks, the tensors that are still needed, and the roots of their views."""

    free: tuple[tuple[tuple[int, int], ...], ...]
    held: tuple[LiveTensor, ...]
    roots: Counts


_SegmentKey: TypeAlias = tuple[Program, Needs, frozenset[int], tuple[LiveTensor, ...]]
"""A segment, what the next one needs of it, the shared tensors that end in it, and leafs that it alone has."""


class AllocatorState:
    """Arenas, and for each segment run from here the next state and the highest byte used in each arena."""

    __slots__ = ("after", "arenas")

    def __init__(self, arenas: Arenas) -> None:
        self.arenas = arenas
        self.after: dict[_SegmentKey, tuple[AllocatorState, tuple[int, ...]]] = {}

    def unlink(self) -> None:
        """Forget the states that follow, which may be followed by this one."""
        self.after.clear()


def free_blocks(arenas: Sequence[Arena]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return the free blocks of each arena as (offset, bytes)."""
    return tuple(tuple((offset, size) for offset, size in arena.free) for arena in arenas)


def marks_of(arenas: Sequence[Arena]) -> tuple[int, ...]:
    """Return the highest byte ever used in each arena."""
    return tuple(arena.mark for arena in arenas)


class Conditions(NamedTuple):
    """What a segment's script depends on: all about the arenas but the offsets.

    `needs` are those of the next segment. `ending`: shared tensors that nothing uses later; `permanent`: what is never
    freed. `held`: code, arena, bytes and views of each tensor in the arenas; `roots`: of their views.
    """

    needs: Needs
    ending: frozenset[int]
    permanent: frozenset[int]
    held: tuple[tuple[int, int, int, int], ...]
    roots: Counts


class Script:
    """The allocations and releases of a segment under some conditions, in order: they do not depend on offsets.

    Places are numbered in the order in which they are taken, those held from before first. Raises NotRepeating.
    """

    def __init__(self, program: Program, conditions: Conditions) -> None:
        self.program, self.conditions, self._n_devices = program, conditions, program.options.cpu
        self.children, self.views = dict(program.uses), dict(program.views)
        for t in program.shared - conditions.ending:
            self.children[t] += 1
        for t, count in conditions.needs.uses:
            self.children[t] = self.children.get(t, 0) + count
        for t, count in conditions.needs.views:
            self.views[t] = self.views.get(t, 0) + count
        self.held: dict[int, tuple[int, int]] = {}  # arena and place
        self.size = dict(program.size)
        for place, (code, arena, size, views) in enumerate(conditions.held):
            self.held[code] = arena, place
            self.size[code] = size
            if views:
                self.views[code] = self.views.get(code, 0) + views
        self.root = dict(conditions.roots) | program.external_roots | program.root
        self._n_places = len(conditions.held)
        self._steps: list[int] = []  # in threes: the arena (its complement: given back to it), place, bytes
        self._write()
        self._end()
        self.steps = tuple(self._steps)
        del self._steps, self.program, self.conditions, self.children, self.views, self.held, self.size, self.root

    def _write(self) -> None:
        """Allocate and release step by step, as ggml-alloc does; changes `held`, `children` and `views`."""
        children, views, held, root = self.children, self.views, self.held, self.root
        for code, device, sources, overwrites in self.program.steps:
            if code >= 0 and code not in held:
                self._place(code, device, overwrites)
            for s in sources:
                left = children[s] = children[s] - 1
                if left or views.get(s):
                    continue
                r = root.get(s, -1)
                if r >= 0:
                    views[r] = views.get(r, 0) - 1
                    if not views[r] and not children.get(r) and r in held:
                        self._release(r)
                elif s in held:
                    self._release(s)

    def _place(self, t: int, device: int, overwrites: tuple[int, ...]) -> None:
        for source in overwrites:
            free_to_use = source in self.held and self.children[source] == 1 and not self.views.get(source)
            if free_to_use and source not in self.root and source not in self.conditions.permanent:
                self.held[t] = self.held.pop(source)
                return
        self.held[t] = device, self._n_places
        self._steps += (device, self._n_places, self.size[t])
        self._n_places += 1

    def _release(self, t: int) -> None:
        if t not in self.conditions.permanent:
            arena, place = self.held.pop(t)
            self._steps += (~arena, place, self.size[t])

    def _end(self) -> None:
        """What is live after the segment: the tensors in the order of their codes in the next one, with their
        places."""
        needs, views = self.conditions.needs, self.views
        wanted = {t for t, _ in needs.uses}
        roots = [(t, r) for t, r in self.root.items() if t in wanted]
        if any(PREVIOUS <= r % COPY < SHARED and r in self.held for _, r in roots):
            raise NotRepeating
        wanted |= {r for _, r in roots} | {t for t, _ in needs.views}
        unused = {code + PREVIOUS: n for code, n in needs.views}
        self.after = sorted(
            (code := _code_in_next(t), arena, place, self.size[t], views.get(t, 0) - unused.get(code, 0))
            for t, (arena, place) in self.held.items() if t in wanted or t % COPY >= SHARED
        )  # fmt: skip
        self.roots = tuple(sorted((_code_in_next(t), _code_in_next(r)) for t, r in roots if r in self.held))

    def run(self, before: Arenas) -> tuple[Arenas, tuple[int, ...]]:
        """Return the arenas after the segment, and the highest byte used in each meanwhile."""
        arenas = new_arenas(self._n_devices)
        for arena, free in zip(arenas, before.free, strict=True):
            arena.free = [list(block) for block in free]
        places = [h.offset for h in before.held] + [0] * (self._n_places - len(before.held))
        step = iter(self.steps)
        for device, place, size in zip(step, step, step, strict=True):
            if device >= 0:
                places[place] = arenas[device].take(size)
            else:
                arenas[~device].give(places[place], size)
        held = tuple([LiveTensor(code, arena, places[n], size, views) for code, arena, n, size, views in self.after])
        return Arenas(free_blocks(arenas), held, self.roots), marks_of(arenas)


def _code_in_next(code: int) -> int:
    """The code of a tensor in the next segment."""
    if code % COPY >= AHEAD:
        return code - FARTHER if code % COPY >= AHEAD + 2 * FARTHER else code - AHEAD - FARTHER
    return code if code % COPY >= SHARED else code + PREVIOUS
