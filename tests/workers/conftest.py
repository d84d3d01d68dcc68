"""Worker processes as they are run, on a real database, a real Valkey and the local Hub."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil  # type: ignore[import-untyped]
import pytest

from service.flows.advise import read_advice
from service.flows.context import Context
from service.settings import Settings, as_environment
from service.wire.advice import Advice
from tests.databases import database_url, engine, postgres
from tests.flows.conftest import clock, context, hub, local_hub, session_hub, settings
from tests.valkeys import redis, valkey

__all__ = [
    "clock",
    "context",
    "database_url",
    "engine",
    "hub",
    "local_hub",
    "postgres",
    "redis",
    "session_hub",
    "settings",
    "valkey",
]

PATIENCE = 60.0


@contextmanager
def running_worker(settings: Settings, code: str | None = None) -> Iterator[psutil.Process]:
    """Run `python -m workers.run`, or `code` instead, with these settings."""
    command = [sys.executable, "-c", code] if code else [sys.executable, "-m", "workers.run"]
    process = subprocess.Popen(command, env={**os.environ, **as_environment(settings)})
    try:
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


def wait_for(what: Callable[[], bool], why: str) -> None:
    """Return when `what` holds."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.02)


def wait_until_final(context: Context, advice_id: str) -> Advice:
    """Return the advice when it is ready or failed."""
    wait_for(lambda: read_advice(context, advice_id).state in ("ready", "failed"), "the advice is not finished")
    return read_advice(context, advice_id)


@pytest.fixture
def worker(settings: Settings) -> Iterator[psutil.Process]:
    with running_worker(settings) as process:
        yield process
