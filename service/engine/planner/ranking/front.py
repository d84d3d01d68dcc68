"""How the configs of an answer compare: what each is best at, which are on the Pareto front, which are tied."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from service.engine.advice import AdvisedConfig, BestAt
from service.engine.model import Model
from service.engine.planner.ranking.rank import Contender, counted_bits
from service.engine.planner.ranking.ties import Ties, kind_of, tie_reasons
from service.engine.tensor_names import is_expert

_MEASURES: tuple[BestAt, ...] = ("bits", "time", "pp", "tg", "context")
_FRONT: tuple[BestAt, ...] = ("bits", "pp", "tg", "context")
_SAME = 1.005  # figures within this factor are the same to a reader


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
