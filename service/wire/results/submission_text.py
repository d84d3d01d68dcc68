"""Renders a submission as it was understood, for a person to check before it is sent."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.advice import SpeedPoint
from service.engine.measured.summary import speed_at
from service.wire.advice.card import fact_of, fact_words
from service.wire.plain_text import wrapped
from service.wire.results.submissions import Preview

_SHORT_ROWS = 12


def preview_lines(preview: Preview) -> Iterator[str]:
    """Yield what was understood, beside what was expected, and what is missing; all of it, since all of it is sent."""
    if preview.model is not None:
        model = preview.model
        bits = f", {model.bpw:.2f} bits per weight" if model.bpw is not None else ""
        yield from wrapped(f"model: {model.name} {model.variant} ({model.repo}){bits}")
    engine = " ".join(filter(None, (preview.engine, preview.tool and f"({preview.tool})")))
    if engine:
        yield f"engine: {engine}, {f'build {preview.build}' if preview.build else 'build not stated'}"
    if preview.rig:
        yield from wrapped(f"rig: {preview.rig}")
    if preview.command:
        yield from wrapped(f"command: {' '.join(preview.command.split())}")
    for assumption in preview.assumed:
        yield from wrapped(fact_words(fact_of(assumption, preview.hardware.gpus if preview.hardware else ())))
    for words in preview.dropped:
        yield from wrapped(f"left away: {words}")
    yield from _speeds(preview)
    yield from _outcome(preview)


def _speeds(preview: Preview) -> Iterator[str]:
    """Yield the speeds with the expected ones; of many, an even selection."""
    points = preview.speed
    if not points:
        return
    yield f"{'N_KV':>9} {'TG t/s':>9} {'expected':>18} {'PP t/s':>10} {'expected':>20}"
    step = max(len(points) / _SHORT_ROWS, 1.0)
    for i in range(min(len(points), _SHORT_ROWS)):
        yield _row(points[int(i * step)], preview.predicted)
    if len(points) > _SHORT_ROWS:
        yield f"… {len(points)} depths in all, up to {points[-1].n_kv:,} tokens"


def _row(point: SpeedPoint, predicted: list[SpeedPoint]) -> str:
    there = speed_at(predicted, point.n_kv) if predicted else None
    tg = f"{there.tg_low:,.1f} to {there.tg_high:,.1f}" if there else ""
    pp = f"{there.pp_low:,.0f} to {there.pp_high:,.0f}" if there else ""
    return f"{point.n_kv:>9,} {point.tg_tps:>9,.2f} {tg:>18} {point.pp_tps:>10,.1f} {pp:>20}".rstrip()


def _outcome(preview: Preview) -> Iterator[str]:
    for words in preview.warnings:
        yield from wrapped(f"warning: {words}")
    if preview.duplicate_of:
        yield f"these rows are already known: result {preview.duplicate_of}"
    elif preview.state == "quarantined":
        yield from wrapped(f"it would be quarantined and not counted: {preview.state_reason}")
    for missing in preview.missing:
        yield from wrapped(f"missing: {missing.field}: {missing.text}")
