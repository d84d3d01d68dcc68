"""Renders a validation for reading: measured figures beside predicted ones, and what kept the rest from being measured.

Names, versions and failures come from other people's machines: control characters are removed, and in Markdown nothing
can leave its code block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from service.engine.check.compare import tps_text
from service.engine.check.report import Compared
from service.engine.measured.classify import Failure
from service.engine.measured.rows import MeasuredRow
from service.wire.measuring.runs import FINAL_RUN, Run, RunOutcome, Validation
from service.wire.plain_text import MORE, wrapped

_SPEEDS = ("tg", "pp")
_SHORT_COMPARED = 4


def validation_lines(validation: Validation, detail: str = "short", more: str = MORE) -> Iterator[str]:
    """Yield the lines of a validation, headline first; `detail` `full`: every comparison, and what every host lacks.

    `more`: how everything is asked for.
    """
    full = detail == "full"
    yield headline(validation)
    for run in validation.runs:
        yield ""
        yield from _run(run, full, more)
    yield from _hosts(validation, full)
    for refused in validation.refused:
        yield from wrapped(f"not measured: {refused}")
    if validation.url:
        yield validation.url


def headline(validation: Validation) -> str:
    """Return a validation's outcome in one sentence."""
    best = next((run for run in validation.runs if validation.best and validation.best in (run.config, run.id)), None)
    done = sum(run.state in FINAL_RUN for run in validation.runs)
    of_all = f"{done} of {len(validation.runs)} runs"
    if validation.state == "cancelled":
        before = sum(run.state in FINAL_RUN and run.state != "cancelled" for run in validation.runs)
        return f"Cancelled: {before} of {len(validation.runs)} runs had ended."
    if validation.state != "done":
        return f"{of_all} {'has' if done == 1 else 'have'} ended; {_now(validation)}."
    if best is None or best.outcome is None or not best.outcome.speed:
        failure = next((run.failure for run in validation.runs if run.failure), None)
        return f"Nothing was measured: {failure.text}" if failure else "Nothing was measured."
    return f"Measured fastest: {best.variant} with {best.engine}, {_deepest(best.outcome)}."


def row_text(row: MeasuredRow) -> str:
    """Return one measured row, such as `at 4,096 tokens: TG 17.9 t/s, PP 437 t/s`."""
    parts = [f"TG {tps_text(median(row.tg_tps))} t/s"] if row.tg_seconds else []
    parts += [f"PP {tps_text(median(row.pp_tps))} t/s"] if row.pp_seconds else []
    return f"at {row.n_kv:,} tokens: {', '.join(parts)}"


def failure_text(failure: Failure) -> str:
    """Return why there is no result, with the missing memory if the engine stated it."""
    short = f" (needed {failure.short_by_mib:,} MiB more on {failure.device})" if failure.short_by_mib else ""
    said = failure.short_by_mib is not None and f"{failure.short_by_mib:,}" in failure.text
    return failure.text + ("" if said else short)


def speed_lines(speeds: dict[tuple[str, int], float], compared: Sequence[Compared]) -> Iterator[str]:
    """Yield a table of measured speeds, by (tg | pp, depth) in tokens per second, next to the predicted ones."""
    predicted = {(c.what, c.n_kv): c for c in compared if c.what in _SPEEDS}
    yield f"{'tokens':>9}{'TG t/s':>10}  {'predicted':<26}{'PP t/s':>10}  predicted"
    for n_kv in sorted({n_kv for _, n_kv in speeds}):
        tg, pp = (_cells(speeds.get((what, n_kv)), predicted.get((what, n_kv))) for what in _SPEEDS)
        yield f"{n_kv:>9,}{tg[0]:>10}  {tg[1]:<26}{pp[0]:>10}  {pp[1]}".rstrip()


def speeds_of(rows: Sequence[MeasuredRow]) -> dict[tuple[str, int], float]:
    """Return the median speeds of rows in tokens per second, by (tg | pp, depth)."""
    found: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        for what, tps in (("tg", row.tg_tps), ("pp", row.pp_tps)):
            if tps:
                found.setdefault((what, row.n_kv), []).extend(tps)
    return {key: median(tps) for key, tps in found.items()}


def _now(validation: Validation) -> str:
    busy = [run for run in validation.runs if run.state in ("leased", "running")]
    if busy:
        return "; ".join(f"{run.variant} with {run.engine}: {run.progress or run.state}" for run in busy[:2])
    if any(host.match for host in validation.hosts):
        return "waiting for a free host"
    return "no host can measure it"


def _deepest(outcome: RunOutcome) -> str:
    point = outcome.speed[-1]
    said = next((c for c in outcome.compared if c.what == "tg" and c.n_kv == point.n_kv), None)
    predicted = f" (predicted {tps_text(said.expected)}, {tps_text(said.low)} to {tps_text(said.high)})" if said else ""
    return f"TG {tps_text(point.tg_tps)} t/s at {point.n_kv:,} tokens{predicted}"


def _run(run: Run, full: bool, more: str) -> Iterator[str]:
    what = {"config": "", "baseline": " (your command)", "step": f" ({run.step})"}[run.kind]
    where = f" on {run.host}{f', {run.match} match' if run.match else ''}" if run.host else ""
    earlier = ", measured earlier" if run.previous else ""
    yield from wrapped(f"{run.variant} with {run.engine}{what}: {_state(run)}{where}{earlier}")
    if run.dropped:
        yield from wrapped(f"  left out, because a host may not be asked to run it: {' '.join(run.dropped)}")
    if run.failure:
        yield from wrapped(f"  {failure_text(run.failure)}")
    compared = run.outcome.compared if run.outcome else []
    speeds = _outcome_speeds(run.outcome) if run.outcome and run.outcome.speed else speeds_of(run.rows)
    if speeds:
        yield from speed_lines(speeds, compared)
    if run.outcome:
        yield from _circumstances(run.outcome)
        yield from _memory(compared, full, more)


def _state(run: Run) -> str:
    if run.state in ("leased", "running"):
        return run.progress or run.state
    tries = f" after {run.attempt} attempts" if run.state == "failed" and run.attempt > 1 else ""
    return run.state + tries


def _outcome_speeds(outcome: RunOutcome) -> dict[tuple[str, int], float]:
    found = {("tg", point.n_kv): point.tg_tps for point in outcome.speed}
    found |= {("pp", point.n_kv): point.pp_tps for point in outcome.speed}
    return {key: tps for key, tps in found.items() if tps > 0}


def _circumstances(outcome: RunOutcome) -> Iterator[str]:
    """Yield the conditions of the measurement: spread, load time, use of the cards, and its trust tier."""
    spread = "nothing was repeated" if outcome.spread is None else f"repeats spread by {outcome.spread * 100:.1f} %"
    parts = [f"build {outcome.build}", spread]
    if outcome.load_seconds is not None:
        cache = "" if outcome.page_cache == "unknown" else f" from a {outcome.page_cache} page cache"
        parts.append(f"loaded in {outcome.load_seconds:,.0f} s{cache}")
    for device in outcome.devices:
        peak = [f"{device.peak_mib:,} MiB at most"] if device.peak_mib is not None else []
        watts = [f"{device.watts:,.0f} W"] if device.watts is not None else []
        parts += [f"{device.device} {', '.join(peak + watts)}"] if peak or watts else []
    parts.append(outcome.tier if outcome.confirmed else f"{outcome.tier}, the files' contents not confirmed yet")
    yield from wrapped("; ".join(parts))


def _memory(compared: Sequence[Compared], full: bool, more: str) -> Iterator[str]:
    figures = [c for c in compared if c.what not in _SPEEDS]
    if not figures:
        return
    other = [c for c in figures if c.verdict != "within"]
    yield f"memory: {len(figures) - len(other)} of {len(figures)} printed figures as predicted"
    shown = figures if full else other[:_SHORT_COMPARED]
    for figure in shown:
        yield from wrapped(f"  {figure.text}")
    if not full and len(other) > len(shown):
        yield f"  and {len(other) - len(shown)} more ({more})"


def _hosts(validation: Validation, full: bool) -> Iterator[str]:
    """Yield which hosts could measure it; what the others lack is shown only if none can, or with full detail."""
    able = [host for host in validation.hosts if host.match]
    if able and full:
        yield from wrapped(f"hosts: {', '.join(f'{host.pseudonym} ({host.match})' for host in able)}")
    if able and not full:
        return
    if not validation.hosts and validation.state in ("queued", "running"):
        yield "no registered host may measure this"
    for host in validation.hosts:
        if not host.match:
            yield from wrapped(f"{host.pseudonym} cannot: {'; '.join(host.missing)}")


def _cells(measured: float | None, predicted: Compared | None) -> tuple[str, str]:
    tps = "" if measured is None else tps_text(measured)
    if predicted is None:
        return tps, ""
    mark = "" if predicted.verdict == "within" else f", {predicted.verdict}"
    return tps, f"{tps_text(predicted.expected)} ({tps_text(predicted.low)} to {tps_text(predicted.high)}){mark}"
