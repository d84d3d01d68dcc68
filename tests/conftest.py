"""For all tests."""

from __future__ import annotations

from hypothesis import settings

# The tests of hostile text bound time themselves, generously; a busy machine alone must not fail a test.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
