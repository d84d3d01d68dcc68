"""A config in few words: its name, its speeds, and how it stands among the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.engine.advice import AdvisedConfig, SpeedPoint
from service.wire.advice.card import at_once_words
from service.wire.plain_text import WIDTH, cut, wrapped

_BEST = {"bits": "bits per weight", "time": "the goal's time", "pp": "PP", "tg": "TG", "context": "context"}


def at_once_lines(config: AdvisedConfig) -> list[str]:
    """Return a line on all requests that the goal has at once, to stand above the speeds of one; none for one."""
    return [f"{said}; one alone:"] if (said := at_once_words(config)) else []


def other_lines(configs: Sequence[AdvisedConfig], brief: bool) -> Iterator[str]:
    """Yield a line per config except the first; if brief, without marks, whose legend takes a line."""
    if len(configs) > 1:
        yield ""
    for c in configs[1:]:
        p = c.speed[-1]
        tied = (f" ={_ranks(c.tied_with[:2])}" if c.tied_with and not brief else "") + measured_short(c)
        star = "*" if c.on_front and not brief else ""
        name, bits = f"#{c.rank}{star}{picked_as(c)} {c.variant} {c.engine}", f" {c.bpw:.2f} bpw"
        speeds, rest = _speeds(c, p), f"{_loss(c)}, {how(c)}: "
        lines = [*(f"{name}{bits}{rest}{one}{tied}" for one in speeds), f"{name}{rest}{speeds[-1]}{tied}"]
        yield next((line for line in lines if len(line) <= WIDTH), cut(lines[-1]))
    if not brief and any(c.on_front or c.tied_with for c in configs[1:]):
        yield "+%: perplexity above 16-bit; *: none is better in all of bits, PP, TG, context; =: too close to call"


def _speeds(config: AdvisedConfig, p: SpeedPoint) -> list[str]:
    """Return the speed for a config's line, the most detailed first; of all requests that the goal has at once."""
    tg, pp, interval = f"TG {p.tg_tps:,.1f}", f", PP {p.pp_tps:,.0f}", f" ({p.tg_low:,.1f}-{p.tg_high:,.1f})"
    if config.at_once is None:
        return [f"{tg}{interval}{pp}", f"{tg}{pp}"]
    full, short = at_once_words(config), at_once_words(config, interval=False)
    return [f"{full}; one alone {tg}{pp}", f"{short}; one alone {tg}{pp}", f"{short}{pp}", short]


def picked_as(config: AdvisedConfig) -> str:
    """Return a label such as ` Quality:`, empty for a config that was not picked."""
    return f" {config.pick.name.capitalize()}:" if config.pick else ""


def _loss(config: AdvisedConfig) -> str:
    return f" +{config.loss_percent[1]:.1f} %" if config.loss_percent else ""


def how(config: AdvisedConfig) -> str:
    """Return the strategy, and whatever else distinguishes configs of one variant and engine."""
    gpus, mode = len(config.devices) - 1, config.flags.split_mode
    cache = "" if config.flags.cache_type_k == "f16" else f", {config.flags.cache_type_k} cache"
    together = "" if mode == "layer" else f", -sm {mode}"
    return f"{config.strategy}{f', {gpus} GPUs' if gpus > 1 else ''}{together}{cache}"


def standing(config: AdvisedConfig) -> Iterator[str]:
    """Yield what the config is best at here, and which configs its speed cannot be told apart from."""
    best = (
        f"best of these, or tied for best, in {', '.join(_BEST[name] for name in config.best_at)}"
        if config.best_at
        else ""
    )
    tied = f"too close to call against {_ranks(config.tied_with)}" if config.tied_with else ""
    if best or tied:
        yield from wrapped("; ".join(part for part in (best, tied) if part))


def _ranks(ranks: list[int]) -> str:
    return ", ".join(f"#{rank}" for rank in ranks)


def measured_short(config: AdvisedConfig) -> str:
    """Return a note such as `, measured 17.9` for a config's line; empty if nothing was measured."""
    if not config.measured:
        return ""
    near = "" if config.measured_match == "exact" else " on another CPU or RAM"
    return f", measured {config.measured[-1].tg_tps:,.1f}{near}"
