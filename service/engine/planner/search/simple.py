"""The shortest command for a placement: what a person can read and change, where it costs next to nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from msgspec.structs import replace

from service.engine.config import CPU
from service.engine.engines import engine_spec
from service.engine.planner.pricing.blocks import Block, blocks_of
from service.engine.planner.pricing.fit import Fitted, Problem, Shortfall, check
from service.engine.planner.ranking.rank import Contender, Ranked, Squeeze
from service.engine.planner.search.filled import filled
from service.engine.planner.search.fitting import PLACEMENT_FIELDS
from service.engine.planner.search.layout_flags import rules_of
from service.engine.planner.search.options import build_refusal
from service.engine.speed import goal_seconds, predict_speed, typical_seconds

_COSTS_NOTHING = 1.03  # times the goal's time
_MORE = (0, 1, 2)  # layers more in RAM than the longer command has, where layers are of several sizes
_WORTH_TELLING = 1.002


def shortest(ranked: Ranked) -> Ranked:
    """Return the ranked contenders with the shortest commands that cost next to nothing."""
    short = {id(contender): simplified(contender) for contender in ranked.order}
    return Ranked([short[id(c)] for c in ranked.order], {name: short[id(c)] for name, c in ranked.picks.items()})


def simplified(contender: Contender) -> Contender:
    """Return the contender with the shortest command whose request takes at most 3 % longer, itself where none is.

    `squeeze` then says what the longer command was, and how much faster.
    """
    candidate, problem, fitted = contender.candidate, contender.problem, contender.fitted
    if candidate.strategy == "layers in RAM" or not fitted.flags.overrides:
        return contender
    if any(name in PLACEMENT_FIELDS for name in candidate.user_fields):
        return contender
    for form in _forms(problem, fitted):
        one = _worth_it(contender, form) if isinstance(form, Fitted) else None
        if one is not None and one.n_words < contender.n_words:
            return one
    return contender


def _worth_it(contender: Contender, found: Fitted) -> Contender | None:
    problem = contender.problem
    if problem.build and build_refusal(problem.engine, found.flags, problem.build):
        return None
    seconds = goal_seconds(found.run, problem.goal)
    gain = seconds.expected / contender.seconds.expected
    if gain > _COSTS_NOTHING:
        return None
    squeeze = Squeeze(contender.fitted.flags, gain) if gain > _WORTH_TELLING else None
    speed = predict_speed(found.run, problem.goal.depth)
    typical = typical_seconds(found.run, problem.goal)
    return replace(contender, fitted=found, speed=speed, seconds=seconds, typical=typical, squeeze=squeeze)


def _forms(problem: Problem, fitted: Fitted) -> Iterator[Fitted | Shortfall]:
    """Yield simpler flags, the shortest first: `-ncmoe`, the first layers in RAM, then one range of layers a card."""
    blocks = [b for b in blocks_of(problem.engine, problem.model) if b.pieces or b.ram_only]
    cards = fitted.placement.layers
    away = {block.index for block in blocks if _is_away(block, fitted)}
    if len(problem.devices) == 1 and problem.model.moe_layers:
        first = blocks[0].index if engine_spec(problem.engine).memory.counts_experts_from_first else 0
        for more in _MORE:
            yield check(problem, replace(fitted.flags, overrides=(), n_cpu_moe=len(away) + first + more))
    if len(problem.devices) > 1:
        found = filled(problem, replace(fitted.flags, overrides=(), tensor_split=()))
        yield from [found] if found else []
    for more, last in product(_MORE, (False, True)):
        chosen: list[int] = []
        for card in range(len(problem.devices)):
            own = sorted((b.index for b in blocks if cards[b.index] == card), reverse=last)
            n_away = sum(i in away for i in own)
            chosen += own[: n_away + more if n_away else 0]
        rules = rules_of(problem.model, {(CPU, "whole"): sorted(chosen)})
        yield check(problem, replace(fitted.flags, overrides=tuple(rules)))


def _is_away(block: Block, fitted: Fitted) -> bool:
    """Whether any piece of a block is not on the card that owns it."""
    placement = fitted.placement
    names = [name for piece in (*block.pieces, *block.ram_only) for name in piece.names]
    return any(placement.tensors.get(name) != placement.layers[block.index] for name in names)
