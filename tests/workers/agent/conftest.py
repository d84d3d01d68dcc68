"""A service for the agent to call, and a check that nothing of a run is left."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from tests.workers.agent.fake_service import FakeService, fake_service
from workers.agent import process
from workers.agent.leftovers import MARK, new_mark


@pytest.fixture
def service() -> Iterator[FakeService]:
    with fake_service() as service:
        yield service


@pytest.fixture
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hold a test to leaving no process of any run of its own."""
    marks: list[str] = []

    def noted_mark() -> str:
        marks.append(new_mark())
        return marks[-1]

    monkeypatch.setattr(process, "new_mark", noted_mark)
    yield
    assert not [one.pid for one in psutil.process_iter() if _mark(one) in marks]


def _mark(one: psutil.Process) -> str | None:
    try:
        return one.environ().get(MARK) if one.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None
