"""What nearly every query does: rows as Structs, a column, one value, and how many rows a change met."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from sqlalchemy import Column, Engine, Row, Select, UpdateBase

from service.store.ids import is_id
from service.structs import made_from

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")


def converted(row: Row[*tuple[Any, ...]], kind: type[T]) -> T:
    """Return a row as a `kind`, whose fields are called like its columns."""
    return msgspec.convert(row, kind, from_attributes=True)


def one(engine: Engine, wanted: Select[Any] | UpdateBase, kind: type[T]) -> T | None:
    """Return the only row as a `kind`, or None."""
    with engine.begin() as connection:
        row = connection.execute(wanted).one_or_none()
    return None if row is None else converted(row, kind)


def by_id(engine: Engine, wanted: Select[Any], key: Column[str], row_id: str, kind: type[T]) -> T | None:
    """Return the row whose `key` is `row_id` as a `kind`, or None: also for a text that can be no id."""
    return one(engine, wanted.where(key == row_id), kind) if is_id(row_id) else None


def several(engine: Engine, wanted: Select[Any] | UpdateBase, kind: type[T]) -> list[T]:
    """Return all rows, each as a `kind`."""
    with engine.begin() as connection:
        return [converted(row, kind) for row in connection.execute(wanted)]


def shown(engine: Engine, wanted: Select[Any], kind: type[S]) -> list[S]:
    """Return all rows, each as a `kind` of answers, which has instants as text."""
    with engine.connect() as connection:
        return [made_from(kind, row) for row in connection.execute(wanted)]


def column(engine: Engine, wanted: Select[T]) -> list[T]:
    """Return the only column of all rows."""
    with engine.connect() as connection:
        return list(connection.scalars(wanted))


def value(engine: Engine, wanted: Select[T]) -> T | None:
    """Return the first column of the first row, or None."""
    with engine.connect() as connection:
        return connection.scalar(wanted)


def changed(engine: Engine, change: UpdateBase) -> int:
    """Make a change in a transaction of its own, and return how many rows it met."""
    with engine.begin() as connection:
        return int(connection.execute(change).rowcount)
