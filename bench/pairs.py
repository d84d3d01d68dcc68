"""Pairs of configs of one rig that were both published: which is faster, by how much, and what is said of it.

A pair is two configs of one A/B group, or two settings of one case. Builds before and after a change, which nobody
chooses between, are no pair.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import msgspec

from bench.conformal import Guess
from bench.corrections import NO_PAIRS
from service.engine.calibration import Comparison, Part
from service.engine.estimate import Z80
from service.engine.speed.interval import CALLED, comparison_of, spread_of_ratio

_NEAR = 2_048  # tokens of depth that two rows may lie apart
_EQUAL = 1e-6
# What one rig's parts scatter by around what is known of the rig: the shape that pairs scale (posterior spreads of
# the parameters that rule each part).
_SHAPE: Mapping[Part, float] = {
    "weights on GPU": 0.12,
    "experts in RAM": 0.22,
    "other weights in RAM": 0.22,
    "attention": 0.3,
    "copies over PCIe": 0.2,
    "launch overhead": 0.35,
    "synchronisation": 0.45,
}
_OWN = (0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1)
_SCALES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
_ENGINES = 0.05  # at least: few pairs compare two engines


class Pair(msgspec.Struct, frozen=True):
    """Two configs: logarithms of measured and predicted ratio of their speeds, and a prediction of each.

    `group`: the comparison that published it; `weight`: one over its pairs of the phase, so that each counts once.
    """

    group: str
    weight: float
    names: tuple[str, str]
    phase: str
    kind: str
    measured: float
    predicted: float
    ours: Guess
    theirs: Guess

    @property
    def key(self) -> str:
        """Return the comparisons it belongs to."""
        return comparison_of(self.ours.parts, self.ours.phase)

    @property
    def same_engine(self) -> bool:
        """Return whether both run in one engine."""
        return self.ours.row.work.engine == self.theirs.row.work.engine

    def spread(self, known: Comparison) -> float:
        """Return one standard deviation of the predicted logarithm."""
        return spread_of_ratio(self.ours.parts, self.theirs.parts, known, self.same_engine)

    def verdict(self, spread: float) -> int:
        """Return 1 or -1 for "faster" or "slower", 0 for "too close to call"."""
        return 0 if abs(self.predicted) < CALLED * spread else int(math.copysign(1, self.predicted))


def pairs_of(guesses: Iterable[Guess]) -> list[Pair]:
    """Return all pairs of configs of these predictions."""
    groups: dict[tuple[str, str], dict[tuple[str, str], list[Guess]]] = defaultdict(lambda: defaultdict(list))
    for one in guesses:
        test = one.row.test
        case = test.setup.case
        if case.get("ab_group") in NO_PAIRS:
            continue
        flags = f"{test.flags.n_ubatch} {test.flags.n_gpu_layers} {test.flags.threads}"
        if case["rows"]:
            flags = ""
        groups[case.get("ab_group") or case["id"], test.phase][case["id"], flags].append(one)
    found: list[Pair] = []
    for (group, phase), configs in groups.items():
        pairs = [
            _pair(group, (f"{a[0]} {a[1]}".strip(), f"{b[0]} {b[1]}".strip()), phase, ours, theirs)
            for (a, ours), (b, theirs) in combinations(sorted(configs.items(), key=lambda c: c[0]), 2)
        ]
        apart = [pair for pair in pairs if pair is not None and _is_choice(pair)]
        found += [msgspec.structs.replace(pair, weight=1 / len(apart)) for pair in apart]
    return found


def _is_choice(pair: Pair) -> bool:
    """Return whether a user could choose between two runs: other engines, or configs of builds that behave alike."""
    ours, theirs = pair.ours.row.work, pair.theirs.row.work
    if _driven(pair.ours) != _driven(pair.theirs):
        return False
    return abs(pair.predicted) > _EQUAL and (ours.engine != theirs.engine or ours.lacks == theirs.lacks)


def _driven(one: Guess) -> list[tuple[str, str]]:
    """Return the machine's cards and what drives them."""
    return sorted((card.name, card.backend) for card in one.row.test.setup.rig.cards)


def _pair(
    group: str, names: tuple[str, str], phase: str, ours: Sequence[Guess], theirs: Sequence[Guess]
) -> Pair | None:
    matches = []
    for one in ours:
        other = min(theirs, key=lambda g: abs(g.row.test.depth - one.row.test.depth))
        apart = abs(other.row.test.depth - one.row.test.depth)
        if apart <= _NEAR and (phase == "PP" or other.row.test.n == one.row.test.n or one.row.test.setup.case["rows"]):
            matches.append((one, other))
    if not matches:
        return None
    measured = [math.log(x.row.test.observed / y.row.test.observed) for x, y in matches]
    errors = [x.error - y.error for x, y in matches]
    middle = statistics.median(measured)
    first = matches[len(matches) // 2]
    return Pair(group, 1.0, names, phase, first[0].kind, middle, middle + statistics.median(errors), *first)


def fitted_comparisons(pairs: Sequence[Pair]) -> dict[str, Comparison]:
    """Return the scatter of what two configs do not share, by phase and place.

    The likeliest own scatter and scale of the parts, then stretched so that four of five measured ratios lie in the
    interval, every published comparison counting once.
    """
    keys = (f"{phase}.{place}" for phase in ("tg", "pp") for place in ("cpu", "hybrid", "gpu"))
    return {key: _fitted([p for p in pairs if p.key == key]) for key in keys}


def _fitted(pairs: Sequence[Pair]) -> Comparison:
    same = [p for p in pairs if p.same_engine]
    known = min((_scaled(own, scale) for own in _OWN for scale in _SCALES), key=lambda c: _unlikely(same, c))
    stretch = _quantile((abs(p.predicted - p.measured) / p.spread(known), p.weight) for p in same) / Z80
    known = Comparison(round(known.own * stretch, 4), {k: round(x * stretch, 3) for k, x in known.parts.items()}, 0.0)
    left = [
        (math.sqrt(max((p.predicted - p.measured) ** 2 / Z80**2 - p.spread(known) ** 2, 0.0)), p.weight)
        for p in pairs
        if not p.same_engine
    ]
    return msgspec.structs.replace(known, engines=max(round(_quantile(left), 3), _ENGINES))


def _scaled(own: float, scale: float) -> Comparison:
    return Comparison(own, {part: x * scale for part, x in _SHAPE.items()}, 0.0)


def _unlikely(pairs: Sequence[Pair], known: Comparison) -> float:
    """Return minus the log-likelihood under Student's t of four degrees of freedom: outliers count, but little."""
    total = 0.0
    for pair in pairs:
        spread = pair.spread(known)
        miss = (pair.predicted - pair.measured) / spread
        total += pair.weight * (math.log(spread) + math.log1p(miss**2 / 4) * 2.5)
    return total


def _quantile(values: Iterable[tuple[float, float]]) -> float:
    """Return the value that four fifths of the weight lie below."""
    ordered, so_far = sorted(values), 0.0
    if not ordered:
        return 0.0
    whole = sum(weight for _, weight in ordered)
    for value, weight in ordered:
        so_far += weight
        if so_far >= 0.8 * whole:
            return value
    return ordered[-1][0]
