"""Figures in descriptions that could be taken for others: threads, clocks, displayed sizes, shares of one memory."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.errors import InvalidHardware
from service.engine.hardware import Hardware
from service.engine.hardware_text import parse_hardware


def ram_of(text: str) -> float | None:
    ram = parse_hardware(text).ram
    return ram.total_gb if ram else None


def rate_of(text: str) -> int | None:
    ram = parse_hardware(text).ram
    return ram.mts if ram else None


def cards_of(hardware: Hardware) -> list[tuple[str, int, float | None]]:
    return [(gpu.name, gpu.count, gpu.vram_gib) for gpu in hardware.gpus]


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("Intel® Core™ i5-7600K CPU @ 3.80GHz × 4, 16Gb ram, GTX 1080", 4),  # ggml-org/llama.cpp/issues/13
        ("RTX 3090, i7-8700 × 12, 32 GB", 6),
        ("RTX 3090, CPU: 16 x AMD Ryzen 7 5800X, 32 GB", 8),
    ],
)
def test_a_number_with_a_desktops_cpu_counts_its_threads(text: str, cores: int) -> None:
    assert resolve(parse_hardware(text)).physical_cores == cores


@pytest.mark.parametrize("text", ["RTX 3090, i7-8700 x2, 32GB RAM", "RTX 3090, 4x Ryzen 9 5950X, 64GB RAM"])
def test_several_desktop_cpus_are_asked_about(text: str) -> None:
    with pytest.raises(InvalidHardware, match="no board has"):
        parse_hardware(text)


@pytest.mark.parametrize(
    "text",
    [
        "RTX 4090, 2 CPUs Xeon Gold 6330, 512GB",
        "RTX 4090, Xeon Gold 6330, 2 CPUs, 512GB",
        "cpu: Intel(R) Xeon(R) Gold 6330 CPU @ 2.00GHz  ，2T的内存 ，2个物理cpu, L40",  # ktransformers/issues/824
        "RTX 4090, Intel(R) Xeon(R) Gold 6330 CPU @ 2.70GHz， Core(s) per socket: 28，Socket(s): 2, 512GB",
        "dual socket Intel Xeon Scalable 3rd gen 6330 x2, 4090",  # ktransformers/issues/1102, of another generation
    ],
)
def test_two_processors_are_read_however_they_are_counted(text: str) -> None:
    rig = resolve(parse_hardware(text))
    assert (rig.cpu_model, rig.physical_cores) == ("Intel Xeon Gold 6330", 56)


def test_a_xeon_e5_without_version_is_asked_about_where_ddr4_rules_out_the_first() -> None:
    with pytest.raises(InvalidHardware, match="E5-2666 v3"):  # techjarves/USB-Uncensored-LLM/issues/1
        parse_hardware("I have 64 gigs of DDR4 Ram and a Intel Xeon E5-2666.")
    assert resolve(parse_hardware("3090, dual E5-2690, 128GB DDR3")).cpu_generation == "sandy bridge"
    assert resolve(parse_hardware("3090, E5-2690 v4, 128GB DDR4")).cpu_model == "Intel Xeon E5-2690 v4"


@pytest.mark.parametrize(
    ("text", "mts"),
    [
        ("32.0GB Dual-Channel DDR4 @ 1600MHz (16-18-18-36), RTX 2080 Ti", 3200),  # Speccy
        ("RTX 3060, Ryzen 5600, 32GB DDR4 1800MHz", 3600),
        ("RTX 3060, Ryzen 7600, 32GB DDR5 @ 3000 MHz", 6000),
        ("RTX 3060, i7-3770, 16GB DDR3 800MHz", 1600),
        ("RTX 3060, Ryzen 5600, 32GB DDR4 3200MHz", 3200),
        ("RTX 3060, E5-2620 v3, 32GB DDR4 1866MHz", 1866),
        ("RTX 3060, Ryzen 5600, 32GB DDR4-1600", 1600),
    ],
)
def test_megahertz_that_no_module_transfers_at_are_the_clock(text: str, mts: int) -> None:
    assert rate_of(text) == mts


@pytest.mark.parametrize(
    ("text", "gb"),
    [
        ("Strix Halo, 64GB RAM, 64GB VRAM", 128),
        ("Ryzen AI Max+ 395, 32GB RAM 96GB VRAM", 128),
        # lmstudio-ai/lmstudio-bug-tracker/issues/935
        ("I have a bosgame m5, and it by default allocates 64GB to RAM and 64GB to VRAM.", 128),
        ("Strix Halo 128GB, 96GB VRAM", 128),
    ],
)
def test_the_shares_of_one_memory_are_added_up(text: str, gb: float) -> None:
    assert ram_of(text) == gb


@pytest.mark.parametrize(
    ("text", "gb"),
    [("RTX 3090, i7-8700, 31,2 GiB", 31.2), ("RTX 4070, 62.7 GiB", 62.7), ("RTX 3060, 15.4GB", 15.4)],
)
def test_memory_as_a_system_displays_it_needs_no_label(text: str, gb: float) -> None:
    assert ram_of(text) == gb


def test_memory_that_may_be_the_cards_does() -> None:
    with pytest.raises(InvalidHardware, match="is it the RAM"):
        parse_hardware("RTX 5060 Ti, 15.9GB")


@pytest.mark.parametrize(
    ("text", "card"),
    [  # unslothai/unsloth/issues/1775 and 338
        (
            "GPU: NVIDIA GeForce RTX 2080 Ti. Max memory: 22.0 GB. Platform: Windows.\n"
            "Torch: 2.6.0+cu124. CUDA: 7.5. CUDA Toolkit: 12.4. Triton: 3.1.0\n"
            "Bfloat16 = FALSE. FA [Xformers = 0.0.29.post3. FA2 = False]",
            ("NVIDIA GeForce RTX 2080 Ti", 1, 22.0),
        ),
        (
            "GPU = NVIDIA RTX 6000 Ada Generation. Max memory = 47.988 GB.\n6.135 GB of memory reserved.",
            ("NVIDIA RTX 6000 Ada Generation", 1, 47.988),
        ),
        ("Tesla T4. Num GPUs = 1. Max memory: 14.748 GB. Platform: Linux.", ("Tesla T4", 1, 14.748)),
    ],
)
def test_the_memory_that_unsloth_prints_is_the_cards(text: str, card: tuple[str, int, float]) -> None:
    hardware = parse_hardware(text)
    assert cards_of(hardware) == [card]
    assert hardware.ram is None


@pytest.mark.parametrize(
    "text",
    [
        "GPU 0: RTX 5090, GPU 1: Radeon RX 6800, 64GB",
        "GPU 0: RTX 5090\nGPU 1: Radeon RX 6800, 64GB",
        "5090, RX 6800, Windows 11 x64, 64GB",
        "5090, RX 6800, 64GB DDR4 X570 motherboard",
        "5090, RX 6800, Intel64 Family 6 Model 158 Stepping 10, GenuineIntel, 64GB",
        "5090, RX 6800, 9950X with 360 AIO cooler, 64GB",
        "5090, RX 6800, 64GB RAM (about 5 to 8 seconds before responses)",
        "5090, RX 6800, 64GB, DELL S2716DG (2560x1440@144Hz)",
        "5090\t41 °C, RX 6800, Coffee Lake 14nm Technology, 64GB",
    ],
)
def test_what_stands_beside_the_memory_does_not_hide_it(text: str) -> None:
    hardware = parse_hardware(text)
    assert [card.name for card in resolve(hardware).cards] == ["NVIDIA GeForce RTX 5090", "AMD Radeon RX 6800"]
    assert hardware.ram is not None
    assert hardware.ram.total_gb == 64


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Apple M2 Max (Mac14,13) - Mac Studio\n12CPU/30GPU/32GB RAM/512GB SSD", "Apple M2 Max 30-core GPU"),
        ("M1 Max 10c/24c 32GB", "Apple M1 Max 24-core GPU"),
        ("M1 Max 24c 32GB", "Apple M1 Max 24-core GPU"),
        ("M2 Pro (12 (8 performance and 4 efficiency) Cores, 32GB RAM,  19 GPU Cores)", "Apple M2 Pro"),
    ],
)
def test_the_cores_of_an_apple_chip_are_read_in_short(text: str, name: str) -> None:
    hardware = parse_hardware(text)
    assert [card.name for card in resolve(hardware).cards] == [name]
    assert hardware.ram is not None
    assert hardware.ram.total_gb == 32
