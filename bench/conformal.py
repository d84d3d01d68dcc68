"""Intervals from errors on runs that were not fitted: the factor of a class that holds four of five of them.

Split-conformal, by groups: every error is of a rig and author that the fit had not seen. What assumed facts may be off
by (`unknown.*`) and the factors of kinds with few runs (Windows, deep quantised caches) are given, not fitted.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from bench.fit import Row
from service.engine.speed.fitting import Values
from service.engine.speed.generation import token_seconds
from service.engine.speed.interval import Phase, class_of, trust, unknown
from service.engine.speed.parts import Seconds
from service.engine.speed.predict import prompt_seconds

HELD = 0.8
_LEAST = 8  # cases: a class of fewer keeps the factor that it had
_AS_MANY = 3  # groups that the runs of all other back ends count like
_NARROWEST = 1.25  # groups that no fit saw (docs/speed.md, "Held out") bear out no narrower interval


class Guess(msgspec.Struct, frozen=True):
    """A prediction of a published speed by parameters that never saw its group, and the parts of its time."""

    row: Row
    error: float
    parts: Seconds

    @property
    def phase(self) -> Phase:
        """Which speed it is."""
        return "tg" if self.row.test.phase == "TG" else "pp"

    @property
    def kind(self) -> str:
        """The class whose interval it gets."""
        s = self.row.test.setup
        return class_of(self.row.work, s.rig, s.devices, self.parts, self.phase)

    def factor(self, intervals: Mapping[str, float]) -> float:
        """Return the factor of its interval."""
        s, test = self.row.test.setup, self.row.test
        return trust(self.row.work, s.rig, s.devices, self.parts, self.phase, test.depth, intervals).factor


def guess(row: Row, values: Values) -> Guess:
    """Return the prediction of a row by these parameters."""
    test, machine = row.test, row.machine(values)
    if test.phase == "TG":
        parts = token_seconds(row.work, machine, values, test.depth + test.n // 2)
        seconds = sum(parts.values())
    else:
        whole, parts = prompt_seconds(row.work, machine, values, test.depth, test.n)
        seconds = whole / test.n
    return Guess(row, -math.log(seconds * test.observed), parts)


def fitted_intervals(guesses: Iterable[Guess], known: Mapping[str, float]) -> dict[str, float]:
    """Return `known` with the factor of every class that holds four of five of its cases.

    A case of several rows counts by their share. Few rigs of a back end say little of the next one: on cards that are
    not driven by CUDA, a class is drawn towards all of that place (`tg.hybrid.other`), as much as `_AS_MANY` groups
    weigh. `tg.any.rocm` is of all runs of a back end, for places of which nobody published a run.
    """
    by_class: dict[str, list[Guess]] = defaultdict(list)
    for one in guesses:
        phase, _, backend = one.kind.rpartition(".")
        by_class[one.kind].append(one)
        if phase.count(".") == 1:
            by_class[f"{phase}.other"].append(one)
            by_class[f"{one.phase}.any.{backend}"].append(one)
            by_class[f"{one.phase}.any.other"].append(one)
    whole = {name: _square_of(chosen, known) for name, chosen in by_class.items()}
    found = {name: factor for name, factor in known.items() if name.count(".") < 2}
    for name, chosen in sorted(by_class.items()):
        square, parent = whole[name], whole.get(f"{name.rpartition('.')[0]}.other")
        if parent is not None:
            groups = len({g.row.test.setup.group for g in chosen})
            square = (groups * square + _AS_MANY * parent) / (groups + _AS_MANY)
        if parent is not None or len({g.row.test.setup.case["id"] for g in chosen}) >= _LEAST:
            found[name] = round(max(math.exp(math.sqrt(square)), _NARROWEST), 3)
    return found


def _square_of(guesses: list[Guess], known: Mapping[str, float]) -> float:
    """Beyond what assumed facts explain: the quantile of what is left of each squared error, groups by their root."""
    count = Counter(g.row.test.setup.case["id"] for g in guesses)
    cases = Counter(s.group for s in {g.row.test.setup.case["id"]: g.row.test.setup for g in guesses}.values())
    left = []
    for one in guesses:
        s = one.row.test.setup
        assumed = sum(x * x for x in unknown(s.rig, s.devices, one.parts, known))
        left.append((max(one.error**2 - assumed, 0.0), 1 / count[s.case["id"]] / math.sqrt(cases[s.group])))
    left.sort()
    whole, so_far = sum(weight for _, weight in left), 0.0
    for square, weight in left:
        so_far += weight
        if so_far >= HELD * whole:
            return square
    return left[-1][0]
