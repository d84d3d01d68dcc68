"""Seconds and bytes of a placement as sums over blocks: the linear part of what `check` computes.

**Seconds.** The seconds of a request are linear in where things are, but for the CPU, whose time for weights in RAM is
the cubic mean of reading and computing. That mean is a norm, so it is never below its tangent: with the derivative of
each part taken at one placement, the sum over all parts is that placement's seconds exactly, and of any other a lower
bound (for equal mixes of types again exact). Derivatives are taken of the very function that `check` uses.

**Bytes.** Weights and caches are sums, as are the rows that CUDA pads. Compute buffers and overheads are not: what a
replay finds beyond the sums is the `rest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise, product
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from service.engine.config import Flags, Placement
from service.engine.memory.cache import cache_bytes
from service.engine.memory.contents import derived_by_layer, reserved_bytes
from service.engine.memory.figures import Memory
from service.engine.memory.spec import make_spec
from service.engine.planner.pricing.blocks import Block, blocks_of
from service.engine.planner.pricing.fit import Fitted, Problem, slack
from service.engine.run.weights import rows_of
from service.engine.speed.predict import request_of
from service.engine.speed.sums import weights_of, work_of
from service.engine.speed.work import Work
from service.engine.units import GIB

_STEP = 1e-5  # of a part's weight: the derivative of the cubic mean is then exact to eight digits
_ALIKE = ("n_head", "n_head_kv", "head_dim_k", "head_dim_v", "n_swa")
Where: TypeAlias = tuple[int, ...]  # the device of each piece of a block, the number of cards is RAM


class Choice(NamedTuple):
    """One way to place the pieces of a block: seconds of the request, bytes on each card and, last, in RAM."""

    where: Where
    seconds: float
    n_bytes: tuple[int, ...]


class Linear:
    """The sums of one problem under given flags (but `-ts` and `-ot`), with the derivative taken at `at`."""

    def __init__(self, problem: Problem, flags: Flags, at: Placement) -> None:
        self.problem, self.flags, self.at = problem, flags, at
        self.n_cards = len(problem.devices)
        self.blocks = blocks_of(problem.model, problem.engine)
        self.request = request_of(problem.rig, problem.devices, flags, problem.goal)
        self.work = work_of(problem.run(flags, at))
        self._derivatives: dict[tuple[int, str, int], float] = {}
        self._choices: dict[tuple[int, int, int], list[Choice]] = {}

    # -- seconds -------------------------------------------------------------------------------------------------

    @cached_property
    def constant(self) -> float:
        """Seconds of the request that no placement changes."""
        starts, wheres = self.read(self.at)
        return self.request.seconds(self.work) - self._sum(starts, wheres)

    def seconds(self, starts: Sequence[int], wheres: Sequence[Where]) -> float:
        """Return the sum for blocks dealt to the cards by `starts`, with their pieces at `wheres`."""
        return self.constant + self._sum(starts, wheres)

    def priced(self, fitted: Fitted) -> float:
        """Return the seconds of the request by the very functions that `check` uses."""
        return self.request.seconds(work_of(fitted.run))

    def read(self, placement: Placement) -> tuple[tuple[int, ...], tuple[Where, ...]]:
        """Return the starts of the runs, and where the pieces of each block are."""
        owners = (*placement.layers, placement.head)
        starts = tuple(sum(owner < card for owner in owners) for card in range(self.n_cards + 1))
        wheres = tuple(tuple(placement.tensors[piece.names[0]] for piece in block.pieces) for block in self.blocks)
        return starts, wheres

    def _sum(self, starts: Sequence[int], wheres: Sequence[Where]) -> float:
        owners = owners_of(starts)
        total = self.head(owners[-1]) + self.trailing(owners)
        for block, where, (owner, following) in zip(self.blocks, wheres, pairwise(owners), strict=False):
            total += self.fixed(block, owner) + self.moved(block, where) + self.changed(block, owner, following, where)
        return total

    def fixed(self, block: Block, card: int) -> float:
        """Seconds of what stays with the attention, of the cache and of the state on a card."""
        key = (block.kind, "fixed", card)
        if key not in self._derivatives:
            self._derivatives[key] = (
                self._weights(block.fixed, card) + self._attention(block, card) + self._state(block, card)
            )
        return self._derivatives[key]

    def moved(self, block: Block, where: Where) -> float:
        """Seconds of the pieces, and of a block that has some in RAM."""
        host = self.n_cards
        seconds = self._changes[2] if host in where or block.ram_only else 0.0
        for piece, device in zip(block.pieces, where, strict=True):
            key = (block.kind, piece.part, device)
            if key not in self._derivatives:
                self._derivatives[key] = self._weights(piece.names, device)
            seconds += self._derivatives[key]
        return seconds

    def changed(self, block: Block, owner: int, following: int, where: Where) -> float:
        """Seconds of the changes of device from the block's attention to that of the next, through its pieces."""
        host, sequence = self.n_cards, [owner]
        for part in self._order(block):
            sequence.append(owner if part < 0 else host if part >= len(where) else where[part])
        changes = [host in pair for pair in pairwise([*sequence, following]) if pair[0] != pair[1]]
        with_host = sum(changes)
        return with_host * self._changes[0] + (len(changes) - with_host) * self._changes[1]

    def head(self, card: int) -> float:
        """Seconds of the output head on a card."""
        key = (-1, "head", card)
        if key not in self._derivatives:
            self._derivatives[key] = self._weights(("output.weight", "output_norm.weight"), card)
        return self._derivatives[key]

    def trailing(self, owners: Sequence[int]) -> float:
        """Seconds of the changes after the last block that runs: next-token layers have a card, but no work."""
        return sum(a != b for a, b in pairwise(owners[len(self.blocks) :])) * self.card_change

    @cached_property
    def ends_on_its_card(self) -> bool:
        """Whether every block's last step is on the card that owns it, whatever its pieces do."""
        return all(self._order(block)[-1:] == [-1] for block in self.blocks if block.pieces or block.ram_only)

    @cached_property
    def _changes(self) -> tuple[float, float, float]:
        """Seconds of one more change with the CPU, change between cards, and block with weights in RAM."""
        base, work = self.request.seconds(self.work), self.work
        more = (
            replace(work, host_changes=work.host_changes + 1),
            replace(work, card_changes=work.card_changes + 1),
            replace(work, host_layers=work.host_layers + 1),
        )
        return tuple(self.request.seconds(one) - base for one in more)  # type: ignore[return-value]

    @property
    def card_change(self) -> float:
        """Seconds of one more change between cards."""
        return self._changes[1]

    def _order(self, block: Block) -> list[int]:
        """The parts of a block as they are evaluated: pieces by number, -1 for what is fixed."""
        rows = rows_of(self.problem.model)
        parts = {name: i for i, piece in enumerate((*block.pieces, *block.ram_only)) for name in piece.names}
        names = [*block.fixed, *parts]
        chained = sorted((rows[n].chain, parts.get(n, -1)) for n in names if n in rows and rows[n].chain >= 0)
        return [part for _, part in chained]

    def _derivative(self, more: Work) -> float:
        return (self.request.seconds(more) - self.request.seconds(self.work)) / _STEP

    def _weights(self, names: Sequence[str], device: int) -> float:
        problem, work = self.problem, self.work
        little = tuple(
            replace(w, n_bytes=w.n_bytes * _STEP, n_elements=w.n_elements * _STEP, n_tensors=w.n_tensors * _STEP)
            for w in weights_of(problem.model, names, device, work)
        )
        return self._derivative(replace(work, weights=(*work.weights, *little)))

    def _attention(self, block: Block, card: int) -> float:
        layer = self.problem.model.layers[block.index]
        if not layer.attends:
            return 0.0
        alike = (a for a in self.work.attention if all(getattr(a, f) == getattr(layer, f) for f in _ALIKE))
        little = replace(next(alike), device=card, count=_STEP)
        return self._derivative(replace(self.work, attention=(*self.work.attention, little)))

    def _state(self, block: Block, card: int) -> float:
        recurrent, state = self.problem.model.recurrent, list[float](self.work.state_bytes)
        if recurrent is None or not self.problem.model.layers[block.index].recurs:
            return 0.0
        state[card] += 4 * (recurrent.n_conv + recurrent.n_state) * _STEP
        return self._derivative(replace(self.work, state_bytes=tuple(state)))

    # -- bytes ---------------------------------------------------------------------------------------------------

    @cached_property
    def fixed_bytes(self) -> tuple[int, ...]:
        """Bytes that each block takes on the card that owns it, whatever its pieces do."""
        problem, model = self.problem, self.problem.model
        spec = make_spec(problem.engine, model, self.flags)
        caches = cache_bytes(model, spec, cuda_padding=True)
        derived = derived_by_layer(model, problem.engine, spec.mla)
        return tuple(block.fixed_bytes + caches[block.index] + derived[block.index] for block in self.blocks)

    @cached_property
    def head_bytes(self) -> int:
        """Bytes of the output head on the card that owns it."""
        model = self.problem.model
        return reserved_bytes(model)["output.weight" if "output.weight" in model.by_name else "token_embd.weight"]

    def choices(self, block: Block, owner: int, following: int) -> list[Choice]:
        """Return all ways to place the pieces of a block that `owner` has, when the next one's is `following`."""
        key = (block.kind, owner, following)
        if key not in self._choices:
            devices = range(self.n_cards + 1)
            self._choices[key] = [
                Choice(
                    where,
                    self.moved(block, where) + self.changed(block, owner, following, where),
                    self.piece_bytes(block, where),
                )
                for where in product(devices, repeat=len(block.pieces))
            ]
        return self._choices[key]

    @cached_property
    def piece_sizes_of(self) -> list[tuple[int, ...]]:
        """The bytes of each block's pieces in RAM."""
        stored = self.problem.model.by_name
        return [tuple(sum(stored[n].nbytes for n in p.names) for p in block.pieces) for block in self.blocks]

    @property
    def piece_sizes(self) -> list[int]:
        """All sizes of pieces, and 0."""
        return sorted({0, *(size for sizes in self.piece_sizes_of for size in sizes)})

    def largest_in_ram(self, wheres: Sequence[Where]) -> int:
        """Return the bytes of the largest piece in RAM, 0 for none."""
        pairs = (
            pair for s, where in zip(self.piece_sizes_of, wheres, strict=True) for pair in zip(s, where, strict=True)
        )
        return max((size for size, device in pairs if device == self.n_cards), default=0)

    def best_choices(self, block: Block, owner: int, following: int, largest: int) -> list[Choice]:
        """Return the ways that no other beats in seconds and in bytes on every card.

        Pieces of more than `largest` bytes are not in RAM. RAM counts where it could be too small for all pieces.
        """
        host, sizes = self.n_cards, self.piece_sizes_of[block.index]
        ways = [
            choice
            for choice in self.choices(block, owner, following)
            if all(size <= largest or device < host for device, size in zip(choice.where, sizes, strict=True))
        ]
        n = self.n_cards + (not self.ram_is_ample)
        best: list[Choice] = []
        for way in sorted(ways, key=lambda c: (c.seconds, c.n_bytes)):
            if not any(all(a <= b for a, b in zip(k.n_bytes[:n], way.n_bytes[:n], strict=True)) for k in best):
                best.append(way)
        return best

    @cached_property
    def ram_is_ample(self) -> bool:
        """Whether RAM holds the model twice over, so that no placement can be short of it."""
        return self.problem.limits.host > 2 * self.problem.model.n_bytes + 16 * GIB

    def piece_bytes(self, block: Block, where: Where) -> tuple[int, ...]:
        """Return the bytes of a block's pieces on each card and, last, in RAM (where nothing is padded)."""
        total = [0] * (self.n_cards + 1)
        for piece, device in zip(block.pieces, where, strict=False):
            stored = self.problem.model.by_name
            in_ram = device == self.n_cards
            total[device] += sum(stored[n].nbytes for n in piece.names) if in_ram else piece.n_bytes
        return tuple(total)

    def sums(self, starts: Sequence[int], wheres: Sequence[Where]) -> list[int]:
        """Return the bytes of all sums on each card and in RAM."""
        owners, total = owners_of(starts), [0] * (self.n_cards + 1)
        total[owners[-1]] += self.head_bytes
        for i, (block, where) in enumerate(zip(self.blocks, wheres, strict=True)):
            total[owners[i]] += self.fixed_bytes[i]
            total = [a + b for a, b in zip(total, self.piece_bytes(block, where), strict=True)]
        return total

    def rest(self, starts: Sequence[int], wheres: Sequence[Where], memory: Memory) -> list[int]:
        """Return what a replay wants beyond the sums, with its reserve, on each card and in RAM."""
        return [
            room - left - known
            for room, left, known in zip(
                self.capacity, slack(self.problem, memory), self.sums(starts, wheres), strict=True
            )
        ]

    @property
    def capacity(self) -> tuple[int, ...]:
        """Bytes of each card and of RAM."""
        return (*(device.free for device in self.problem.devices), self.problem.limits.host)


def owners_of(starts: Sequence[int]) -> list[int]:
    """Return the card of each block and, last, of the head."""
    return [card for card, (start, end) in enumerate(pairwise(starts)) for _ in range(start, end)]
