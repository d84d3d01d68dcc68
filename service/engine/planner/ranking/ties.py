"""Which other configs might come first as well: where a small change of an input would change the answer.

2 % of any input moves the difference of two costs by less than 0.003 in 97 of 100 pairs of configs that cost nearly the
same (`python -m bench.stability`), because most of what it changes, it changes of both. Prompts that are a tenth longer
or shorter move it by up to 0.01. With weights in RAM, 2 % of the cards' memory moves it by up to 0.03 (in 95 of 100
pairs): a layer more or less fits, or the next larger micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from service.engine.advice import Reason
from service.engine.config import Engine
from service.engine.goal import Goal
from service.engine.planner.pricing.blocks import blocks_of
from service.engine.planner.pricing.candidate import Strategy
from service.engine.planner.pricing.fit import slack
from service.engine.planner.ranking.rank import Choice, Contender, first_by, first_of

_NOISE = 0.01  # of cost: a smaller difference is a tie,
_NOISE_WITH_RAM = 0.03  # where the first has weights in RAM
_LESS = 0.02  # of a card's free memory, or of RAM, which might be missing


class Kind(NamedTuple):
    """What tells two configs apart for a reader: not their placement, the order of cards, or the micro-batch."""

    name: str
    engine: Engine
    strategy: Strategy
    cards: tuple[str, ...]
    split_mode: str
    cache: tuple[str, str]


class Ties(NamedTuple):
    """The cheapest of each other kind that might as well come first (`as_good`), and what comes first with 2 % less of
    `scarce` memory (None: the same kind, or one of `as_good`). `alone`: nothing else that was placed needs less RAM."""

    as_good: tuple[Contender, ...] = ()
    with_less_memory: Contender | None = None
    scarce: str = ""
    alone: bool = False


def kind_of(contender: Contender) -> Kind:
    """Return the kind of a config."""
    flags, cards = contender.fitted.flags, contender.problem.rig.cards
    names = tuple(sorted(cards[i].name for i in contender.candidate.cards))
    cache = (flags.cache_type_k, flags.cache_type_v)
    return Kind(contender.name, contender.engine, contender.candidate.strategy, names, flags.split_mode, cache)


def noise_beside(first: Contender) -> float:
    """Return the difference of cost to the first config below which another is a tie."""
    return _NOISE if first.candidate.strategy == "all on GPU" else _NOISE_WITH_RAM


def ties(first: Contender, contenders: Sequence[Contender], goal: Goal) -> Ties:
    """Return the ties of the first config with all other contenders."""
    best: dict[Kind, Contender] = {kind_of(first): first}
    for c in sorted(contenders, key=lambda c: c.cost(goal)):
        best.setdefault(kind_of(c), c)
    found = list(best.values())
    choices = [c.choice(goal) for c in found]
    otherwise = {first_by([c.choice(goal, memory=by) for c in found], goal) for by in (1 - _LESS, 1 + _LESS)}
    noise = noise_beside(first)
    otherwise.add(first_by(_moved(choices, 0, noise), goal))

    def may_be_first(i: int) -> bool:
        is_near = abs(choices[i].cost - choices[0].cost) < noise
        return is_near or i in otherwise or first_by(_moved(choices, i, -noise), goal) == i

    as_good = [c for i, c in enumerate(found) if i and may_be_first(i)]
    scarce = _scarce(first)
    others = [c for c in contenders if _scarce(c) != scarce] if scarce else []
    less = first_of(others, goal) if others else None
    named = less is not None and kind_of(less) in {kind_of(c) for c in (first, *as_good)}
    return Ties(tuple(as_good), None if named else less, scarce, scarce == "RAM" and not others)


def tie_reasons(found: Ties, ranks: Sequence[tuple[int, Kind]]) -> Iterator[Reason]:
    """Yield the reasons that name the ties of the first config. `ranks`: of the listed configs, with their kinds."""
    if found.as_good:
        names = "; ".join(_named(c, ranks) for c in found.as_good)
        change = "with an input 2 % off or prompts a tenth longer"
        yield Reason("as-good", f"too close to call: {change}, the best could be {names}")
    if found.with_less_memory is not None:
        name = _named(found.with_less_memory, ranks)
        yield Reason("hardly-fits", f"barely fits: with 2 % less {found.scarce}, the best could be {name}")
    if found.alone:
        yield Reason("hardly-fits", "barely fits: with 2 % less RAM it would not fit")


def _named(contender: Contender, ranks: Sequence[tuple[int, Kind]]) -> str:
    kind = kind_of(contender)
    cards = " + ".join(dict.fromkeys(f"{kind.cards.count(name)}x {name}" for name in kind.cards)) or "the CPU"
    rank = next((f"#{rank}, " for rank, listed in ranks if listed == kind), "")
    split = f", -sm {kind.split_mode}" if kind.split_mode != "layer" else ""
    return f"{rank}{kind.name} with {kind.engine}, {kind.strategy} on {cards}, {kind.cache[0]} cache{split}"


def _moved(choices: Sequence[Choice], at: int, by: float) -> list[Choice]:
    return [one._replace(cost=one.cost + by) if i == at else one for i, one in enumerate(choices)]


def _scarce(contender: Contender) -> str:
    """The memory of which it leaves less than 2 %: a card's, unless RAM could take something instead, or RAM."""
    problem = contender.problem
    left = slack(problem, contender.fitted.memory)
    full = {i for i, device in enumerate(problem.devices) if left[i] < _LESS * device.free}
    if full and not _can_give_to_ram(contender, full):
        return "free memory on a card"
    return "RAM" if left[-1] < _LESS * problem.limits.host else ""


def _can_give_to_ram(contender: Contender, cards: Set[int]) -> bool:
    """Whether something on each of these cards could lie in RAM instead: of a config with weights there, another layer,
    or an FFN or expert."""
    strategy, flags, placement = contender.candidate.strategy, contender.fitted.flags, contender.fitted.placement
    if strategy != "FFN in RAM":
        return strategy != "all on GPU" and flags.n_gpu_layers != 1
    pieces = (piece for block in blocks_of(contender.problem.model, contender.engine) for piece in block.pieces)
    return cards <= {placement.tensors[name] for piece in pieces for name in piece.names}
