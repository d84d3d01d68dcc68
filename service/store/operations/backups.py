"""Backs a database up to one file, and restores it: SQLite by its online backup, PostgreSQL by its own tools.

Backups are taken while the service runs and show a single moment. A restore is one transaction.
"""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from sqlalchemy import make_url

from service.engine.errors import InvalidInput
from service.errors import DatabaseUnavailable
from service.settings import without_secrets
from service.store.engines import PRIVATE_FILE, make_private_file, said_of
from service.store.migrations import migrated, revisions

_PAGES = 4096  # of SQLite, copied at a time; writers go on in between
_TOOL_SECONDS = 6 * 3600
_REVISION = re.compile(r"^COPY public\.alembic_version .*\n(\w{1,32})$", re.M)


def back_up(url: str, target: Path) -> int:
    """Write the whole database at `url` to a new file; return its size in bytes.

    Raises InvalidInput if the file exists or cannot be written, DatabaseUnavailable.
    """
    if target.exists():
        raise InvalidInput(f"{target} already exists: name a new file", field="FILE")
    if not target.parent.is_dir():
        raise InvalidInput(f"there is no folder {target.parent}", field="FILE")
    part = target.with_name(f".{target.name}.part")
    try:
        part.unlink(missing_ok=True)
        part.touch(mode=PRIVATE_FILE)
        if _is_sqlite(url):
            _copy_sqlite(_sqlite_file(url), part)
        else:
            _tool(["pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--file={part}"], url)
        part.rename(target)
        return target.stat().st_size
    except OSError as error:
        raise InvalidInput(f"cannot write {target}: {error.strerror}", field="FILE") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def keep_what_is_there(url: str, target: Path) -> bool:
    """Back up the database at `url` before another takes its place; return whether there was one.

    One that is too damaged for a backup is moved to the file as it is. Raises InvalidInput, DatabaseUnavailable.
    """
    file = _sqlite_file(url) if _is_sqlite(url) else None
    if file is not None and not file.exists():
        return False
    try:
        back_up(url, target)
    except DatabaseUnavailable as error:
        if file is None or not isinstance(error.__cause__, sqlite3.DatabaseError):
            raise
        for end in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                file.with_name(file.name + end).replace(target.with_name(target.name + end))
    return True


def restore(url: str, source: Path) -> None:
    """Restore the database at `url` from `source`, and bring its tables up to date.

    Raises InvalidInput for a file that is not a backup of this service or is of a newer version; DatabaseUnavailable.
    """
    if not source.is_file():
        raise InvalidInput(f"there is no file {source}", field="FILE")
    revision = _sqlite_revision(source) if _is_sqlite(url) else _postgres_revision(source)
    if revision not in revisions():
        raise InvalidInput(f"{source} was made by a newer version (tables {revision}): update first", field="FILE")
    _load_sqlite(source, _sqlite_file(url)) if _is_sqlite(url) else _load_postgres(url, source)
    with migrated(url):
        return


def _is_sqlite(url: str) -> bool:
    return make_url(url).drivername == "sqlite"


def _sqlite_file(url: str) -> Path:
    return Path(make_url(url).database or "")


def _copy_sqlite(source: Path, target: Path) -> None:
    if not source.is_file():
        raise DatabaseUnavailable(f"there is no database {source}", field="DATABASE_URL")
    try:
        with _opened(source) as there, closing(sqlite3.connect(target)) as copy:
            there.backup(copy, pages=_PAGES)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a log next to it
            if copy.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("the copy is not sound")
    except sqlite3.Error as error:
        said = said_of(error) or f"the database cannot be copied: {error}"
        raise DatabaseUnavailable(said, field="DATABASE_URL") from error


def _load_sqlite(source: Path, target: Path) -> None:
    make_private_file(target)
    try:
        with _opened(source) as backup, closing(sqlite3.connect(target, timeout=15)) as there:
            backup.backup(there)
    except sqlite3.Error as error:
        said = said_of(error) or f"{target} cannot be written: {error}"
        raise DatabaseUnavailable(said, field="DATABASE_URL") from error


def _sqlite_revision(source: Path) -> str:
    try:
        with _opened(source) as backup:
            if backup.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                raise InvalidInput(f"{source} is damaged", field="FILE")
            return str(backup.execute("SELECT version_num FROM alembic_version").fetchone()[0])
    except (sqlite3.Error, TypeError) as error:
        raise InvalidInput(f"{source} is not a backup of this service's SQLite database", field="FILE") from error


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=15)) as connection:
        yield connection


def _load_postgres(url: str, source: Path) -> None:
    options = ["--clean", "--if-exists", "--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error"]
    _tool(["pg_restore", *options, str(source)], url)


def _postgres_revision(source: Path) -> str:
    try:
        text = _run(["pg_restore", "--data-only", "--table=alembic_version", "--file=-", str(source)], {})
    except DatabaseUnavailable as error:
        raise InvalidInput(
            f"{source} is not a backup of this service's PostgreSQL: {error.detail}", field="FILE"
        ) from error
    found = _REVISION.search(text)
    if found is None:
        raise InvalidInput(f"{source} is a backup of another database", field="FILE")
    return found[1]


def _tool(words: list[str], url: str) -> None:
    """Run one of PostgreSQL's tools; the password goes into the environment, which `ps` does not show."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    stated = conninfo_to_dict(make_url(url).set(drivername="postgresql").render_as_string(hide_password=False))
    password = stated.pop("password", None)
    _run([*words, f"--dbname={make_conninfo('', **stated)}"], {"PGPASSWORD": str(password)} if password else {})


def _run(words: list[str], environment: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", env={**without_secrets(os.environ), **environment},
            timeout=_TOOL_SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        what = f"{words[0]} is not installed: install PostgreSQL's client programs, of the server's version or newer"
        raise DatabaseUnavailable(what) from error
    if done.returncode != 0:
        raise DatabaseUnavailable(f"{words[0]}: {' '.join(done.stderr.split())[-500:]}")
    return done.stdout
