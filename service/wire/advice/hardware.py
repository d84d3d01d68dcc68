"""The types of `/v1/hardware`: catalogue rows, and how a text is understood."""

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
    """How the text is understood, in both forms, with every assumption made because a fact was not stated."""

    hardware: Hardware
    shorthand: str
    assumed: list[Assumption]


class GpuRows(msgspec.Struct, frozen=True):
    """GPUs of the catalogue; null means unknown. `total` counts all matches, `rows` has the first of them."""

    total: int
    rows: list[GpuRow]


class CpuRows(msgspec.Struct, frozen=True):
    """CPUs of the catalogue; null means unknown. `total` counts all matches, `rows` has the first of them."""

    total: int
    rows: list[CpuRow]


def render_hardware(hardware: Hardware) -> str:
    """Return hardware in shorthand, with a line per assumption."""
    assumed = (fact_words(fact_of(one, hardware.gpus)) for one in resolve(hardware).assumed)
    return "\n".join((to_shorthand(hardware), *assumed))
