"""One measured row: raw times of a prompt and of an output at one depth, from which speeds are always recomputed."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=100_000_000)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
MAX_REPEATS = 64


class MeasuredRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured with `n_kv` tokens in the cache, each repeat by itself.

    `pp_seconds`: seconds that `n_prompt` tokens took in one repeat each; `tg_seconds`: those of `n_gen` tokens. Empty:
    not measured in this row.
    """

    n_kv: Count
    n_prompt: Count = 0
    n_gen: Count = 0
    pp_seconds: Annotated[tuple[Seconds, ...], msgspec.Meta(max_length=MAX_REPEATS)] = ()
    tg_seconds: Annotated[tuple[Seconds, ...], msgspec.Meta(max_length=MAX_REPEATS)] = ()

    @property
    def pp_tps(self) -> tuple[float, ...]:
        """Return prompt tokens per second, of each repeat."""
        return tuple(self.n_prompt / seconds for seconds in self.pp_seconds)

    @property
    def tg_tps(self) -> tuple[float, ...]:
        """Return output tokens per second, of each repeat."""
        return tuple(self.n_gen / seconds for seconds in self.tg_seconds)
