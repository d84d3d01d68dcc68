"""Speeds in a log: rows of benchmark programs, or a server's timings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from service.engine.logs.bench_rows import RowReader

MAX_ROWS = 1_000
_NUMBER = r"(\d{1,9}(?:\.\d{1,9})?)"
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
    reader = RowReader()
    rows = [
        MeasuredSpeed(n_kv=row.n_kv, pp_tps=row.pp_tps, tg_tps=row.tg_tps, n_prompt=row.n_prompt or None)
        for line in lines
        for row in reader.read(line)
    ]
    return tuple((rows or list(_server(lines)))[:MAX_ROWS])


def _server(lines: Sequence[str]) -> Iterator[MeasuredSpeed]:
    """A server's requests: the prompt from an empty cache, the output behind it."""
    n_prompt = 0
    for line in lines:
        match = _TIMING.search(line)
        if not match or not 0 < float(match[3]) < 1e7:
            continue
        if match[1]:
            n_prompt = int(match[2])
            yield MeasuredSpeed(n_kv=0, pp_tps=float(match[3]), n_prompt=n_prompt)
        else:
            yield MeasuredSpeed(n_kv=n_prompt, tg_tps=float(match[3]))
