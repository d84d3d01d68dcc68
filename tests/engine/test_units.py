from __future__ import annotations

import pytest

from service.engine.units import longer


@pytest.mark.parametrize(
    ("times", "words"),
    [(1.0, "as long"), (1.004, "as long"), (1.04, "4 % longer"), (1.3, "30 % longer"), (0.9, "10 % less time"),
     (1.5, "1.5 times as long"), (5.12, "5.1 times as long")],
)  # fmt: skip
def test_how_much_longer_is_never_one_time_as_long(times: float, words: str) -> None:
    assert longer(times) == words
