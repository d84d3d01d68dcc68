"""Memoisation on a model or a run: what is computed once for it, and lives as long as it does. Both are frozen."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

Owner = TypeVar("Owner")
Found = TypeVar("Found")


def kept(find: Callable[[Owner], Found]) -> Callable[[Owner], Found]:
    """Return `find`, which never returns None, memoised: its result is kept in its argument's `__dict__`."""
    name = f"{find.__module__}.{find.__qualname__}"

    @wraps(find)
    def known(owner: Owner) -> Found:
        found: Found | None = owner.__dict__.get(name)
        if found is None:
            found = owner.__dict__[name] = find(owner)
        return found

    return known
