"""Why a benchmark program gave no result. A failure is a result too: `does not fit: needed 812 MiB more on CUDA0`."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

FailureKind: TypeAlias = Literal[
    "out_of_memory",
    "unknown_flag",
    "unknown_type",
    "wrong_architecture",
    "cannot_read_model",
    "crashed",
    "hung",
    "no_output",
    "gave_way",
    "refused_by_engine",
    "refused_by_policy",
    "model_missing",
    "engine_missing",
    "stopped",
]


class Failure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why there is no result. `transient`: the same run may succeed when it is tried again.

    `device`: which memory was too small; `needed_mib`: the buffer that found no room there; `short_by_mib`: how much at
    least there is too little, where the log says what was free.
    """

    kind: FailureKind
    transient: bool
    text: Annotated[str, msgspec.Meta(max_length=500)]
    device: Annotated[str, msgspec.Meta(max_length=32)] | None = None
    needed_mib: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)] | None = None
    short_by_mib: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)] | None = None
