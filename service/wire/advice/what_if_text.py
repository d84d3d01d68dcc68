"""What other hardware would gain, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.engine.advice import Upgraded, WhatIf

_SHORT_ROWS = 3


def what_if_lines(answers: Sequence[WhatIf], full: bool) -> Iterator[str]:
    """Yield a line per question, and for several upgrades a table, best first; `full`: with everything that was
    tried."""
    for answer in answers:
        yield f"what if: {answer.text}"
        if len(answer.upgrades) > 1:
            for one in answer.upgrades if full else answer.upgrades[:_SHORT_ROWS]:
                yield f"  {_row(one)}"
        if full:
            yield f"  {answer.restricted}"


def _row(one: Upgraded) -> str:
    if one.speed is None or one.tg is None or one.pp is None:
        return f"{one.change}: {one.refused or 'fits'}"
    per = f", TG {one.tg_per_gib:+.3f} t/s per GiB" if one.tg_per_gib is not None else ""
    tg, pp = f"TG {one.tg.tps:+,.1f} (x {one.tg.times:.2f})", f"PP {one.pp.tps:+,.0f} (x {one.pp.times:.2f})"
    seconds = one.seconds_saved or 0.0
    saved = f"saves {seconds:.1f} s" if seconds >= 0 else f"takes {-seconds:.1f} s more"
    return f"{one.change} ({one.component}): {saved}, {tg}, {pp}{per}"
