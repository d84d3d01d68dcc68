"""The search for one engine and variant: forecasts of all its candidates, placements of those that are called for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from service.engine.advice import Pick, Weighed
from service.engine.catalogue import engine_devices
from service.engine.config import Flags
from service.engine.errors import InvalidFlags
from service.engine.goal import Goal
from service.engine.planner.pricing.candidate import Candidate, Cards, base_flags, with_strategy
from service.engine.planner.pricing.fit import Fitted, Problem, Shortfall, limits_of
from service.engine.planner.pricing.forecast import Forecast, Forecaster
from service.engine.planner.pricing.support import unsupported
from service.engine.planner.ranking.rank import NEGLIGIBLE, Contender, Given, figures_of
from service.engine.planner.ranking.utility import cost
from service.engine.planner.search.alike import (
    complexity,
    is_grown,
    is_neighbour,
    kind,
    more_cards,
    needs_no_less,
    same_but_batch,
    same_try,
    smaller_batch,
)
from service.engine.planner.search.baselines import MICRO_BATCHES, baselines
from service.engine.planner.search.candidates import cache_pairs, cache_types_refusal, candidates, micro_batches
from service.engine.planner.search.fitting import as_it_turned_out, fit_candidate
from service.engine.planner.search.known_buffers import KnownBuffers
from service.engine.planner.search.options import build_refusal, for_build, user_flags, user_flags_refusal
from service.engine.planner.search.outcome import Outcome, Rejected, RejectedFor, SearchCase, contender_of
from service.engine.planner.search.respanned import respanned
from service.engine.quality import ranking_loss

_FAILURES = 8  # candidates of one engine and variant that may turn out not to fit before the next is tried
_FAILURES_ALIKE = 2  # of the same cards in the same order, or of one micro-batch, before others get their turn
_ON_GPU = 3  # candidates that are placed for the chance that nothing is in RAM, where only others fitted
_FASTER_ONES = 3  # candidates with a better bound than the placed one that are placed as well
_LAST_ONES = 3  # candidates that are tried with whole layers in RAM, where no other fits
_GAIN = 0.005  # of cost: what a competitor has to gain
_CLOSE = math.log(1.05)  # of cost: where another is likely to gain more than this, one that fits is not enough
_LOOKED_AT = 12  # of the candidates by their forecasts, for the likeliest
_MOST_TOGETHER = 3  # placements of cards that share every layer: each replay takes seconds with eight cards
_NEAREST, _HOPEFUL = math.log(1.2), 2  # what may cost only so much more than the first config is placed, if hopeful,
_NEIGHBOURS, _ROUNDS = 2, 4  # or near it: so many of either sort a round
_NEAR = math.log(1.5)  # an alternative's bound may exceed the least cost by so much


class _Queued(NamedTuple):
    candidate: Candidate
    forecast: Forecast
    cost: float = 0.0

    @property
    def seconds(self) -> float:
        return self.forecast.seconds


_NO_FORECAST = Forecast("layers in RAM", 0.0, 0.0, 0.0, None)


class VariantSearch:
    """The search for one engine and variant."""

    def __init__(self, case: SearchCase, buffers: KnownBuffers | None = None) -> None:
        self.case, self._buffers, self._n_known = case, buffers or KnownBuffers(), 0
        self.build = case.constraints.build_of(case.engine)
        self.loss = ranking_loss(case.model)
        self._weighed = Weighed(is_mixture=bool(case.model.moe_layers))
        self.refusal = unsupported(case.engine, case.model, case.rig) or user_flags_refusal(
            case.engine, case.constraints
        )
        self.refusal = self.refusal or cache_types_refusal(case.engine, case.constraints)
        self.contenders: list[Contender] = []
        self.rejected: list[Rejected] = []
        self.shortfalls: list[Shortfall] = []
        self.considered = self.n_placed = self.n_together = 0
        self.forecast_errors: list[tuple[Contender, float]] = []  # placed as forecast; ratio of their seconds
        self._failures = Counter[int]()  # by micro-batch
        self._problems: dict[Cards, Problem] = {}
        queue = [] if self.refusal else self._forecasts()
        self.queue = sorted(queue, key=self._priority)
        self.bound = self.queue[0].seconds if self.queue else float("inf")

    def _priority(self, one: _Queued) -> tuple[object, ...]:
        return self._too_slow(one), one.cost, complexity(one.candidate)

    def least_cost(self, goal: Goal, pick: Pick | None = None) -> float:
        """Return what the best candidate would cost (as a pick) if it came out as forecast, which is at best."""
        self._reject_by_known_buffers()
        return min((self._cost(t.candidate, t.forecast, goal, pick) for t in self.queue), default=float("inf"))

    def _cost(
        self, candidate: Candidate, forecast: Forecast, goal: Goal, pick: Pick | None = None, slower: float = 1.0
    ) -> float:
        """The cost of a candidate that comes out as forecast, or takes `slower` times as long."""
        given = Given(forecast.seconds * slower, forecast.tg, forecast.pp, self.loss)
        figures = figures_of(candidate.flags, candidate.strategy, self._weighed, given)
        return cost(figures, goal, pick)

    def _reject_by_known_buffers(self) -> None:
        """Reject cards that share every layer where they lack room that others were seen to need for the like."""
        if self._n_known == self._buffers.n_known:
            return
        self._n_known, kept = self._buffers.n_known, list[_Queued]()
        for one in self.queue:
            short = self._lacks_room(one.candidate) if one.candidate.flags.split_mode != "layer" else None
            if short is None:
                kept.append(one)
            else:
                self._reject(one.candidate, short)
        self.queue = kept

    def _lacks_room(self, candidate: Candidate) -> Shortfall | None:
        problem, flags = self._problem(candidate.cards), candidate.flags
        least = self._buffers.least(self.case.engine, flags, len(candidate.cards))
        usable = sum(d.free - reserve for d, reserve in zip(problem.devices, problem.limits.reserve, strict=True))
        short = self._forecaster.bytes_on_cards(flags) + least - usable
        return Shortfall(problem.devices[-1].name, int(short)) if short >= 1 else None

    def _note(self, n_cards: int, flags: Flags, n_bytes: float) -> None:
        beyond = n_bytes - self._forecaster.bytes_on_cards(flags)
        self._buffers.note(self.case.engine, flags, n_cards, beyond)

    def _may_be_on_gpu(self, candidate: Candidate) -> bool:
        """Whether everything is on the cards by the forecast, or they may hold it."""
        room = sum(device.free for device in self._problem(candidate.cards).devices)
        return candidate.strategy == "all on GPU" or room > self.case.model.n_bytes

    def place_first(self) -> None:
        """Place the most promising candidates, until one fits and the next cannot be much faster. Once is enough."""
        if self.n_placed:
            return
        fitting, n_failed, failed = 0, 0, list[Cards]()
        self._reject_by_known_buffers()
        while (self.queue and not self.contenders) or (fitting == 1 and self._is_loose()):
            one = self._next(self._likeliest() if fitting else self._hopeful(failed))
            fits = self._place(one)
            fitting, n_failed = fitting + fits, n_failed + (not fits)
            if not fits and one.candidate.strategy != "all on GPU":
                failed.append(one.candidate.cards)
                self._failures[one.candidate.flags.n_ubatch] += 1
            self._reject_by_known_buffers()
            if n_failed == _FAILURES:
                break
        if not self.contenders and self.considered:
            self._place_layers_in_ram()
            self._place_on_cpu()
        self._place_by_layers()
        self._place_on_gpu()
        self._place_small_batch()

    def _hopeful(self, failed: list[Cards]) -> _Queued:
        """The best candidate; where its cards or its micro-batch failed some times, another, if there is one."""
        best = self.queue[0]
        others = (one for one in self.queue if one.candidate.cards or one is best)
        hopeful = (one for one in others if failed.count(one.candidate.cards) < _FAILURES_ALIKE)
        return next((one for one in hopeful if not self._failed(one.candidate.flags)), best)

    def _failed(self, flags: Flags) -> bool:
        return self._failures[flags.n_ubatch] >= _FAILURES_ALIKE

    def _place_on_gpu(self) -> None:
        """Where weights are in RAM: what leaves none there by its forecast, until something turns out so."""
        for _ in range(_ON_GPU):
            hopeful = (t for t in self.queue if t.candidate.strategy == "all on GPU")
            one = next((t for t in hopeful if t.candidate.flags.split_mode == "layer"), None)
            on_gpu = any(c.candidate.strategy == "all on GPU" for c in self.contenders)
            if one is None or on_gpu or not self.contenders:
                break
            self.queue.remove(one)
            self._place(one)

    def _place_small_batch(self) -> None:
        """Where whole layers are in RAM: the smallest micro-batch, which leaves room for the most of them."""
        if not self.contenders or any(c.candidate.strategy != "layers in RAM" for c in self.contenders):
            return
        by_layer = [t for t in self.queue if t.candidate.cards and t.candidate.flags.split_mode == "layer"]
        smallest = min(by_layer, key=lambda t: (t.candidate.flags.n_ubatch, t.cost), default=None)
        if smallest is not None:
            self.queue.remove(smallest)
            self._place(smallest)

    def _place_by_layers(self) -> None:
        """Where only cards that work together were placed: the best of the usual split too, which depends on less."""
        if any(c.candidate.flags.split_mode == "layer" for c in self.contenders) or not self.contenders:
            return
        usual = next((one for one in self.queue if one.candidate.flags.split_mode == "layer"), None)
        if usual is not None:
            self._place(self._next(usual))

    def place_competitors(self, n_other_kinds: int) -> None:
        """Place what may be faster than the placed one, and the best of other kinds."""
        for _ in range(_FASTER_ONES):
            if not self.queue or self._too_slow(self.queue[0]):
                break
            one = self._likeliest()
            if self._likely_cost(one) >= self._least() - _GAIN:
                break
            self._place(self._next(one))
        for _ in range(n_other_kinds):
            self._place_other_kind()

    def place_nearest(self) -> None:
        """Place the most hopeful of the others, and what differs from the best one in one respect, as long as that
        finds a better one; forecasts of what is partly in RAM are off by some per cent. Then what others would do."""
        if not self.contenders:
            return
        tried = sorted(self.queue, key=lambda one: one.cost)[:_HOPEFUL]
        for _ in range(_ROUNDS):
            best = self._cheapest()
            for one in dict.fromkeys((*tried, *self._neighbours(best))):
                if one in self.queue and self._hoped_cost(one, best) < best.cost(self.case.goal) + _NEAREST:
                    self.queue.remove(one)
                    self._place(self._with_ffn_in_ram(one) if is_grown(one.candidate, best.candidate) else one)
            tried = []
            if self._cheapest() is best:
                break
        if not self.build.date:
            self._respan(self._cheapest())
        if not self._cheapest().candidate.user_fields and not self.build.date:
            self._keep_baselines(self._cheapest())

    def _respan(self, best: Contender) -> None:
        """Put in the place of the best one what is found from other spans of cards, where that costs less."""
        others = sorted(self.contenders, key=lambda c: c.cost(self.case.goal))
        if found := respanned(best, others):
            candidate, fitted = as_it_turned_out(best.problem, best.candidate, found.fitted)
            contender = contender_of(self.case, candidate, best.problem, fitted, self.loss)
            if contender.cost(self.case.goal) < best.cost(self.case.goal):
                self.contenders = [contender if c is best else c for c in self.contenders]

    def _cheapest(self) -> Contender:
        return min(self.contenders, key=lambda c: c.cost(self.case.goal))

    def _neighbours(self, best: Contender) -> list[_Queued]:
        """What differs from the best one in one respect: the most hopeful with its cards, and with others.

        One card more is as good at least, whatever its forecast says, which fills every card: a slow one may serve by
        what little it holds.
        """
        near = (one for one in self.queue if is_neighbour(one.candidate, best.candidate))
        same, others = list[_Queued](), list[_Queued]()
        for one in sorted(near, key=lambda one: self._hoped_cost(one, best)):
            (same if one.candidate.cards == best.candidate.cards else others).append(one)
        return [*same[:_NEIGHBOURS], *others[:_NEIGHBOURS]]

    def _hoped_cost(self, one: _Queued, best: Contender) -> float:
        return min(one.cost, best.cost(self.case.goal)) if is_grown(one.candidate, best.candidate) else one.cost

    def _with_ffn_in_ram(self, one: _Queued) -> _Queued:
        """The same with FFN in RAM allowed, though all may fit on the cards: a slow one is best left half empty."""
        case, candidate = self.case, one.candidate
        if candidate.strategy != "all on GPU" or candidate.flags.split_mode != "layer":
            return one
        return one._replace(candidate=with_strategy(case.rig, case.engine, case.model, candidate, "FFN in RAM"))

    def _keep_baselines(self, best: Contender) -> None:
        """Keep what others would run, with the usual micro-batches or the best one's, where that costs less."""
        now, sizes = best.fitted.flags, {n for n in MICRO_BATCHES if n in micro_batches(self.case.goal)}
        pair = cache_pairs(self.case.engine, self.case.model, self.case.constraints)[0][0]
        plain = replace(now, cache_type_k=pair.k, cache_type_v=pair.v)
        starting = [replace(f, n_ubatch=n) for f in (plain, now) for n in {now.n_ubatch, *sizes}]
        for cards, fitted in baselines(self._problem, starting, may_be_on_gpu=self._may_be_on_gpu(best.candidate)):
            start = replace(best.candidate, strategy="FFN in RAM", cards=cards, flags=fitted.flags)
            candidate, fitted = as_it_turned_out(self._problem(cards), start, fitted)
            contender = contender_of(self.case, candidate, self._problem(cards), fitted, self.loss)
            if contender.cost(self.case.goal) < self._least() - _GAIN:
                self.contenders.append(contender)
                self.considered, self.n_placed = self.considered + 1, self.n_placed + 1

    def _next(self, best: _Queued) -> _Queued:
        """Take `best` from the tries, with the largest micro-batch that costs the goal next to nothing."""
        limit, strategy = best.seconds * NEGLIGIBLE, best.candidate.strategy
        alike = [t for t in self.queue if same_but_batch(t.candidate, best.candidate) and t.seconds < limit]
        alike = [t for t in alike if t.candidate.strategy == strategy and not self._failed(t.candidate.flags)]
        chosen = max([best, *alike], key=lambda t: t.candidate.flags.n_ubatch)
        self.queue.remove(chosen)
        return chosen

    def _is_loose(self) -> bool:
        """Whether the placed one is so far from what another is likely to cost that this may be much better."""
        return bool(self.queue) and self._least() > self._likely_cost(self._likeliest()) + _CLOSE

    def _likeliest(self) -> _Queued:
        return min(self.queue[:_LOOKED_AT], key=self._likely_cost)

    def _likely_cost(self, one: _Queued) -> float:
        """The cost of a candidate, if it exceeds its forecast as the best of its strategy does on the same cards, or by
        half as much on others. All on one card, forecasts are exact."""
        if one.candidate.strategy == "all on GPU" and len(one.candidate.cards) == 1:
            return one.cost
        alike = [
            (c.candidate.cards, t) for c, t in self.forecast_errors if c.candidate.strategy == one.candidate.strategy
        ]
        on_these = [times for cards, times in alike if cards == one.candidate.cards]
        on_others = (1 + min((times for _, times in alike), default=1.0)) / 2
        slower = min(on_these, default=on_others)
        return self._cost(one.candidate, one.forecast, self.case.goal, slower=slower)

    def _least(self) -> float:
        return self._cheapest().cost(self.case.goal)

    def _place_layers_in_ram(self) -> None:
        """Nothing fitted as forecast: try whole layers in RAM, with the smallest buffers."""
        tried = [one.candidate for one in self.rejected if one.why == "does not fit" and one.candidate.cards]
        for candidate in sorted(tried, key=lambda c: (c.flags.n_ubatch, -len(c.cards)))[:_LAST_ONES]:
            if candidate.flags.split_mode == "layer" and self._place(_Queued(candidate, _NO_FORECAST), last=True):
                return

    def _place_on_cpu(self) -> None:
        """Nothing fitted with a card: the CPU alone, unless the user's flags or the build are why."""
        free = (one for one in self.queue if not (one.candidate.cards or one.candidate.user_fields))
        one = next(free, None)
        if one is not None and not self.contenders and not self.refusal:
            self.queue.remove(one)
            self._place(one)

    def place_all(self) -> None:
        """Place every candidate."""
        while self.queue:
            self._place(self.queue.pop(0))

    def outcome(self) -> Outcome:
        """Return what was found."""
        least = min(self.shortfalls, key=lambda s: s.n_bytes, default=None)
        rejected = [*self.rejected, *self._pruned()]
        return Outcome(
            self.case, self.contenders, rejected, least, self.refusal, self.considered, self.n_placed, self.loss
        )

    def _place_other_kind(self) -> None:
        limit, known = self._least() + _NEAR, {kind(c.candidate) for c in self.contenders}
        others = [t for t in self.queue if kind(t.candidate) not in known and t.cost < limit]
        if others:
            self._place(self._next(min(others, key=lambda t: t.cost)))

    def _too_slow(self, one: _Queued) -> bool:
        return not _may_reach(one.forecast, self.case.goal)

    def _forecasts(self) -> list[_Queued]:
        """Forecast all candidates; smaller cache types only where nothing fits with larger ones."""
        case, found = self.case, list[_Queued]()
        for pairs in cache_pairs(case.engine, case.model, case.constraints):
            tried = candidates(case.engine, case.model, case.rig, case.goal, pairs)
            for candidate in self._written(user_flags(case.engine, case.constraints).applied_to(tried)):
                one = self._forecast(candidate)
                if one.forecast.shortfall is not None:
                    self._reject(one.candidate, one.forecast.shortfall)
                elif one.forecast.idle:
                    self.rejected.append(Rejected(one.candidate, "a card idle", one.forecast, None))
                else:
                    found.append(one)
            if found:
                break
        return found

    def _written(self, found: Iterator[Candidate]) -> Iterator[Candidate]:
        """Candidates that the build has options for; why it lacks those of the others becomes the refusal."""
        for candidate in found:
            try:
                yield candidate if self.build.date is None else for_build(self.case.engine, candidate, self.build)
            except InvalidFlags as error:
                self.refusal = error.detail

    def _forecast(self, candidate: Candidate) -> _Queued:
        self.considered += 1
        problem = self._problem(candidate.cards)
        found = self._forecaster.forecast(candidate, problem.devices, problem.limits)
        return self._queued(_with_forecast_strategy(self.case, candidate, found), found)

    def _queued(self, candidate: Candidate, forecast: Forecast) -> _Queued:
        return _Queued(candidate, forecast, self._cost(candidate, forecast, self.case.goal))

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

    def _place(self, one: _Queued, *, last: bool = False) -> bool:
        """Place one candidate; return whether it fits."""
        self.n_placed += 1
        problem = self._problem(one.candidate.cards)
        found = fit_candidate(problem, one.candidate, partial(self._note, len(one.candidate.cards)), last=last)
        if one.candidate.flags.split_mode != "layer":
            self._leave_together(one.candidate, fits=not isinstance(found, Shortfall))
        if isinstance(found, Shortfall):
            self._requeue_idle(one.candidate)
            if not self._requeue_with_ffn_in_ram(one, found):
                self._reject(one.candidate, found)
            return False
        candidate, fitted = found
        if self.build.date and (why := build_refusal(self.case.engine, fitted.flags, self.build)):
            self.refusal = why
            return False
        fewer = self._without_idle(one, fitted)
        if fewer and (any(same_try(c.candidate, fewer.candidate) for c in self.contenders) or self._place(fewer)):
            self.rejected.append(Rejected(candidate, "a card idle", one.forecast, None))
            return True
        contender = contender_of(self.case, candidate, problem, fitted, self.loss)
        self.contenders.append(contender)
        if one.seconds and candidate.strategy == one.candidate.strategy:
            self.forecast_errors.append((contender, contender.seconds.expected / one.seconds))
        return True

    def _without_idle(self, one: _Queued, fitted: Fitted) -> _Queued | None:
        """The same without the cards that hold nothing and compute nothing, which leave the queue; None where all work,
        or which ones do was stated."""
        candidate, rig = one.candidate, self.case.rig
        devices = zip(candidate.cards, fitted.memory.devices, strict=False)
        working = tuple(card for card, d in devices if d.weights or d.kv or d.compute or d.derived)
        stated = candidate.user_fields or any(rig.cards[i].backend == "vulkan" for i in candidate.cards)
        if working == candidate.cards or not working or stated:
            return None
        fewer = replace(candidate, cards=working)
        self.queue = [t for t in self.queue if not same_try(t.candidate, fewer)]
        return one._replace(candidate=fewer)

    def _leave_together(self, tried: Candidate, *, fits: bool) -> None:
        """Of cards that share every layer one placement is enough; after one that does not fit, more cards are tried,
        where there are none smaller batches."""
        self.n_together += 1
        smaller = [t for t in self.queue if smaller_batch(t.candidate, tried)]
        if self.n_together == _MOST_TOGETHER - 1:
            smaller = sorted(smaller, key=lambda t: t.candidate.flags.n_ubatch)[:1]
        more = [t for t in self.queue if more_cards(t.candidate, tried)]
        kept = [] if fits or self.n_together >= _MOST_TOGETHER else more or smaller
        gone = [t for t in self.queue if t.candidate.flags.split_mode != "layer" and t not in kept]
        self.rejected += [Rejected(t.candidate, "pruned by bound", t.forecast, None) for t in gone]
        self.queue = [t for t in self.queue if t not in gone]

    def _requeue_idle(self, failed: Candidate) -> None:
        """Where cards turn out too small, those with one more, which by their forecasts was idle, get their turn."""
        idle = [r for r in self.rejected if r.why == "a card idle" and set(failed.cards) < set(r.candidate.cards)]
        self.rejected = [r for r in self.rejected if r not in idle]
        again = (self._queued(r.candidate, r.forecast) for r in idle if r.forecast)
        self.queue = sorted([*self.queue, *again], key=self._priority)

    def _requeue_with_ffn_in_ram(self, one: _Queued, short: Shortfall) -> bool:
        """Where not everything fits on the cards after all: forecast it with the FFN in RAM, for its turn. So too with
        the same cards in another order, and larger micro-batches. Return whether it may fit then."""
        if one.candidate.strategy != "all on GPU" or one.candidate.flags.split_mode != "layer" or not one.seconds:
            return False
        gone = [t for t in self.queue if needs_no_less(t.candidate, one.candidate)]
        self.queue = [t for t in self.queue if t not in gone]
        for other in gone:
            if not self._requeued(other.candidate, short):
                self._reject(other.candidate, short)
        return self._requeued(one.candidate, short)

    def _requeued(self, candidate: Candidate, short: Shortfall) -> bool:
        problem = self._problem(candidate.cards)
        forecast = self._forecaster.forecast(candidate, problem.devices, problem.limits, short)
        if forecast.shortfall is not None:
            return False
        changed = with_strategy(self.case.rig, self.case.engine, self.case.model, candidate, "FFN in RAM")
        again = self._queued(changed, forecast._replace(strategy="FFN in RAM"))
        self.queue = sorted([*self.queue, again], key=self._priority)
        return True

    def _reject(self, candidate: Candidate, short: Shortfall) -> None:
        self.shortfalls.append(short)
        self.rejected.append(Rejected(candidate, "does not fit", None, short))

    def _pruned(self) -> Iterator[Rejected]:
        for t in self.queue:
            why: RejectedFor = "minimum not reached" if self._too_slow(t) else "pruned by bound"
            yield Rejected(t.candidate, why, t.forecast, None)


def _with_forecast_strategy(case: SearchCase, candidate: Candidate, found: Forecast) -> Candidate:
    """The candidate with the strategy that its forecast shows, and that strategy's flags."""
    if found.strategy == candidate.strategy or candidate.strategy == "CPU only":
        return candidate
    return with_strategy(case.rig, case.engine, case.model, candidate, found.strategy)


def _may_reach(found: Forecast, goal: Goal) -> bool:
    return found.tg >= (goal.min_tg or 0) and found.pp >= (goal.min_pp or 0)
