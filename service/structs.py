"""Structs made of what is alike, and made known to msgspec before there are threads.

msgspec learns what a Struct holds when it first decodes or converts one, and keeps it on the class before it is whole:
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
    """Have msgspec learn every Struct of the modules that are loaded; return how many those are."""
    known, to_do = 0, [msgspec.Struct]
    while to_do:
        for kind in to_do.pop().__subclasses__():
            to_do.append(kind)
            with suppress(TypeError, NameError):  # one that is never decoded may hold anything
                msgspec.json.Decoder(kind)
                known += 1
    return known


def made_from(kind: type[T], source: object, /, **others: Any) -> T:
    """Return a `kind` with the fields `others`, and of the rest those that `source` has under the same name, instants
    as text."""
    names = (name for name in kind.__struct_fields__ if name not in others)
    same = {name: getattr(source, name) for name in names if hasattr(source, name)}
    return kind(**others, **{name: iso_time(at) if isinstance(at, datetime) else at for name, at in same.items()})


def iso_time(instant: datetime) -> str:
    """Return an instant as answers have it: ISO 8601, in whole seconds."""
    return instant.isoformat(timespec="seconds")
