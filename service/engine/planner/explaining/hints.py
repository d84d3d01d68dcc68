"""Hints for the first config: what a measurement would tell, and what its idle cards could do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from service.engine.advice import AdvisedConfig, Reason, SpeedPoint
from service.engine.hardware import Rig
from service.engine.measured.nearby import Nearness, Observation, corrected
from service.engine.planner.ranking.rank import Contender

_WIDE = 1.65  # highest over lowest TG, beyond that of cards that many published: from here on it is worth a measurement
_WORTH = 0.85  # of the interval, in logarithms: what a measurement may leave of it at most
_NOTICED = 0.05  # per cent of perplexity: a smaller difference is not mentioned
_OUTPUT_SHARE = 0.25  # of a micro-batch: the tokens that llama-sweep-bench generates after each of its prompts


def with_hints(configs: Sequence[AdvisedConfig], ranked: Sequence[Contender], rig: Rig) -> list[AdvisedConfig]:
    """Return the configs, the first with these hints among its reasons."""
    if not configs:
        return []
    hints = (_worth_measuring(configs[0]), _idle_cards(configs, ranked, rig))
    return [replace(configs[0], reasons=[*configs[0].reasons, *filter(None, hints)]), *configs[1:]]


def _worth_measuring(config: AdvisedConfig) -> Reason | None:
    """What measuring the first config would tell; None where its interval is narrow already, or would hardly shrink.

    No other measurement says more of this config, nor of the others of its variant, which share all of its errors but
    its own (`measured.nearby`; the figures are for another config of the variant on the same machine).
    """
    at = config.speed[-1]
    if not at.tg_low or at.tg_high / at.tg_low < _WIDE:
        return None
    near = Nearness(variant=True, engine=True)
    after = corrected(at, [Observation("the asker", near, {"tg": 0.0, "pp": 0.0})])
    if _width(after) > _width(at) ** _WORTH:
        return None
    text = (
        f"worth measuring: its benchmark command takes about {_minutes(config)} after the download; a result "
        f"close to the prediction narrows the interval of this variant's other configs from "
        f"{at.tg_low:,.1f}-{at.tg_high:,.1f} to {after.tg_low:,.1f}-{after.tg_high:,.1f} t/s"
    )
    return Reason("worth-measuring", text)


def _width(at: SpeedPoint) -> float:
    return at.tg_high / at.tg_low


def _minutes(config: AdvisedConfig) -> str:
    """The time of the benchmark: prompts that fill the context, and a quarter as many tokens of output, at the speeds
    of half the depth."""
    n_ctx = config.flags.n_ctx // max(config.flags.n_parallel, 1)
    middle = min(config.speed + config.deeper, key=lambda at: abs(at.n_kv - n_ctx / 2))
    seconds = n_ctx / middle.pp_tps + _OUTPUT_SHARE * n_ctx / middle.tg_tps
    minutes = max(round(seconds / 60), 1)
    return f"{minutes} minute{'s' * (minutes > 1)}"


def _idle_cards(configs: Sequence[AdvisedConfig], ranked: Sequence[Contender], rig: Rig) -> Reason | None:
    """What the cards with free memory that the first config leaves idle are good for: the listed config of least loss
    that uses more.

    `rig`: the one with all cards; a contender's may have those of one maker only.
    """
    first, now = ranked[0], configs[0].speed[-1].tg_tps
    used = Counter(first.problem.rig.cards[card].name for card in first.candidate.cards)
    idle = Counter(card.name for card in rig.cards if card.free) - used
    if not idle:
        return None
    names = f"{', '.join(idle)} {'is' if idle.total() == 1 else 'are'} idle"
    pairs = zip(configs, ranked, strict=True)
    more = [(other.loss, config) for config, other in pairs if len(other.candidate.cards) > used.total()]
    if not more:
        return Reason("idle-gpus", f"{names}: no config with more GPUs is better, so there is room for another model")
    loss, config = min(more, key=lambda pair: (pair[0], pair[1].goal_seconds[1]))
    what = f"at {config.speed[-1].tg_tps:,.1f} instead of {now:,.1f} t/s"
    if abs(loss - first.loss) > _NOTICED:
        what += f" and about +{loss:.1f} instead of +{first.loss:.1f} % perplexity"
    return Reason("idle-gpus", f"{names}: #{config.rank} ({config.variant}) uses more GPUs, {what}")
