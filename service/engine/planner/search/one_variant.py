"""The search for one engine and variant: all candidates are forecast, the promising ones are placed.

A forecast is optimistic, so its cost is a lower bound: what cannot beat the best placed config is never placed. A
candidate that turns out not to fit is queued again with FFN in RAM, and with it all that need no less memory; other
cards and smaller micro-batches then get their turn.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from service.engine.advice import Pick
from service.engine.config import Flags
from service.engine.errors import InvalidFlags
from service.engine.goal import Goal
from service.engine.planner.pricing.candidate import (
    Candidate,
    Cards,
    base_flags,
    complexity,
    is_neighbour,
    kind,
    larger_batch,
    more_cards,
    needs_no_less,
    same_setup,
    smaller_batch,
)
from service.engine.planner.pricing.fit import Fitted, Shortfall
from service.engine.planner.pricing.forecast import Forecast
from service.engine.planner.pricing.support import unsupported
from service.engine.planner.ranking.rank import NEGLIGIBLE, Contender, reaches
from service.engine.planner.search.candidates import (
    MICRO_BATCHES,
    CachePair,
    cache_pairs,
    cache_types_refusal,
    candidates,
    keeps_quality,
)
from service.engine.planner.search.fitting import fit_candidate, without_idle_cards, working_cards
from service.engine.planner.search.forecasts import Forecasts, KnownBuffers, Queued
from service.engine.planner.search.options import build_refusal, flags_refusal, for_build, wanted_flags
from service.engine.planner.search.outcome import Outcome, Rejected, RejectedFor, SearchCase, contender_of
from service.engine.units import MIB

# `place_first`
_MAX_FAILURES = 8  # placements that do not fit, after which forecasts are not followed any further
_MAX_FAILURES_ALIKE = 2  # of one order of cards, or of one micro-batch, before others get their turn
_MUCH_BETTER = math.log(1.05)  # of cost: one that fits is not enough where another is likely to be better by more
_LOOKED_AT = 12  # candidates at the head of the queue, of which one is likely to be the best
_MAX_ON_GPU = 3  # placements in search of one with nothing in RAM, where only others fitted
_MAX_LAYERS_IN_RAM = 3  # placements with whole layers in RAM, where nothing else fits
_SMALLER_BATCHES = (256, 128)  # micro-batches that are tried where nothing fits with the smallest of the usual ones
_MAX_SHARING = 3  # placements on cards that share every layer: each replay takes seconds with eight cards
_LACKS_LITTLE = 512 * MIB  # on a card: a smaller micro-batch may make room for as much
_AS_FORECAST = 1.05  # of its seconds: what such a placement may take to be as fast as forecast
# `place_competitors`
_MAX_FASTER = 3  # placements of what may cost less than the best
MIN_GAIN = 0.005  # of cost: what may be better by less is not placed
_OTHER_KIND = math.log(1.5)  # of cost: how far above the best the lower bound of another kind may be

NO_FORECAST = Forecast("layers in RAM", 0.0, 0.0, 0.0, None)


class VariantSearch:
    """The search for one engine and variant.

    `queue`: candidates still to be placed, the best forecast first; `bound`: the first one's seconds. `considered` and
    `n_placed`: how many were forecast, and placed.
    """

    def __init__(self, case: SearchCase, buffers: KnownBuffers | None = None) -> None:
        self.case, self._buffers, self._n_known = case, buffers or KnownBuffers(), 0
        self.forecasts = Forecasts(case)
        self.build, self.loss = self.forecasts.build, self.forecasts.loss
        self.refusal = (
            unsupported(case.engine, case.model, case.rig, self.build.date)
            or flags_refusal(case.engine, case.constraints, case.model)
            or cache_types_refusal(case.engine, case.constraints)
        )
        self.contenders: list[Contender] = []
        self.rejected: list[Rejected] = []
        self.shortfalls: list[Shortfall] = []
        self.considered = self.n_placed = self._n_sharing = 0
        self._failed_cards, self._failed_batches = Counter[Cards](), Counter[int]()
        self._short_cards: list[tuple[int, Flags]] = []  # those that lacked room for one layer, and the flags
        self.queue: list[Queued] = []
        self.cache_pairs = cache_pairs(case.engine, case.model, case.rig.cards, case.constraints)
        self._cache_pairs = list(self.cache_pairs)  # those not tried yet
        self._tried_whole: list[list[CachePair]] = []  # those tried only for what lies whole on the cards
        if not self.refusal:
            self._enqueue(*self._all_forecasts())
        self.bound = self.queue[0].seconds if self.queue else float("inf")

    def least_cost(self, goal: Goal, pick: Pick | None = None) -> float:
        """Return the lower bound of what the best candidate may cost (as a pick)."""
        self._reject_by_known_buffers()
        costs = (self.forecasts.cost(one.candidate, one.forecast, goal, pick) for one in self.queue)
        return min(costs, default=float("inf"))

    def place_first(self) -> None:
        """Place the most promising candidates, until one fits and no other is likely to be far better. Done once."""
        if self.n_placed:
            return
        self._place_queued()
        smaller = [*self._tried_whole, *self._cache_pairs]
        while smaller and not (self.contenders or self.refusal):  # larger caches fitted by their forecasts alone
            self._enqueue(*self._forecasts_with(smaller.pop(0), only_whole=False))
            self._place_queued()
        if self.contenders:
            self._place_by_layers()
            self._place_on_gpu()
            self._place_other_layers()

    def _place_queued(self) -> None:
        """Place what is queued, the best first, until one fits; then whole layers in RAM, and the CPU alone."""
        n_fit = n_failed = 0
        self._reject_by_known_buffers()
        while n_failed < _MAX_FAILURES and self._wants_another(n_fit):
            one = self._take_with_largest_batch(self._likely_best() if n_fit else self._best_after_failures())
            if self.place(one):
                n_fit += 1
            else:
                n_failed += 1
                self._note_failure(one.candidate)
            self._reject_by_known_buffers()
        if self.considered and not any(c.candidate.cards for c in self.contenders):
            self._place_layers_in_ram()
            self._place_on_cpu()

    def place_competitors(self, n_other_kinds: int) -> None:
        """Place what may cost less than the best placed one, and the best of so many other kinds.

        What misses a minimum by its forecast counts only where all that was placed misses one too.
        """
        for _ in range(_MAX_FASTER):
            reached = any(reaches(c.speed, self.case.goal) for c in self.contenders)
            if not self.queue or (reached and self._misses_minimum(self.queue[0])):
                break
            one = self._likely_best()
            if self.likely_cost(one) >= self.least() - MIN_GAIN:
                break
            self.place(self._take_with_largest_batch(one))
        for _ in range(n_other_kinds):
            limit, known = self.least() + _OTHER_KIND, {kind(c.candidate) for c in self.contenders}
            others = [one for one in self.queue if kind(one.candidate) not in known and one.cost < limit]
            if others:
                self.place(self._take_with_largest_batch(min(others, key=lambda one: one.cost)))

    def place_all(self) -> None:
        while self.queue:
            self.place(self.queue.pop(0))

    def outcome(self) -> Outcome:
        least = min(self.shortfalls, key=lambda s: s.n_bytes, default=None)
        rejected = [*self.rejected, *self._never_placed()]
        return Outcome(
            self.case, self.contenders, rejected, least, self.refusal, self.considered, self.n_placed, self.loss
        )

    def _never_placed(self) -> Iterator[Rejected]:
        for one in self.queue:
            why: RejectedFor = "minimum not reached" if self._misses_minimum(one) else "pruned by bound"
            yield Rejected(one.candidate, why, one.forecast, None)

    # -- forecasts and the queue ---------------------------------------------------------------------------------

    def _all_forecasts(self) -> list[Queued]:
        """Forecast all candidates: with smaller cache types where nothing fits with larger ones, or where only they let
        it lie whole on the cards."""
        found: list[Queued] = []
        while self._cache_pairs and not any(one.candidate.strategy == "all on GPU" for one in found):
            if found:
                found += self._next_whole()
            else:
                found += self._forecasts_with(self._cache_pairs.pop(0), only_whole=False)
        return found

    def _next_whole(self) -> list[Queued]:
        """What lies whole on the cards, by its forecast, with one of the next cache types, if that loses little."""
        case = self.case
        self._tried_whole.append(self._cache_pairs.pop(0))
        pairs = [
            pair for pair in self._tried_whole[-1] if keeps_quality(case.engine, case.model, pair, self.build.date)
        ]
        return self._forecasts_with(pairs, only_whole=True) if self._may_be_whole(pairs) else []

    def _may_be_whole(self, pairs: Sequence[CachePair]) -> bool:
        """Whether weights and cache might fit the cards whole with some of these cache types."""
        case, free = self.case, sum(card.free for card in self.case.rig.cards)
        flags = (base_flags(case.engine, case.model, case.rig, case.goal, "FFN in RAM", 512, *pair) for pair in pairs)
        return any(self.forecasts.bytes_on_cards(one) < free for one in flags)

    def _forecasts_with(self, pairs: Sequence[CachePair], *, only_whole: bool) -> list[Queued]:
        case, found = self.case, list[Queued]()
        tried = candidates(case.engine, case.model, case.rig, case.goal, pairs, self.build.date)
        for candidate in self._for_build(wanted_flags(case).applied_to(tried)):
            one = self.forecasts.of(candidate)
            if only_whole and one.candidate.strategy != "all on GPU":
                continue
            self.considered += 1
            if one.forecast.shortfall is not None:
                self._reject(one.candidate, one.forecast.shortfall)
            elif one.forecast.idle:
                self.rejected.append(Rejected(one.candidate, "a card idle", one.forecast, None))
            else:
                found.append(one)
        return found

    def _for_build(self, found: Iterator[Candidate]) -> Iterator[Candidate]:
        """Yield the candidates whose options the stated build has; what it lacks for others becomes the refusal."""
        for candidate in found:
            try:
                yield candidate if self.build.date is None else for_build(self.case.engine, candidate, self.build)
            except InvalidFlags as error:
                self.refusal = error.detail

    def _enqueue(self, *more: Queued) -> None:
        self.queue = sorted(
            [*self.queue, *more], key=lambda one: (self._misses_minimum(one), one.cost, complexity(one.candidate))
        )

    def _misses_minimum(self, one: Queued) -> bool:
        goal, forecast = self.case.goal, one.forecast
        return forecast.tg < (goal.min_tg or 0) or forecast.pp < (goal.min_pp or 0)

    def _take_with_largest_batch(self, best: Queued) -> Queued:
        """Take a candidate off the queue: `best`, with the largest micro-batch that costs the goal next to nothing."""
        limit, strategy = self._likely_seconds(best) * NEGLIGIBLE, best.candidate.strategy
        alike = [t for t in self.queue if larger_batch(t.candidate, best.candidate) and self._likely_seconds(t) < limit]
        alike = [t for t in alike if t.candidate.strategy == strategy and not any(self._failed_alike(t.candidate))]
        chosen = max([best, *alike], key=lambda t: t.candidate.flags.n_ubatch)
        self.queue.remove(chosen)
        return chosen

    def _wants_another(self, n_fit: int) -> bool:
        """Whether to place another candidate after `n_fit` that fit: until one fits, and one more where that is likely
        to be much better."""
        if not self.queue or n_fit > 1:
            return False
        return n_fit == 0 or self.least() > self.likely_cost(self._likely_best()) + _MUCH_BETTER

    def _best_after_failures(self) -> Queued:
        """The best candidate whose cards and micro-batch did not fail too often, or whose cards did not; else the best.

        With whole layers in RAM, none of its cards lacked room for one layer and its micro-batch before.
        The CPU alone has its turn only where it is the best.
        """
        best = self.queue[0]
        tried = [one for one in self.queue if one.candidate.cards or one is best]
        tried = [one for one in tried if self._failed_cards[one.candidate.cards] < _MAX_FAILURES_ALIKE]
        return min(tried, key=lambda one: self._failed_alike(one.candidate), default=best)

    def _note_failure(self, failed: Candidate) -> None:
        if failed.strategy == "all on GPU":
            return
        self._failed_cards[failed.cards] += 1
        self._failed_batches[failed.flags.n_ubatch] += 1
        if failed.strategy == "layers in RAM" and self.shortfalls:
            devices, short = self.forecasts.problem(failed.cards).devices, self.shortfalls[-1].device
            self._short_cards += [(device.gpu, failed.flags) for device in devices if device.name == short]

    def _failed_alike(self, candidate: Candidate) -> tuple[bool, bool]:
        """Whether a card like one of its lacked room for a single layer with no larger micro-batch, and whether its
        micro-batch failed too often."""
        n_ubatch = candidate.flags.n_ubatch
        lacks_room = any(n <= n_ubatch for n in self._short_with(candidate))
        return lacks_room, self._failed_batches[n_ubatch] >= _MAX_FAILURES_ALIKE

    def _short_with(self, candidate: Candidate) -> list[int]:
        """The micro-batches with which cards like its own lacked room, where whole layers of it go to RAM."""
        cards, cache = self.case.rig.cards, candidate.flags.cache_type_k
        like = {(cards[i].name, cards[i].free) for i in candidate.cards if candidate.strategy == "layers in RAM"}
        short = [(cards[i], flags) for i, flags in self._short_cards if flags.cache_type_k == cache]
        return [flags.n_ubatch for card, flags in short if (card.name, card.free) in like]

    def _likely_best(self) -> Queued:
        return min(self.queue[:_LOOKED_AT], key=self.likely_cost)

    def _likely_seconds(self, one: Queued) -> float:
        return one.seconds * self.forecasts.slower(one.candidate)

    def likely_cost(self, one: Queued) -> float:
        """Return the likely cost of a candidate: that of its forecast, corrected by what others were off by."""
        slower = self.forecasts.slower(one.candidate)
        return self.forecasts.cost(one.candidate, one.forecast, self.case.goal, slower=slower)

    def best(self) -> Contender:
        return min(self.contenders, key=lambda c: c.cost(self.case.goal))

    def least(self) -> float:
        return self.best().cost(self.case.goal)

    # -- which candidates are placed -----------------------------------------------------------------------------

    def _place_layers_in_ram(self) -> None:
        """Nothing fitted with a card as forecast: try whole layers in RAM, with the smallest buffers, then with the
        smallest cache too; where a card, or the memory that it shares, is still short, with smaller buffers than are
        worth trying otherwise."""
        rejected = [one.candidate for one in self.rejected if one.why == "does not fit" and one.candidate.cards]
        by_layer = sorted((c for c in rejected if c.splits_by_layer), key=lambda c: (c.flags.n_ubatch, -len(c.cards)))
        waiting = [t.candidate for t in self.queue if t.candidate.cards and t.candidate.splits_by_layer]
        smallest = sorted([*by_layer, *waiting], key=self._bytes_at_least)[:1]
        tried = list(dict.fromkeys([*by_layer[:_MAX_LAYERS_IN_RAM], *smallest]))
        self.queue = [t for t in self.queue if t.candidate not in smallest]
        n_before, least = len(self.shortfalls), MICRO_BATCHES[0]
        if self._one_fits(tried):
            return
        shared = any(self.case.rig.cards[i].unified for c in tried for i in c.cards)
        if not shared and any(short.device == "RAM" for short in self.shortfalls[n_before:]):
            return
        free = [c for c in tried if not {"n_ubatch", "n_batch"} & {*c.user_fields} and c.flags.n_ubatch == least]
        self._one_fits([replace(c, flags=replace(c.flags, n_ubatch=n)) for n in _SMALLER_BATCHES for c in free])

    def _bytes_at_least(self, candidate: Candidate) -> tuple[int, int, int]:
        """Sort key: weights and cache, then buffers, then what is left for RAM."""
        flags = candidate.flags
        return self.forecasts.bytes_on_cards(flags), flags.n_ubatch, -len(candidate.cards)

    def _one_fits(self, tried: Sequence[Candidate]) -> bool:
        """Place candidates, with more in RAM if need be, until one fits; return whether one does."""
        return any(self.place(Queued(c, NO_FORECAST), last=True) for c in tried)

    def _place_on_cpu(self) -> None:
        """Nothing fitted with a card: the CPU alone, unless the user's flags or the build are why."""
        one = next((one for one in self.queue if not (one.candidate.cards or one.candidate.user_fields)), None)
        if one is not None and not self.contenders and not self.refusal:
            self.queue.remove(one)
            self.place(one)

    def _place_by_layers(self) -> None:
        """Where only cards that share every layer were placed: the best that splits by layer, which depends less on
        the links between cards."""
        if any(c.candidate.splits_by_layer for c in self.contenders):
            return
        usual = next((one for one in self.queue if one.candidate.splits_by_layer), None)
        if usual is not None:
            self.place(self._take_with_largest_batch(usual))

    def _place_on_gpu(self) -> None:
        """Where all that was placed has weights in RAM: what has none there by its forecast, if need be with a smaller
        cache, until one is found."""
        for _ in range(_MAX_ON_GPU):
            one = self._first_on_gpu()
            if one is None or any(c.candidate.strategy == "all on GPU" for c in self.contenders):
                break
            self.queue.remove(one)
            self.place(one)

    def _first_on_gpu(self) -> Queued | None:
        def first() -> Queued | None:
            whole = (t for t in self.queue if t.candidate.strategy == "all on GPU" and t.candidate.splits_by_layer)
            return next(whole, None)

        while first() is None and self._cache_pairs:
            self._enqueue(*self._next_whole())
        return first()

    def _place_other_layers(self) -> None:
        """Where whole layers are in RAM: the smallest micro-batch, which leaves room for the most of them on cards, of
        all and on the best one's cards; and the best without cards that lacked room for one, which leave the others a
        larger micro-batch."""
        if any(c.candidate.strategy != "layers in RAM" for c in self.contenders):
            return
        by_layer = [one for one in self.queue if one.candidate.cards and one.candidate.splits_by_layer]
        by_size = sorted(by_layer, key=lambda one: (one.candidate.flags.n_ubatch, one.cost))
        cards = self.best().candidate.cards
        on_its_cards = (one for one in by_size if one.candidate.cards == cards)
        without = (one for one in by_layer if self._short_cards and not self._short_with(one.candidate))
        for one in (next(iter(by_size), None), next(on_its_cards, None), next(without, None)):
            if one is not None and one in self.queue:
                self.queue.remove(one)
                self.place(one)

    # -- one placement and what follows from it ------------------------------------------------------------------

    def place(self, one: Queued, *, last: bool = False) -> bool:
        """Place one candidate; return whether it fits. `last`: more may go to RAM than it was forecast with."""
        self.n_placed += 1
        problem = self.forecasts.problem(one.candidate.cards)
        found = fit_candidate(problem, one.candidate, partial(self._note_buffers, len(one.candidate.cards)), last=last)
        if not one.candidate.splits_by_layer:
            self._prune_sharing(one, found[1] if isinstance(found, tuple) else found)
        if isinstance(found, Shortfall):
            self._requeue_idle(one.candidate)
            if not self._requeue_with_ffn_in_ram(one, found):
                self._reject(one.candidate, found)
            return False
        candidate, fitted = found
        if self.build.date and (why := build_refusal(self.case.engine, fitted.flags, self.build)):
            self.refusal = why
            return False
        if self._placed_on_fewer_cards(one, fitted):
            self.rejected.append(Rejected(candidate, "a card idle", one.forecast, None))
            return True
        candidate, fitted = without_idle_cards(self.forecasts.problem, candidate, fitted)
        contender = contender_of(self.case, candidate, self.forecasts.problem(candidate.cards), fitted, self.loss)
        self.contenders.append(contender)
        if one.seconds and candidate.strategy == one.candidate.strategy:
            self.forecasts.errors.append((candidate, contender.seconds.expected / one.seconds))
        return True

    def _placed_on_fewer_cards(self, one: Queued, fitted: Fitted) -> bool:
        """Place a candidate without the cards that hold nothing and compute nothing; return whether that fits.

        False where all cards work, or which ones do was stated.
        """
        fewer = replace(one.candidate, cards=working_cards(self.case.rig, one.candidate, fitted))
        if fewer == one.candidate:
            return False
        self.queue = [t for t in self.queue if not same_setup(t.candidate, fewer)]
        return any(same_setup(c.candidate, fewer) for c in self.contenders) or self.place(one._replace(candidate=fewer))

    def _reject(self, candidate: Candidate, short: Shortfall) -> None:
        self.shortfalls.append(short)
        self.rejected.append(Rejected(candidate, "does not fit", None, short))

    def _requeue_idle(self, failed: Candidate) -> None:
        """Queue candidates with more cards than the ones that turned out too small: by their forecasts one was idle."""
        idle = [r for r in self.rejected if r.why == "a card idle" and set(failed.cards) < set(r.candidate.cards)]
        self.rejected = [r for r in self.rejected if r not in idle]
        self._enqueue(*(self.forecasts.queued(r.candidate, r.forecast) for r in idle if r.forecast))

    def _requeue_with_ffn_in_ram(self, one: Queued, short: Shortfall) -> bool:
        """Queue a candidate that does not fit whole on its cards again, with FFN in RAM; return whether that may fit.

        Those in the queue that need no less memory (the cards in another order, larger micro-batches) get it there too.
        """
        if one.candidate.strategy != "all on GPU" or not one.candidate.splits_by_layer or not one.seconds:
            return False
        gone = [t for t in self.queue if needs_no_less(t.candidate, one.candidate)]
        self.queue = [t for t in self.queue if t not in gone]
        for other in gone:
            if not self._enqueued_with_ffn_in_ram(other.candidate, short):
                self._reject(other.candidate, short)
        return self._enqueued_with_ffn_in_ram(one.candidate, short)

    def _enqueued_with_ffn_in_ram(self, candidate: Candidate, short: Shortfall) -> bool:
        again = self.forecasts.with_ffn_in_ram(candidate, short)
        if again is not None:
            self._enqueue(again)
        return again is not None

    # -- cards that share every layer ----------------------------------------------------------------------------

    def _prune_sharing(self, tried: Queued, found: Fitted | Shortfall) -> None:
        """Prune the other candidates whose cards share every layer: one placement as fast as forecast is enough, with
        the first one of other cards that is forecast as fast, which might as well come first.

        After one that does not fit, those with more cards stay, and those with smaller micro-batches if it lacks little
        or none has more. These stay, too, after one that is slower than forecast: smaller buffers may leave room for
        even shares. The last placement is of the smallest micro-batch of them.
        """
        self._n_sharing += 1
        kept: list[Queued] = []
        problem = self.forecasts.problem(tried.candidate.cards)
        short = found if isinstance(found, Shortfall) else None
        slower = isinstance(found, Fitted) and problem.seconds(found).expected > tried.seconds * _AS_FORECAST
        if self._n_sharing < _MAX_SHARING and (short or slower):
            kept = [one for one in self.queue if short and more_cards(one.candidate, tried.candidate)]
            if not kept or (short and short.n_bytes < _LACKS_LITTLE):
                kept += [one for one in self.queue if smaller_batch(one.candidate, tried.candidate)]
        elif self._n_sharing == 1:
            kept = [one for one in self.queue if self._is_as_good_on_others(one, tried)][:1]
        if self._n_sharing == _MAX_SHARING - 1:
            kept = sorted(kept, key=lambda one: one.candidate.flags.n_ubatch)[:1]
        gone = [one for one in self.queue if not one.candidate.splits_by_layer and one not in kept]
        self.rejected += [Rejected(one.candidate, "pruned by bound", one.forecast, None) for one in gone]
        self.queue = [one for one in self.queue if one not in gone]

    def _is_as_good_on_others(self, one: Queued, tried: Queued) -> bool:
        """Whether it shares every layer as the tried one does, on one card more or less, and is forecast to cost as
        much."""
        shares = is_neighbour(one.candidate, tried.candidate) and not one.candidate.splits_by_layer
        return shares and one.candidate.cards != tried.candidate.cards and abs(one.cost - tried.cost) < 2 * MIN_GAIN

    def _note_buffers(self, n_cards: int, flags: Flags, n_bytes: float) -> None:
        self._buffers.note(self.case.engine, flags, n_cards, n_bytes - self.forecasts.bytes_on_cards(flags))

    def _reject_by_known_buffers(self) -> None:
        """Reject cards that share every layer where they lack room that others were seen to need for the like."""
        if self._n_known == self._buffers.n_known:
            return
        self._n_known, kept = self._buffers.n_known, list[Queued]()
        for one in self.queue:
            shares = not one.candidate.splits_by_layer
            short = self.forecasts.lacks_room(one.candidate, self._buffers) if shares else None
            if short is None:
                kept.append(one)
            else:
                self._reject(one.candidate, short)
        self.queue = kept
