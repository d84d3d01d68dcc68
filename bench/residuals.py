"""What residuals by shared parts gain, and what liars can do with them: `python -m bench.residuals`, some minutes.

Every published run and every line of the one-device scoreboards, each corrected by what other owners measured on
shared parts, as `service/engine/measured/residuals.py` does. The parameters saw no scoreboard and no run of the asker's
machine or author: as a calibration that went out before these owners came. Then again by parameters that saw two lines
of three, as those in force did. An owner: all that share a machine or an author; of scoreboards, who named one card in
one source. One owner on one set of parts counts once, by his mean error.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from bench import scoreboard
from bench.calibrate import solve, training_rows
from bench.conformal import guess
from bench.fit import Row, rows_of_tests
from bench.runs import kind_of
from bench.stamp import stamp
from service.engine.calibration import shipped
from service.engine.estimate import Z80
from service.engine.measured.nearby import PHASES, Phase
from service.engine.measured.residuals import CUT, UNMOVED, Residual, shared
from service.engine.speed.fitting import Fit, Values
from service.engine.speed.machine import cpu_class

_UNMOVED = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, math.inf)
_CLAIMS = (0.3, 3.0)
_MANY = 5
SEEN = "seen"  # the fold of lines that every fit saw: they say something of others, and are not asked about
Key: TypeAlias = tuple[object, ...] | None


class Run(msgspec.Struct, frozen=True):
    """What somebody published of one config in one phase. `fold`: whose parameters predict it (empty: those of all).

    What is of no run has no fold, or SEEN.
    """

    rows: tuple[Row, ...]
    owner: str
    fold: str
    phase: Phase

    @property
    def place(self) -> str:
        """Where its weights are: `gpu`, `cpu`, or `both`."""
        kind = kind_of(self.rows[0].test.placement)
        return "cpu" if kind == "CPU only" else "both" if "CPU" in kind else "gpu"

    @property
    def cards(self) -> tuple[tuple[str, str], ...]:
        """The cards that it used, each with its back end."""
        setup = self.rows[0].test.setup
        used = (setup.rig.cards[device.gpu] for device in setup.devices)
        return tuple(sorted((card.name, card.backend) for card in used))

    @property
    def day(self) -> str:
        """When it was measured, as far as that is known; of a scoreboard, its build's day."""
        setup = self.rows[0].test.setup
        return str(setup.case.get("date") or setup.build_date or "")

    @property
    def model(self) -> dict[str, str] | None:
        """Shape and types of its model; None of a line."""
        found: dict[str, str] | None = self.rows[0].test.setup.case.get("model")
        return found

    def errors(self, values: Values) -> float:
        """Return the logarithm of measured over predicted speed, the median of its depths."""
        return statistics.median(-row.error(values) for row in self.rows)


class Case(msgspec.Struct, frozen=True):
    """One owner on one set of parts: his errors with the spread of each, and what the others there say."""

    key: tuple[object, ...]
    owner: str
    mine: tuple[tuple[float, float], ...]
    others: tuple[Residual, ...]
    day: str

    @property
    def n_owners(self) -> int:
        """How many owners there are, this one too."""
        return 1 + len({one.owner for one in self.others})

    def error(self, shift: float = 0.0) -> float:
        """Return his mean error with a shift of the prediction."""
        return statistics.fmean(abs(error - shift) for error, _ in self.mine)


def _generations(run: Run) -> Key:
    setup = run.rows[0].test.setup
    return tuple(sorted({(setup.rig.cards[d.gpu].generation, setup.rig.cards[d.gpu].backend) for d in setup.devices}))


LEVELS: dict[str, Callable[[Run], Key]] = {
    "cards and back end, all on GPU": lambda r: r.cards if r.place == "gpu" else None,
    "cards and back end, part in RAM": lambda r: r.cards if r.place == "both" else None,
    "generation and back end, all on GPU": lambda r: _generations(r) if r.place == "gpu" else None,
    "back end and place": lambda r: (r.place, *{backend for _, backend in r.cards}),
    "CPU class and sockets, in RAM": lambda r: _cpu(r) if r.place != "gpu" else None,
    "engine and place": lambda r: (r.place, r.rows[0].test.setup.engine),
    "build's quarter and engine": lambda r: (r.rows[0].test.setup.engine, _quarter(r)),
    "model and place": lambda r: (r.place, r.model["shape"]) if r.model else None,
    "types and place": lambda r: (r.place, r.model["mix"]) if r.model else None,
}
ON_GPU = LEVELS["cards and back end, all on GPU"]


def _cpu(run: Run) -> Key:
    rig = run.rows[0].test.setup.rig
    return (cpu_class(rig), rig.sockets)


def _quarter(run: Run) -> str:
    built = run.rows[0].test.setup.build_date or ""
    return f"{built[:4]} {(int(built[5:7]) + 2) // 3}" if len(built) >= 7 else ""


def runs(saw_lines: bool) -> tuple[list[Run], dict[str, Values]]:
    """Return all runs, and the parameters of each fold: of all published runs but its own, and of the scoreboards'
    lines that are not held out, or of none."""
    rows = [row for row in training_rows() if saw_lines or row.test.setup.group != scoreboard.GROUP]
    fit = Fit(rows, shipped().parameters)
    at, slopes = solve(fit)
    folds = {"": at.values} | fit.without(at, slopes, lambda row: row.test.setup.group)
    by_run: dict[tuple[str, str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        setup = row.test.setup
        if setup.group != scoreboard.GROUP:
            by_run[setup.case["id"], row.test.phase, setup.group, setup.group].append(row)
    held_out = {test.setup.case["id"] for is_held_out, test in scoreboard.all_tests() if is_held_out}
    for row in rows_of_tests(test for _, test in scoreboard.all_tests()):
        setup = row.test.setup
        owner = f"{setup.case['source']} {setup.rig.cards[0].name}"
        fold = SEEN if saw_lines and setup.case["id"] not in held_out else ""
        by_run[setup.case["id"], row.test.phase, owner, fold].append(row)
    return [
        Run(tuple(them), owner, fold, "tg" if phase == "TG" else "pp")
        for (_, phase, owner, fold), them in by_run.items()
    ], folds


def cases(
    found: Sequence[Run], folds: dict[str, Values], level: Callable[[Run], Key], phase: Phase, in_order: bool = False
) -> Iterator[Case]:
    """Yield every owner on every set of parts that others measured too; `in_order`: a case a run, and others before."""
    by_key: dict[tuple[object, ...], list[Run]] = defaultdict(list)
    for run in found:
        key = level(run) if run.phase == phase else None
        if key is not None and (run.day or not in_order):
            by_key[key].append(run)
    for key, them in by_key.items():
        asked: dict[tuple[str, str], list[Run]] = defaultdict(list)
        for run in them:
            asked[run.owner, run.day if in_order else ""].append(run)
        known: dict[str, list[tuple[Run, float]]] = {}
        for (owner, day), mine in asked.items():
            fold = mine[0].fold
            if fold == SEEN:
                continue
            if fold not in known:
                known[fold] = [(run, run.errors(folds[fold])) for run in them]
            others = tuple(
                Residual(run.owner, {phase: error})
                for run, error in known[fold]
                if run.owner != owner and (not in_order or run.day < day)
            )
            if others:
                errors = tuple((run.errors(folds[fold]), _spread(run, folds[fold])) for run in mine)
                yield Case(key, owner, errors, others, day)


def _spread(run: Run, values: Values) -> float:
    guesses = (guess(row, dict(shipped().coefficients) | values) for row in run.rows)
    return math.log(statistics.median(one.factor(shipped().intervals) for one in guesses)) / Z80


def shift(case: Case, phase: Phase, unmoved: float, cut: float = math.inf) -> float:
    """Return what the others' medians say, shrunk by `unmoved` owners who say nothing."""
    by_owner: dict[str, list[float]] = defaultdict(list)
    for one in case.others:
        by_owner[one.owner].append(one.error[phase])
    voices = [max(-cut, min(cut, statistics.median(errors))) for errors in by_owner.values()]
    return sum(voices) / (len(voices) + unmoved)


def cross_validated(found: Sequence[Case], phase: Phase) -> list[float]:
    """Return the shift of each case, shrunk by what is best on the cases of all other parts."""
    errors = {k: [case.error(shift(case, phase, k)) for case in found] for k in _UNMOVED}
    shifts = []
    for case in found:
        others = [i for i, other in enumerate(found) if other.key != case.key]
        best = min(_UNMOVED, key=lambda k: sum(errors[k][i] for i in others)) if others else math.inf
        shifts.append(shift(case, phase, best))
    return shifts


def in_force(case: Case, phase: Phase) -> float:
    """Return the shift as an advice has it."""
    return shared(0.2, phase, case.others).shift


def gain(found: Sequence[Case], shifts: Sequence[float]) -> str:
    """Return the mean and median error before and after, and how many owners' errors got less and more."""
    if not found:
        return "none"
    before = [case.error() for case in found]
    after = [case.error(by) for case, by in zip(found, shifts, strict=True)]
    better, worse = (sum(a < b for a, b in zip(x, y, strict=True)) for x, y in ((after, before), (before, after)))
    cells = (f"{math.exp(of(x)) - 1:6.1%}" for of in (statistics.fmean, statistics.median) for x in (before, after))
    return "{} to {} mean, {} to {} median;".format(*cells) + f" {better:>3} better, {worse:>3} worse"


def held(found: Sequence[Case], phase: Phase) -> str:
    """Return the share of runs inside their 80 % interval before and after, owners counting alike."""
    before, after = [], []
    for case in found:
        before.append(statistics.fmean(abs(e) <= Z80 * s for e, s in case.mine))
        made = [(e, shared(s, phase, case.others)) for e, s in case.mine]
        after.append(statistics.fmean(abs(e - one.shift) <= Z80 * one.spread for e, one in made))
    return f"inside 80 %: {statistics.fmean(before):.0%} before, {statistics.fmean(after):.0%} after"


def attacked(case: Case, phase: Phase, liars: int, claim: float) -> float:
    """Return by how much `liars` more owners move a case's answer, all claiming so many times what was predicted."""
    lies = [Residual(f"liar {n}", {phase: math.log(claim)}) for n in range(liars)]
    moved = shared(0.2, phase, [*case.others, *lies]).shift - shared(0.2, phase, case.others).shift
    return math.exp(abs(moved)) - 1


def report_levels(found: Sequence[Run], folds: dict[str, Values]) -> None:
    """Print what each kind of shared parts gains, with the shrinkage of cross-validation and as it is in force."""
    for phase in PHASES:
        for name, level in LEVELS.items():
            them = list(cases(found, folds, level, phase))
            print(f"  {phase} {name}: {len(them)} cases, {len({case.key for case in them})} sets of parts")
            print(f"     cross-validated {gain(them, cross_validated(them, phase))}")
            print(f"     in force        {gain(them, [in_force(case, phase) for case in them])}")
        many = [case for case in cases(found, folds, ON_GPU, phase) if case.n_owners >= _MANY]
        print(f"  {phase} cards of {_MANY} owners or more, all on GPU, in force: {len(many)} cases")
        print(f"                     {gain(many, [in_force(case, phase) for case in many])}")


def report_seen() -> None:
    """Print what residuals gain where most of the others' results were fitted to already."""
    found, folds = runs(saw_lines=True)
    for phase in PHASES:
        them = list(cases(found, folds, ON_GPU, phase))
        print(f"  {phase} {len(them)} cases: {gain(them, [in_force(case, phase) for case in them])}")


def report_order(found: Sequence[Run], folds: dict[str, Values]) -> None:
    """Print the replay in the order of time: by month, and for cards of many owners."""
    for phase in PHASES:
        them = list(cases(found, folds, ON_GPU, phase, in_order=True))
        by_month: dict[str, list[Case]] = defaultdict(list)
        for case in them:
            by_month[case.day[:7]].append(case)
        many = [case for case in them if case.n_owners >= _MANY]
        for name, chosen in (*sorted(by_month.items()), ("all", them), (f"{_MANY} owners or more", many)):
            if chosen:
                print(f"  {phase} {name:<17}{len(chosen):>4} {gain(chosen, [in_force(c, phase) for c in chosen])}")
        print(f"  {phase} {held(them, phase)}")


def report_attacks(found: Sequence[Run], folds: dict[str, Values]) -> None:
    """Print the most that liars move an honest owner's answer."""
    everybody = len({run.owner for run in found})
    for phase in PHASES:
        them = list(cases(found, folds, ON_GPU, phase))
        for name, count in (
            ("one owner", lambda case: 1),
            ("a tenth of a card's owners, at least one", lambda case: max((case.n_owners - 1) // 9, 1)),
            (f"a tenth of all {everybody} owners, all on one card", lambda case: everybody // 9),
        ):
            moved = [attacked(case, phase, count(case), claim) for case in them for claim in _CLAIMS]
            print(f"  {phase} {name}: {max(moved):.1%} at most, {statistics.median(moved):.1%} at the median")
        chance = random.Random(1)
        few = [Residual("one", {phase: chance.gauss(0.1, 0.02)}) for _ in range(10)]
        middle = statistics.median(one.error[phase] for one in few)
        many = [Residual("one", {phase: middle + (n % 3 - 1) * 0.02}) for n in range(1000)]
        apart = max(
            abs(shared(0.2, phase, [*c.others, *many]).shift - shared(0.2, phase, [*c.others, *few]).shift)
            for c in them
        )
        print(f"  {phase} an owner's 1,000 results instead of 10 of the same median: {apart:.1%} more")


def main() -> None:
    """Print what residuals gain and what liars do."""
    found, folds = runs(saw_lines=False)
    print(stamp())
    print(f"{len(found)} runs and lines of {len({run.owner for run in found})} owners")
    print(f"in force: {UNMOVED:g} owners unmoved, a voice cut to {math.exp(CUT) - 1:.1%}")
    print("each owner corrected by all others on the same parts: error before to after")
    report_levels(found, folds)
    print("by parameters that were fitted to most of the others' results (same cards and back end, all on GPU)")
    report_seen()
    print("in the order of time, by what others measured before (same cards and back end, all on GPU)")
    report_order(found, folds)
    print("claims of 0.3 and 3 times what is predicted, added to what honest owners say: how far answers move")
    report_attacks(found, folds)


if __name__ == "__main__":
    main()
