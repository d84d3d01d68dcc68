"""Shorter commands for nearly the same placement, easier to read and change, where they cost next to nothing."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise, product

from msgspec.structs import replace

from service.engine.config import CPU, Flags
from service.engine.engines import engine_spec
from service.engine.planner.pricing.blocks import Block, blocks_of
from service.engine.planner.pricing.candidate import strategy_of
from service.engine.planner.pricing.fit import Fitted, Problem, fitting, slack
from service.engine.planner.pricing.logits import with_all_logits
from service.engine.planner.ranking.rank import COSTS_LITTLE, FEWER_WORDS, MAX_CONFIGS, Contender, Ranked, Squeeze
from service.engine.planner.search.candidates import micro_batches
from service.engine.planner.search.fitting import PLACEMENT_FIELDS
from service.engine.planner.search.knapsack import OPTIONS, Option
from service.engine.planner.search.layout import Starts
from service.engine.planner.search.layout_flags import MovedPieces, all_in_ram, layout_flags, rules_of, tensor_split_for
from service.engine.planner.search.options import build_refusal
from service.engine.planner.search.placement import PlacementSearch
from service.engine.speed.predict import goal_seconds, predict_speed, typical_seconds
from service.engine.tensor_names import role_of

_COSTS_NOTHING = 0.03  # of the goal's time
_MORE = (0, 1, 2)  # layers more in RAM than with the longer command, where layers are of several sizes
_WORTH_TELLING = 1.002  # times as fast: the longer command is named in the answer
_MOST_REPLAYS = 5


def shortest(ranked: Ranked) -> Ranked:
    """Return the ranked contenders with the shortest commands that cost next to nothing.

    Where none was picked as simple, the first one's own placement in a far shorter command is, if that costs little.
    """
    short = {id(contender): _with_all_logits(simplified(contender)) for contender in ranked.order}
    order, picks = [short[id(c)] for c in ranked.order], {name: short[id(c)] for name, c in ranked.picks.items()}
    if order and "simple" not in picks:
        plain = _with_all_logits(simplified(order[0], COSTS_LITTLE))
        if plain.n_words <= order[0].n_words * FEWER_WORDS and plain is not order[0]:
            order.insert(len({id(c) for c in picks.values()}), plain)
            picks["simple"] = plain
    return Ranked(order[:MAX_CONFIGS], picks)


def _with_all_logits(contender: Contender) -> Contender:
    if "n_logits" in contender.candidate.user_fields:
        return contender
    found = with_all_logits(contender.problem, contender.fitted)
    return contender if found is contender.fitted else replace(contender, fitted=found)


def simplified(contender: Contender, costing: float = _COSTS_NOTHING) -> Contender:
    """Return the contender with the shortest command that takes at most `costing` (a share) more time; itself if none.

    Its `squeeze` says what the longer command was, and how much faster.
    """
    candidate, problem, fitted = contender.candidate, contender.problem, contender.fitted
    if not fitted.flags.overrides:
        return contender
    if any(name in PLACEMENT_FIELDS for name in candidate.user_fields):
        return contender
    for form in _forms(problem, fitted):
        flags = form.flags if isinstance(form, Fitted) else form
        if contender.n_words_with(flags) < contender.n_words:
            found = form if isinstance(form, Fitted) else fitting(problem, form)
            one = None if found is None else _worth_it(contender, found, costing)
            if one is not None:
                return one
    return contender


def _worth_it(contender: Contender, found: Fitted, costing: float) -> Contender | None:
    problem = contender.problem
    if contender.candidate.strategy == "all on GPU" != strategy_of(found.placement):  # weights in RAM need other flags
        return None
    if problem.build and build_refusal(problem.engine, found.flags, problem.build):
        return None
    found = _with_larger_batch(contender, found)
    seconds = goal_seconds(found.run, problem.goal)
    typical = typical_seconds(found.run, problem.goal)
    gain = seconds.expected / contender.seconds.expected
    if max(gain, typical / contender.typical) > 1 + costing:
        return None
    squeeze = Squeeze(contender.fitted.flags, gain) if gain > _WORTH_TELLING else None
    speed = predict_speed(found.run, problem.goal.depth)
    return replace(contender, fitted=found, speed=speed, seconds=seconds, typical=typical, squeeze=squeeze)


def _with_larger_batch(contender: Contender, found: Fitted) -> Fitted:
    """Return a short form with the micro-batch doubled for as long as there is room and usual prompts take less time.

    Its micro-batch left room for pieces that the short form leaves in RAM.
    """
    problem, seconds = contender.problem, typical_seconds(found.run, contender.problem.goal)
    # With a larger one copying experts might win, so a run without copies stays as it was found.
    stated = contender.candidate.user_fields
    if "n_ubatch" in stated or not found.flags.op_offload:
        return found
    while (n_ubatch := 2 * found.flags.n_ubatch) in micro_batches(problem.goal):
        n_batch = max(n_ubatch, found.flags.n_batch)
        if "n_batch" in stated and n_batch > found.flags.n_batch:
            break
        larger = fitting(problem, replace(found.flags, n_ubatch=n_ubatch, n_batch=n_batch))
        if larger is None or (shorter := typical_seconds(larger.run, problem.goal)) >= seconds:
            break
        found, seconds = larger, shorter
    return found


def _forms(problem: Problem, fitted: Fitted) -> Iterator[Fitted | Flags]:
    """Yield simpler flags, the shortest first: `-cmoe`; `-ncmoe`; one range of layers a card; one for each card and
    part. A Fitted was replayed already.
    """
    experts = {at for name, at in fitted.placement.tensors.items() if role_of(name) == "expert"}
    if experts == {len(problem.devices)}:
        yield replace(fitted.flags, overrides=(), cpu_moe=True)
    blocks = [b for b in blocks_of(problem.model, problem.engine) if b.pieces or b.ram_only]
    cards = fitted.placement.layers
    options = {block.index: _option_away(block, fitted) for block in blocks} | _unused_away(problem, fitted)
    if len(problem.devices) == 1 and problem.model.moe_layers:
        for n in _layers_counted(problem, fitted, blocks):
            yield replace(fitted.flags, overrides=(), n_cpu_moe=n)
    if len(problem.devices) > 1:
        found = filled(problem, replace(fitted.flags, overrides=(), tensor_split=()))
        yield from [found] if found else []
    parted = [False, True] if {"up and gate", "down"} & set(options.values()) else [False]
    own = [[i for i in options if cards[i] == card] for card in range(len(problem.devices))]
    for by_part, more, last in product(parted, _MORE, (False, True)):
        away = _ranges(own, options, by_part=by_part, more=more, last=last)
        yield replace(fitted.flags, overrides=tuple(rules_of(problem.model, away)))


def _layers_counted(problem: Problem, fitted: Fitted, blocks: Sequence[Block]) -> Iterator[int]:
    """Yield numbers for `-ncmoe`, the least first for which the card has room: by bytes, since layers may be of several
    sizes, and divided in the longer command. Layers without experts count where it counts from the first layer."""
    from_first = engine_spec(problem.engine).memory.counts_experts_from_first
    tensors, ordered = fitted.placement.tensors, blocks if from_first else blocks[::-1]
    away = sum(p.n_bytes for b in blocks for p in b.pieces if tensors.get(p.names[0]) == len(problem.devices))
    short = away - slack(problem, fitted.memory)[0]
    freed = list(accumulate(block.movable_bytes for block in ordered))
    least = next((n for n, n_bytes in enumerate(freed) if n_bytes >= short), len(freed) - 1)
    for n in range(least, min(least + len(_MORE), len(ordered))):
        yield ordered[n].index + 1 if from_first else n + 1


def _ranges(
    own: Sequence[Sequence[int]], options: Mapping[int, Option | None], *, by_part: bool, more: int, last: bool
) -> MovedPieces:
    """As many pieces in RAM as `options` says, and of `more` layers, but of each card's first (or `last`) own layers.

    `by_part`: a range for each part, else whole layers.
    """
    away: MovedPieces = {}
    for card in own:
        layers = sorted(card, reverse=last)
        moved = Counter(option if by_part else "whole" for option in map(options.get, layers) if option)
        for option in OPTIONS:
            n_layers = moved[option] + more if moved[option] else 0
            away.setdefault((CPU, option), []).extend(layers[:n_layers])
            layers = layers[n_layers:]
    return {place: sorted(indices) for place, indices in away.items()}


def _unused_away(problem: Problem, fitted: Fitted) -> dict[int, Option | None]:
    """Next-token layers that a card owns, with their experts in RAM: the engine's own placement puts them there."""
    model, placement, in_ram = problem.model, fitted.placement, len(problem.devices)
    unused = range(model.n_layer - model.n_layer_nextn, model.n_layer)
    experts = {i: [t.name for t in model.by_layer[i] if role_of(t.name) == "expert"] for i in unused}
    return {
        i: "whole"
        for i, names in experts.items()
        if placement.layers[i] < in_ram and any(placement.tensors.get(name) == in_ram for name in names)
    }


def _option_away(block: Block, fitted: Fitted) -> Option | None:
    """Which pieces of a block are not on the card that owns it; None: all are there."""
    placement = fitted.placement
    card = placement.layers[block.index]
    away = [p for p in (*block.pieces, *block.ram_only) if any(placement.tensors.get(n) != card for n in p.names)]
    if not away:
        return None
    return away[0].part if len(away) == 1 and len(block.pieces) > 1 else "whole"


def filled(problem: Problem, flags: Flags) -> Fitted | None:
    """Return `flags` with the pieces of the first blocks in RAM, as few as let the rest fit; None where none is found.

    Written as `-ncmoe` where the engine counts experts from the first block, else as one `-ot` rule.
    """
    search = PlacementSearch(problem, flags, whole=False)
    movable = [block.index for block in search.blocks if block.pieces]
    if not movable or any(block.ram_only for block in search.blocks):
        return None
    starts, before = search.first_starts(), None
    first = problem.tried(layout_flags(problem, flags, starts, all_in_ram(search.blocks)))
    rooms = search.rooms(first.memory, starts, [0] * len(problem.devices))
    for _ in range(_MOST_REPLAYS):
        # the fewest blocks: every larger number fits as well
        n_away = bisect_left(range(len(movable)), True, key=lambda n: _spans(search, rooms, movable[:n]) is not None)
        away = movable[:n_away]
        spans = _spans(search, rooms, away)
        written = _written(problem, flags, away, spans) if spans else None
        if spans is None or written is None or written == before:
            return None
        before, found = written, problem.tried(written)
        left = slack(problem, found.memory)
        if min(left) >= 0:
            return found if problem.starts(found.run) else None
        kept = _kept(search, away)
        pieces = [sum(kept[a:b]) for a, b in pairwise(spans)]
        rooms = search.corrected(rooms, search.rooms(found.memory, spans, pieces), left)
    return None


def _kept(search: PlacementSearch, away: Sequence[int]) -> list[int]:
    """Bytes of the pieces that each block keeps on its card."""
    in_ram = frozenset(away)
    return [0 if block.index in in_ram else block.movable_bytes for block in search.blocks]


def _spans(search: PlacementSearch, rooms: Sequence[int], away: Sequence[int]) -> Starts | None:
    """The spans that fill each card in turn, None where the last one has too little room."""
    sizes = [fixed + kept for fixed, kept in zip(search.fixed, _kept(search, away), strict=True)]
    sizes += [0] * (search.n_slots - len(sizes))  # next-token layers, which are not loaded, and the head: see below
    starts, left = [0], rooms[0]
    for slot in range(search.n_slots):
        while (sizes[slot] if slot < search.n_slots - 1 else search.heads[len(starts) - 1]) > left:
            if len(starts) == len(rooms):
                return None
            left = rooms[len(starts)]
            starts.append(slot)
        left -= sizes[slot]
    return (*starts, *[search.n_slots] * (len(rooms) - len(starts) + 1))


def _written(problem: Problem, flags: Flags, away: Sequence[int], spans: Starts) -> Flags | None:
    """The flags with these spans and the pieces of the blocks in `away` in RAM, None where no `-ts` gives the spans."""
    memory = engine_spec(problem.engine).memory
    plain = replace(flags, overrides=(), n_cpu_moe=0)
    if away and problem.model.moe_layers and memory.counts_experts_from_first:
        plain = replace(plain, n_cpu_moe=away[-1] + 1)
    elif away:
        plain = replace(plain, overrides=tuple(rules_of(problem.model, {(CPU, "whole"): list(away)})))
    return tensor_split_for(problem.engine, problem.model, plain, [device.free for device in problem.devices], spans)
