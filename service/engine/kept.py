"""Memoisation on a model or a run: what is computed once for it, and lives as long as it does. Both are frozen."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, TypeVarTuple

Owner = TypeVar("Owner")
More = TypeVarTuple("More")
Found = TypeVar("Found")


def kept(find: Callable[[Owner, *More], Found]) -> Callable[[Owner, *More], Found]:
    """Return `find` memoised: its results are kept in its first argument's `__dict__`, by the other arguments."""
    name = f"{find.__module__}.{find.__qualname__}"

    @wraps(find)
    def known(owner: Owner, /, *more: *More) -> Found:
        results: dict[tuple[*More], Found] = owner.__dict__.setdefault(name, {})
        if more not in results:
            results[more] = find(owner, *more)
        return results[more]

    return known
