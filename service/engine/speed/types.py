"""Prompt speed by tensor type: what published tables of one device show, over q4_0 of the same device."""

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
