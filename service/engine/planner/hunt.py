"""The search for one engine and variant: forecasts of all its candidates, placements of those that are called for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from service.engine.catalogue import engine_devices
from service.engine.config import Device, Engine
from service.engine.errors import InvalidFlags
from service.engine.goal import Constraints, Goal
from service.engine.hardware import Rig
from service.engine.model import Model
from service.engine.planner.build import for_build, untold
from service.engine.planner.candidates import (
    Candidate,
    base_flags,
    cache_pairs,
    candidates,
    lacks_cache_types,
    with_strategy,
)
from service.engine.planner.cards import Cards
from service.engine.planner.fit import Fitted, Limits, Problem, Shortfall
from service.engine.planner.forecast import Forecast, Forecaster
from service.engine.planner.kept import kept_flags, not_kept
from service.engine.planner.place import placed
from service.engine.planner.rank import (
    NEXT_TO_NOTHING,
    WITHOUT_MINIMUM,
    Contender,
    handicapped,
)
from service.engine.planner.support import unsupported
from service.engine.speed import goal_seconds, predict_speed
from service.engine.units import GIB

_RAM_FOR_OTHERS = 2 * GIB  # what an idle Linux server keeps for itself
_FAILURES = 8  # candidates of one engine and variant that may turn out not to fit before the next is tried
_FASTER_ONES = 3  # candidates with a better bound than the placed one that are placed as well
_LAST_ONES = 3  # candidates that are tried with whole layers in RAM, where no other fits
_GAIN = 0.999  # what a rival has to promise
_CLOSE = 1.15  # beyond this factor of the next one's bound a placed candidate is not what was hoped for
_NEAR = 1.5  # an alternative's bound is within this factor of the best time

Why: TypeAlias = Literal["does not fit", "a card idle", "pruned by bound", "minimum not reached"]


class Case(NamedTuple):
    """One engine and variant on one rig, for one goal."""

    engine: Engine
    variant: int
    model: Model
    rig: Rig
    goal: Goal
    constraints: Constraints


class Lost(NamedTuple):
    """A candidate that was not placed, or did not fit: what it would be at best, or what is missing."""

    candidate: Candidate
    why: Why
    forecast: Forecast | None
    shortfall: Shortfall | None


class Outcome(msgspec.Struct, frozen=True):
    """Everything one engine and variant gave: contenders, losers, the smallest shortfall, why it cannot run.

    `considered`: candidates whose forecast was made; `placed`: those with a whole placement, memory and speed.
    """

    case: Case
    contenders: list[Contender]
    losers: list[Lost]
    shortfall: Shortfall | None
    refusal: str | None
    considered: int
    placed: int

    @property
    def all_failed(self) -> bool:
        """Whether every candidate was found not to fit."""
        return not self.contenders and all(lost.why == "does not fit" for lost in self.losers)


def limits_of(rig: Rig, constraints: Constraints, cards: Sequence[int]) -> Limits:
    """Return the reserve of each card used (512 MiB, 1,024 with a display) and the bytes of RAM allowed."""
    reserve = rig.reserves(cards, constraints.reserve_mib)
    host = max(rig.ram_bytes - max(_RAM_FOR_OTHERS, rig.ram_bytes // 32), 0)
    if constraints.max_ram_gib is not None:
        host = min(host, int(constraints.max_ram_gib * GIB))
    return Limits(reserve, host, shared=any(rig.cards[c].unified for c in cards))


class _Try(NamedTuple):
    candidate: Candidate
    forecast: Forecast

    @property
    def seconds(self) -> float:
        return self.forecast.seconds

    @property
    def handicapped(self) -> float:
        return handicapped(self.candidate, self.seconds)


_NO_FORECAST = Forecast("layers in RAM", 0.0, 0.0, 0.0, None)


class Hunt:
    """The search for one engine and variant."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.build = case.constraints.build_of(case.engine)
        self.refusal = unsupported(case.engine, case.model, case.rig) or not_kept(case.engine, case.constraints)
        self.refusal = self.refusal or lacks_cache_types(case.engine, case.constraints)
        self.contenders: list[Contender] = []
        self.losers: list[Lost] = []
        self.shortfalls: list[Shortfall] = []
        self.considered = self.n_placed = 0
        self.losses: list[tuple[Contender, float]] = []  # placed as hoped; seconds to those of the forecast
        self._problems: dict[Cards, Problem] = {}
        tries = [] if self.refusal else self._forecasts()
        self.tries = sorted(tries, key=self._promise)
        self.bound = self.tries[0].seconds if self.tries else float("inf")

    def _promise(self, one: _Try) -> tuple[object, ...]:
        together = one.candidate.flags.split_mode != "layer"
        return self._too_slow(one), together, one.handicapped, _plainness(one.candidate)

    def may_be_enough(self, goal: Goal, fastest: float) -> bool:
        """Return whether any candidate may be fast enough for the goal."""
        if goal.min_tg or goal.min_pp:
            return any(_may_reach(t.forecast, goal) for t in self.tries)
        return self.bound <= fastest * WITHOUT_MINIMUM

    def place_first(self) -> None:
        """Place the most promising candidates, until one fits and the next cannot be much faster. Once is enough."""
        if self.n_placed:
            return
        failures = fitting = 0
        while (self.tries and not self.contenders) or (fitting == 1 and self._is_loose()):
            fits = self._place(self._next(self.tries[0]))
            failures, fitting = failures + (not fits), fitting + fits
            if failures == _FAILURES:
                break
        if not self.contenders and self.considered:
            self._place_layers_in_ram()

    def place_rivals(self, n_other_kinds: int) -> None:
        """Place what may be faster than the placed one, and the best of other kinds."""
        for _ in range(_FASTER_ONES):
            if not self.tries or self._too_slow(self.tries[0]) or self._likely(self.tries[0]) >= self._best() * _GAIN:
                break
            self._place(self._next(self.tries[0]))
        for _ in range(n_other_kinds):
            self._place_other_kind()

    def _next(self, best: _Try) -> _Try:
        """Take `best` from the tries, with the largest micro-batch that costs the goal next to nothing."""
        limit = best.seconds * NEXT_TO_NOTHING
        alike = [t for t in self.tries if _same_but_batch(t.candidate, best.candidate) and t.seconds < limit]
        chosen = max([best, *alike], key=lambda t: t.candidate.flags.n_ubatch)
        self.tries.remove(chosen)
        return chosen

    def _is_loose(self) -> bool:
        """Whether the placed one is so far from the next one's bound that this may be much faster."""
        return bool(self.tries) and self._best() > self.tries[0].handicapped * _CLOSE

    def _likely(self, one: _Try) -> float:
        """The seconds of a try, if half of what the placed one lost against its bound is lost again."""
        return one.handicapped * (1 + (min((times for _, times in self.losses), default=1.0) - 1) / 2)

    def _best(self) -> float:
        return min(handicapped(c.candidate, c.seconds.expected) for c in self.contenders)

    def _place_layers_in_ram(self) -> None:
        """Nothing fitted as hoped: whole layers in RAM, with the smallest buffers."""
        tried = [lost.candidate for lost in self.losers if lost.why == "does not fit" and lost.candidate.cards]
        for candidate in sorted(tried, key=lambda c: (c.flags.n_ubatch, -len(c.cards)))[:_LAST_ONES]:
            if candidate.flags.split_mode == "layer" and self._place(_Try(candidate, _NO_FORECAST), last=True):
                return

    def place_all(self) -> None:
        """Place every candidate."""
        while self.tries:
            self._place(self.tries.pop(0))

    def outcome(self) -> Outcome:
        """Return what was found."""
        least = min(self.shortfalls, key=lambda s: s.n_bytes, default=None)
        losers = [*self.losers, *self._pruned()]
        return Outcome(self.case, self.contenders, losers, least, self.refusal, self.considered, self.n_placed)

    def _place_other_kind(self) -> None:
        best = self._best()
        known = {_kind(c.candidate) for c in self.contenders}
        others = [t for t in self.tries if _kind(t.candidate) not in known and t.handicapped < best * _NEAR]
        if others:
            self._place(self._next(min(others, key=lambda t: t.handicapped)))

    def _too_slow(self, one: _Try) -> bool:
        return not _may_reach(one.forecast, self.case.goal)

    def _forecasts(self) -> list[_Try]:
        """Forecast all candidates; smaller cache types only where nothing fits with larger ones."""
        case, found = self.case, list[_Try]()
        for pairs in cache_pairs(case.engine, case.model, case.constraints):
            tried = candidates(case.engine, case.model, case.rig, case.goal, pairs)
            for candidate in self._written(kept_flags(case.engine, case.constraints).in_all(tried)):
                one = self._forecast(candidate)
                if one.forecast.shortfall is not None:
                    self._fails(one.candidate, one.forecast.shortfall)
                elif one.forecast.idle:
                    self.losers.append(Lost(one.candidate, "a card idle", one.forecast, None))
                else:
                    found.append(one)
            if found:
                break
        return found

    def _written(self, found: Iterator[Candidate]) -> Iterator[Candidate]:
        """Candidates that the build can be told; why it cannot be told the others is kept."""
        for candidate in found:
            try:
                yield candidate if self.build.date is None else for_build(self.case.engine, candidate, self.build)
            except InvalidFlags as error:
                self.refusal = error.detail

    def _forecast(self, candidate: Candidate) -> _Try:
        self.considered += 1
        problem = self._problem(candidate.cards)
        found = self._forecaster.forecast(candidate, problem.devices, problem.limits)
        return _Try(_as_hoped(self.case, candidate, found), found)

    @property
    def _forecaster(self) -> Forecaster:
        if not hasattr(self, "_made"):
            case = self.case
            pair = cache_pairs(case.engine, case.model, case.constraints)[0][0]
            base = base_flags(case.engine, case.model, case.rig, case.goal, "FFN in RAM", 512, *pair)
            self._made = Forecaster(case.engine, case.model, case.rig, case.goal, base, self.build.date)
        return self._made

    def _problem(self, cards: Cards) -> Problem:
        if cards not in self._problems:
            case = self.case
            devices = engine_devices(case.rig, case.engine, cards)
            limits = limits_of(case.rig, case.constraints, cards)
            self._problems[cards] = Problem(case.engine, case.model, devices, limits, case.rig, case.goal, self.build)
        return self._problems[cards]

    def _place(self, one: _Try, *, last: bool = False) -> bool:
        """Place one candidate; return whether it fits."""
        self.n_placed += 1
        problem = self._problem(one.candidate.cards)
        found = placed(problem, one.candidate, last=last)
        if isinstance(found, Shortfall):
            if not self._hope_for_less(one, found):
                self._fails(one.candidate, found)
            return False
        candidate, fitted = found
        if self.build.date and (why := untold(self.case.engine, fitted.flags, self.build)):
            self.refusal = why
            return False
        contender = _contender(self.case, candidate, problem, fitted)
        self.contenders.append(contender)
        if one.seconds and candidate.strategy == one.candidate.strategy:
            self.losses.append((contender, contender.seconds.expected / one.seconds))
        return True

    def _hope_for_less(self, one: _Try, short: Shortfall) -> bool:
        """Where not everything fits on the cards after all: forecast it with the FFN in RAM, for its turn."""
        if one.candidate.strategy != "all on GPU" or one.candidate.flags.split_mode != "layer" or not one.seconds:
            return False
        problem = self._problem(one.candidate.cards)
        forecast = self._forecaster.forecast(one.candidate, problem.devices, problem.limits, short)
        if forecast.shortfall is not None:
            return False
        candidate = with_strategy(self.case.rig, self.case.engine, one.candidate, "FFN in RAM")
        self.tries = sorted([*self.tries, _Try(candidate, forecast._replace(strategy="FFN in RAM"))], key=self._promise)
        return True

    def _fails(self, candidate: Candidate, short: Shortfall) -> None:
        self.shortfalls.append(short)
        self.losers.append(Lost(candidate, "does not fit", None, short))

    def _pruned(self) -> Iterator[Lost]:
        for t in self.tries:
            why: Why = "minimum not reached" if self._too_slow(t) else "pruned by bound"
            yield Lost(t.candidate, why, t.forecast, None)


def _as_hoped(case: Case, candidate: Candidate, found: Forecast) -> Candidate:
    """The candidate with the strategy that its forecast shows, and that strategy's flags."""
    if found.strategy == candidate.strategy or candidate.strategy == "CPU only":
        return candidate
    return with_strategy(case.rig, case.engine, candidate, found.strategy)


def _may_reach(found: Forecast, goal: Goal) -> bool:
    return found.tg >= (goal.min_tg or 0) and found.pp >= (goal.min_pp or 0)


def _same_but_batch(candidate: Candidate, other: Candidate) -> bool:
    """Whether a candidate differs from another by a larger micro-batch alone."""
    alike = candidate.cards == other.cards and _kind(candidate) == _kind(other)
    return alike and candidate.flags.n_ubatch > other.flags.n_ubatch


def _kind(candidate: Candidate) -> tuple[object, ...]:
    flags = candidate.flags
    return flags.cache_type_k, flags.cache_type_v, len(candidate.cards), flags.split_mode


def _plainness(candidate: Candidate) -> tuple[object, ...]:
    """Of equals the plain comes first: f16, few cards, in the runtime's own order, a small micro-batch."""
    flags = candidate.flags
    in_order = candidate.cards == tuple(sorted(candidate.cards))
    return flags.cache_type_k != "f16", len(candidate.cards), not in_order, flags.n_ubatch


def _contender(case: Case, candidate: Candidate, problem: Problem, fitted: Fitted) -> Contender:
    devices: tuple[Device, ...] = problem.devices
    given = (case.engine, case.model, fitted.flags, fitted.memory.placement, case.rig, devices)
    return Contender(
        engine=case.engine,
        variant=case.variant,
        bpw=case.model.bpw,
        candidate=candidate,
        problem=problem,
        fitted=fitted,
        speed=predict_speed(*given, case.goal.depth, problem.date),
        seconds=goal_seconds(*given, case.goal, problem.date),
    )
