"""Placements with whole layers in RAM, their caches included: how many, and of which other layers the FFN as well.

At depth a layer's cache in RAM costs more than its FFN there, for a short prompt it is the reverse. So `-ngl` is
searched between the most layers that fit the cards whole, and the most that fit without their FFN; each one tried is
replayed. ik_llama.cpp leaves the output head in RAM as soon as one layer lies there. A batch then needs a copy of it on
a card, which takes as much as the head itself: so a rule of its own puts it on the last card, as `--fit` does.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from service.engine.config import CPU, Flags, Override
from service.engine.planner.pricing.blocks import Block, blocks_of
from service.engine.planner.pricing.fit import Fitted, Problem, Shortfall, most_left, shortfall_of, slack
from service.engine.planner.search.layout_flags import rules_of

_STEPS = 6  # into which the numbers of layers between the two ends are divided
_HEAD = "output.weight"
_HEAD_RULE = r"^output\."  # `attn_output.weight` is another tensor
_REPLAYS = 3  # for one number of layers: the FFN that a replay leaves room for may be one too many


def layers_in_ram(problem: Problem, flags: Flags) -> Fitted | Shortfall:
    """Return `flags` with the `-ngl`, and the `-ot` for FFN in RAM, that serve the goal fastest, or the Shortfall."""
    search = _Search(problem, flags)
    most = search.most_layers(all_ffn_in_ram=True)
    if most == 0:
        return search.shortfall_of_one()
    fewest = search.most_layers(all_ffn_in_ram=False)
    for ngl in sorted({fewest + round((most - fewest) * step / _STEPS) for step in range(_STEPS + 1)} - {0}):
        search.try_layers(ngl)
    for ngl in (search.best_ngl - 1, search.best_ngl + 1):
        if fewest <= ngl <= most:
            search.try_layers(ngl)
    return search.best or search.least or Shortfall("RAM", problem.model.n_bytes)


class _Search:
    """What was replayed so far, the best that fits (`best`), and the smallest shortfall (`least`)."""

    def __init__(self, problem: Problem, flags: Flags) -> None:
        self.problem, self.flags = problem, flags
        self.blocks = {b.index: b for b in blocks_of(problem.model, problem.engine) if b.pieces or b.ram_only}
        self.best: Fitted | None = None
        self.best_ngl, self.seconds = 0, float("inf")
        self.least: Shortfall | None = None
        self._known: dict[Flags, Fitted] = {}
        self._head_rules: tuple[Override, ...] = ()
        with_a_layer_in_ram = self._tried(self._flags(problem.model.n_layer, set())).placement
        if with_a_layer_in_ram.head == len(problem.devices) and _HEAD in problem.model.by_name:
            self._head_rules = (Override(_HEAD_RULE, problem.devices[-1].name),)

    def most_layers(self, *, all_ffn_in_ram: bool) -> int:
        """Return the most layers (the head is one) that fit the cards, with all FFN in RAM or with none there."""
        low, high = 0, self.problem.model.n_layer + 1
        while low < high:
            middle = (low + high + 1) // 2
            flags = self._flags(middle, set(self.blocks) if all_ffn_in_ram else set())
            if self._fits_cards(flags):
                low = middle
            else:
                high = middle - 1
        return low

    def _fits_cards(self, flags: Flags) -> bool:
        """Whether the cards have room; no replay where the closed form says that they have not."""
        if flags not in self._known and min(most_left(self.problem, self.problem.run(flags))[:-1]) < 0:
            return False
        return min(self._slack(flags)[:-1]) >= 0

    def shortfall_of_one(self) -> Shortfall:
        """Return what is missing for one layer, with all FFN in RAM."""
        return shortfall_of(self.problem, self._slack(self._flags(1, set(self.blocks))))

    def try_layers(self, ngl: int) -> None:
        """Try this number of layers on the cards, with as little FFN in RAM as they have room for."""
        flags = self._flags(ngl, set(self.blocks))
        left, cards = self._slack(flags), self._tried(flags).placement.layers
        kept = {card: self._room_for(cards, card, left[card]) for card in range(len(self.problem.devices))}
        for _ in range(_REPLAYS):
            away = {i for card in kept for i in self._away(cards, card, kept[card])}
            flags = self._flags(ngl, away)
            left = self._slack(flags)
            short = [card for card, n in enumerate(left[:-1]) if n < 0]
            if not short:
                break
            kept |= {card: max(kept[card] - 1, 0) for card in short}
        self._note(ngl, flags, left)

    def _note(self, ngl: int, flags: Flags, left: list[int]) -> None:
        if min(left) < 0:
            found = shortfall_of(self.problem, left)
            self.least = found if self.least is None else min(self.least, found, key=lambda s: s.n_bytes)
            return
        fitted = self._tried(flags)
        seconds = self.problem.seconds(fitted).expected
        if seconds < self.seconds:
            self.best, self.best_ngl, self.seconds = fitted, ngl, seconds

    def _room_for(self, cards: tuple[int, ...], card: int, left: int) -> int:
        """Of how many of its layers a card has room for the FFN."""
        n = 0
        for block in self._of_card(cards, card):
            left -= block.movable_bytes
            if left < 0:
                break
            n += 1
        return n

    def _away(self, cards: tuple[int, ...], card: int, n_kept: int) -> Iterator[int]:
        """The blocks of a card whose FFN it does not keep."""
        yield from (block.index for block in self._of_card(cards, card)[n_kept:])

    def _of_card(self, cards: tuple[int, ...], card: int) -> list[Block]:
        """The blocks of a card with pieces to keep, the last first: what lies in RAM is then one range of layers."""
        return [b for i, b in sorted(self.blocks.items(), reverse=True) if cards[i] == card and not b.ram_only]

    def _flags(self, ngl: int, away: set[int]) -> Flags:
        away = away | {i for i, block in self.blocks.items() if block.ram_only}
        rules = rules_of(self.problem.model, {(CPU, "whole"): sorted(away)})
        head = self._head_rules if ngl <= self.problem.model.n_layer else ()
        return replace(self.flags, n_gpu_layers=ngl, overrides=(*head, *rules))

    def _tried(self, flags: Flags) -> Fitted:
        if flags not in self._known:
            self._known[flags] = self.problem.tried(flags)
        return self._known[flags]

    def _slack(self, flags: Flags) -> list[int]:
        return slack(self.problem, self._tried(flags).memory)
