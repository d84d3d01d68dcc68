"""Predicted against published speed: `python -m bench.speed` prints errors, coverage and order by class and depth.

Cross-validated by rig and author: each run is predicted by parameters and intervals fitted without its group (every run
that shares its machine or its author), as `bench.calibrate` left them. Predictions are of builds of the run's day. One
number for each case and depth band: the median over its rows. `--in-sample` uses the shipped parameters; `--held-out`
shows the groups that no fit has seen. `--own` shows this project's own runs (tests/data/perf_gpu_day.jsonl),
in-sample: on their generation of cards nobody has published a run of a build of today. `--file FILE` shows each run of
a file in the form of tests/data/perf.jsonl (tests/data/perf_h200_ram.jsonl is in no fit), by the shipped parameters.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench import scoreboard
from bench.calibrate import FOLDS, Folds, training_rows
from bench.conformal import Guess, guess
from bench.corrections import DISTRUSTED
from bench.fit import rows_of_tests
from bench.pairs import Pair, pairs_of
from bench.runs import OURS, is_held_out, kind_of, setups, tests_of
from bench.stamp import stamp
from service.engine.calibration import Comparison
from service.engine.calibration import shipped as shipped_calibration
from service.engine.estimate import Z80

SHALLOW, DEEP = 1_024, 8_192
CLASSES = ("CPU only", "one GPU", "one GPU + CPU", "several GPUs", "several GPUs + CPU", "all")
BANDS = ("depth 0", "deep", "any")
BACKENDS = {"cuda": "CUDA", "rocm": "ROCm", "vulkan": "Vulkan", "sycl": "SYCL", "metal": "Metal"}
_DIFFER, _CLEARLY = math.log(1.05), math.log(1.2)


class Point(msgspec.Struct, frozen=True):
    """One published speed next to the predicted one: `error` is the logarithm of predicted over observed, `factor` that
    of the interval."""

    guess: Guess
    kind: str
    factor: float

    @property
    def case(self) -> str:
        """The id of its case."""
        return str(self.guess.row.test.setup.case["id"])

    @property
    def backend(self) -> str:
        """What drove the cards; `CPU` without any."""
        setup = self.guess.row.test.setup
        return BACKENDS[setup.rig.cards[setup.devices[0].gpu].backend] if setup.devices else "CPU"

    @property
    def depth(self) -> int:
        """Tokens in the cache."""
        return self.guess.row.test.depth

    @property
    def phase(self) -> str:
        """TG or PP."""
        return self.guess.row.test.phase

    @property
    def error(self) -> float:
        """Logarithm of predicted over observed."""
        return self.guess.error

    @property
    def inside(self) -> bool:
        """Whether the interval holds the observed speed."""
        return abs(self.error) <= math.log(self.factor)


class Judged(msgspec.Struct, frozen=True):
    """A pair of configs and what is said of it: 1 faster, -1 slower, 0 too close to call; `spread` of its interval."""

    pair: Pair
    verdict: int
    spread: float

    def is_close(self) -> bool:
        """Whether it is too close to call."""
        return self.verdict == 0

    def is_direction_right(self) -> bool:
        """Whether the faster one is predicted to be faster, too close to call or not."""
        return self.pair.predicted * self.pair.measured > 0

    def is_inside(self) -> bool:
        """Whether the interval of the ratio holds the measured one."""
        return abs(self.pair.predicted - self.pair.measured) <= Z80 * self.spread


def folds() -> Folds:
    """Return the parameters of every fold. Raises ValueError for those of another calibration."""
    found = msgspec.json.decode(FOLDS.read_bytes(), type=Folds)
    if found.version != shipped_calibration().version:
        raise ValueError(f"{FOLDS.name} is of {found.version}, not of the calibration that is shipped: make calibrate")
    return found


def cross_validated() -> tuple[list[Point], list[Judged]]:
    """Return all points and pairs that may be fitted, each predicted without its group."""
    known, by_group = folds(), defaultdict(list)
    for row in training_rows():
        by_group[row.test.setup.group].append(row)
    points, judged = [], []
    for group, values in known.values.items():
        whole = dict(shipped_calibration().coefficients) | values
        guesses = [guess(row, whole) for row in by_group[group]]
        points += [point(g, known.intervals[group]) for g in guesses]
        judged += judge(guesses, known.comparisons[group])
    return points, judged


def shipped(held_out: bool, own: bool = False) -> tuple[list[Point], list[Judged]]:
    """Return points and pairs by the shipped parameters: of the fitted groups (in-sample), of those held out, or of
    this project's own runs."""
    known = shipped_calibration()
    chosen = [s for s in setups()[0] if is_held_out(s.group) is held_out and (s.group == OURS) is own]
    tests = [t for s in chosen for t in tests_of(s, every=False)]
    guesses = [guess(row, dict(shipped_calibration().coefficients)) for row in rows_of_tests(tests)]
    points = [point(g, known.intervals) for g in guesses]
    return points, judge(guesses, known.comparisons)


def point(one: Guess, intervals: dict[str, float]) -> Point:
    """Return a prediction with its interval."""
    return Point(one, kind_of(one.row.test.placement), one.factor(intervals))


def judge(guesses: Sequence[Guess], comparisons: dict[str, Comparison]) -> list[Judged]:
    """Return the pairs of these predictions and what is said of them."""
    found = []
    for pair in pairs_of(guesses):
        spread = pair.spread(comparisons[pair.key])
        found.append(Judged(pair, pair.verdict(spread), spread))
    return found


def in_band(depth: int, band: str) -> bool:
    """Return whether a depth belongs to a band."""
    return band == "any" or (depth < SHALLOW if band == "depth 0" else depth >= DEEP)


def summary(points: Sequence[Point]) -> str:
    """Return cases, median, p80 and p90 of the absolute error, bias, coverage and width of the interval as one row."""
    by_case: dict[str, list[Point]] = defaultdict(list)
    for one in points:
        by_case[one.case].append(one)
    signed = [statistics.median(p.error for p in of_case) for of_case in by_case.values()]
    errors = sorted(abs(e) for e in signed)
    inside = statistics.mean(statistics.mean(p.inside for p in of_case) for of_case in by_case.values())
    width = statistics.median(statistics.median(p.factor for p in of_case) ** 2 for of_case in by_case.values())
    cells = [_percent(errors[min(int(q * len(errors)), len(errors) - 1)]) for q in (0.5, 0.8, 0.9)]
    bias = f"{(math.exp(statistics.median(signed)) - 1) * 100:+.0f} %"
    return " | ".join([f"{len(errors):5}", *cells, f"{bias:>6}", f"{inside * 100:6.0f} %", f"{width:7.2f}"])


def _percent(error: float) -> str:
    return f"{(math.exp(error) - 1) * 100:4.0f} %"


def report(points: Sequence[Point]) -> Iterator[str]:
    """Yield the tables of TG and PP as Markdown."""
    for phase in ("TG", "PP"):
        yield f"| {phase} | cases | median | p80 | p90 | bias | coverage | high/low |"
        yield "|---|---|---|---|---|---|---|---|"
        for kind in CLASSES:
            for band in BANDS:
                chosen = [p for p in points if p.phase == phase and kind in (p.kind, "all") and in_band(p.depth, band)]
                if chosen:
                    yield f"| {kind}, {band} | {summary(chosen)} |"
        for backend in BACKENDS.values():
            for kind in CLASSES[1:]:
                chosen = [p for p in points if (p.phase, p.backend) == (phase, backend) and kind in (p.kind, "all")]
                if chosen:
                    yield f"| {backend}: {kind} | {summary(chosen)} |"
        yield ""


def right(judged: Judged) -> bool:
    """Return whether what is said holds: "too close to call" does up to a difference of 20 %."""
    if judged.verdict == 0:
        return abs(judged.pair.measured) <= _CLEARLY
    return judged.verdict * judged.pair.measured > 0


def order(judged: Sequence[Judged]) -> Iterator[str]:
    """Yield how often the order of two configs of one rig was right, where they differ by more than 5 %.

    Every comparison that somebody published counts once, however many pairs it has.
    """
    heads = "differ by > 5 % on one rig", "pairs in comparisons", "direction", "right", "too close", "called: right"
    yield "| " + " | ".join((*heads, "in its interval")) + " |"
    yield "|---|---|---|---|---|---|---|"
    apart = [j for j in judged if abs(j.pair.measured) > _DIFFER]
    for phase in ("TG", "PP"):
        for kind in (*CLASSES[:-1], "all"):
            chosen = [j for j in apart if j.pair.phase == phase and kind in (_kind(j), "all")]
            if chosen:
                weights = [j.pair.weight for j in chosen]
                shares = [
                    statistics.fmean((float(holds(j)) for j in chosen), weights)
                    for holds in (Judged.is_direction_right, right, Judged.is_close, Judged.is_inside)
                ]
                shares.insert(3, _right_of_called(chosen))
                count = f"{len(chosen)} in {len({j.pair.group for j in chosen})}"
                yield f"| {phase}, {kind} | {count} | " + " | ".join(f"{x * 100:.0f} %" for x in shares) + " |"
    several = [j.is_direction_right() for j in apart if _kind(j).startswith("several")]
    yield ""
    yield f"Of {len(several)} such pairs on several GPUs the faster one is predicted to be faster in {sum(several)}."
    yield ""


def _kind(judged: Judged) -> str:
    return kind_of(judged.pair.ours.row.test.placement)


def _right_of_called(judged: Sequence[Judged]) -> float:
    """Return how often an order that is said was right; 1 where none is."""
    called = [j for j in judged if not j.is_close()]
    return statistics.fmean((float(right(j)) for j in called), [j.pair.weight for j in called]) if called else 1.0


def worst(points: Sequence[Point], count: int) -> list[tuple[str, str, str, float, float]]:
    """Return the cases with the largest errors: phase, case, class, predicted over observed, observed."""
    by_case: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for one in points:
        by_case[one.phase, one.case].append(one)
    middle = {key: statistics.median(p.error for p in of_case) for key, of_case in by_case.items()}
    return [
        (*key, by_case[key][0].kind, math.exp(middle[key]), by_case[key][0].guess.row.test.observed)
        for key in sorted(middle, key=lambda k: -abs(middle[k]))[:count]
    ]


def of_file(path: Path) -> Iterator[str]:
    """Yield a line for each run of a file: measured, predicted by the shipped parameters, and their ratio."""
    values = dict(shipped_calibration().coefficients)
    for row in rows_of_tests([test for setup in setups((path,))[0] for test in tests_of(setup, every=True)]):
        test, predicted = row.test, 1 / math.exp(row.log_seconds(values))
        name = f"{test.phase}{test.n} at {test.depth:,}"
        speeds = f"{test.observed:9,.1f} {predicted:9,.1f} x{test.observed / predicted:.2f}"
        yield f"{name:16} {speeds}  {test.setup.case['id']}"


def main() -> None:
    """Print the tables, what was left out, and the worst cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worst", type=int, default=10, help="how many of the worst cases to list (default: 10)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--in-sample", action="store_true", help="the shipped parameters on the runs they were fitted on"
    )
    which.add_argument("--own", action="store_true", help="the shipped parameters on this project's own runs")
    which.add_argument("--held-out", action="store_true", help="the shipped parameters on the groups never fitted")
    which.add_argument("--file", type=Path, help="the shipped parameters on the runs of a file")
    arguments = parser.parse_args()
    if arguments.file:
        print(f"Measured, predicted, measured over predicted: {arguments.file}.", stamp(), "\n")
        print("\n".join(of_file(arguments.file)))
        return
    if arguments.in_sample or arguments.held_out or arguments.own:
        points, judged = shipped(arguments.held_out, arguments.own)
        print("Held out: no fit has seen these groups." if arguments.held_out else "In-sample.", stamp(), "\n")
    else:
        points, judged = cross_validated()
        print(f"Cross-validated by rig and author, calibration {shipped_calibration().version}.", stamp(), "\n")
    print("\n".join(report(points)))
    print("\n".join(order(judged)))
    left_out = Counter(f"distrusted, {why}" for why in DISTRUSTED.values())
    left_out.update(reason for reason in setups()[1] if reason != "distrusted")
    print("left out:", *(f"{count} x {reason}" for reason, count in left_out.most_common()), sep="\n  ")
    print("\nworst cases, predicted over observed:")
    for phase, case, kind, ratio, observed in worst(points, arguments.worst):
        print(f"  {phase} {ratio:5.2f} x {case} ({kind}, observed {observed:.1f} t/s)")
    print("", *scoreboard.report(scoreboard.lines()), sep="\n")


if __name__ == "__main__":
    main()
