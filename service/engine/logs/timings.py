"""Speeds in a log: sweep-bench's table and jsonl, llama-bench's Markdown and JSON, a server's timings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec

MAX_ROWS = 1_000
_MAX_JSON = 1 << 20
_NUMBER = r"(\d{1,9}(?:\.\d{1,9})?)"
_SWEEP_HEAD = re.compile(r"\|\s*PP\s*\|\s*TG\s*\|(?:\s*B\s*\|)?\s*N_KV\s*\|")
_BENCH_TEST = re.compile(r"(pp|tg)(\d{1,9})(?:\s*@\s*(d|pp)(\d{1,9}))?")
_BENCH_SPEED = re.compile(rf"{_NUMBER}\s*(?:±|\+/-|$)")
_TIMING = re.compile(
    r"(prompt )?eval time\s*=\s*\d{1,12}(?:\.\d{1,9})?\s*ms\s*/\s*(\d{1,9})\s*(?:tokens|runs)\s*"
    rf"\(\s*\d{{1,9}}(?:\.\d{{1,9}})?\s*ms per token,\s*{_NUMBER}\s*tokens per second\)"
)
Count = Annotated[int, msgspec.Meta(ge=0, le=100_000_000)]
Tps = Annotated[float, msgspec.Meta(gt=0, le=1e7)]


class MeasuredSpeed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A speed that somebody measured with `n_kv` tokens in the cache, in tokens a second.

    `n_prompt`: tokens that the prompt had; null: at least one whole micro-batch.
    """

    n_kv: Count = 0
    pp_tps: Tps | None = None
    tg_tps: Tps | None = None
    n_prompt: Count | None = None


def read_speeds(lines: Sequence[str]) -> tuple[MeasuredSpeed, ...]:
    """Return the speeds in a log: of benchmark rows where it has any, else those of a server's requests."""
    rows = [*_sweep_tables(lines), *_sweep_lines(lines), *_bench_tables(lines), *_bench_json(lines)]
    return tuple((rows or list(_server(lines)))[:MAX_ROWS])


def _cells(line: str) -> list[str]:
    _, bar, rest = line.partition("|")
    return [cell.strip() for cell in rest.rstrip().removesuffix("|").split("|")] if bar else []


def _sweep_tables(lines: Sequence[str]) -> Iterator[MeasuredSpeed]:
    """`|  PP |  TG | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s |`; batched-bench's B column is skipped."""
    head: list[str] = []
    for line in lines:
        if _SWEEP_HEAD.search(line):
            head = _cells(line)
            continue
        row = dict(zip(head, _cells(line), strict=False))
        if len(row) != len(head) or not row or row.get("B", "1") != "1":
            continue
        try:
            n_kv, n_prompt = int(row["N_KV"]), int(row["PP"])
            yield _measured(n_kv, float(row["S_PP t/s"]), float(row["S_TG t/s"]), n_prompt)
        except (KeyError, ValueError):
            continue


def _sweep_lines(lines: Sequence[str]) -> Iterator[MeasuredSpeed]:
    """llama-sweep-bench's jsonl: one object a line."""
    for line in lines:
        if not line.startswith("{") or '"speed_pp"' not in line:
            continue
        row = _decoded(line)
        if isinstance(row, dict):
            yield from _from_row(row)


def _from_row(row: dict[str, Any]) -> Iterator[MeasuredSpeed]:
    try:
        yield _measured(int(row["n_kv"]), float(row["speed_pp"]), float(row["speed_tg"]), int(row["pp"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return


def _bench_tables(lines: Sequence[str]) -> Iterator[MeasuredSpeed]:
    """llama-bench's Markdown: the last two columns are the test and `speed ± deviation`."""
    for line in lines:
        cells = _cells(line)
        test = _BENCH_TEST.fullmatch(cells[-2]) if len(cells) >= 4 else None
        speed = _BENCH_SPEED.match(cells[-1]) if test else None
        if test and speed:
            yield _bench_row(test[1], int(test[2]), int(test[4] or 0), float(speed[1]))


def _bench_json(lines: Sequence[str]) -> Iterator[MeasuredSpeed]:
    """llama-bench's JSON array, or its jsonl."""
    text = "\n".join(lines)
    start, end = text.find("[\n  {"), text.rfind("]")
    found: Any = _decoded(text[start : end + 1]) if 0 <= start < end else None
    if not isinstance(found, list):
        found = [_decoded(line) for line in lines if line.startswith("{") and '"avg_ts"' in line]
    for row in found[:MAX_ROWS]:
        try:
            prompt, output, depth = int(row["n_prompt"]), int(row["n_gen"]), int(row.get("n_depth") or 0)
            if (prompt > 0) is not (output > 0):
                yield _bench_row("pp" if prompt else "tg", prompt or output, depth, float(row["avg_ts"]))
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
            continue


def _bench_row(kind: str, n_tokens: int, depth: int, speed: float) -> MeasuredSpeed:
    return _measured(depth, speed, None, n_tokens) if kind == "pp" else _measured(depth, None, speed, None)


def _server(lines: Sequence[str]) -> Iterator[MeasuredSpeed]:
    """A server's requests: the prompt from an empty cache, the output behind it."""
    n_prompt = 0
    for line in lines:
        match = _TIMING.search(line)
        if match and match[1]:
            n_prompt = int(match[2])
            yield _measured(0, float(match[3]), None, n_prompt)
        elif match:
            yield _measured(n_prompt, None, float(match[3]), None)


def _measured(n_kv: int, pp: float | None, tg: float | None, n_prompt: int | None) -> MeasuredSpeed:
    """Return the row; raises ValueError for numbers that no measurement has."""
    for speed in (pp, tg):
        if speed is not None and not 0 < speed < 1e7:
            raise ValueError("no speed")
    if not 0 <= n_kv <= 100_000_000:
        raise ValueError("no depth")
    return MeasuredSpeed(n_kv=n_kv, pp_tps=pp, tg_tps=tg, n_prompt=n_prompt)


def _decoded(text: str) -> Any:
    if len(text) > _MAX_JSON:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
