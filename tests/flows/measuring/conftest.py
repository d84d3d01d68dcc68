"""For tests of measurements, which read headers only to have an advice."""

from __future__ import annotations

import pytest

from service.flows.accounts import Caller
from service.flows.context import Context
from service.hub.cache import FileCache
from tests.hosts import caller


@pytest.fixture
def headers(kept_headers: FileCache) -> FileCache:
    return kept_headers


@pytest.fixture
def alice(context: Context) -> Caller:
    return caller(context)
