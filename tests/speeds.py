"""Speeds and devices for tests."""

from __future__ import annotations

from service.engine.advice import DeviceMemory, SpeedPoint


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


def device(name: str, weights_mib: float) -> DeviceMemory:
    """Return a device that holds these weights and nothing else."""
    return DeviceMemory(
        device=name,
        gpu=None if name == "CPU" else "RTX 3090",
        weights_mib=weights_mib,
        kv_mib=0.0,
        compute_mib=0.0,
        output_mib=0.0,
        overhead_mib=0.0,
        total_mib=weights_mib,
        total_low_mib=weights_mib,
        total_high_mib=weights_mib,
        capacity_mib=24_576.0,
        reserve_mib=0.0,
        free_mib=24_576.0 - weights_mib,
        fits=True,
        basis="exact",
    )
