"""Renders the leaderboard and results for reading: plain text for terminals, Markdown for chat."""

from __future__ import annotations

from collections.abc import Iterator

from service.wire.advice.text import speed_table
from service.wire.plain_text import cut, wrapped
from service.wire.results.board import Board, BoardRow, BoardTrust
from service.wire.results.results import Result

TIERS = {
    "self-reported": "somebody reported it",
    "agent-run": "run by our agent",
    "replicated": "measured again by somebody else",
}


_TRUSTS: dict[BoardTrust, str] = {
    "self-reported": "unverified too",
    "published": "proven or published",
    "agent-run": "agent-run or better",
    "replicated": "replicated",
}


def board_lines(board: Board) -> Iterator[str]:
    """Yield a page of the leaderboard: what it shows, and one line per row."""
    asked = board.query
    phase = "PP" if asked.sort == "pp" else "TG"
    yield f"Fastest of each model, rig and engine: {phase} at {asked.depth:,} tokens, {_TRUSTS[asked.trust]}"
    if not board.rows:
        unverified = asked.trust != "self-reported"
        yield f"no result matches{'; trust=self-reported shows unverified ones too' if unverified else ''}"
        return
    yield f"{'TG t/s':>8}{'PP t/s':>9}  model, variant, rig, engine"
    for row in board.rows:
        yield cut(f"{_figure(row.tg_tps, 1):>8}{_figure(row.pp_tps, 0):>9}  {_of_what(row)}")
        if predicted := _predicted(row):
            yield f"{'':19}{predicted}"
    if any(row.n_results > 1 for row in board.rows):
        yield "[n]: the fastest of n results"
    if board.next:
        yield f"more: cursor={board.next}"


def _of_what(row: BoardRow) -> str:
    several = f" [{row.n_results}]" if row.n_results > 1 else ""
    who = "published elsewhere" if row.origin == "published" else row.tier
    return f"{row.model} {row.variant} | {row.rig} | {row.engine} | {who}{several}"


def _predicted(row: BoardRow) -> str:
    """Return the predicted interval of an unconfirmed result, and whether the result is plausible against it."""
    if row.tier != "self-reported" or row.predicted_low is None or row.predicted_high is None:
        return ""
    doubt = "" if row.plausible else ", implausible"
    return f"predicted {row.predicted_low:,.0f} to {row.predicted_high:,.0f}{doubt}"


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def result_lines(result: Result) -> Iterator[str]:
    """Yield a result: what ran where, its origin, the speeds, and the command."""
    model, rig = result.model, result.rig
    yield cut(f"{model.name} {model.variant} on {rig.name}, {result.engine} {result.build or '(build not stated)'}")
    machine = [rig.cpu, f"{rig.ram_gib} GiB RAM" if rig.ram_gib else None]
    if said := ", ".join(part for part in machine if part):
        yield cut(said)
    yield from wrapped(_who(result))
    if result.state != "shown":
        yield from wrapped(f"{result.state}: {result.state_reason or 'no reason was given'}")
    if result.outcome.speed:
        yield from speed_table(result.outcome.speed)
    if result.failure:
        yield from wrapped(f"it failed: {result.failure.text}")
    if result.command:
        yield from wrapped(result.command)
    if result.url:
        yield result.url


def _who(result: Result) -> str:
    day = result.measured_at[:10]
    if result.published:
        return f"published by {result.published.by}, {result.published.date}: {result.published.url}"
    by = f" ({result.contributor})" if result.contributor else ""
    return f"{result.tier}: {TIERS[result.tier]}{by}, {day}"
