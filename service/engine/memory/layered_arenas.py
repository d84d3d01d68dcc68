"""The allocator, layer by layer: from the same free blocks and tensors, a layer leads to the same ones again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from service.engine.memory.allocator import Arena
from service.engine.memory.graph import CUDA_ALIGNMENT, contiguous_bytes, cuda_row_padding
from service.engine.memory.graphs.repeats import PREVIOUS, SHARED, NotRepeating
from service.engine.memory.layered import COPY, Pieces, Rules

HOST_ALIGNMENT = 32
_MAX_SOURCES = 10  # GGML_MAX_SRC
Counts = tuple[tuple[int, int], ...]


class Asks(NamedTuple):
    """What a segment uses of the one before it, by that one's codes: uses of tensors, and views of them."""

    uses: Counts
    views: Counts


NOTHING = Asks((), ())


class _Step(NamedTuple):
    """One node, copy or hold. `code` is -1 for what takes no memory of its own."""

    code: int
    device: int
    sources: tuple[int, ...]
    overwrites: tuple[int, ...]


class Program:
    """What a segment does to the arenas: its steps, the bytes of its tensors, and how often each is used.

    `pipeline`: bytes and device of each copy that is there from the start, where there are pipeline copies.
    """

    def __init__(
        self, pieces: Pieces, kinds: tuple[str | None, ...], rules: Rules, ahead: tuple[tuple[int, ...], ...],
        shared_bytes: Mapping[int, int],
    ) -> None:  # fmt: skip
        self.segment, self.pieces, self.rules, self._kinds = pieces.segment, pieces, rules, kinds
        self._device, self._shared_bytes = pieces.resolved.device, shared_bytes
        self.size: dict[int, int] = {}
        self.root = {t: r for t, r in self.segment.root.items() if r >= 0}
        self.steps: list[_Step] = []
        self.pipeline: list[tuple[int, int]] = []
        self._bytes = self._bytes_of_tensors()
        keep = self._kept_alive()
        for n, piece in enumerate(pieces.pieces):
            more = ahead[n] if n < len(ahead) else ()
            for s in (*(piece.inputs if piece.starts else ()), *more):
                self._copy(s, piece.device)
            for t in piece.nodes:
                self._node(t)
                for tensors in keep.get(t, ()):
                    self._hold(tensors, piece.device)
        self._count()

    def copy_bytes(self, t: int, device: int) -> int:
        """Return the bytes of a copy of `t` on `device`."""
        plain, padding = self._bytes[t] if t in self._bytes else (self._shared_bytes[t], 0)
        return plain + (padding if self.rules.cuda and device != self.rules.cpu else 0)

    def _bytes_of_tensors(self) -> dict[int, tuple[int, int]]:
        segment = self.segment
        found = {t: (n, segment.padding[t]) for t, n in segment.n_bytes.items()}
        found |= {t: (n, 0) for t, n in segment.external_bytes.items()}
        for t, shape, slot in segment.shown:
            kind = self._kinds[slot]
            if kind is not None:
                found[t] = contiguous_bytes(kind, shape), cuda_row_padding(kind, shape[0])
        return found

    def _node(self, t: int) -> None:
        sources = self.pieces.sources.get(t, ())
        if t in self.root or t in self.segment.slot_of:
            self.steps.append(_Step(-1, 0, sources, ()))
            return
        device = self._device[t]
        size = self.copy_bytes(t, device)
        if self.rules.cuda and t in self.segment.flash_copies and device != self.rules.cpu:
            stored_here, copied_in = self.segment.flash_copies[t]
            size += stored_here if self._device[self.segment.sources[t][1]] == device else copied_in
        self.size[t] = size
        overwrites = tuple(sources[i] for i in self.segment.overwrites.get(t, ()))
        self.steps.append(_Step(t, device, sources, overwrites))

    def _copy(self, s: int, device: int) -> None:
        self.steps.append(_Step(-1, 0, (s,), ()))
        size = self.copy_bytes(s, device)
        if self.rules.n_copies > 1:
            self.pipeline.append((size, device))
            return
        copy = s + COPY * (device + 1)
        self.size[copy] = size
        self.steps.append(_Step(copy, device, (), ()))

    def _hold(self, tensors: tuple[int, ...], device: int) -> None:
        copies = self.pieces.copies
        here = tuple(c if (c := s + COPY * (device + 1)) in copies else s for s in tensors)
        self.steps.append(_Step(-1, 0, here, ()))

    def _kept_alive(self) -> dict[int, list[tuple[int, ...]]]:
        """Return, by the node behind which they are let go, the tensors that fused kernels keep on GPUs."""
        if not (self.rules.cuda and self.rules.fused and self.segment.keep_alives):
            return {}
        pieces = self.pieces.pieces
        piece_of = {t: n for n, p in enumerate(pieces) if p.device != self.rules.cpu for t in p.nodes}
        found: dict[int, list[tuple[int, ...]]] = {}
        for first, until, tensors in self.segment.keep_alives:
            if until in piece_of and piece_of.get(first) == piece_of[until]:
                parts = range(0, len(tensors), _MAX_SOURCES)
                found.setdefault(until, []).extend(tensors[i : i + _MAX_SOURCES] for i in parts)
        return found

    def _count(self) -> None:
        uses: dict[int, int] = {}
        for step in self.steps:
            for s in step.sources:
                uses[s] = uses.get(s, 0) + 1
        for view, root in self.segment.external_roots.items():
            if view in uses:
                uses.setdefault(root, 0)
        views: dict[int, int] = {}
        for t in self.segment.nodes:
            root = self.segment.root[t]
            if root >= 0:
                views[root] = views.get(root, 0) + 1
        self.uses, self.views = uses, views
        self.shared = frozenset(t for t in uses if t % COPY >= SHARED)
        self.asks = Asks(_before(uses, set(self.size)), _before(views, set()))


def _before(counts: dict[int, int], made_here: set[int]) -> Counts:
    """The counts of what the segment before has, by its codes; not of copies that are made here."""
    found = ((t - PREVIOUS, n) for t, n in counts.items() if PREVIOUS <= t % COPY < SHARED and t not in made_here)
    return tuple(sorted(found))


class Held(NamedTuple):
    """A tensor in an arena, with the bytes it gives back and the views of it that are still to be used."""

    code: int
    arena: int
    offset: int
    size: int
    views: int


class Arenas(NamedTuple):
    """The arenas between two segments: free blocks, the tensors still to be used, and the roots of views of them."""

    free: tuple[tuple[tuple[int, int], ...], ...]
    held: tuple[Held, ...]
    roots: Counts


class State:
    """Arenas, and what each segment met in this state led to: the next state, and the highest byte of each arena."""

    __slots__ = ("after", "arenas")

    def __init__(self, arenas: Arenas) -> None:
        self.arenas = arenas
        self.after: dict[tuple[Program, Asks, frozenset[int]], tuple[State, tuple[int, ...]]] = {}


def free_blocks(arenas: Sequence[Arena]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return the free blocks of each arena as (offset, bytes)."""
    return tuple(tuple((offset, size) for offset, size in arena.free) for arena in arenas)


def marks_of(arenas: Sequence[Arena]) -> tuple[int, ...]:
    """Return the highest byte ever used in each arena."""
    return tuple(arena.mark for arena in arenas)


class Run:
    """One segment replayed from a state. `asks` of the next one; `ending`: shared tensors that nobody uses later."""

    def __init__(self, program: Program, before: Arenas, asks: Asks, ending: frozenset[int], permanent: frozenset[int]):
        self.program, self.asks = program, asks
        n = program.rules.cpu
        self.arenas = [Arena(CUDA_ALIGNMENT if d < n else HOST_ALIGNMENT) for d in range(n + 1)]
        for arena, free in zip(self.arenas, before.free, strict=True):
            arena.free = [list(block) for block in free]
        self.children, self.views = dict(program.uses), dict(program.views)
        for t in program.shared - ending:
            self.children[t] += 1
        for t, count in asks.uses:
            self.children[t] = self.children.get(t, 0) + count
        for t, count in asks.views:
            self.views[t] = self.views.get(t, 0) + count
        self.held: dict[int, tuple[int, int]] = {}
        self.size = dict(program.size)
        for h in before.held:
            self.held[h.code] = (h.arena, h.offset)
            self.size[h.code] = h.size
            if h.views:
                self.views[h.code] = self.views.get(h.code, 0) + h.views
        self.root = dict(before.roots) | program.segment.external_roots | program.root
        self.permanent = permanent

    def replay(self) -> None:
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
            if free_to_use and source not in self.root and not self._permanent(source):
                self.held[t] = self.held.pop(source)
                return
        self.held[t] = device, self.arenas[device].take(self.size[t])

    def _permanent(self, t: int) -> bool:
        return t in self.permanent

    def _release(self, t: int) -> None:
        if t not in self.permanent:
            arena, offset = self.held.pop(t)
            self.arenas[arena].give(offset, self.size[t])

    def result(self) -> tuple[Arenas, tuple[int, ...]]:
        """Return the arenas behind the segment, and the highest byte used in each meanwhile."""
        wanted = {t for t, _ in self.asks.uses}
        roots = [(t, r) for t, r in self.root.items() if t in wanted]
        if any(PREVIOUS <= r % COPY < SHARED and r in self.held for _, r in roots):
            raise NotRepeating
        wanted |= {r for _, r in roots} | {t for t, _ in self.asks.views}
        held = [
            Held(_behind(t), arena, offset, self.size[t], self.views.get(t, 0))
            for t, (arena, offset) in self.held.items() if t in wanted or t % COPY >= SHARED
        ]  # fmt: skip
        asked_views = dict(self.asks.views)
        held = [h._replace(views=h.views - asked_views.get(h.code - PREVIOUS, 0)) for h in held]
        kept = tuple((_behind(t), _behind(r)) for t, r in roots if r in self.held)
        return Arenas(free_blocks(self.arenas), tuple(sorted(held)), tuple(sorted(kept))), marks_of(self.arenas)


def _behind(code: int) -> int:
    """The code of an own tensor in the next segment."""
    return code if code % COPY >= SHARED else code + PREVIOUS
