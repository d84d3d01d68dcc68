"""What was measured of a config, as people read it next to the prediction."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.advice import AdvisedConfig
from service.engine.measured import speed_at


def measured_lines(config: AdvisedConfig, full: bool = True) -> Iterator[str]:
    """Yield a line for each measured depth, or for the deepest only."""
    for point in config.measured if full else config.measured[-1:]:
        there = speed_at(config.speed, point.n_kv)
        tg = f" (predicted {there.tg_tps:.1f}, {there.tg_low:.1f} to {there.tg_high:.1f})" if there else ""
        pp = f" (predicted {there.pp_tps:,.0f}, {there.pp_low:,.0f} to {there.pp_high:,.0f})" if there else ""
        near = "" if config.measured_match == "exact" else ", other CPU or RAM"
        yield f"at {point.n_kv:>7,}: TG measured {point.tg_tps:.1f} t/s{tg}, PP {point.pp_tps:,.0f}{pp}{near}"


def measured_short(config: AdvisedConfig) -> str:
    """Return what stands in the one line of a config, such as `, measured 17.9`; empty where nothing was measured."""
    if not config.measured:
        return ""
    near = "" if config.measured_match == "exact" else " on another CPU or RAM"
    return f", measured {config.measured[-1].tg_tps:.1f}{near}"
