"""Why a benchmark program gave no result. A failure is a result too: `does not fit: needed 812 MiB more on CUDA0`."""

from __future__ import annotations

import re
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


_DEVICE = re.compile(r"(CUDA|ROCm|Vulkan|SYCL|MTL|Metal|CPU)[0-9]{0,3}")
_PLAIN: dict[FailureKind, str] = {
    "unknown_flag": "the engine's build does not know a flag of it",
    "unknown_type": "the engine's build does not know a tensor type of the model",
    "wrong_architecture": "the engine's build does not know the model's architecture",
    "cannot_read_model": "the engine could not read the model's files",
    "crashed": "the engine crashed",
    "hung": "the engine stopped making progress",
    "no_output": "the engine printed no measurement",
    "gave_way": "the host was needed for something else",
    "refused_by_engine": "the engine refused it",
    "refused_by_policy": "the host's owner does not allow it",
    "model_missing": "the host does not have the model",
    "engine_missing": "the host does not have the engine",
    "stopped": "the host stopped while it was measured",
}


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


def in_plain_words(failure: Failure) -> Failure:
    """Return a failure with a sentence of ours in place of the host's words: it is for others than the host's owner."""
    device = failure.device if failure.device and _DEVICE.fullmatch(failure.device) else None
    text = _PLAIN.get(failure.kind) or f"it does not fit into the memory of {device or 'the host'}"
    if failure.kind == "out_of_memory" and failure.short_by_mib:
        text += f": {failure.short_by_mib:,} MiB too little"
    return msgspec.structs.replace(failure, text=text, device=device)
