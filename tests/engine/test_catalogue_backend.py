"""The back end that drives the cards is a fact of the hardware: stated, or that of their maker, said aloud."""

from __future__ import annotations

import pytest

from service.engine.catalogue import engine_devices, resolve
from service.engine.errors import InvalidHardware
from service.engine.hardware import Backend, Gpu, Hardware


def _machine(name: str, backend: Backend | None = None) -> Hardware:
    return Hardware(gpus=[Gpu(name=name)], backend=backend)


@pytest.mark.parametrize(
    ("name", "own", "device"),
    [
        ("AMD Radeon RX 7900 XTX", "rocm", "ROCm0"),
        ("Intel Arc B580", "sycl", "SYCL0"),
        ("NVIDIA GeForce RTX 4090", "cuda", "CUDA0"),
    ],
)
def test_a_card_is_driven_by_its_maker_s_back_end_or_by_vulkan(name: str, own: str, device: str) -> None:
    rig, vulkan = resolve(_machine(name)), resolve(_machine(name, "vulkan"))
    assert (rig.cards[0].backend, vulkan.cards[0].backend) == (own, "vulkan")
    assert engine_devices(rig, "llama.cpp", (0,))[0].name == device
    assert engine_devices(vulkan, "llama.cpp", (0,))[0].name == "Vulkan0"


def test_an_assumed_back_end_of_amd_is_said() -> None:
    said = {a.field: a.value for a in resolve(_machine("AMD Radeon RX 7900 XTX")).assumed}
    assert said["hardware.backend"] == "rocm"
    stated = resolve(_machine("AMD Radeon RX 7900 XTX", "rocm")).assumed
    assert "hardware.backend" not in {a.field for a in stated}


def test_a_back_end_that_cannot_drive_the_card_is_refused() -> None:
    with pytest.raises(InvalidHardware, match="rocm or vulkan") as refused:
        resolve(_machine("AMD Radeon RX 7900 XTX", "cuda"))
    assert refused.value.field == "hardware.backend"
