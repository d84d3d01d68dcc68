"""Copies of Structs under another type, and the registration of all Structs with msgspec before threads start.

msgspec learns a Struct's fields when it first decodes or converts one, and stores them on the class before complete:
another thread that uses the same Struct in that moment reads a null pointer, which ends the process (msgspec 0.22,
`StructInfo_Convert` in `_core.c`).
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


def learn_structs() -> int:
    """Have msgspec learn every Struct of the loaded modules; return how many there are."""
    known, to_do = 0, [msgspec.Struct]
    while to_do:
        for kind in to_do.pop().__subclasses__():
            to_do.append(kind)
            with suppress(TypeError, NameError):  # a Struct that is never decoded may hold any type
                msgspec.json.Decoder(kind)
                known += 1
    return known


def made_from(kind: type[T], source: object, /, **others: Any) -> T:
    """Return a `kind` with the fields `others`, and the rest copied from fields of `source` with the same names.

    Times are copied as ISO text.
    """
    names = (name for name in kind.__struct_fields__ if name not in others)
    same = {name: getattr(source, name) for name in names if hasattr(source, name)}
    return kind(**others, **{name: iso_time(at) if isinstance(at, datetime) else at for name, at in same.items()})


def iso_time(instant: datetime) -> str:
    """Return a time as answers state it: ISO 8601, in whole seconds."""
    return instant.isoformat(timespec="seconds")
