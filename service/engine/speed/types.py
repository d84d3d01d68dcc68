"""Tensor types as the speed model sees them: their class, and their relative speed for prompts by published tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

import msgspec

from service.engine.config import Engine


class _Table(msgspec.Struct, frozen=True):
    source: str
    families: dict[str, dict[str, float]]


@cache
def _families() -> Mapping[str, Mapping[str, float]]:
    text = resources.files("service.engine.data").joinpath("type_speeds.json").read_bytes()
    return msgspec.json.decode(text, type=_Table).families


@cache
def time_of_type(engine: Engine, backend: str, generation: str, name: str) -> float | None:
    """Return the time of matrix products of a batch with tensors of type `name`, over that with q4_0.

    `backend`: of a card, or the family of a CPU. The table of the generation counts before that of the back end; None
    where neither has the type.
    """
    for family in (f"{engine} {backend} {generation}", f"{engine} {backend}"):
        speed = _families().get(family, {}).get(name)
        if speed is not None:
            return 1 / speed
    return None


@cache
def quant_class(name: str) -> str:
    """Return the class of a tensor type as calibration names it: k | iqk | iq | iq1 | kt | f."""
    base = name.lower().split("_r")[0]
    if base in ("f32", "f16", "bf16"):
        return "f"
    if base.endswith("_kt"):
        return "kt"
    if base.startswith("iq") and ("_k" in base):
        return "iqk"
    if base.startswith("iq1"):
        return "iq1"
    return "iq" if base.startswith(("iq2", "iq3")) else "k"
