"""Candidates of one engine and variant before they are placed: the forecast of each, and what it would cost at best."""

from __future__ import annotations

from functools import cached_property
from math import log
from typing import NamedTuple, TypeAlias

from service.engine.advice import Pick, Weighed
from service.engine.catalogue import engine_devices
from service.engine.config import Engine, Flags
from service.engine.goal import Goal
from service.engine.planner.pricing.candidate import Candidate, Cards, Strategy, base_flags, larger_batch, with_strategy
from service.engine.planner.pricing.fit import Problem, Shortfall, limits_of
from service.engine.planner.pricing.forecast import Forecast, Forecaster
from service.engine.planner.ranking.rank import Given, figures_of, has_to_be_built
from service.engine.planner.ranking.utility import cost
from service.engine.planner.search.candidates import cache_pairs
from service.engine.planner.search.outcome import SearchCase
from service.engine.quality import ranking_loss

_FAR_OFF = 1.25  # times its forecast: a placement that slow has another reason than what forecasts leave out
_Shape: TypeAlias = tuple[Engine, str, int, str, str]


class Queued(NamedTuple):
    """A candidate to be placed, with its forecast. `cost`: what it costs if that comes true, a lower bound."""

    candidate: Candidate
    forecast: Forecast
    cost: float = 0.0

    @property
    def seconds(self) -> float:
        """The goal's seconds by the forecast, 0 where none was made."""
        return self.forecast.seconds


class KnownBuffers:
    """Bytes that cards which share every layer need beyond weights, cache and reserve: the least that replays found.

    Variants of a repo differ in the types of their weights only, so these are nearly the same for the same number of
    cards, micro-batch and cache. A replay takes seconds; one variant's rules out others without any. `n_known` counts
    up whenever something was learned.
    """

    def __init__(self) -> None:
        self._found: dict[_Shape, dict[tuple[int, int], float]] = {}
        self.n_known = 0

    def note(self, engine: Engine, flags: Flags, n_cards: int, n_bytes: float) -> None:
        found, size = self._found.setdefault(_shape(engine, flags), {}), (n_cards, flags.n_ubatch)
        if size not in found or n_bytes < found[size]:
            found[size], self.n_known = n_bytes, self.n_known + 1

    def least(self, engine: Engine, flags: Flags, n_cards: int) -> float:
        """Return the bytes needed at least: as much as fewer cards with smaller micro-batches needed, 0 if unknown."""
        found = self._found.get(_shape(engine, flags), {})
        alike = (n for (cards, batch), n in found.items() if cards <= n_cards and batch <= flags.n_ubatch)
        return max(alike, default=0.0)


def _shape(engine: Engine, flags: Flags) -> _Shape:
    return engine, flags.split_mode, flags.n_ctx, flags.cache_type_k, flags.cache_type_v


class Forecasts:
    """The forecasts of one search case, and the problem (devices and memory limits) of each set of cards.

    `loss`: the variant's, in per cent (`ranking_loss`). `build`: the build that the commands are for. `errors`: of
    candidates that were placed with the strategy of their forecast, how many times its seconds they take.
    """

    def __init__(self, case: SearchCase) -> None:
        self.case = case
        self.build = case.constraints.build_of(case.engine)
        self.loss = ranking_loss(case.model)
        self._weighed = Weighed(
            is_mixture=bool(case.model.moe_layers),
            to_build=all(
                has_to_be_built(case.engine, cards, case.rig, self.build, case.in_use)
                for cards in ((), *((card,) for card in case.rig.cards))
            ),
            windows=case.rig.windows,
            other_engine=case.in_use not in (None, case.engine),
        )
        self._problems: dict[Cards, Problem] = {}
        self.errors: list[tuple[Candidate, float]] = []

    def of(self, candidate: Candidate) -> Queued:
        """Return the candidate with its forecast, and with the strategy (and its flags) that the forecast comes to."""
        problem = self.problem(candidate.cards)
        forecast = self._forecaster.forecast(candidate, problem.devices, problem.limits)
        if candidate.strategy not in (forecast.strategy, "CPU only"):
            candidate = self.with_strategy(candidate, forecast.strategy)
        return self.queued(candidate, forecast)

    def with_ffn_in_ram(self, candidate: Candidate, short: Shortfall) -> Queued | None:
        """Return the candidate with FFN in RAM, given what it is `short` of with everything on the cards; None where
        that cannot fit either."""
        problem = self.problem(candidate.cards)
        forecast = self._forecaster.forecast(candidate, problem.devices, problem.limits, short)
        if forecast.shortfall is not None:
            return None
        return self.queued(self.with_strategy(candidate, "FFN in RAM"), forecast._replace(strategy="FFN in RAM"))

    def queued(self, candidate: Candidate, forecast: Forecast) -> Queued:
        return Queued(candidate, forecast, self.cost(candidate, forecast, self.case.goal))

    def cost(
        self, candidate: Candidate, forecast: Forecast, goal: Goal, pick: Pick | None = None, slower: float = 1.0
    ) -> float:
        """Return the cost (as a pick) of a candidate that takes `slower` times the seconds of its forecast."""
        given = Given(forecast.seconds * slower, forecast.tg, forecast.pp, self.loss)
        figures = figures_of(candidate.flags, candidate.strategy, len(candidate.cards), self._weighed, given)
        return cost(figures, goal, pick)

    def slower(self, candidate: Candidate) -> float:
        """Return how many times the seconds of its forecast a candidate is likely to take, by others that were placed.

        What the forecast of the nearest micro-batch on the same cards was off by, half of that if it is larger, whose
        buffers leave less room; else half the least on any cards. A larger one that was far off does not count: its
        buffers may have left no room for something. All on one card, forecasts are exact.
        """
        flags, n_ubatch = candidate.flags, candidate.flags.n_ubatch
        if candidate.strategy == "all on GPU" and len(candidate.cards) == 1:
            return 1.0
        alike = [
            (other, (1 + times) / 2 if larger_batch(other, candidate) else times)
            for other, times in self.errors
            if (other.strategy, other.flags.split_mode) == (candidate.strategy, flags.split_mode)
            and not (times > _FAR_OFF and larger_batch(other, candidate))
        ]
        near = [(abs(log(o.flags.n_ubatch / n_ubatch)), t) for o, t in alike if o.cards == candidate.cards]
        return min(near)[1] if near else (1 + min((times for _, times in alike), default=1.0)) / 2

    def lacks_room(self, candidate: Candidate, buffers: KnownBuffers) -> Shortfall | None:
        """Return what the cards lack with the least buffers that replays of the like found; None if nothing."""
        problem, flags = self.problem(candidate.cards), candidate.flags
        least = buffers.least(self.case.engine, flags, len(candidate.cards))
        usable = sum(d.free - reserve for d, reserve in zip(problem.devices, problem.limits.reserve, strict=True))
        short = self.bytes_on_cards(flags) + least - usable
        return Shortfall(problem.devices[-1].name, int(short)) if short >= 1 else None

    def bytes_on_cards(self, flags: Flags) -> int:
        return self._forecaster.bytes_on_cards(flags)

    def with_strategy(self, candidate: Candidate, strategy: Strategy) -> Candidate:
        return with_strategy(self.case.rig, self.case.engine, self.case.model, candidate, strategy)

    def problem(self, cards: Cards) -> Problem:
        if cards not in self._problems:
            case = self.case
            devices = engine_devices(case.rig, case.engine, cards)
            limits = limits_of(case.rig, case.constraints, cards, case.engine)
            self._problems[cards] = Problem(case.engine, case.model, devices, limits, case.rig, case.goal, self.build)
        return self._problems[cards]

    @cached_property
    def _forecaster(self) -> Forecaster:
        """Made when first asked for: for a model that the engine does not support there is none."""
        case = self.case
        pair = cache_pairs(case.engine, case.model, case.rig.cards, case.constraints)[0][0]
        base = base_flags(case.engine, case.model, case.rig, case.goal, "FFN in RAM", 512, *pair)
        return Forecaster(case.engine, case.model, case.rig, case.goal, base, self.build.date)
