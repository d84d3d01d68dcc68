"""Speeds are computed from raw times."""

from service.engine.measured.rows import MeasuredRow


def test_speeds_come_from_the_raw_times_of_each_repeat() -> None:
    row = MeasuredRow(n_kv=4096, n_prompt=512, n_gen=128, pp_seconds=(0.5, 0.256), tg_seconds=(8.0,))
    assert row.pp_tps == (1024.0, 2000.0)
    assert row.tg_tps == (16.0,)
