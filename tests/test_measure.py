"""Measuring a machine: real memory, and a driver in C that stands in for CUDA's."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from service import measure as measuring
from service.engine.hardware import Cpu, Gpu, Hardware, Ram

FIRST, SECOND = "GPU-10101010-1010-1010-1010-101010101010", "GPU-11111111-1111-1111-1111-111111111111"
DRIVER = Path(__file__).parent / "data" / "drivers" / "fake_cuda.c"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    library = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(DRIVER)], check=True)
    return str(library)


def test_ram_is_read_at_a_rate_that_a_machine_can_have() -> None:
    assert 0.2 < measuring.ram_read_gbs(2, 1.0) < 2000


def test_without_a_driver_no_link_is_measured() -> None:
    assert measuring.copy_gbs("no-such-driver.so") == {}


def test_a_card_is_known_by_its_uuid_and_one_that_fails_is_left_out(driver: str) -> None:
    rates = measuring.copy_gbs(driver)
    assert list(rates) == [FIRST]
    assert 0.1 < rates[FIRST] < 2000


def test_all_that_was_taken_of_the_driver_is_given_back(driver: str) -> None:
    measuring.copy_gbs(driver)
    assert ctypes.c_int.in_dll(ctypes.CDLL(driver), "live").value == 0


@pytest.mark.parametrize(
    ("gpus", "rates", "expected"),
    [([Gpu(name="RTX 3090", uuids=[FIRST]), Gpu(name="RTX 3060", uuids=[SECOND])], {FIRST: 25.1}, [25.1, None]),
     ([Gpu(name="RTX 3090", count=2, uuids=[FIRST, SECOND])], {FIRST: 25.1, SECOND: 6.4}, [6.4]),
     ([Gpu(name="RTX 3090", count=2)], {FIRST: 25.1, SECOND: 6.4}, [6.4]),
     ([Gpu(name="RTX 3090", count=2)], {FIRST: 25.1}, [None])],
)  # fmt: skip
def test_cards_of_one_entry_have_the_rate_of_the_slowest(
    gpus: list[Gpu], rates: dict[str, float], expected: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "copy_gbs", lambda: rates)
    monkeypatch.setattr(measuring, "ram_read_gbs", lambda n_threads, free_gb: 61.23)
    found = measuring.measure(Hardware(gpus=gpus, cpu=Cpu(physical_cores=8), ram=Ram(total_gb=64)))
    assert [gpu.measured_copy_gbs for gpu in found.gpus] == expected
    assert found.ram == Ram(total_gb=64, measured_bandwidth_gbs=61.2)
