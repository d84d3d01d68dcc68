"""Tables in JSON that ship with the code."""

from __future__ import annotations

from importlib import resources
from typing import TypeVar

import msgspec

T = TypeVar("T")


def table_of(name: str, kind: type[T], package: str = "service.engine.data") -> T:
    """Return a file of a package as a `kind`."""
    return msgspec.json.decode(resources.files(package).joinpath(name).read_bytes(), type=kind)
