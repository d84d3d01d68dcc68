"""For all tests."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# No deadline and no check of slowness: tests of hostile text bound time themselves, and a busy machine alone must not
# fail a test. The same examples every time, so that a change is judged by what it changes; `make soak` looks for new
# ones. A quarter of them in every run, all of them in the full one (`--hypothesis-profile=thorough`).
_EVERY = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", _EVERY, max_examples=25)
settings.register_profile("thorough", _EVERY, max_examples=100)
settings.load_profile("quick")
# Else the constants in the source of every module that is loaded when a property begins are tried as examples too:
# others in each order of the tests, and parsing the source takes three seconds of each process in a fresh clone.
# Hypothesis has no setting for it: a version that calls it otherwise ends the session here, and changes no examples.
pytest.MonkeyPatch().setattr(providers, "_get_local_constants", lambda: providers._local_constants)

# Collecting cycles costs a third of the time of an advice, which is why a worker does it not at all while it computes
# one. A session of tests lives longer and does it seldom: first among the last million objects, some 100 MB. Nearly all
# of what lives as long stays for long: looking at it once for each hundred thousand took twice the time.
gc.set_threshold(1_000_000, 1, 1)
gc.disable()  # until the tests are collected: what is loaded for them stays


def pytest_collection_finish() -> None:
    """Let no collection look at the modules and the tests themselves, which live as long as the session."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Leave how many passed and failed in the folder that `.ci/run` sums up."""
    folder = os.environ.get("TEST_COUNTS")
    if folder and "PYTEST_XDIST_WORKER" not in os.environ:  # a worker's tests are its controller's, too
        passed, failed, errors = (len(terminalreporter.getreports(kind)) for kind in ("passed", "failed", "error"))
        # What is run again because it failed was counted as failed before.
        failed = -passed if terminalreporter.config.getoption("lf") else failed + errors
        Path(folder, f"pytest-{os.getpid()}").write_text(f"{passed} {failed}\n")
