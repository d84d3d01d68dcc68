"""Intervals from errors on runs that were not fitted: the factor of a class that holds four of five of them.

Split-conformal, by groups: every error is of a rig and author that the fit had not seen. What an assumed link or CPU
may be off by is fitted too; the other `unknown.*` and the factors of kinds with few runs (Windows, deep quantised
caches) are given.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from bench.fit import Row
from service.engine.speed.fitting import Values
from service.engine.speed.generation import token_seconds
from service.engine.speed.interval import Phase, assumed_shares, class_of, trust, unknown
from service.engine.speed.predict import prompt_seconds
from service.engine.speed.work import Seconds

HELD = 0.8
_LEAST = 8  # cases: a class of fewer keeps the factor that it had
_AS_MANY = 3  # groups that the runs of all other back ends count like
_ASSUMED = ("unknown.link", "unknown.cpu")  # facts that enough runs leave out
_RULES = 0.4  # of the time: an assumed fact of less says little of its own error
_NARROWEST = 1.25  # groups that no fit saw (docs/speed.md, "Held out") bear out no narrower interval


class Guess(msgspec.Struct, frozen=True):
    """A prediction of a published speed by parameters that never saw its group, and the parts of its time."""

    row: Row
    error: float
    parts: Seconds

    @property
    def phase(self) -> Phase:
        """Return which speed it is."""
        return "tg" if self.row.test.phase == "TG" else "pp"

    @property
    def kind(self) -> str:
        """Return the class whose interval it gets."""
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
    guesses = list(guesses)
    known = dict(known) | {name: _assumed_factor(guesses, name, known[name]) for name in _ASSUMED}
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


def _assumed_factor(guesses: list[Guess], name: str, before: float) -> float:
    """Return what an assumed fact may be off by: with the narrowest interval it explains four of five errors of the
    runs whose time it rules; as before where they are few."""
    squares = []
    for one in guesses:
        share = assumed_shares(one.row.test.setup.rig, one.row.test.setup.devices, one.parts).get(name, 0.0)
        if share >= _RULES:
            squares.append((one, max(one.error**2 - math.log(_NARROWEST) ** 2, 0.0) / share**2))
    few = len({g.row.test.setup.case["id"] for g, _ in squares}) < _LEAST
    return before if few else round(math.exp(math.sqrt(_quantile(squares))), 2)


def _square_of(guesses: list[Guess], known: Mapping[str, float]) -> float:
    """Return the quantile of what assumed facts leave of each squared error."""
    left = []
    for one in guesses:
        s = one.row.test.setup
        assumed = sum(x * x for x in unknown(s.rig, s.devices, one.parts, known))
        left.append((one, max(one.error**2 - assumed, 0.0)))
    return _quantile(left)


def _quantile(values: list[tuple[Guess, float]]) -> float:
    """Return the value that four of five are below; cases count alike, groups by the root of their number of cases."""
    count = Counter(g.row.test.setup.case["id"] for g, _ in values)
    cases = Counter(s.group for s in {g.row.test.setup.case["id"]: g.row.test.setup for g, _ in values}.values())
    ordered = sorted((value, _weight(g.row, count, cases)) for g, value in values)
    whole, so_far = sum(weight for _, weight in ordered), 0.0
    for value, weight in ordered:
        so_far += weight
        if so_far >= HELD * whole:
            return value
    return ordered[-1][0]


def _weight(row: Row, count: Mapping[str, int], cases: Mapping[str, int]) -> float:
    setup = row.test.setup
    return 1 / count[setup.case["id"]] / math.sqrt(cases[setup.group])
