"""What is tried around the best config of a variant and engine: neighbours, other spans, and what others would run.

Forecasts of what is partly in RAM are off by some per cent, so the best one placed need not be the best there is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice, product

from msgspec.structs import replace

from service.engine.config import CPU, Flags, Override
from service.engine.errors import InvalidFlags
from service.engine.ggml_types import type_named
from service.engine.hardware import Rig
from service.engine.model import Model
from service.engine.planner.pricing.candidate import (
    Candidate,
    Cards,
    adds_cards,
    differs_in_cards_only,
    fewer_cards_and_smaller_batch,
    is_neighbour,
)
from service.engine.planner.pricing.fit import Fitted, Placed, Problem, check, fitting, unplaced
from service.engine.planner.ranking.rank import Contender
from service.engine.planner.ranking.ties import kind_of, noise_beside
from service.engine.planner.search.candidates import CachePair, micro_batches
from service.engine.planner.search.fitting import (
    PLACEMENT_FIELDS,
    as_it_turned_out,
    most_layers_on_cards,
    without_copies,
    without_idle_cards,
)
from service.engine.planner.search.forecasts import Queued
from service.engine.planner.search.layout import Starts, on_first_cards
from service.engine.planner.search.layout_flags import starts_of, tensor_split_for
from service.engine.planner.search.one_variant import MIN_GAIN, NO_FORECAST, VariantSearch
from service.engine.planner.search.outcome import contender_of
from service.engine.planner.search.placement import PlacementSearch

_NEAREST = math.log(1.2)  # of cost: how far above the best the likely cost of what is placed may be
_MOST_HOPEFUL = 2  # of the whole queue, in the first round
_NEIGHBOURS = 2  # with the best one's cards, and as many with others, in each round
_ROUNDS = 4
_RIVALS = 3  # other sets of cards that are placed at most
_MUCH_CACHE = 1 / 6  # of what is on the cards: from so much 16-bit cache on, it may be better in RAM, with its layers
_MOST_OF_OTHERS = 3
_HOPELESS = 1.01  # times the best one's seconds: replays that correct a layout seldom gain more
USUAL_BATCHES = (512, 2048)  # llama.cpp's default, and what most published commands of mixtures have
_MOST_SHARE = 1_000  # of `-ts` in layers or GiB, as a command has it; larger ones are bytes of the engine's own fit


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
    _place_rivals(search)
    if not search.build.date:
        _respan(search, search.best())
        if not search.best().candidate.user_fields:
            best = search.best()
            _keep_baselines(search, best)
            if search.best() is not best:
                _place_rivals(search)


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


def _place_rivals(search: VariantSearch) -> None:
    """Place what differs from the best one in its cards and is likely to cost as much, on the fewest cards first.

    As good on fewer cards is better, and on others it is a tie. On some of the best one's cards, with its micro-batch,
    the forecast alone says what is likely: other placements there may have been slow because they cannot be pipelined.
    """
    best = search.best()
    limit, cards = best.cost(search.case.goal) + noise_beside(best), frozenset(best.candidate.cards)
    known = {(frozenset(c.candidate.cards), c.candidate.flags.n_ubatch) for c in search.contenders}
    rivals: dict[frozenset[int], Queued] = {}
    alike = [one for one in search.queue if differs_in_cards_only(one.candidate, best.candidate)]
    for one in sorted(alike, key=search.likely_cost):
        chosen, n_ubatch = frozenset(one.candidate.cards), one.candidate.flags.n_ubatch
        if chosen < cards and n_ubatch == best.candidate.flags.n_ubatch:
            may_be, tried = one.cost < limit, (chosen, n_ubatch) in known
        else:
            may_be, tried = search.likely_cost(one) < limit, any(chosen == others for others, _ in known)
        if may_be and not tried:
            rivals.setdefault(chosen, one)
    for one in sorted(rivals.values(), key=lambda one: len(one.candidate.cards))[:_RIVALS]:
        if one in search.queue:  # one that was placed may have taken its like along
            search.queue.remove(one)
            search.place(one)


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
    if found := _respanned(best, others):
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
    """Keep whole layers in RAM, with their caches, where that costs less than what is there now, on the best one's
    cards or on others that cost little more.

    That is FFN of layers whose caches take much of the cards, or would with 16 bits, or whole layers with another cache
    or micro-batch.
    """
    limit, best_on = search.least() + 2 * noise_beside(search.best()), dict[frozenset[int], Contender]()
    for contender in sorted(search.contenders, key=lambda c: c.cost(search.case.goal)):
        if contender.cost(search.case.goal) < limit:
            best_on.setdefault(frozenset(contender.candidate.cards), contender)
    for best in best_on.values():
        _keep_whole_layers(search, best)


def _keep_whole_layers(search: VariantSearch, best: Contender) -> None:
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


def _respanned(best: Contender, others: Sequence[Contender]) -> Placed | None:
    """Return the fastest placement found from several starts, None where `best` has one card or nothing in RAM.

    A search that moves one boundary at a time stays near its start. The starts are the best one's own spans, those of
    the cheapest of `others` on some of its cards, and all blocks on one card or on the first ones.
    """
    candidate, problem, stated = best.candidate, best.problem, set(best.candidate.user_fields)
    if candidate.strategy != "FFN in RAM" or len(candidate.cards) < 2 or stated & set(PLACEMENT_FIELDS):
        return None
    flags = replace(best.fitted.flags, n_gpu_layers=999, overrides=(), tensor_split=(), n_cpu_moe=0, cpu_moe=False)
    search, found = PlacementSearch(problem, flags, whole=False), None
    # An engine's own placement may leave the last slot in RAM: the head, which the last card gets here.
    for spans in dict.fromkeys((*starts[:-1], search.n_slots) for starts in _spans(best, others, search.n_slots)):
        found = _faster_from(search, spans, found)
    return _faster_from(search, starts_of(found.fitted.placement, len(candidate.cards)), found) if found else None


def _faster_from(search: PlacementSearch, spans: Starts, known: Placed | None) -> Placed | None:
    limit = known.seconds * _HOPELESS if known else math.inf
    found = search.search_from(spans, widely=False, limit=limit)
    if isinstance(found, Placed) and (known is None or found.seconds < known.seconds):
        return found
    return known


def _spans(best: Contender, others: Sequence[Contender], n_slots: int) -> Iterator[Starts]:
    cards = best.candidate.cards
    n = len(cards)
    yield starts_of(best.fitted.placement, n)
    alike = (c for c in others if c is not best and set(c.candidate.cards) <= set(cards))
    on_cards = (c for c in alike if c.candidate.strategy in ("FFN in RAM", "all on GPU"))
    yield from islice(dict.fromkeys(_spans_of(cards, c) for c in on_cards), _MOST_OF_OTHERS)
    for card in range(1, n):
        yield on_first_cards(n_slots, card, n)
        yield (*[0] * (card + 1), *[n_slots] * (n - card))


def _spans_of(cards: Cards, other: Contender) -> Starts:
    """The spans of a config on some of these cards, perhaps in another order, as spans of all of them."""
    starts = starts_of(other.fitted.placement, len(other.candidate.cards))
    blocks = {card: starts[i + 1] - starts[i] for i, card in enumerate(other.candidate.cards)}
    return (0, *accumulate(blocks.get(card, 0) for card in cards))


def baselines(
    problem_of: Callable[[Cards], Problem], starting: Sequence[Flags], *, may_be_on_gpu: bool
) -> Iterator[tuple[Cards, Fitted]]:
    """Yield the cards and fitted flags of each baseline that fits, for each of the `starting` flags.

    They are the engine's own placement on all cards, everything on all cards with the engine's own split (only if
    `may_be_on_gpu`), and the best card with all experts, or the dense FFN, in RAM; each also without copies of experts
    for batches, where that is faster. `starting` gives micro-batch and cache; its placement is dropped. Where the
    engine would put whole layers of a dense model in RAM, so does `-ngl`: for the first of `starting` with the smallest
    micro-batch.
    """
    every = problem_of(())
    cards = tuple(range(len(every.rig.cards)))
    if not cards:
        return
    every, one = problem_of(cards), best_card(every.rig)
    plain = [unplaced(flags) for flags in starting]
    smallest = min(plain, key=lambda flags: flags.n_ubatch)
    for flags in dict.fromkeys(plain):
        tried = [(cards, every.placed_by_engine(flags)), (one, _ffn_in_ram(every.model, flags))]
        tried += [(cards, flags)] if may_be_on_gpu else []
        for chosen, placed in dict.fromkeys(tried):
            problem = problem_of(chosen)
            fitted = [_with_split(problem, placed) if placed else None]
            unstated = placed is not None and (placed.layers_in_ram > 0 or fitted[0] is None)
            if placed and unstated and flags == smallest and _leaves_layers_in_ram(every.model, placed):
                fitted.append(most_layers_on_cards(problem, flags))
            for found in filter(None, fitted):
                yield chosen, found
                alone = without_copies(problem, found.flags, found, check)
                if alone is not None:
                    yield chosen, alone


def _leaves_layers_in_ram(model: Model, flags: Flags) -> bool:
    """Whether whole layers of a dense model lie in RAM."""
    return not model.moe_layers and (flags.layers_in_ram > 0 or flags.n_gpu_layers <= model.n_layer)


def best_card(rig: Rig) -> Cards:
    """Return the card with the most memory, of several the one that reads fastest."""
    return (max(range(len(rig.cards)), key=lambda i: (rig.cards[i].free, rig.cards[i].bandwidth_gbs)),)


def _ffn_in_ram(model: Model, flags: Flags) -> Flags:
    return replace(flags, overrides=(Override("exps" if model.moe_layers else r"ffn_(up|down|gate)\.", CPU),))


def _with_split(problem: Problem, flags: Flags) -> Fitted | None:
    """The flags with the `-ts` of the split that the engine makes by itself; None where they do not fit, or where no
    command states that placement."""
    try:
        found = fitting(problem, flags)
    except InvalidFlags:
        return None
    as_written = flags.layers_in_ram > 0 or 0 < max(flags.tensor_split, default=0) < _MOST_SHARE
    if found is None or len(problem.devices) < 2 or as_written:
        return found
    placement, n_cards = found.placement, len(problem.devices)
    if n_cards in placement.layers:
        return None
    free = [device.free for device in problem.devices]
    shared = tensor_split_for(problem.engine, problem.model, flags, free, starts_of(placement, n_cards))
    return fitting(problem, shared) if shared else None
