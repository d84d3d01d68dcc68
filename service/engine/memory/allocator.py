"""ggml's graph allocator: one best-fit arena a device, whose high-water mark is the engine's compute buffer.

Source: ggml/src/ggml-alloc.c of both engines (ggml_dyn_tallocr_alloc, ggml_gallocr_alloc_graph_impl).
"""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.memory.graph import CUDA_ALIGNMENT
from service.engine.memory.scheduler import Schedule

_HOST_ALIGNMENT = 32  # TENSOR_ALIGNMENT of both engines
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
        """Take back `size` bytes at `offset`, joined with the free blocks beside them.

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


def allocate(schedule: Schedule, n_devices: int) -> tuple[int, ...]:
    """Return the compute buffer of every device in bytes, the CPU (`n_devices`) last."""
    arenas = [Arena(CUDA_ALIGNMENT) for _ in range(n_devices)] + [Arena(_HOST_ALIGNMENT)]
    replay = _Replay(schedule, arenas)
    for leaf, device in schedule.leafs:
        if schedule.slot[leaf] < 0 and not replay.held[leaf]:
            replay.place(leaf, device)
    replay.run(schedule.order)
    return tuple(arena.mark for arena in arenas)


class _Replay:
    """Which tensors hold memory, where, and how many uses are left of each."""

    def __init__(self, schedule: Schedule, arenas: list[Arena]) -> None:
        n = len(schedule.sources)
        self.schedule, self.arenas = schedule, arenas
        self.children, self.views = schedule.children, schedule.views
        self.held = [False] * n
        self.offset = [0] * n
        self.arena = [0] * n

    def place(self, t: int, device: int) -> None:
        """Give `t`, no view, memory: that of a source which nobody needs any more where the operation allows it."""
        s = self.schedule
        self.held[t] = True
        for position in s.overwrites[t]:
            source = s.sources[t][position]
            if self._replaceable(source):
                self.arena[t], self.offset[t] = self.arena[source], self.offset[source]
                self.held[source] = False
                return
        self.arena[t] = device
        self.offset[t] = self.arenas[device].take(s.size[t])

    def _replaceable(self, t: int) -> bool:
        return (
            self.held[t]
            and self.children[t] == 1
            and not self.views[t]
            and self.schedule.root[t] < 0
            and t not in self.schedule.permanent
        )

    def release(self, t: int) -> None:
        if t not in self.schedule.permanent:
            self.arenas[self.arena[t]].give(self.offset[t], self.schedule.size[t])
            self.held[t] = False

    def run(self, order: Sequence[int]) -> None:
        """Replay the nodes: each takes its memory, then gives back the sources that it was the last to use."""
        sources, root, device = self.schedule.sources, self.schedule.root, self.schedule.device
        children, views, held, slot = self.children, self.views, self.held, self.schedule.slot
        for t in order:
            if root[t] < 0 and slot[t] < 0 and not held[t]:
                self.place(t, device[t])
            for s in sources[t]:
                children[s] -= 1
                if children[s] or views[s]:
                    continue
                r = root[s]
                if r >= 0:
                    views[r] -= 1
                    if not views[r] and not children[r] and held[r]:
                        self.release(r)
                elif held[s]:
                    self.release(s)
