"""What llama.cpp's `-fit` chooses where a command does not place the model: context, layers of each card, overrides.

Source: llama.cpp 0c1e57098 common/fit.cpp (pull request 16653). It measures whole placements and searches by false
position: first a shorter context, then layers from the last card to the first, of a mixture of experts without its
experts; then experts from the first card to the last, with a part of one more layer where that fits.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from service.engine.config import CPU, Flags, Override
from service.engine.engines.spec import FitAsked
from service.engine.run.settings import numbers_of
from service.engine.units import MIB

_MARGIN_MIB, _LEAST_CONTEXT = 1_024, 4_096  # -fitt and -fitc
_STEP = 256
_ALL_EXPERTS = r"blk\.\d+\.ffn_(up|down|gate_up|gate)_(ch|)exps"
# What of a layer leaves its card, by what stays: all but experts, attention, and up, and gate.
_LEAVES = {
    "moe": r"blk\.{}\.ffn_(up|down|gate_up|gate)_(ch|)exps",
    "attn": r"blk\.{}\.ffn_(gate|up|gate_up|down).*",
    "up": r"blk\.{}\.ffn_(gate|gate_up|down).*",
    "gate": r"blk\.{}\.ffn_down.*",
}


class _Share(msgspec.Struct, frozen=True):
    """Layers of a card, the last `part` of them without experts; `stays`: what the first of these keeps."""

    layers: int = 0
    part: int = 0
    stays: str = "moe"

    @property
    def full(self) -> int:
        return self.layers - self.part


def fitted(asked: FitAsked) -> Flags:
    """Return the flags that the model is loaded with: those given where all fits, or where `-fit` gives up."""
    if asked.placed and asked.n_ctx:
        return asked.flags
    return _Fit(asked).flags()


def margins_of(flags: Flags, n: int) -> list[int]:
    """Return the bytes to leave free on each of `n` cards: one number for all or one for each (`-fitt`)."""
    values = numbers_of(flags, "-fitt", "--fit-target") or [_MARGIN_MIB]
    return [value * MIB for value in (values * n if len(values) == 1 else [*values, *[_MARGIN_MIB] * n])[:n]]


class _Fit:
    def __init__(self, asked: FitAsked) -> None:
        self.asked, self.model = asked, asked.model
        self.n = len(asked.free)
        self.n_layer = asked.model.n_layer - asked.model.n_layer_nextn
        margins = margins_of(asked.flags, self.n)
        self.targets = [free - margin for free, margin in zip(asked.free, margins, strict=True)]
        self.now = replace(asked.flags, n_ctx=asked.n_ctx or asked.model.n_ctx_train * asked.streams)
        self.overflow = [CPU] * self.n

    def flags(self) -> Flags:
        used = self.asked.used(self.now)
        if all(u <= target for u, target in zip(used, self.targets, strict=True)):
            return self.now
        enough = self._shorter_context(used)
        if enough or self.asked.placed or self.now.split_mode in ("row", "tensor"):
            return self.now
        without = replace(self.now, overrides=(Override(_ALL_EXPERTS, CPU),))
        experts = self.model.n_expert > 0
        surplus = sum(self.targets) - sum(self.asked.used(without)) if experts else 0
        shares = self._dense_layers()
        if experts and surplus > 0:
            shares = self._experts(shares)
        return self._placed(shares, self.overflow)

    def _shorter_context(self, used: Sequence[int]) -> bool:
        """Shorten a context that was not asked for; whether that alone is enough."""
        total, target = sum(used), sum(self.targets)
        stated = numbers_of(self.now, "-fitc", "--fit-ctx")
        longest, least = self.now.n_ctx, (stated[0] if stated else _LEAST_CONTEXT) * self.asked.streams
        if target >= total or self.asked.n_ctx or longest <= least or self.now.split_mode == "tensor":
            return False
        if self.n > 1:  # room for half a layer, or tensor, that is left over on each card
            per_layer = sum(t.nbytes for t in self.model.tensors if not t.name.startswith("token_embd")) // self.n_layer
            target -= (self.n + 1) * per_layer // (6 if self.model.n_expert else 2)
        self.now = replace(self.now, n_ctx=least)
        shortest = sum(self.asked.used(self.now))
        if target <= shortest:
            return False
        n_ctx = least + (longest - least) * (target - shortest) // (total - shortest)
        step = _STEP * self.asked.streams
        self.now = replace(self.now, n_ctx=max(n_ctx - n_ctx % step, least))
        return self.n == 1

    def _placed(self, shares: Sequence[_Share], overflow: Sequence[str]) -> Flags:
        """Return the flags that give each card its share."""
        n_gpu_layers, rules = sum(share.layers for share in shares), list[Override]()
        layer = self.n_layer + 1 - n_gpu_layers
        for share, device in zip(shares, overflow, strict=True):
            layer += share.full
            for i in range(share.part):
                first = i == 0
                pattern = _LEAVES[share.stays if first else "moe"].format(layer + i)
                rules.append(Override(pattern, device if first else CPU))
            layer += share.part
        split = tuple(float(share.layers) for share in shares) if self.n > 1 else ()
        return replace(self.now, n_gpu_layers=n_gpu_layers, tensor_split=split, overrides=tuple(rules))

    def _used(self, shares: Sequence[_Share], overflow: Sequence[str] | None = None) -> list[int]:
        return self.asked.used(self._placed(shares, overflow or self.overflow))

    def _dense_layers(self) -> list[_Share]:
        """Fill the cards from the last, which has the head, to the first; experts stay in RAM."""
        shares = [_Share()] * self.n
        used = self._used(shares)
        for card in range(self.n - 1, -1, -1):
            left = self.n_layer + 1 - sum(share.layers for share in shares[card + 1 :])
            if not left:
                continue
            high = _with(shares, card, self._dense(card, left))
            used_high = self._used(high)
            if used_high[card] <= self.targets[card]:
                shares, used = high, used_high
                continue
            while (delta := high[card].layers - shares[card].layers) > 1:
                step = _step(delta, self.targets[card], used[card], used_high[card])
                test = _with(shares, card, self._dense(card, shares[card].layers + step))
                used_test = self._used(test)
                if used_test[card] <= self.targets[card]:
                    shares, used = test, used_test
                else:
                    high, used_high = test, used_test
        return shares

    def _dense(self, card: int, layers: int) -> _Share:
        """So many layers; of a mixture of experts without experts, but for the head's slot."""
        if not self.model.n_expert:
            return _Share(layers)
        return _Share(layers, layers - 1 if card == self.n - 1 else layers)

    def _experts(self, shares: list[_Share]) -> list[_Share]:
        """Give whole layers to the cards from the first to the last, taken from those without experts.

        Where the last card has no layer none is found to start from, and all experts stay in RAM.
        """
        used, start = self._used(shares), self.n
        while start and shares[start - 1].layers:
            start -= 1
        card = 0
        while card <= start < self.n:
            high, start_high = self._all_full(shares, card, start), self.n - 1
            used_high = self._used(high)
            if used_high[card] > self.targets[card]:
                while (delta := high[card].full - shares[card].full) > 1:
                    step = _step(delta, self.targets[card], used[card], used_high[card])
                    test, start_test = self._converted(shares, card, start, step)
                    used_test = self._used(test)
                    if used_test[card] <= self.targets[card]:
                        shares, used, start = test, used_test, start_test
                    else:
                        high, used_high, start_high = test, used_test, start_test
            else:
                shares, used, start = high, used_high, start_high
            shares, used, start = self._part_of_one_more(shares, used, card, start)
            card += 1
        return shares

    def _all_full(self, shares: list[_Share], card: int, start: int) -> list[_Share]:
        """All layers that are left on one card, but for the head's slot, which is the last card's."""
        found = list(shares)
        for other in range(start, self.n):
            moved = found[other].layers - (0 if other < self.n - 1 else 1)
            found[card] = replace(found[card], layers=found[card].layers + moved)
            found[other] = replace(found[other], layers=found[other].layers - moved, part=0)
        return found

    def _converted(self, shares: list[_Share], card: int, start: int, step: int) -> tuple[list[_Share], int]:
        found, done = list(shares), 0
        while start < self.n:
            n = min(step - done, found[start].part)
            found[start] = replace(found[start], layers=found[start].layers - n, part=found[start].part - n)
            found[card] = replace(found[card], layers=found[card].layers + n)
            done += n
            if found[start].part > 0:
                break
            start += 1
        return found, start

    def _part_of_one_more(
        self, shares: list[_Share], used: list[int], card: int, start: int
    ) -> tuple[list[_Share], list[int], int]:  # fmt: skip
        """Try up, then gate as well, else attention alone of one more layer; the rest goes to the next card or RAM."""
        if start >= self.n or shares[start].layers <= (0 if card < self.n - 1 else 1):
            return shares, used, start
        test, start_test = list(shares), start
        test[start] = replace(test[start], layers=test[start].layers - 1, part=test[start].part - 1)
        test[card] = replace(test[card], layers=test[card].layers + 1, part=test[card].part + 1)
        if test[start].part == 0:
            start_test += 1
        overflow = list(self.overflow)
        if card < self.n - 1:
            overflow[card] = f"CUDA{card + 1}"
        for stays, following in (("up", "gate"), ("attn", None)):
            tried = self._if_it_fits(test, card, stays, overflow)
            if tried is None:
                continue
            self.overflow = overflow
            more = self._if_it_fits(test, card, following, overflow) if following else None
            return *(more or tried), start_test
        return shares, used, start

    def _if_it_fits(
        self, shares: list[_Share], card: int, stays: str, overflow: list[str]
    ) -> tuple[list[_Share], list[int]] | None:  # fmt: skip
        test = _with(shares, card, replace(shares[card], stays=stays))
        used = self._used(test, overflow)
        fits = used[card] < self.targets[card]
        return (test, used) if fits and (card + 1 == self.n or used[card + 1] < self.targets[card + 1]) else None


def _with(shares: Sequence[_Share], card: int, share: _Share) -> list[_Share]:
    return [*shares[:card], share, *shares[card + 1 :]]


def _step(delta: int, target: int, used: int, used_high: int) -> int:
    """Return the layers to try next: where a line between both ends meets the target, in whole numbers as in C++."""
    share = delta * (target - used)
    guess = abs(share) // (used_high - used) if used_high > used else 1
    return min(max(guess, 1), delta - 1) if share >= 0 else delta - 1
