"""Worker processes as they are run, on a real database, a real Valkey and the local Hub."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from service.flows.advice.advise import read_advice
from service.flows.context import Context
from service.settings import Settings, as_environment
from service.wire.advice.advice import Advice
from tests.databases import database_url, engine, postgres
from tests.flows.conftest import clock, context, headers, hub, local_hub, session_hub, settings
from tests.valkeys import redis, valkey
from tests.waiting import wait_for

__all__ = [
    "clock",
    "context",
    "database_url",
    "engine",
    "headers",
    "hub",
    "local_hub",
    "postgres",
    "redis",
    "session_hub",
    "settings",
    "valkey",
]


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


def wait_until_final(context: Context, advice_id: str) -> Advice:
    """Return the advice when it is ready or failed."""
    wait_for(lambda: read_advice(context, advice_id).state in ("ready", "failed"), "the advice is not finished")
    return read_advice(context, advice_id)


@pytest.fixture
def worker(settings: Settings) -> Iterator[psutil.Process]:
    with running_worker(settings) as process:
        yield process
