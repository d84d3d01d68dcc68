"""A Hub with a tiny model, and databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import database_url, postgres
from tests.end_to_end.stack import FILE, tiny_hub
from tests.local_hub import LocalHub

__all__ = ["database_url", "hub", "models", "postgres"]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that every machine has its models in."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def hub(models: Path) -> Iterator[LocalHub]:
    """A Hub whose one model lies in `models` too."""
    with tiny_hub(models / FILE) as found:
        yield found
