"""Speeds in a log: rows of benchmark programs, or a server's timings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from service.engine.logs.bench_rows import RowReader
from service.engine.logs.requests import Request, read_requests

MAX_ROWS = 1_000
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
    reader = RowReader()
    rows = [
        MeasuredSpeed(n_kv=row.n_kv, pp_tps=row.pp_tps, tg_tps=row.tg_tps, n_prompt=row.n_prompt or None)
        for line in lines
        for row in reader.read(line)
    ]
    return tuple((rows or list(_server(lines)))[:MAX_ROWS])


def _server(lines: Sequence[str]) -> Iterator[MeasuredSpeed]:
    for one in read_requests(lines).found:
        if one.flaw is None:
            yield from speeds_of(one)


def speeds_of(one: Request) -> Iterator[MeasuredSpeed]:
    """Yield the speeds of a request: of the prompt from what the cache held, of the output behind it."""
    for n, seconds, name, n_kv in (
        (one.n_prompt, one.prompt_seconds, "pp_tps", one.n_cached or 0),
        (one.n_output, one.output_seconds, "tg_tps", one.depth),
    ):
        if n and seconds > 0 and 0.01 <= n / seconds < 1e7:
            n_prompt = n if name == "pp_tps" else None
            yield MeasuredSpeed(n_kv=n_kv, n_prompt=n_prompt, **{name: round(n / seconds, 2)})
