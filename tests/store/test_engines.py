"""What every connection is told: how long it waits for others, and how long others wait for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sqlalchemy import Engine, text

from service.store.engines import make_engine

WAITS = {"lock_timeout": "15s", "idle_in_transaction_session_timeout": "30s", "jit": "off"}


def test_nobody_waits_for_ever_for_a_lock_nor_holds_one_for_ever_without_a_word(engine: Engine) -> None:
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            assert connection.scalar(text("PRAGMA busy_timeout")) == 15_000
        else:
            assert {name: connection.scalar(text(f"SHOW {name}")) for name in WAITS} == WAITS


def test_what_one_process_writes_is_kept_when_others_open_and_close_the_file(tmp_path: Path) -> None:
    file = tmp_path / "advisor.db"
    engine = make_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (n INTEGER)"))
    with engine.connect(), engine.connect():  # the second one is opened alongside the first
        pass
    other = (
        f"import sqlite3; c = sqlite3.connect({str(file)!r}); print(c.execute('SELECT count(*) FROM t').fetchone()[0])"
    )
    for n in range(3):
        with engine.begin() as connection:
            connection.execute(text("INSERT INTO t VALUES (1)"))
        seen = subprocess.run([sys.executable, "-c", other, str(file)], capture_output=True, text=True, check=True)
        assert seen.stdout.strip() == str(n + 1)
    engine.dispose()
