"""For tests of results, which read headers only to have predictions."""

from __future__ import annotations

import pytest

from service.hub.cache import FileCache


@pytest.fixture
def headers(kept_headers: FileCache) -> FileCache:
    return kept_headers
