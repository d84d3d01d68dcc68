"""Every part of a service is killed and paused under load: nothing is lost, doubled, or stuck."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.chaos.campaign import campaign, lines

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(("together", "n"), [(False, 14), (True, 8)])
def test_blows_at_random_lose_nothing_double_nothing_and_leave_nothing_stuck(
    tmp_path: Path, together: bool, n: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = campaign(tmp_path, n, n * 7.0, 1, together=together)
    with capsys.disabled():
        print("\n" + "\n".join(lines(found)))
    assert found.wrong == []
    assert found.rows["runs"]["succeeded"] > 0
    assert found.rows["advices"]["ready"] > 0
