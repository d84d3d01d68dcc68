"""Depth, memory and platform classes: measured figures only, and never of another depth."""

import pytest

from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.measured.classes import platform_of, ram_class, speeds_by_depth, vram_class
from service.engine.measured.rows import MeasuredRow


def row(n_kv: int, pp: float | None = None, tg: float | None = None, n_prompt: int = 512) -> MeasuredRow:
    return MeasuredRow(
        n_kv=n_kv,
        n_prompt=n_prompt if pp else 0,
        n_gen=128 if tg else 0,
        pp_seconds=(n_prompt / pp,) if pp else (),
        tg_seconds=(128 / tg,) if tg else (),
    )


def test_a_sweep_gives_a_speed_at_each_class_that_it_reaches() -> None:
    found = speeds_by_depth([row(n, pp=1000 - n / 100, tg=50 - n / 1000) for n in range(0, 20_000, 2048)])
    assert [(one.depth, one.tg_tps) for one in found] == [(0, 50.0), (4096, 45.904), (16384, 33.616)]


def test_nothing_is_interpolated_or_taken_from_another_depth() -> None:
    assert speeds_by_depth([row(2000, tg=40), row(8000, tg=30)]) == []
    assert [one.depth for one in speeds_by_depth([row(3500, tg=40)])] == [4096]


def test_phases_are_measured_apart_and_the_largest_prompt_counts() -> None:
    found = speeds_by_depth([row(0, pp=300, n_prompt=64), row(0, pp=900, n_prompt=2048), row(0, pp=400), row(0, tg=20)])
    assert [(one.depth, one.tg_tps, one.pp_tps) for one in found] == [(0, 20.0, 900.0)]


@pytest.mark.parametrize(("mib", "expected"), [(0, 0), (24_564, 24), (49_140, 48), (57_344, 64), (10**7, 1024)])
def test_cards_together_are_of_the_first_class_that_holds_them(mib: int, expected: int) -> None:
    assert vram_class(mib) == expected


def test_unknown_memory_is_a_class_of_its_own() -> None:
    assert (ram_class(None), ram_class(62.7), ram_class(768), ram_class(9000)) == (0, 64, 768, 2048)


@pytest.mark.parametrize(
    ("cpu", "channels", "expected"),
    [
        ("AMD Ryzen 9 7950X", None, "desktop"),
        ("AMD EPYC 9355", None, "server"),
        ("AMD EPYC 9355", 4, "workstation"),
        (None, None, "unknown"),
    ],
)
def test_a_platform_is_known_by_its_channels(cpu: str | None, channels: int | None, expected: str) -> None:
    machine = Hardware(gpus=[Gpu(name="RTX 3090")], cpu=Cpu(model=cpu), ram=Ram(channels=channels))
    assert platform_of(machine) == expected
    assert platform_of(None) == "unknown"
