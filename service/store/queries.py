"""Shared steps of queries: rows as Structs, a column, one value, and the number of rows changed."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Column, Engine, Row, Select, UpdateBase
from sqlalchemy.exc import IntegrityError

from service.structs import made_from

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")


def converted(row: Row[*tuple[Any, ...]], kind: type[T]) -> T:
    """Return a row as a `kind`, whose fields have the columns' names."""
    return msgspec.convert(row, kind, from_attributes=True)


def one(engine: Engine, wanted: Select[Any] | UpdateBase, kind: type[T]) -> T | None:
    """Return the only row as a `kind`, or None."""
    with engine.begin() as connection:
        row = connection.execute(wanted).one_or_none()
    return None if row is None else converted(row, kind)


def by_id(engine: Engine, wanted: Select[Any], key: Column[str], row_id: str, kind: type[T]) -> T | None:
    """Return the row whose `key` is `row_id` as a `kind`; None if there is none, or the text cannot be an id."""
    return one(engine, wanted.where(key == row_id), kind) if is_id(row_id) else None


def several(engine: Engine, wanted: Select[Any] | UpdateBase, kind: type[T]) -> list[T]:
    """Return all rows, each as a `kind`."""
    with engine.begin() as connection:
        return [converted(row, kind) for row in connection.execute(wanted)]


def shown(engine: Engine, wanted: Select[Any], kind: type[S]) -> list[S]:
    """Return all rows, each as a `kind` of the API's, with times as text."""
    return [made_from(kind, row) for row in rows(engine, wanted)]


def rows(engine: Engine, wanted: Select[Any]) -> Sequence[Any]:
    """Return all rows as they are."""
    with engine.connect() as connection:
        return connection.execute(wanted).all()


def column(engine: Engine, wanted: Select[T]) -> list[T]:
    """Return the only column of all rows."""
    with engine.connect() as connection:
        return list(connection.scalars(wanted))


def value(engine: Engine, wanted: Select[T]) -> T | None:
    """Return the first column of the first row, or None."""
    with engine.connect() as connection:
        return connection.scalar(wanted)


def changed(engine: Engine, change: UpdateBase) -> int:
    """Make a change in a transaction of its own; return how many rows it affected."""
    with engine.begin() as connection:
        return int(connection.execute(change).rowcount)


def accepted(engine: Engine, change: UpdateBase) -> bool:
    """Add or change a row in a transaction of its own; return False if it exists already, or none is to be changed."""
    try:
        return changed(engine, change) != 0  # -1 after an insertion, of which psycopg tells no number
    except IntegrityError:
        return False


_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")  # 128 random bits


def is_name(text: str) -> bool:
    """Return whether `text` can be a name in any column: PostgreSQL rejects NUL."""
    return "\x00" not in text


def is_id(text: str) -> bool:
    """Return whether `text` can be an id at all. Anything else must not reach the database (PostgreSQL rejects NUL)."""
    return _ID.fullmatch(text) is not None


def new_id() -> str:
    """Return a random id: 22 characters of URL-safe Base64, the first not "-", which begins an option."""
    while (made := secrets.token_urlsafe(16)).startswith("-"):
        pass
    return made
