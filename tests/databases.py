"""Real databases for tests: a fresh SQLite file, and (in the full run) a fresh database of a PostgreSQL server of ours.

The server listens on a unix socket only. `initdb` and `postgres` refuse root, so root starts them as another user.
"""

from __future__ import annotations

import glob
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import Engine, event

from service.store.engines import make_engine
from service.store.migrations import migrate

_UNPRIVILEGED = 65534


def _program(name: str) -> str:
    found = [*sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}")), shutil.which(name)]
    path = found[0]
    if path is None:
        pytest.fail(f"no PostgreSQL: {name} is neither under /usr/lib/postgresql nor on PATH; install `postgresql`")
    return path


def _prefix() -> list[str]:
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={_UNPRIVILEGED}", f"--regid={_UNPRIVILEGED}", "--clear-groups", "--pdeathsig", "QUIT"]


def initialise(folder: Path) -> None:
    """Make the files of a PostgreSQL server in `folder`, which becomes its user's."""
    if os.geteuid() == 0:
        os.chown(folder, _UNPRIVILEGED, _UNPRIVILEGED)
    options = ["-D", f"{folder}/data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
    subprocess.run([*_prefix(), _program("initdb"), *options], check=True, capture_output=True, cwd=folder)


def postgres_command(folder: Path) -> tuple[str, ...]:
    """Return the words that start the server of `folder` in the foreground, on a unix socket there and nowhere else."""
    options = ("-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off", "-c", "timezone=Asia/Tokyo")
    return (*_prefix(), _program("postgres"), "-D", f"{folder}/data", *options)


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a PostgreSQL server; the value is the folder of its socket."""
    folder = tempfile.mkdtemp(prefix="pg-")
    initialise(Path(folder))
    with Path(folder, "log").open("wb") as log:
        server = subprocess.Popen(postgres_command(Path(folder)), cwd=folder, stderr=log)
    try:
        _wait_until_ready(folder, server)
        yield folder
    finally:
        server.send_signal(signal.SIGINT)  # at once, also with clients connected
        server.wait(20)
        shutil.rmtree(folder)


def _wait_until_ready(folder: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            psycopg.connect(host=folder, user="postgres", dbname="postgres").close()
            return
        except psycopg.OperationalError:
            assert server.poll() is None, Path(folder, "log").read_text()
            assert time.monotonic() < deadline, Path(folder, "log").read_text()
            time.sleep(0.05)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The socket folder of the session's PostgreSQL server."""
    with postgres_server() as folder:
        yield folder


BOTH = ("sqlite", pytest.param("postgresql", marks=pytest.mark.full))


@pytest.fixture(params=BOTH)
def database_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of an empty database, of each kind in turn; of SQLite always the same, for what its engine compiled.

    A test that asks for `engine` too has the present tables in it.
    """
    folder = tmp_path_factory.getbasetemp() / "database"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if request.param == "postgresql" and "engine" in request.fixturenames:
        folder_of_socket = request.getfixturevalue("postgres")
        return new_database(folder_of_socket, template=_database_with_tables(folder_of_socket))
    return empty_database(request, folder)


def empty_database(request: pytest.FixtureRequest, folder_for_sqlite: Path) -> str:
    """Return the URL of an empty database of the kind that is the fixture's parameter."""
    if request.param == "sqlite":
        return f"sqlite:///{folder_for_sqlite}/advisor.db"
    return new_database(request.getfixturevalue("postgres"))


def new_database(folder: str, template: str = "template1") -> str:
    """Return the URL of a copy of `template` on the PostgreSQL server whose socket is in `folder`."""
    name = f"test_{uuid4().hex}"
    with psycopg.connect(host=folder, user="postgres", dbname="postgres", autocommit=True) as connection:
        # Copied by files, else page by page through the log, which takes twice the time.
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
    return f"postgresql://postgres@/{name}?host={folder}"


@cache
def _database_with_tables(folder: str) -> str:
    """The name of a database that was migrated once, which takes longer than most tests."""
    url = new_database(folder)
    made = make_engine(url)
    migrate(made)
    made.dispose()
    return str(made.url.database)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on a database with the present tables."""
    with engine_with_tables(database_url) as made:
        yield made


@contextmanager
def engine_with_tables(url: str) -> Iterator[Engine]:
    """Give an empty database the present tables; the value is an engine on it, which is disposed of at the end."""
    made = _engine_of(url)
    try:
        if made.url.database and made.dialect.name == "sqlite":
            write_tables(Path(made.url.database))
        else:
            migrate(made)
        yield made
    finally:
        made.dispose()


@lru_cache(maxsize=4)
def _engine_of(url: str) -> Engine:
    """An engine, with the statements that it compiled: that takes a sixth of the time of tests of flows."""
    made = make_engine(url)
    if made.dialect.name == "sqlite":  # no test looks at a database after the machine has lost its power
        event.listen(made, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    return made


def write_tables(path: Path) -> None:
    """Write an SQLite database with the present tables, and nothing in them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_file_with_tables())


@cache
def _file_with_tables() -> bytes:
    """An SQLite file that was migrated once: making the tables takes longer than most tests."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "advisor.db")
        made = make_engine(f"sqlite:///{path}")
        migrate(made)
        made.dispose()
        return path.read_bytes()
