"""The whole service as its operator starts it, on a free port, reading the local Hub."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from service.settings import Settings, as_environment

_START = """
import os
from service.serve import serve
from service.settings import load_settings
serve(load_settings(os.environ))
"""


@contextmanager
def running_service(state_dir: Path, hf_endpoint: str) -> Iterator[httpx.Client]:
    """Run API, one worker and an embedded Valkey for the length of the block; the value is a client of the API."""
    settings = Settings(
        state_dir=state_dir,
        hf_endpoint=hf_endpoint,
        port=0,
        workers=1,
        requests_per_minute=10_000,
        new_repos_per_hour=10_000,
    )
    with subprocess.Popen(
        [sys.executable, "-c", _START],
        env={**os.environ, **as_environment(settings)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout
            line = process.stdout.readline()
            assert line.startswith("Listening on "), line
            with httpx.Client(base_url=line.split()[-1], trust_env=False, timeout=60) as client:
                yield client
        finally:
            process.terminate()
            process.wait(30)
