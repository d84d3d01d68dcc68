"""Database engines by URL: SQLite (WAL) for one machine, PostgreSQL for more.

Every flow is synchronous: workers and the CLI call flows directly, the web in threads. So there is one kind of engine,
and one driver for each database.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import URL, Connection, Engine, create_engine, event, func, make_url, select
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, NoSuchModuleError, OperationalError

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
    "hide_parameters": True,  # else the values of statements would appear in errors, and so in logs
    "json_serializer": lambda value: msgspec.json.encode(value).decode(),
    "json_deserializer": msgspec.json.decode,
}
_POOL = {"pool_size": 5, "max_overflow": 40}  # more than the 40 threads that may run the web's flows
_BUSY_SECONDS = 15  # our writers hold others up for milliseconds; a backup or a slow disk, for seconds
_BUSY_PAUSE = 0.02
_NO_TRANSACTION = "NONE"
_HELD_SECONDS = 30  # limit on an idle transaction; ours do nothing slow between their statements
# libpq: give up on a silent server after seconds, instead of the system's two hours.
_NOTICE_LOSS = {
    "connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}  # fmt: skip
_DAMAGED = "the database is damaged: restore a backup with `advisor admin restore`"
_FULL = "there is no space left for the database"
_READ_ONLY = "the database cannot be written: check who owns its file and folder, and whether the disk is read-only"
_NOT_OPENED = "the database cannot be opened: check whether its folder exists, and who owns it"
_NO_ANSWER = "the database does not answer"
# Messages for failures by SQLite's primary result code and PostgreSQL's SQLSTATE; for others, `_NO_ANSWER`.
_SAID_OF: dict[int | str, str] = {
    sqlite3.SQLITE_CORRUPT: _DAMAGED, sqlite3.SQLITE_NOTADB: _DAMAGED, sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY, sqlite3.SQLITE_PERM: _READ_ONLY, sqlite3.SQLITE_CANTOPEN: _NOT_OPENED,
    sqlite3.SQLITE_IOERR: "the disk of the database fails, or is full",
    "XX001": _DAMAGED, "XX002": _DAMAGED, "53100": _FULL,
    "25006": "the database accepts no changes: it is a standby, or set to read only",
    "28P01": "the database refuses the password of DATABASE_URL",
    "28000": "the database refuses the user of DATABASE_URL",
    "3D000": "the database of DATABASE_URL does not exist on its server",
}  # fmt: skip
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


def make_engine(url: str) -> Engine:
    """Return an engine for `url`; connections open on first use. Raises InvalidSetting for another kind of database."""
    parsed = _parse(url)
    engine = _sqlite(parsed) if parsed.drivername == "sqlite" else _postgresql(parsed)
    event.listen(engine, "handle_error", _say_unavailable)
    return engine


def _sqlite(url: URL) -> Engine:
    engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS}, **_POOL, **_JSON)
    if (file := file_of(url)) is not None:
        event.listen(engine, "do_connect", lambda *_: make_private_file(file))
    event.listen(engine, "connect", _set_pragmas)
    event.listen(engine, "begin", _begin)
    return engine


def _postgresql(url: URL) -> Engine:
    try:
        engine = create_engine(url, pool_pre_ping=True, connect_args=_NOTICE_LOSS, **_POOL, **_JSON)
    except ModuleNotFoundError as error:
        raise InvalidSetting(
            "DATABASE_URL is for PostgreSQL, but psycopg is missing: install `offload-advisor[postgres]`",
            field="DATABASE_URL",
        ) from error
    event.listen(engine, "connect", _prepare)
    return engine


def _prepare(connection: Any, _record: object) -> None:
    """Set up a PostgreSQL connection.

    Without JIT: compiling our queries (76 ms, measured on the board's) takes longer than running them. With timeouts,
    so that a process that hangs or loses its machine in a transaction does not hold its locks for ever.
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
    connection.isolation_level = None  # `_begin` begins every transaction, including those of DDL and of reads
    _use_wal(connection)
    for pragma in ("synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _use_wal(connection: Any) -> None:
    """Switch to WAL, with retries: SQLite fails at once while another process does so for a new database."""
    last = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > last:
                raise
            time.sleep(_BUSY_PAUSE)


def glance(engine: Engine) -> Connection:
    """Return a connection for a single SELECT, without the transaction that SQLite does not need for it: each
    statement costs a wait for the interpreter's lock."""
    return engine.connect().execution_options(sqlite_begin=_NO_TRANSACTION)


@contextmanager
def locked(engine: Engine, *numbers: int) -> Iterator[Connection]:
    """Begin a transaction that reads before it writes: SQLite takes its write lock at once, waiting like any writer.

    `numbers`: as for `exclude`.
    """
    with engine.execution_options(sqlite_begin="IMMEDIATE").begin() as connection:
        exclude(connection, *numbers)
        yield connection


def exclude(connection: Connection, *numbers: int) -> None:
    """Make a transaction wait for any other with one of these numbers; SQLite has only one writer anyway."""
    if connection.dialect.name == "postgresql":
        for number in numbers:
            connection.execute(select(func.pg_advisory_xact_lock(number)))


def _begin(connection: Any) -> None:
    # Deferred: a transaction that writes must begin with a write, or it may meet SQLITE_BUSY_SNAPSHOT, which waiting
    # does not cure. One that has to read first uses `locked`.
    mode = connection.get_execution_options().get("sqlite_begin", "DEFERRED")
    if mode != _NO_TRANSACTION:
        connection.exec_driver_sql(f"BEGIN {mode}")


def file_of(url: URL) -> Path | None:
    """Return the file of an SQLite database; None for one in memory or of another kind."""
    if url.get_backend_name() != "sqlite" or not url.database or url.database.startswith((":memory:", "file:")):
        return None
    return Path(url.database)


def make_private_file(file: Path) -> None:
    """Create a database's file and folder if missing, the file for its owner only: SQLite's log copies its mode.

    An existing folder keeps its mode. Raises DatabaseUnavailable.
    """
    try:
        file.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        # Only if it is missing: closing any descriptor of a file releases all locks that this process has on it,
        # including SQLite's (https://sqlite.org/howtocorrupt.html, 2.2), and the log would be deleted under its
        # writers.
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDONLY | os.O_CLOEXEC, PRIVATE_FILE))
        for one in (file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")):
            if one.exists() and (found := one.stat()).st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
                one.chmod(PRIVATE_FILE)
    except OSError as error:
        raise DatabaseUnavailable(f"{_NOT_OPENED} ({file}: {error.strerror})", field="DATABASE_URL") from error


def said_of(error: BaseException) -> str | None:
    """Return a sentence on what a driver's error means for the database; None if it is not a known failure."""
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(code, int):
        return _SAID_OF.get(code & 0xFF)
    return _SAID_OF.get(getattr(error, "sqlstate", None) or "")


def _say_unavailable(context: ExceptionContext) -> None:
    # The driver's message names hosts and users, so it goes to the log and not to clients.
    error = context.original_exception
    said = said_of(error) if isinstance(context.sqlalchemy_exception, DBAPIError) else None
    if said is not None or isinstance(context.sqlalchemy_exception, OperationalError | InterfaceError):
        log.error("database.silent", error=type(error).__name__, detail=str(error))
        raise DatabaseUnavailable(said or _NO_ANSWER, field="DATABASE_URL") from error
