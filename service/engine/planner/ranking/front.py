"""What each config is best at, which of them nothing beats, and which are tied."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from service.engine.advice import AdvisedConfig, BestAt
from service.engine.goal import Goal
from service.engine.model import Model
from service.engine.planner.ranking.rank import AS_GOOD, Contender, counted_bits
from service.engine.speed import is_called, versus
from service.engine.tensor_names import is_expert

_MEASURES: tuple[BestAt, ...] = ("bits", "time", "pp", "tg", "context")
_FRONT: tuple[BestAt, ...] = ("bits", "pp", "tg", "context")
_SAME = 1.005  # figures this near are the same to a reader


def with_comparisons(configs: Sequence[AdvisedConfig], ranked: Sequence[Contender], goal: Goal) -> list[AdvisedConfig]:
    """Return the configs with `on_front`, `best_at` and `tied_with` filled in. `ranked`: their contenders."""
    merits = zip(with_merits(configs), ties(ranked, goal), strict=True)
    return [replace(config, tied_with=[configs[j].rank for j in tied]) for config, tied in merits]


def ties(ranked: Sequence[Contender], goal: Goal) -> list[list[int]]:
    """Return for each contender the indices of those that it cannot be told from.

    Their speeds are too close to call; or one of them is the first, and the other costs as much within what an error of
    2 % in what was stated of the machine or the goal may change.
    """
    n, costs = len(ranked), [c.cost(goal) for c in ranked]

    def tied(i: int, j: int) -> bool:
        as_good = 0 in (i, j) and abs(costs[i] - costs[j]) < AS_GOOD
        return i != j and (as_good or _too_close(ranked[i], ranked[j]))

    return [[j for j in range(n) if tied(i, j)] for i in range(n)]


def with_merits(configs: Sequence[AdvisedConfig]) -> list[AdvisedConfig]:
    """Return the configs with `on_front` and `best_at` as their figures are now, measured ones before predicted."""
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
    """Return the bits per weight of what a token reads: experts count by the share that is used."""
    bits = elements = 0.0
    for tensor in model.tensors:
        if len(tensor.dims) < 2 or (tensor.name == "token_embd.weight" and not model.tied):
            continue
        used = model.expert_share if is_expert(tensor.name) else 1.0
        n_elements = 1
        for n in tensor.dims:
            n_elements *= n
        bits, elements = bits + 8 * tensor.nbytes * used, elements + n_elements * used
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


def _too_close(one: Contender, other: Contender) -> bool:
    """Whether neither prompts nor tokens tell two configs of one rig apart."""
    same = one.engine == other.engine
    return not any(is_called(versus(one.speed, other.speed, phase, same)) for phase in ("pp", "tg"))
