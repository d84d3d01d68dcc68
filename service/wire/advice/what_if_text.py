"""What other hardware would gain, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.engine.advice import Upgraded, WhatIf
from service.engine.planner.explaining.upgrades import asks_for_best

_SHORT_ROWS = 3


def what_if_lines(answers: Sequence[WhatIf], full: bool) -> Iterator[str]:
    """Yield a line per question, and for the best of several upgrades a table of the others; `full`: with everything
    that was tried. The gain of an upgrade that has a question of its own stands there alone."""
    asked = [one for answer in answers if not asks_for_best(answer.asked) for one in answer.upgrades]
    for answer in answers:
        first, rows, said = next(iter(answer.upgrades), None), answer.upgrades[1:], answer.text
        if first is not None and not said.startswith(first.change):
            rows = answer.upgrades
        elif first is not None and asks_for_best(answer.asked):
            said = f"best: {_row(first, asked)}" if _is_among(first, asked) else said
        yield f"what if: {said}"
        for one in rows if full else rows[:_SHORT_ROWS]:
            yield f"  {_row(one, asked)}"
        if full:
            yield f"  {answer.restricted}"


def _is_among(one: Upgraded, others: Sequence[Upgraded]) -> bool:
    return any((one.vram_gib, one.ram_gib, one.goal_seconds) == (k.vram_gib, k.ram_gib, k.goal_seconds) for k in others)


def _row(one: Upgraded, asked: Sequence[Upgraded] = ()) -> str:
    """Return a line about an upgrade: only the time that it saves where it is among those `asked` about."""
    if one.speed is None or one.tg is None or one.pp is None:
        return f"{one.change}: {one.refused or 'fits'}"
    seconds = one.seconds_saved or 0.0
    saved = f"saves {seconds:.1f} s" if seconds >= 0 else f"takes {-seconds:.1f} s more"
    if _is_among(one, asked):
        return f"{one.change} ({one.component}): {saved}"
    per = f", TG {one.tg_per_gib:+.3f} t/s per GiB" if one.tg_per_gib is not None else ""
    tg, pp = f"TG {one.tg.tps:+,.1f} (x {one.tg.times:.2f})", f"PP {one.pp.tps:+,.0f} (x {one.pp.times:.2f})"
    return f"{one.change} ({one.component}): {saved}, {tg}, {pp}{per}"
