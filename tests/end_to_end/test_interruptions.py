"""Agents, worker, API and Valkey are killed in the middle of runs: nothing is lost, nothing counted twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.interruptions import campaign, lines

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


def test_random_interruptions_lose_nothing_and_count_nothing_twice(
    tmp_path: Path, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = campaign(tmp_path, 50 if database_url.startswith("sqlite") else 20, 1, DATABASE_URL=database_url)
    with capsys.disabled():
        print("\n" + "\n".join(lines(found)))
    assert found.wrong == []
    assert found.runs["succeeded"] > 0
