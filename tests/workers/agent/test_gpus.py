"""NVIDIA's cards as their driver's library tells of them, and a machine that has none."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pynvml
import pytest

from service.engine.hardware import Gpu
from tests.workers.agent.scripted_gpus import FakeNvml
from workers.agent.local import LocalGpu
from workers.agent.probe import GpuNow, GpuProcess, Nvidia, open_gpus

DRIVER = Path(__file__).parents[2] / "data" / "drivers" / "fake_nvml.c"


def test_a_machine_without_the_driver_or_without_cards_has_none_to_watch() -> None:
    for nvml in (FakeNvml(has_driver=False), FakeNvml(count=0)):
        gpus = open_gpus(nvml)
        assert (gpus.cards(), gpus.now([0])) == ((), ())


def test_cards_are_told_without_what_tells_one_from_another() -> None:
    (first, told), (second, _) = open_gpus(FakeNvml()).cards()
    assert (first.index, second.index, first.total) == (0, 1, 24564 << 20)
    assert first.uuid == "GPU-1d3f2c5a-0000-4000-8000-000000000000"
    assert (told.name, told.vram_gib, told.pcie, told.display, told.nvlink) == (
        "NVIDIA GeForce RTX 4090", 23.99, "4.0 x16", True, None,
    )  # fmt: skip
    assert (told.uuids, told.pci_order, told.count) == (None, None, 1)


def test_a_moment_of_a_card() -> None:
    (now,) = open_gpus(FakeNvml()).now([1])
    assert (now.used, now.temperature, now.watts) == (512 << 20, 55, 123.456)
    assert now.processes == (
        GpuProcess(pid=77, is_compute=True, used=500 << 20),
        GpuProcess(pid=78, is_compute=False, used=None),
    )


def test_what_an_old_driver_or_card_does_not_tell_is_not_known() -> None:
    missing = [name for name in vars(FakeNvml) if name.startswith("nvmlDeviceGet") and name not in _NEEDED]
    gpus = open_gpus(FakeNvml(missing=missing))
    ((card, told), _) = gpus.cards()
    assert (card.uuid, told.pcie, told.display) == (None, None, None)
    (now,) = gpus.now([1])
    assert (now.processes, now.temperature, now.watts) == ((), None, None)


def test_a_card_that_fell_off_the_bus_is_left_out() -> None:
    gpus = Nvidia(FakeNvml(missing=["nvmlDeviceGetHandleByIndex"]))
    assert (gpus.cards(), gpus.now([0, 1])) == ((), ())


_NEEDED = {"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo"}


@pytest.mark.parametrize("name", [name for name in vars(FakeNvml) if name.startswith(("nvml", "NVML"))])
def test_the_library_has_every_function_that_is_used_of_it(name: str) -> None:
    assert hasattr(pynvml, name)
    stand_in = getattr(FakeNvml, name)
    if callable(stand_in) and name != "NVMLError":
        wanted = list(inspect.signature(stand_in).parameters)[1:]
        assert len(inspect.signature(getattr(pynvml, name)).parameters) >= len(wanted)


_LOOK = """
import msgspec
from workers.agent.probe import open_gpus
gpus = open_gpus()
print(msgspec.json.encode([gpus.cards(), gpus.now([0, 1])]).decode())
"""


def test_cards_are_read_of_the_drivers_own_library(tmp_path: Path) -> None:
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(DRIVER)], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", _LOOK], env=environment, capture_output=True, check=True)
    cards, (first, second) = msgspec.json.decode(
        done.stdout, type=tuple[list[tuple[LocalGpu, Gpu]], tuple[GpuNow, GpuNow]]
    )
    assert [card.uuid for card, _ in cards] == [f"GPU-1d3f2c5a-0000-4000-8000-00000000000{i}" for i in (0, 1)]
    assert [(told.name, told.vram_gib, told.pcie, told.display) for _, told in cards] == [
        ("NVIDIA GeForce RTX 4090", 23.99, "4.0 x16", True),
        ("NVIDIA GeForce RTX 4090", 23.99, "4.0 x16", None),
    ]
    assert (first.used, first.temperature, first.watts) == (512 << 20, 55, 123.456)
    assert first.processes == (GpuProcess(pid=78, is_compute=False, used=None),)
    assert second.processes[0] == GpuProcess(pid=77, is_compute=True, used=1 << 30)
