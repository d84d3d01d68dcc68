"""For all tests."""

from __future__ import annotations

from hypothesis import settings

# No deadline: the tests of hostile text bound time themselves, and a busy machine alone must not fail a test. The same
# examples every time, so that a change is judged by what it changes; `make soak` looks for new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
