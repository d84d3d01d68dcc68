"""What is worked out once for a model or a run, and lives as long as that: both are frozen."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

Owner = TypeVar("Owner")
Found = TypeVar("Found")


def kept(find: Callable[[Owner], Found]) -> Callable[[Owner], Found]:
    """Return `find`, which is never None, as a function that keeps what it has found with what it was asked of."""
    name = f"{find.__module__}.{find.__qualname__}"

    @wraps(find)
    def known(owner: Owner) -> Found:
        found: Found | None = owner.__dict__.get(name)
        if found is None:
            found = owner.__dict__[name] = find(owner)
        return found

    return known
