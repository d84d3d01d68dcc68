"""The public shapes of `/v1/hardware`: catalogue rows, and what a text is understood as."""

from __future__ import annotations

from typing import Annotated

import msgspec

from service.engine.catalogue import resolve
from service.engine.catalogue.rows import CpuRow, GpuRow
from service.engine.hardware import Assumption, Hardware
from service.engine.hardware_text.form import to_shorthand
from service.wire.advice.card import fact_of, fact_words


class HardwareQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hardware as shorthand, as pasted tool output, or as a mixture of both."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=65_536)]


class ParsedHardware(msgspec.Struct, frozen=True):
    """What the text is understood as, in both forms, and every fact that is assumed because it was not stated."""

    hardware: Hardware
    shorthand: str
    assumed: list[Assumption]


class GpuRows(msgspec.Struct, frozen=True):
    """GPUs of the catalogue; null is: unknown. `total` counts those that match, `rows` are the first of them."""

    total: int
    rows: list[GpuRow]


class CpuRows(msgspec.Struct, frozen=True):
    """CPUs of the catalogue; null is: unknown. `total` counts those that match, `rows` are the first of them."""

    total: int
    rows: list[CpuRow]


def render_hardware(hardware: Hardware) -> str:
    """Return hardware in shorthand, and a line for each fact that is assumed."""
    assumed = (fact_words(fact_of(one, hardware.gpus)) for one in resolve(hardware).assumed)
    return "\n".join((to_shorthand(hardware), *assumed))
