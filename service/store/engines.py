"""Database engines by URL: SQLite (WAL) for one machine, PostgreSQL for more.

Every flow is synchronous: workers and the CLI call them as they are, the web calls them in threads. So there is one
kind of engine, and one driver for each database.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError, InterfaceError, NoSuchModuleError, OperationalError

from service.errors import DatabaseUnavailable, InvalidSetting
from service.logs import Log

log = Log("database")

_DRIVERS = {
    "sqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
_JSON: dict[str, Any] = {
    "hide_parameters": True,  # what is written would else stand in errors, and so in logs
    "json_serializer": lambda value: msgspec.json.encode(value).decode(),
    "json_deserializer": msgspec.json.decode,
}
_POOL = {"pool_size": 5, "max_overflow": 40}  # more than the 40 threads that the web's flows may run in
_BUSY_SECONDS = 15  # a writer of ours holds the others up for milliseconds; a backup or a slow disk, for seconds
_BUSY_PAUSE = 0.02
_NO_TRANSACTION = "NONE"
_HELD_SECONDS = 30  # by a transaction of which nothing is heard; ours do nothing slow between their statements
# libpq: a server that does not answer is lost after seconds, not after the system's two hours.
_NOTICE_LOSS = {
    "connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}  # fmt: skip


def make_engine(url: str) -> Engine:
    """Return an engine for `url`; nothing is opened yet. Raises InvalidSetting for a URL of another database."""
    parsed = _parse(url)
    engine = _sqlite(parsed) if parsed.drivername == "sqlite" else _postgresql(parsed)
    event.listen(engine, "handle_error", _say_unavailable)
    return engine


def _sqlite(url: URL) -> Engine:
    if url.database:
        Path(url.database).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS}, **_POOL, **_JSON)
    event.listen(engine, "connect", _set_pragmas)
    event.listen(engine, "begin", _begin)
    return engine


def _postgresql(url: URL) -> Engine:
    try:
        engine = create_engine(url, pool_pre_ping=True, connect_args=_NOTICE_LOSS, **_POOL, **_JSON)
    except ModuleNotFoundError as error:
        raise InvalidSetting(
            "DATABASE_URL is of PostgreSQL, for which psycopg is missing: install `offload-advisor[postgres]`",
            field="DATABASE_URL",
        ) from error
    event.listen(engine, "connect", _prepare)
    return engine


def _prepare(connection: Any, _record: object) -> None:
    """PostgreSQL spends more on compiling our queries (76 ms, measured on the board's) than they take. And a process
    that hangs, or whose machine is gone, in the middle of a transaction may not hold its locks for ever.
    """
    connection.execute("SET jit = off")
    connection.execute(f"SET idle_in_transaction_session_timeout = '{_HELD_SECONDS}s'")
    connection.execute(f"SET lock_timeout = '{_BUSY_SECONDS}s'")
    connection.commit()


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        return parsed.set(drivername=_DRIVERS[parsed.drivername])
    except (ArgumentError, NoSuchModuleError, KeyError) as error:
        raise InvalidSetting(
            "DATABASE_URL is not a database that this service knows: use sqlite:///PATH or postgresql://…",
            field="DATABASE_URL",
        ) from error


def _set_pragmas(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # `_begin` begins every transaction, also one of DDL or of reads
    _use_wal(connection)
    for pragma in ("synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _use_wal(connection: Any) -> None:
    """SQLite does not wait by itself while another process turns a new database to WAL: it is locked at once."""
    last = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > last:
                raise
            time.sleep(_BUSY_PAUSE)


def glance(engine: Engine) -> Connection:
    """Return a connection for a single SELECT: SQLite needs no transaction for it, and each statement costs a wait for
    the interpreter's lock."""
    return engine.connect().execution_options(sqlite_begin=_NO_TRANSACTION)


def _begin(connection: Any) -> None:
    # Deferred: a transaction that writes must write first, or it may meet SQLITE_BUSY_SNAPSHOT, which no wait mends.
    # One that has to read first asks for IMMEDIATE.
    mode = connection.get_execution_options().get("sqlite_begin", "DEFERRED")
    if mode != _NO_TRANSACTION:
        connection.exec_driver_sql(f"BEGIN {mode}")


def _say_unavailable(context: ExceptionContext) -> None:
    # The driver's words name hosts and users: they are for the log, not for those who ask over the network.
    if isinstance(context.sqlalchemy_exception, OperationalError | InterfaceError):
        error = context.original_exception
        log.error("database.silent", error=type(error).__name__, detail=str(error))
        raise DatabaseUnavailable("the database does not answer", field="DATABASE_URL") from context.original_exception
