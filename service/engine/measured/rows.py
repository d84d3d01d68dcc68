"""One measured row: raw times of a prompt and of an output at one depth, from which speeds are always recomputed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import msgspec

from service.engine.logs.bench_rows import MAX_REPEATS, MAX_SECONDS, MAX_TOKENS, MAX_TPS, PrintedRow

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)]


class MeasuredRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured with `n_kv` tokens in the cache, each repeat by itself.

    `pp_seconds`: seconds that `n_prompt` tokens took in one repeat each; `tg_seconds`: those of `n_gen` tokens. Empty:
    not measured in this row. Raises ValueError (on decoding, msgspec.ValidationError) for impossible times:
    none at all, NaN, more than a day, or so short that it would be a million tokens a second.
    """

    n_kv: Count
    n_prompt: Count = 0
    n_gen: Count = 0
    pp_seconds: Annotated[tuple[Seconds, ...], msgspec.Meta(max_length=MAX_REPEATS)] = ()
    tg_seconds: Annotated[tuple[Seconds, ...], msgspec.Meta(max_length=MAX_REPEATS)] = ()

    def __post_init__(self) -> None:
        if not self.pp_seconds and not self.tg_seconds:
            raise ValueError("a measured row has times of a prompt or of an output")
        for n_tokens, times in ((self.n_prompt, self.pp_seconds), (self.n_gen, self.tg_seconds)):
            for seconds in times:
                if not (0 < seconds <= MAX_SECONDS and 0 < n_tokens / seconds < MAX_TPS):
                    most = f"at most {MAX_SECONDS:,.0f} seconds, and under {MAX_TPS:,.0f} tokens a second"
                    raise ValueError(f"{n_tokens:,} tokens in {seconds:g} seconds is impossible: {most}")

    @property
    def pp_tps(self) -> tuple[float, ...]:
        """Return prompt tokens per second, of each repeat."""
        return tuple(self.n_prompt / seconds for seconds in self.pp_seconds)

    @property
    def tg_tps(self) -> tuple[float, ...]:
        """Return output tokens per second, of each repeat."""
        return tuple(self.n_gen / seconds for seconds in self.tg_seconds)


def row_of(printed: PrintedRow) -> MeasuredRow:
    """Return a printed row as raw times. Where only a mean speed was printed (llama-bench's Markdown), it stands as one
    repeat of the time that it means."""
    return MeasuredRow(
        n_kv=printed.n_kv,
        n_prompt=printed.n_prompt,
        n_gen=printed.n_gen,
        pp_seconds=printed.pp_seconds or _meant(printed.n_prompt, printed.pp_tps),
        tg_seconds=printed.tg_seconds or _meant(printed.n_gen, printed.tg_tps),
    )


def _meant(n_tokens: int, tps: float | None) -> tuple[float, ...]:
    return () if tps is None else (n_tokens / tps,)


def merged(rows: Sequence[MeasuredRow]) -> list[MeasuredRow]:
    """Return one row for each depth and size, by depth: repeats of the same measurement, in the order they came.

    A row of both phases and one of a single phase stay two rows. At most MAX_REPEATS repeats are kept, the first ones.
    """
    found: dict[tuple[int, int, int], MeasuredRow] = {}
    for row in rows:
        key = (row.n_kv, row.n_prompt, row.n_gen)
        known = found.get(key)
        found[key] = row if known is None else _together(known, row)
    return [found[key] for key in sorted(found)]


def _together(one: MeasuredRow, other: MeasuredRow) -> MeasuredRow:
    return msgspec.structs.replace(
        one,
        pp_seconds=(one.pp_seconds + other.pp_seconds)[:MAX_REPEATS],
        tg_seconds=(one.tg_seconds + other.tg_seconds)[:MAX_REPEATS],
    )
