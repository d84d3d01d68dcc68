"""The command in use beside the configs, as lines: what it is, and what the others gain, change by change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from service.engine.advice import AdvisedConfig, Change, Mine
from service.engine.planner.gains import gained

_LEAST, _SAME = 0.05, "the same memory"  # GiB: less is not shown
_SHORT_FINDINGS, _SHORT_CHANGES = 2, 4


def mine_lines(mine: Mine, configs: Sequence[AdvisedConfig], full: bool) -> Iterator[str]:
    """Yield what is said of the command in use: `full` with every finding and the changes to every config."""
    p = mine.speed[-1]
    yield (
        f"yours: {mine.variant} {mine.engine}, TG {p.tg_tps:.1f} ({p.tg_low:.1f}-{p.tg_high:.1f}), "
        f"PP {p.pp_tps:,.0f}. {mine.verdict.removeprefix('Your command ').capitalize()}"
    )
    for finding in mine.findings if full else mine.findings[:_SHORT_FINDINGS]:
        yield f"  {finding.severity}: {finding.message} [{finding.rule}]"
    for config in configs if full else configs[:1]:
        yield from _gains(config, full)


def _gains(config: AdvisedConfig, full: bool) -> Iterator[str]:
    versus = config.versus_mine
    if versus is None:
        return
    speeds = f"TG {gained(versus.tg)}; PP {gained(versus.pp)}; " if full else ""  # the headline has them
    yield f"#{config.rank} against yours: {speeds}{_memory(versus.gib)}; change by change:"
    changes = [c for c in versus.changes if full or c.tg_tps or c.pp_tps or c.gib]
    for change in changes if full else changes[:_SHORT_CHANGES]:
        yield f"  {_change(change, full)}"
    if not full and len(changes) > _SHORT_CHANGES:
        yield f"  and {len(changes) - _SHORT_CHANGES} more changes"


def _change(change: Change, full: bool) -> str:
    parts = [f"TG {change.tg_tps:+.1f}"] if change.tg_tps else []
    parts += [f"PP {change.pp_tps:+,.0f}"] if change.pp_tps else []
    parts += [_memory(change.gib)] if any(abs(gib) >= _LEAST for gib in change.gib.values()) else []
    if not parts:
        return f"{change.change}: {change.why}"
    return f"{change.change}: {', '.join(parts)}{f' ({change.why})' if full else ''}"


def _memory(gib: Mapping[str, float]) -> str:
    return ", ".join(f"{device} {more:+.1f} GiB" for device, more in gib.items() if abs(more) >= _LEAST) or _SAME
