"""The one measurement that would narrow an answer most: how long it takes, and how far the interval would shrink."""

from __future__ import annotations

from service.engine.advice import AdvisedConfig, Reason, SpeedPoint
from service.engine.measured.nearby import Nearness, Observation, corrected

_WIDE = 1.6  # highest over lowest TG: from here on an answer is worth a measurement
_WORTH = 0.85  # of the interval, in logarithms: a smaller one than that has to be left
_OUTPUT_SHARE = 0.25  # of a micro-batch: the tokens that llama-sweep-bench generates after each of its prompts


def worth_measuring(config: AdvisedConfig) -> Reason | None:
    """Return what measuring the first config would give; None where its interval is narrow, or would stay as it is.

    No other measurement says more of this config, nor of the others of its variant, which share all of its errors but
    its own (`measured.nearby`; the figures are of another config of the variant on the same machine).
    """
    at = config.speed[-1]
    if not at.tg_low or at.tg_high / at.tg_low < _WIDE:
        return None
    near = Nearness(variant=True, engine=True)
    after = corrected(at, [Observation("the asker", near, {"tg": 0.0, "pp": 0.0})])
    if _width(after) > _width(at) ** _WORTH:
        return None
    text = (
        f"measure this one: its benchmark command takes about {_minutes(config)} once the file is there, and says its "
        f"speed; that of other configs of this variant, here {at.tg_low:.1f} to {at.tg_high:.1f} t/s, would be known "
        f"within {after.tg_low:.1f} to {after.tg_high:.1f} if it came out as expected"
    )
    return Reason("worth-measuring", text)


def _width(at: SpeedPoint) -> float:
    return at.tg_high / at.tg_low


def _minutes(config: AdvisedConfig) -> str:
    """The time of the context in prompts, with a quarter as many tokens of output, at the speeds of the middle."""
    n_ctx = config.flags.n_ctx // max(config.flags.n_parallel, 1)
    middle = min(config.speed + config.deeper, key=lambda at: abs(at.n_kv - n_ctx / 2))
    seconds = n_ctx / middle.pp_tps + _OUTPUT_SHARE * n_ctx / middle.tg_tps
    minutes = max(round(seconds / 60), 1)
    return f"{minutes} minute{'s' * (minutes > 1)}"
