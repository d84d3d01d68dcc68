"""How alike the errors of near configs are, and what correcting by them gains: `python -m bench.nearby`.

Published runs (tests/data/perf.jsonl), predicted by parameters that saw no run of their machine or author. For each
kind of nearness: how differently two estimates of one model are off, which are the constants of
`service/engine/measured/nearby.py`. Then each run corrected by the others of its rig and model, as an advice is: median
error and share inside the 80 % interval, before and after.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec

from bench import scoreboard
from bench.calibrate import FOLDS, Folds, training_rows
from bench.conformal import guess
from bench.runs import Setup, author_of
from bench.stamp import stamp
from service.engine.calibration import shipped
from service.engine.estimate import Z80
from service.engine.measured.nearby import PHASES, SPREADS, Nearness, Observation, Phase, correction

_CHOICES = 4  # of anchors, for each run


class Case(msgspec.Struct, frozen=True):
    """One published run in one phase: logarithm of expected over measured speed, and the factor of its interval."""

    setup: Setup
    phase: Phase
    error: float
    factor: float

    @property
    def rig(self) -> tuple[object, ...]:
        """Return whose machine it is: author, CPU, cards, bandwidth."""
        return rig_of(self.setup)


def rig_of(setup: Setup) -> tuple[object, ...]:
    """Return whose machine a run is of, and how it is driven: author, CPU, cards, back end, bandwidth."""
    rig = setup.rig
    cards = tuple(sorted((card.name, card.backend) for card in rig.cards))
    return (author_of(setup.case), rig.cpu_model, rig.sockets, cards, round(rig.cpu_bandwidth_gbs))


def cases() -> list[Case]:
    """Return every run that may be fitted, with its median error on each phase."""
    folds = msgspec.json.decode(FOLDS.read_bytes(), type=Folds)
    found: dict[tuple[str, Phase], list[tuple[Setup, float, float]]] = defaultdict(list)
    for row in training_rows():
        setup = row.test.setup
        if setup.group != scoreboard.GROUP:
            one = guess(row, dict(shipped().coefficients) | folds.values[setup.group])
            factor = one.factor(folds.intervals[setup.group])
            found[setup.case["id"], one.phase].append((setup, one.error, factor))
    return [
        Case(them[0][0], phase, statistics.median(e for _, e, _ in them), statistics.median(f for _, _, f in them))
        for (_, phase), them in found.items()
    ]


def nearness(one: Case, other: Case) -> Nearness | None:
    """Return what two runs of one rig share; None for different rigs."""
    if one.rig != other.rig:
        return None
    same_model = one.setup.case["model"]["shape"] == other.setup.case["model"]["shape"]
    same_mix = one.setup.case["model"]["mix"] == other.setup.case["model"]["mix"]
    same_engine = one.setup.engine == other.setup.engine
    return Nearness(same_mix and same_model, same_engine, same_model)


def differences(found: Sequence[Case], phase: Phase) -> dict[Nearness, tuple[int, float]]:
    """Return how many pairs there are of each nearness, and how differently four of five of them are off.

    A rig counts by the root of its pairs, so that one with many runs does not speak for all.
    """
    by_kind: dict[Nearness, list[tuple[float, tuple[object, ...]]]] = defaultdict(list)
    for one, other in combinations([case for case in found if case.phase == phase], 2):
        kind = nearness(one, other)
        if kind is not None:
            by_kind[kind].append((abs(one.error - other.error), one.rig))
    return {kind: (len(them), _p80(them)) for kind, them in by_kind.items()}


def _p80(pairs: Sequence[tuple[float, tuple[object, ...]]]) -> float:
    count = Counter(rig for _, rig in pairs)
    weights = [(apart, 1 / math.sqrt(count[rig])) for apart, rig in sorted(pairs, key=lambda pair: pair[0])]
    left = 0.8 * sum(weight for _, weight in weights)
    for apart, weight in weights:
        left -= weight
        if left <= 0:
            return apart
    return weights[-1][0]


def observations(case: Case, found: Sequence[Case]) -> Iterator[Observation]:
    """Yield what the other runs of its model say of a run."""
    for other in found:
        kind = nearness(case, other) if other is not case and other.phase == case.phase else None
        if kind is not None:
            yield Observation(str(other.rig), kind, {case.phase: -other.error})


def corrected(found: Sequence[Case], phase: Phase) -> list[tuple[float, float, float, float]]:
    """Return (error, spread) before and after, of every run of a phase that others are near to."""
    rows = []
    for case in found:
        near = list(observations(case, found)) if case.phase == phase else []
        if near:
            prior = math.log(case.factor) / Z80
            made = correction(prior, phase, near)
            rows.append((case.error, prior, case.error + made.shift, made.spread))
    return rows


def anchored(found: Sequence[Case], phase: Phase, count: int) -> list[tuple[float, float, float, float]]:
    """Return (error, spread) before and after, of every run with `count` others of its rig measured: some choices."""
    chance, rows = random.Random(1), []
    for case in found:
        kinds = [(other, nearness(case, other)) for other in found if other is not case and other.phase == case.phase]
        mine = [Observation(str(n), kind, {phase: -other.error}) for n, (other, kind) in enumerate(kinds) if kind]
        if case.phase != phase or len(mine) < count:
            continue
        for _ in range(_CHOICES):
            prior = math.log(case.factor) / Z80
            made = correction(prior, phase, chance.sample(mine, count))
            rows.append((case.error, prior, case.error + made.shift, made.spread))
    return rows


def main() -> None:
    """Print the table of nearness and the gain."""
    found = cases()
    print(stamp())
    print("how differently two estimates of one model are off (80 % within; as a standard deviation; used)")
    for phase in PHASES:
        for kind, (count, p80) in sorted(differences(found, phase).items(), reverse=True):
            print(f"  {phase} {_words(kind):<44} {count:>4} pairs  {p80:.3f}  {p80 / Z80:.2f}  {SPREADS[kind][phase]}")
    print("each run corrected by the others near to it: median error, inside its 80 % interval, high/low")
    for phase in PHASES:
        rows = corrected(found, phase)
        before, after = [(e, s) for e, s, _, _ in rows], [(e, s) for _, _, e, s in rows]
        print(f"  {phase} {len(rows)} runs: before {_summary(before)}; after {_summary(after)}")
    print("anchors: each run with one or two others of its rig measured, of any model")
    for phase in PHASES:
        for count in (1, 2):
            rows = anchored(found, phase, count)
            before, after = [(e, s) for e, s, _, _ in rows], [(e, s) for _, _, e, s in rows]
            print(f"  {phase} {count} of {len(rows)} choices: before {_summary(before)}; after {_summary(after)}")


def _words(kind: Nearness) -> str:
    parts = ("rig", "quant" if kind.variant else "", "engine" if kind.engine else "")
    return "same " + ", ".join(part for part in parts if part) + ("" if kind.model else ", another model")


def _summary(rows: Sequence[tuple[float, float]]) -> str:
    error = math.exp(statistics.median(abs(e) for e, _ in rows)) - 1
    inside = sum(abs(e) <= Z80 * s for e, s in rows) / len(rows)
    width = math.exp(2 * Z80 * statistics.median(s for _, s in rows))
    return f"{error:.1%}, {inside:.0%}, {width:.2f}"


if __name__ == "__main__":
    main()
