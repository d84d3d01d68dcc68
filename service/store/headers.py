"""Rows of `header`: parsed headers by the sha256 of their file. Content under a hash never changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
from sqlalchemy import Engine, delete, insert, select
from sqlalchemy.exc import IntegrityError

from service.engine.gguf import Header
from service.store.tables import header as table

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Header).decode


class StoredHeaders:
    """The Hub's header cache, kept in the database."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._engine = engine
        self._clock = clock

    def get(self, sha256: str) -> Header | None:
        """Return the header of the file with this content; None when it is not known, or kept in an older shape."""
        with self._engine.connect() as connection:
            blob = connection.scalar(select(table.c.header).where(table.c.sha256 == sha256))
        try:
            return None if blob is None else _decode(blob)
        except msgspec.DecodeError:
            return None

    def put(self, sha256: str, header: Header) -> None:
        """Keep a header, in place of one in an older shape."""
        row = {"sha256": sha256, "header": _encode(header), "seen_at": self._clock()}
        try:
            with self._engine.begin() as connection:
                connection.execute(delete(table).where(table.c.sha256 == sha256))
                connection.execute(insert(table).values(row))
        except IntegrityError:
            return  # another worker has just put the same header
