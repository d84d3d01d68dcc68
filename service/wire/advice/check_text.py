"""Renders a check for reading: verdict, device table, speeds, and the most costly findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import msgspec

from service.engine.commands.shell import fold
from service.engine.config import Engine
from service.engine.finding import Finding
from service.engine.hardware import Assumption
from service.wire.advice.card import basis_words, fact_of, fact_words, speed_figures
from service.wire.advice.check import Checked
from service.wire.advice.text import device_table, speed_table
from service.wire.plain_text import MORE, wrapped

_SHORT_FINDINGS, _SHORT_COMPARED, _SHORT_ASSUMED = 3, 6, 3
_MOST_ERRORS = 8
_OF_EVERY_ROW = "device-order-unknown"  # whether the rows of the memory table are about the cards that they name


def check_lines(checked: Checked, detail: str = "short", more: str = MORE) -> Iterator[str]:
    """Yield the lines of a check, verdict first; `detail` `full`: every finding with its source, every comparison.

    `more`: how everything is asked for.
    """
    full = detail == "full"
    yield checked.verdict
    of = f"{checked.repo} " if checked.repo else ""
    yield from wrapped(f"{of}{checked.variant}, {checked.program} of {checked.engine}, build {checked.build}")
    yield ""
    yield from device_table(checked.memory.devices)
    splits = checked.memory.graph_splits
    counted = f"{splits} graph split{'s' * (splits != 1)}; " if splits else ""
    yield f"{counted}memory: {basis_words(checked.memory.devices[0].basis)}"
    yield from speed_table(checked.speed)
    yield from _rows([c.text for c in checked.compared if full or c.verdict != "within"], full, _SHORT_COMPARED, more)
    if not full and (fine := sum(c.verdict == "within" for c in checked.compared)):
        yield f"measured as expected: {fine} of {len(checked.compared)} figures ({more})"
    yield ""
    errors = sum(finding.severity == "error" for finding in checked.findings)
    most = len(checked.findings) if full else min(max(_SHORT_FINDINGS, errors), _MOST_ERRORS)
    shown = [*checked.findings[:most], *(one for one in checked.findings[most:] if one.rule == _OF_EVERY_ROW)]
    for finding in shown:
        yield from _finding(finding, full)
    if len(shown) < len(checked.findings):
        left = len(checked.findings) - len(shown)
        yield f"and {left} more finding{'s' if left > 1 else ''} ({more})"
    if checked.fixed:
        gives, what = fixed_words(checked), "file" if "\n" in checked.fixed else "command"
        yield from wrapped(f"corrected {what}, as a whole: {gives}") if gives else [f"corrected {what}:"]
        yield from fold(checked.fixed).split("\n")
    assumed = [_assumed(a, more) for a in checked.assumed]
    yield from _rows(assumed, full, _SHORT_ASSUMED, more)


def _assumed(one: Assumption, more: str) -> str:
    """Return a line about an assumption; about the engine, with what states another one."""
    fact = fact_of(one, ())
    if one.field == "engine":
        other = next(engine for engine in get_args(Engine) if engine != one.value)
        fact = msgspec.structs.replace(fact, say=f"{'--engine ' if more.startswith('-') else 'engine='}{other}")
    return fact_words(fact)


def fixed_words(checked: Checked) -> str:
    """Return what the corrected command takes and gives with all its changes, at the first depth of the check; empty
    if there is none.
    """
    figures = checked.fixed_figures
    if figures is None:
        return ""
    rows = [f"{d.device} {d.total_mib:,.0f} MiB ({d.free_mib:,.0f} free)" for d in figures.memory.devices]
    speed = [f"{speed_figures(at)} at {at.n_kv:,} tokens" for at in figures.speed[:1]]
    return "; ".join([*speed, f"{'fits' if figures.fits else 'may not fit'}: {', '.join(rows)}"])


def _finding(finding: Finding, full: bool) -> Iterator[str]:
    yield from wrapped(f"{finding.severity}: {finding.message} [{finding.rule}]")
    if finding.fix:
        yield from wrapped(f"  fix: {finding.fix}{f' ({finding.gain})' if finding.gain else ''}")
    if full:
        yield from wrapped(f"  source: {finding.source}")


def _rows(texts: list[str], full: bool, at_most: int, more: str) -> Iterator[str]:
    for text in texts if full else texts[:at_most]:
        yield from wrapped(text)
    if not full and len(texts) > at_most:
        yield f"and {len(texts) - at_most} more ({more})"
