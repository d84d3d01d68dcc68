"""For all tests."""

from __future__ import annotations

import gc

from hypothesis import settings

# No deadline: the tests of hostile text bound time themselves, and a busy machine alone must not fail a test. The same
# examples every time, so that a change is judged by what it changes; `make soak` looks for new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

# Collecting cycles costs a third of the time of an advice, which is why a worker does it not at all while it computes
# one. A session of tests lives longer and does it seldom.
gc.set_threshold(100_000, 20, 50)


def pytest_collection_finish() -> None:
    """Let no collection look again at the modules and the tests themselves, which live as long as the session."""
    gc.collect()
    gc.freeze()
