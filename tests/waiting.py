"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable

# Seconds after which a test gives up what should come at once. A busy machine is no fault, hence no test asserts that
# something is quick: it asserts that something ends that would else go on, and waits as long as this.
PATIENCE = 60.0


def wait_for(what: Callable[[], object], why: str | Callable[[], str]) -> None:
    """Return when `what` holds; fail after PATIENCE. `why`: what a failure shows; called then, if it is a function."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, why if isinstance(why, str) else why()
        time.sleep(0.02)
