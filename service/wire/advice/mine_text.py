"""The command in use next to the configs, as lines: what it is, and what the others gain, change by change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from service.engine.advice import AdvisedConfig, Change, Mine, VersusMine
from service.engine.planner.explaining.comparison import gain_text

_LEAST, _SAME = 0.05, "the same memory"  # GiB: less is not shown
_SHORT_FINDINGS, _SHORT_CHANGES, _BRIEF_CHANGES = 2, 4, 2


def mine_lines(mine: Mine, configs: Sequence[AdvisedConfig], full: bool, brief: bool = False) -> Iterator[str]:
    """Yield what is said of the command in use.

    `full`: with every finding and the changes to every config; `brief`: without findings, with the largest changes.
    """
    p = mine.speed[-1]
    verdict = mine.verdict.removeprefix("Your command ")
    yield (
        f"yours: {mine.variant} {mine.engine}, TG {p.tg_tps:.1f} ({p.tg_low:.1f}-{p.tg_high:.1f}), "
        f"PP {p.pp_tps:,.0f}. {verdict[:1].upper()}{verdict[1:]}"
    )
    for finding in mine.findings if full else mine.findings[: 0 if brief else _SHORT_FINDINGS]:
        yield f"  {finding.severity}: {finding.message} [{finding.rule}]"
    for config in configs if full else configs[:1]:
        yield from _gains(config, full, _BRIEF_CHANGES if brief else _SHORT_CHANGES)


def _gains(config: AdvisedConfig, full: bool, most: int) -> Iterator[str]:
    versus = config.versus_mine
    if versus is None:
        return
    speeds = f"TG {gain_text(versus.tg)}; PP {gain_text(versus.pp)}; " if full else ""  # the headline has them
    yield f"#{config.rank} against yours: {speeds}{_memory(versus.gib, full)}; change by change:"
    for change in versus.changes if full else _largest(versus, most):
        yield f"  {_change(change, full)}"
    if not full and len(versus.changes) > most:
        yield f"  and {len(versus.changes) - most} more with less effect"


def _largest(versus: VersusMine, most: int) -> list[Change]:
    """The changes with the largest effects, in their order."""

    def effect(change: Change) -> float:
        speeds = abs(change.tg_tps) / (abs(versus.tg.tps) or 1) + abs(change.pp_tps) / (abs(versus.pp.tps) or 1)
        return speeds + sum(map(abs, change.gib.values())) / 100

    kept = sorted(versus.changes, key=effect, reverse=True)[:most]
    return [change for change in versus.changes if change in kept]


def _change(change: Change, full: bool) -> str:
    parts = [f"TG {change.tg_tps:+.1f}"] if change.tg_tps else []
    parts += [f"PP {change.pp_tps:+,.0f}"] if change.pp_tps else []
    parts += [_memory(change.gib, full)] if any(abs(gib) >= _LEAST for gib in change.gib.values()) else []
    if not parts:
        return f"{change.change}: {change.why}"
    return f"{change.change}: {', '.join(parts)}{f' ({change.why})' if full else ''}"


def _memory(gib: Mapping[str, float], full: bool) -> str:
    gpus = [more for device, more in gib.items() if device != "CPU"]
    if len(gpus) > 1 and not full:
        gib = {"GPUs": sum(gpus), "CPU": gib.get("CPU", 0.0)}
    return ", ".join(f"{device} {more:+.1f} GiB" for device, more in gib.items() if abs(more) >= _LEAST) or _SAME
