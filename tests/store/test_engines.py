"""What every connection is told: how long it waits for others, and how long others wait for it."""

from __future__ import annotations

from sqlalchemy import Engine, text

WAITS = {"lock_timeout": "15s", "idle_in_transaction_session_timeout": "30s", "jit": "off"}


def test_nobody_waits_for_ever_for_a_lock_nor_holds_one_for_ever_without_a_word(engine: Engine) -> None:
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            assert connection.scalar(text("PRAGMA busy_timeout")) == 15_000
        else:
            assert {name: connection.scalar(text(f"SHOW {name}")) for name in WAITS} == WAITS
