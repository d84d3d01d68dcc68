"""The back end that drives the cards: read from words and from what a build prints, and part of the machine."""

from __future__ import annotations

import pytest

from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.form import hardware_hash, to_shorthand


@pytest.mark.parametrize(
    ("text", "backend", "notes"),
    [
        ("7900 XTX on Vulkan, Ryzen 7950X, 64 GB DDR5", "vulkan", None),
        ("R9700 (Vulkan 1.4), 64GB ram", "vulkan", None),
        ("RTX 3090 with the Vulkan backend, 64GB", "vulkan", None),
        ("2x MI50 32GB, HIP build, 256 GB", "rocm", None),
        ("2x MI50 32GB ROCm 6.3, 256 GB", "rocm", None),
        ("Framework Desktop Ryzen AI Max+ 395 128GB, backend rocm", "rocm", None),
        ("RX 7900 XTX, ROCm not working, 64GB", None, "ROCm not working"),
        ("RTX 3090, no vulkan, 32GB", None, "no; vulkan"),
    ],
)
def test_what_drives_the_cards_is_read(text: str, backend: str | None, notes: str | None) -> None:
    found = parse_hardware(text)
    assert (found.backend, found.notes) == (backend, notes)


def test_a_stated_back_end_is_part_of_the_machine() -> None:
    stated = parse_hardware("7900 XTX on Vulkan, 64 GB")
    assert parse_hardware(to_shorthand(stated)).backend == "vulkan"
    assert hardware_hash(stated) != hardware_hash(parse_hardware("7900 XTX, 64 GB"))


def test_what_a_vulkan_build_prints_says_what_drives_the_cards() -> None:
    text = "ggml_vulkan: Found 1 Vulkan devices:\nggml_vulkan: 0 = AMD Radeon RX 7900 XTX (RADV NAVI31) (radv) | uma: 0"
    assert parse_hardware(text).backend == "vulkan"
