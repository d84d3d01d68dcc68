"""Speeds for tests."""

from __future__ import annotations

from service.engine.advice import SpeedPoint


def point(n_kv: int, pp: float, tg: float, factor: float = 1.1) -> SpeedPoint:
    """Return a speed at a depth whose interval goes from a `factor` below to one above."""
    return SpeedPoint(
        n_kv=n_kv,
        pp_tps=pp,
        pp_low=pp / factor,
        pp_high=pp * factor,
        tg_tps=tg,
        tg_low=tg / factor,
        tg_high=tg * factor,
        basis="formula",
    )
