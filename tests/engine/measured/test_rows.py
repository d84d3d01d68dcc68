"""Speeds are computed from raw times."""

import pytest

from service.engine.measured.rows import MeasuredRow


def test_speeds_come_from_the_raw_times_of_each_repeat() -> None:
    row = MeasuredRow(n_kv=4096, n_prompt=512, n_gen=128, pp_seconds=(0.5, 0.256), tg_seconds=(8.0,))
    assert row.pp_tps == (1024.0, 2000.0)
    assert row.tg_tps == (16.0,)


@pytest.mark.parametrize(("seconds", "shown"), [(1e-9, "1e-09"), (90_000.0, "90000")])
def test_impossible_times_are_named_with_what_is_possible(seconds: float, shown: str) -> None:
    with pytest.raises(ValueError, match=f"64 tokens in {shown} seconds is impossible") as refused:
        MeasuredRow(n_kv=0, n_gen=64, tg_seconds=(2.0, seconds))
    assert "at most 86,400 seconds, and under 1,000,000 tokens a second" in str(refused.value)
