"""What is tried around the best config of a variant and engine: neighbours, other spans, and what others would run.

Forecasts of what is partly in RAM are off by some per cent, so the best one placed need not be the best there is.
"""

from __future__ import annotations

import math
from itertools import product

from msgspec.structs import replace

from service.engine.ggml_types import type_named
from service.engine.planner.pricing.candidate import Candidate
from service.engine.planner.pricing.fit import Fitted, unplaced
from service.engine.planner.ranking.rank import Contender
from service.engine.planner.ranking.ties import kind_of, noise_beside
from service.engine.planner.search.alike import adds_cards, fewer_cards_and_smaller_batch, is_neighbour
from service.engine.planner.search.baselines import USUAL_BATCHES, baselines
from service.engine.planner.search.candidates import CachePair, micro_batches
from service.engine.planner.search.fitting import as_it_turned_out, most_layers_on_cards, without_idle_cards
from service.engine.planner.search.forecasts import Queued
from service.engine.planner.search.one_variant import MIN_GAIN, NO_FORECAST, VariantSearch
from service.engine.planner.search.outcome import contender_of
from service.engine.planner.search.respanned import respanned

_NEAREST = math.log(1.2)  # of cost: how far above the best the likely cost of what is placed may be
_MOST_HOPEFUL = 2  # of the whole queue, in the first round
_NEIGHBOURS = 2  # with the best one's cards, and as many with others, in each round
_ROUNDS = 4
_MUCH_CACHE = 1 / 6  # of what is on the cards: from so much 16-bit cache on, it may be better in RAM, with its layers


def refine(search: VariantSearch) -> None:
    """Search locally around the best one, because forecasts of what is partly in RAM are off by some per cent.

    Its neighbours are placed, and at first the best of the queue, as long as that finds a better one. Then the best
    one is placed from other spans of blocks, and compared with what others would run.
    """
    if not search.contenders:
        return
    hopeful = sorted(search.queue, key=lambda one: one.cost)[:_MOST_HOPEFUL]
    for _ in range(_ROUNDS):
        best = search.best()
        for one in dict.fromkeys((*hopeful, *_neighbours(search, best))):
            if one in search.queue and _likely_beside(search, best, one) < best.cost(search.case.goal) + _NEAREST:
                search.queue.remove(one)
                search.place(
                    _with_ffn_allowed_in_ram(search, one) if adds_cards(one.candidate, best.candidate) else one
                )
        for one in _with_layers_in_ram(search, best):
            search.place(one)
        hopeful = []
        if search.best() is best:
            break
    if not search.build.date:
        _respan(search, search.best())
        if not search.best().candidate.user_fields:
            _keep_baselines(search, search.best())


def _neighbours(search: VariantSearch, best: Contender) -> list[Queued]:
    """What differs from the best one in one respect: the most hopeful on its cards, and on others."""
    near = [one for one in search.queue if is_neighbour(one.candidate, best.candidate)]
    near.sort(key=lambda one: _likely_beside(search, best, one))
    same = [one for one in near if one.candidate.cards == best.candidate.cards]
    others = [one for one in near if one.candidate.cards != best.candidate.cards]
    return [*same[:_NEIGHBOURS], *others[:_NEIGHBOURS], *_on_fewer_cards(search, best)]


def _on_fewer_cards(search: VariantSearch, best: Contender) -> list[Queued]:
    """The most hopeful on some of the best one's cards, with a smaller micro-batch: its own may have no room there."""
    now = best.candidate
    found = [one for one in search.queue if fewer_cards_and_smaller_batch(one.candidate, now)]
    return sorted(found, key=search.likely_cost)[:_NEIGHBOURS]


def _with_layers_in_ram(search: VariantSearch, best: Contender) -> list[Queued]:
    """Neighbours that did not fit with FFN in RAM, with whole layers there, as the best one has them."""
    if best.candidate.strategy != "layers in RAM":
        return []
    failed = [
        one
        for one in search.rejected
        if one.why == "does not fit"
        and one.candidate.strategy == "FFN in RAM"
        and one.candidate.splits_by_layer
        and is_neighbour(one.candidate, best.candidate)
    ][:_NEIGHBOURS]
    search.rejected = [one for one in search.rejected if one not in failed]
    tried = [search.forecasts.with_strategy(one.candidate, "layers in RAM") for one in failed]
    return [Queued(candidate, NO_FORECAST) for candidate in tried]


def _likely_beside(search: VariantSearch, best: Contender, one: Queued) -> float:
    """The likely cost of a candidate; at most the best one's cost where the candidate adds cards to it.

    A forecast fills every card, though a slow one may serve best with little on it.
    """
    likely = search.likely_cost(one)
    return min(likely, best.cost(search.case.goal)) if adds_cards(one.candidate, best.candidate) else likely


def _with_ffn_allowed_in_ram(search: VariantSearch, one: Queued) -> Queued:
    """The same with FFN in RAM allowed, though all may fit on the cards: a slow one is best left half empty."""
    if one.candidate.strategy != "all on GPU" or not one.candidate.splits_by_layer:
        return one
    return one._replace(candidate=search.forecasts.with_strategy(one.candidate, "FFN in RAM"))


def _respan(search: VariantSearch, best: Contender) -> None:
    """Replace the best one by what a search from other spans of blocks finds, where that costs less."""
    others = sorted(search.contenders, key=lambda c: c.cost(search.case.goal))
    if found := respanned(best, others):
        contender = _contender(search, best.candidate, found.fitted)
        if contender.cost(search.case.goal) < best.cost(search.case.goal):
            search.contenders = [contender if c is best else c for c in search.contenders]


def _keep_baselines(search: VariantSearch, best: Contender) -> None:
    """Keep what others would run, with the usual micro-batches or the best one's, where that costs less."""
    now, sizes = best.fitted.flags, {n for n in USUAL_BATCHES if n in micro_batches(search.case.goal)}
    pair = search.cache_pairs[0][0]
    plain = replace(now, cache_type_k=pair.k, cache_type_v=pair.v)
    starting = [replace(f, n_ubatch=n) for f in (plain, now) for n in {now.n_ubatch, *sizes}]
    on_gpu = best.candidate.strategy == "all on GPU"
    room = sum(device.free for device in search.forecasts.problem(best.candidate.cards).devices)
    may_be_on_gpu = on_gpu or room > search.case.model.n_bytes
    for cards, fitted in baselines(search.forecasts.problem, starting, may_be_on_gpu=may_be_on_gpu):
        start = replace(best.candidate, strategy="FFN in RAM", cards=cards, flags=fitted.flags)
        _keep_if_cheaper(search, start, fitted)


def keep_whole_layers(search: VariantSearch) -> None:
    """Keep whole layers in RAM, with their caches, where that costs less than what is there now.

    That is FFN of layers whose caches take much of the cards, or would with 16 bits, or whole layers with another cache
    or micro-batch.
    """
    best = search.best()
    cards = best.fitted.memory.devices[:-1]
    used = sum(one.weights + one.kv + one.compute for one in cards)
    cache = sum(one.kv for one in cards) * 16 / type_named(best.fitted.flags.cache_type_k).bpw
    crowded = best.candidate.strategy == "FFN in RAM" and cache >= _MUCH_CACHE * used
    if search.build.date or best.candidate.user_fields or not (crowded or best.candidate.strategy == "layers in RAM"):
        return
    now = best.fitted.flags
    plain = replace(unplaced(now), op_offload=True)
    own = CachePair(now.cache_type_k, now.cache_type_v)
    pairs = search.cache_pairs[0][: 1 if crowded else 2]
    sizes = [n for n in (now.n_ubatch // 2, now.n_ubatch, 2 * now.n_ubatch) if n in micro_batches(search.case.goal)]
    for pair, n_ubatch in product(dict.fromkeys((*pairs, own)), sizes):
        n_batch = max(now.n_batch, n_ubatch)
        flags = replace(plain, cache_type_k=pair.k, cache_type_v=pair.v, n_ubatch=n_ubatch, n_batch=n_batch)
        if (fitted := most_layers_on_cards(best.problem, flags)) is not None:
            _keep_if_cheaper(search, replace(best.candidate, flags=fitted.flags), fitted)


def _keep_if_cheaper(search: VariantSearch, candidate: Candidate, fitted: Fitted) -> None:
    """Keep what costs less than the best one; of another kind, also what costs as much, which makes it a tie."""
    contender, goal = _contender(search, candidate, fitted), search.case.goal
    kind = kind_of(contender)
    of_kind = min((c.cost(goal) for c in search.contenders if kind_of(c) == kind), default=math.inf)
    if contender.cost(goal) < min(of_kind - MIN_GAIN, search.least() + noise_beside(search.best())):
        search.contenders.append(contender)
        search.considered += 1
        search.n_placed += 1


def _contender(search: VariantSearch, candidate: Candidate, fitted: Fitted) -> Contender:
    """Return the contender of a placement that was not made by `place`."""
    problem_of = search.forecasts.problem
    candidate, fitted = as_it_turned_out(problem_of(candidate.cards), candidate, fitted)
    candidate, fitted = without_idle_cards(problem_of, candidate, fitted)
    return contender_of(search.case, candidate, problem_of(candidate.cards), fitted, search.loss)
