"""Fit the calibration of the speed model: `python -m bench.calibrate` (`make calibrate`), some minutes.

Reads tests/data/perf.jsonl and gpu_scoreboard.jsonl, fits every parameter that has a prior spread, cross-validates by
rig and author, sets the intervals from the errors on runs not fitted, prints errors before and after and the runs that
it distrusts, and writes service/engine/data/calibration.json (and the parameters of every fold, for `bench.speed`).
`--dry` writes nothing. `--cards` fits only the generations of cards that few owners published (RARE), the last step.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from bench import scoreboard
from bench.conformal import Guess, fitted_intervals, guess
from bench.fit import Row, rows_of_tests
from bench.pairs import fitted_comparisons, pairs_of
from bench.runs import CARDS, OURS, Setup, author_of, is_held_out, setups, tests_of
from service.engine.calibration import Calibration, Comparison, Parameter, shipped
from service.engine.speed.fitting import Fit, Slope, Solution, Values
from service.engine.speed.interval import generation_of

_ROOT = Path(__file__).parent.parent
CALIBRATION = _ROOT / "service" / "engine" / "data" / "calibration.json"
FOLDS = Path(__file__).parent / "results" / "speed_folds.json"
_STEPS = 4
_DISTRUST = math.log(3)
_OWNERS = 3  # of whom the spread of a generation's rigs is learned
_ALIKE = 0.02  # how far one of this project's own rigs may be from another
# Back ends and generations that few owners published, or one with nearly all runs. They are fitted after all others,
# with the runs of perf_cards.jsonl, and move only their own parameters.
RARE = frozenset(
    {"cuda.orin", "rocm.rdna2", "sycl.xe2"}
    | {f"vulkan.{name}" for name in ("alchemist", "gcn4", "rdna1", "turing", "xe2")}
)


class Folds(msgspec.Struct, frozen=True):
    """Parameters fitted without each group, and the intervals from the others' errors."""

    version: str
    values: dict[str, Values]
    intervals: dict[str, dict[str, float]]
    comparisons: dict[str, dict[str, Comparison]]


@cache
def training_rows() -> tuple[Row, ...]:
    """Return the published runs that may be fitted: all but the groups that are held out, and this project's own."""
    chosen = [s for s in setups()[0] if not is_held_out(s.group) and s.group != OURS]
    tests = [t for s in chosen for t in tests_of(s, every=False)]
    return tuple(rows_of_tests([*tests, *scoreboard.fitted_tests()]))


def solve(fit: Fit[Row]) -> tuple[Solution, list[Slope]]:
    """Return the solution of all rows, from the values in force, with its slopes."""
    at = msgspec.structs.replace(fit.start(), values={n: p.value for n, p in fit.parameters.items()})
    for _ in range(_STEPS):
        at = fit.step(at, fit.slopes(at))
    return at, fit.slopes(at)


def with_own_runs(found: Calibration) -> Calibration:
    """Return the calibration with what this project's own runs say of generations of cards of which nobody published
    any. They move no parameter of other cards: one machine, and models of few layers, say little of those. What all
    of them have in common is the generation's, not a rig's."""
    rows = rows_of_tests([t for s in setups()[0] if s.group == OURS for t in tests_of(s, every=True)])
    cards = {card.name: card for row in rows for card in row.test.setup.rig.cards}
    once = tuple(sorted({generation_of(card) for card in cards.values()}))
    ends = tuple(f".{name.partition('.')[2]}" for name in once)
    held = {
        name: p if name.endswith(ends) else msgspec.structs.replace(p, prior=p.value, prior_spread=0.0)
        for name, p in found.parameters.items()
    }
    fit = Fit(rows, held, rig=_ALIKE)
    at, slopes = solve(fit)
    return msgspec.structs.replace(found, parameters=found.parameters | moved(fit, at, slopes), measured_once=once)


def rare_rows() -> list[Row]:
    """Return the published runs, fitted before or not, whose cards are all of back ends and generations of RARE."""
    tests = [row.test for row in training_rows()]
    tests += [test for setup in setups((CARDS,))[0] for test in tests_of(setup, every=True)]
    return rows_of_tests(test for test in tests if set() < _kinds_of(test.setup) <= RARE)


def _kinds_of(setup: Setup) -> set[str]:
    return {generation_of(setup.rig.cards[device.gpu]) for device in setup.devices}


def with_rare_cards(found: Calibration, folds: Folds) -> tuple[Calibration, Folds]:
    """Return the calibration, and its folds, with what the runs of rare cards say of their own generations.

    A fold lacks the runs of its group. How a generation that one or two owners published differs from rig to rig is not
    known.
    """
    rows, ends = rare_rows(), tuple(f".{kind}" for kind in RARE)
    held = {
        name: p if name.endswith(ends) else msgspec.structs.replace(p, prior=p.value, prior_spread=0.0)
        for name, p in found.parameters.items()
    }
    fit = Fit(rows, held)
    at, slopes = solve(fit)
    groups = _groups_of(training_rows())
    without = fit.without(at, slopes, lambda row: groups.get(author_of(row.test.setup.case), scoreboard.GROUP))
    values = {
        group: known | {name: rounded(without.get(group, at.values)[name]) for name in fit.names}
        for group, known in folds.values.items()
    }
    owners: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        case = row.test.setup.case
        author = author_of(case)
        for kind in _kinds_of(row.test.setup):
            owners[kind].add(str(case["source"]) if author == scoreboard.GROUP else author)
    once = {kind for kind, names in owners.items() if len(names) < _OWNERS} | set(found.measured_once) - RARE
    new = msgspec.structs.replace(
        found, parameters=found.parameters | moved(fit, at, slopes), measured_once=tuple(sorted(once))
    )
    return new, msgspec.structs.replace(folds, version=new.version, values=values)


def moved(fit: Fit[Row], at: Solution, slopes: Sequence[Slope]) -> dict[str, Parameter]:
    """Return the fitted parameters with their values and spreads."""
    spreads = fit.spreads(at, slopes)
    return {
        name: msgspec.structs.replace(
            fit.parameters[name], value=rounded(at.values[name]), spread=round(spreads[name], 3)
        )
        for name in fit.names
    }


def cross_validate(fit: Fit[Row], at: Solution, slopes: Sequence[Slope]) -> tuple[dict[str, Values], list[Guess]]:
    """Return the parameters of every fold, and all predictions by parameters that never saw their group."""
    groups = _groups_of(fit.rows)
    values = fit.without(at, slopes, lambda row: groups.get(author_of(row.test.setup.case), scoreboard.GROUP))
    values.pop(scoreboard.GROUP)
    rows = [row for row in fit.rows if row.test.setup.group in values]
    return values, [guess(row, values[row.test.setup.group]) for row in rows]


def _groups_of(rows: Sequence[Row]) -> dict[str, str]:
    return {author_of(row.test.setup.case): row.test.setup.group for row in rows if not _is_line(row)}


def _is_line(row: Row) -> bool:
    return row.test.setup.group == scoreboard.GROUP


def medians(guesses: Sequence[Guess], phase: str) -> list[float]:
    """Return the median error of every case, by size."""
    by_case: dict[str, list[float]] = defaultdict(list)
    for one in guesses:
        if one.row.test.phase == phase:
            by_case[one.row.test.setup.case["id"]].append(one.error)
    return sorted(abs(statistics.median(errors)) for errors in by_case.values())


def summary(guesses: Sequence[Guess]) -> str:
    """Return median, p80 and p90 of both phases in a line."""
    parts = []
    for phase in ("TG", "PP"):
        errors = medians(guesses, phase)
        cells = (f"{(math.exp(errors[int(q * len(errors))]) - 1) * 100:.0f} %" for q in (0.5, 0.8, 0.9))
        parts.append(f"{phase} " + " / ".join(cells))
    return "; ".join(parts)


def distrusted(guesses: Sequence[Guess]) -> list[str]:
    """Return the cases whose speed is more than three times off from what all others say."""
    by_case: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in guesses:
        by_case[one.row.test.setup.case["id"], one.row.test.phase].append(one.error)
    found = {key: statistics.median(errors) for key, errors in by_case.items()}
    chosen = sorted((k for k, e in found.items() if abs(e) > _DISTRUST), key=lambda k: -abs(found[k]))
    return [f"{case} {phase}: {math.exp(found[case, phase]):.2f} x" for case, phase in chosen]


def rounded(value: float) -> float:
    """Return four significant digits."""
    return float(f"{value:.4g}")


def calibrated(old: Calibration, version: str, fit: Fit[Row], at: Solution, slopes: Sequence[Slope]) -> Calibration:
    """Return the calibration with fitted values and spreads, without new intervals."""
    parameters = old.parameters | moved(fit, at, slopes)
    cases = {row.test.setup.case["id"] for row in fit.rows if row.test.setup.group != scoreboard.GROUP}
    source = (
        f"Gauss-Newton with priors on {len(cases)} published runs of ik_llama.cpp and llama.cpp, May 2024 to October "
        "2026, and one-device scoreboards; values of today's builds, those of older ones under `before`. "
        "A value is a multiple of the ideal time where its unit is ratio; `spread`, `prior_spread`: one standard "
        "deviation of its logarithm; `least`: the physical limit."
    )
    return msgspec.structs.replace(old, version=version, n_runs=len(cases), source=source, parameters=parameters)


def written(found: Calibration) -> str:
    """Return the file: one parameter a line."""
    plain: dict[str, Any] = msgspec.to_builtins(found)
    parameters = plain.pop("parameters")
    head = "".join(f" {json.dumps(k)}: {json.dumps(v)},\n" for k, v in plain.items())
    rows = ",\n".join(f"  {json.dumps(n)}: {json.dumps(_short(found.parameters[n]))}" for n in parameters)
    return f'{{\n{head} "parameters": {{\n{rows}\n }}\n}}\n'


def _short(parameter: Parameter) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(parameter)
    return plain if parameter.least else {k: v for k, v in plain.items() if k != "least"}


def main() -> None:
    """Fit, report, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default=shipped().version, help="version of the new calibration")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    parser.add_argument("--cards", action="store_true", help="fit the generations of rare cards alone")
    arguments = parser.parse_args()
    if arguments.cards:
        known = msgspec.json.decode(FOLDS.read_bytes(), type=Folds)
        _finish(msgspec.structs.replace(shipped(), version=arguments.version), known, dry=arguments.dry)
        return
    old, rows = shipped(), training_rows()
    before = [guess(row, {n: p.value for n, p in old.parameters.items()}) for row in rows]
    fit = Fit(rows, old.parameters)
    at, slopes = solve(fit)
    new = calibrated(old, arguments.version, fit, at, slopes)
    values, guesses = cross_validate(fit, at, slopes)
    print(f"{new.n_runs} runs, {len(rows)} speeds, {len(fit.names)} parameters, {len(values)} groups")
    print("before, these parameters on these runs:", summary(before))
    print("after, in-sample:                      ", summary([guess(row, at.values) for row in rows]))
    print("after, cross-validated:                ", summary(guesses))
    print("distrusted (more than 3 x off when not fitted):", *distrusted(guesses), sep="\n  ")
    new = msgspec.structs.replace(new, intervals=fitted_intervals(guesses, old.intervals))
    new = with_own_runs(msgspec.structs.replace(new, comparisons=fitted_comparisons(pairs_of(guesses))))
    print("intervals:", *(f"{k} {v:g}" for k, v in new.intervals.items()), sep="\n  ")
    _finish(new, _folds(new, values, guesses), dry=arguments.dry)


def _finish(found: Calibration, folds: Folds, *, dry: bool) -> None:
    """Fit the rare cards, say what that changes, and write both files."""
    new, folds = with_rare_cards(found, folds)
    print("rare cards:")
    for name, p in new.parameters.items():
        if p != found.parameters[name]:
            print(f"  {name} {found.parameters[name].value:g} -> {p.value:g} (x/÷ {math.exp(p.spread):.2f})")
    print("  of too few owners:", *new.measured_once)
    if not dry:
        CALIBRATION.write_text(written(new))
        FOLDS.write_bytes(msgspec.json.format(msgspec.json.encode(folds), indent=0))


def _folds(new: Calibration, values: dict[str, Values], guesses: Sequence[Guess]) -> Folds:
    """The intervals that each group gets are those of the others' errors."""
    intervals, comparisons = {}, {}
    for group in values:
        others = [g for g in guesses if g.row.test.setup.group != group]
        intervals[group] = fitted_intervals(others, new.intervals)
        comparisons[group] = fitted_comparisons(pairs_of(others))
    short = {g: {n: rounded(v[n]) for n, p in new.parameters.items() if p.prior_spread} for g, v in values.items()}
    return Folds(new.version, short, intervals, comparisons)


if __name__ == "__main__":
    main()
