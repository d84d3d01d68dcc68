"""How the configs of an answer compare: what each is best at, which are on the Pareto front, which are tied.

Ties might come first as well: a small change of an input would change the answer.

2 % of any input moves the difference of two costs by less than 0.003 in 97 of 100 pairs of configs that cost nearly the
same (`python -m bench.stability`), because most of what it changes, it changes of both. Prompts that are a tenth longer
or shorter move it by up to 0.01. With weights in RAM, 2 % of the cards' memory moves it by up to 0.03 (in 95 of 100
pairs): a layer more or less fits, or the next larger micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from msgspec.structs import replace

from service.engine.advice import AdvisedConfig, BestAt, Reason
from service.engine.config import Engine
from service.engine.goal import Goal
from service.engine.model import Model
from service.engine.planner.pricing.blocks import blocks_of
from service.engine.planner.pricing.candidate import Strategy
from service.engine.planner.pricing.fit import slack
from service.engine.planner.ranking.rank import Choice, Contender, counted_bits, first_by, first_of
from service.engine.tensor_names import is_expert

_NOISE = 0.01  # of cost: a smaller difference is a tie,
_NOISE_WITH_RAM = 0.03  # where the first has weights in RAM
_LESS = 0.02  # of a card's free memory, or of RAM, which might be missing
_MEASURES: tuple[BestAt, ...] = ("bits", "time", "pp", "tg", "context")
_FRONT: tuple[BestAt, ...] = ("bits", "pp", "tg", "context")
_SAME = 1.005  # figures within this factor are the same to a reader


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


def with_comparisons(configs: Sequence[AdvisedConfig], ranked: Sequence[Contender], tied: Ties) -> list[AdvisedConfig]:
    """Return the configs with `on_front`, `best_at` and `tied_with` filled in, and the first with its ties as reasons.

    `ranked`: their contenders; `tied`: the ties of the first.
    """
    if not configs:
        return []
    listed = [(config.rank, kind_of(c)) for config, c in zip(configs, ranked, strict=True)]
    kinds = {kind_of(c) for c in tied.as_good}
    as_good = [rank for rank, kind in listed[1:] if kind in kinds]
    first, *others = with_merits(configs)
    first = replace(first, tied_with=as_good, reasons=[*first.reasons, *tie_reasons(tied, listed)])
    return [first, *(replace(c, tied_with=[first.rank]) if c.rank in as_good else c for c in others)]


def with_merits(configs: Sequence[AdvisedConfig]) -> list[AdvisedConfig]:
    """Return the configs with `on_front` and `best_at` by their figures, measured ones where there are any."""
    merits = [_merits(config) for config in configs]
    return [
        replace(
            config,
            on_front=not any(_beats(other, own) for other in merits),
            best_at=[m for m in _MEASURES if all(own[m] * _SAME >= other[m] for other in merits)],
        )
        for config, own in zip(configs, merits, strict=True)
    ]


def active_bpw(model: Model) -> float:
    """Return the bits per weight of what a token reads: experts count by the share of them that it uses."""
    bits = elements = 0.0
    for tensor in model.tensors:
        if len(tensor.dims) < 2 or (tensor.name == "token_embd.weight" and not model.tied):
            continue
        used = model.expert_share if is_expert(tensor.name) else 1.0
        bits, elements = bits + 8 * tensor.nbytes * used, elements + tensor.n_elements * used
    return round(bits / elements, 3) if elements else 0.0


def _merits(config: AdvisedConfig) -> dict[BestAt, float]:
    is_measured = config.measured_match == "exact" and config.measured
    speed = config.measured[-1] if is_measured else config.speed[-1]
    return {
        "bits": counted_bits(config.bpw),
        "time": 1 / config.goal_seconds[1],
        "pp": speed.pp_tps,
        "tg": speed.tg_tps,
        "context": float(config.max_context),
    }


def _beats(other: dict[BestAt, float], one: dict[BestAt, float]) -> bool:
    return all(other[m] >= one[m] for m in _FRONT) and any(other[m] > one[m] * _SAME for m in _FRONT)
