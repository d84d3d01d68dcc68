"""Machines at home as their owners write them: office PCs, laptops, mini PCs, Radeon and Arc cards, Windows."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.hardware import NO_GPU_NAMED
from service.engine.hardware_text import parse_hardware


@pytest.mark.parametrize(
    ("text", "channels"),
    [
        ("i5-8500, 16GB single channel", 1),
        ("i5-8500, 16GB DDR4-2666 single-channel", 1),
        ("i5-8500, 16GB (single)", 1),
        ("i5-8500, 16GB DDR4-2666 single, no GPU", 1),
        ("i5-8500, 16G 单通道内存", 1),
        ("Xeon X5675, 24GB DDR3 triple channel", 3),
        ("i5-8500, 16GB dual channel", 2),
    ],
)
def test_one_channel_in_words_is_counted(text: str, channels: int) -> None:
    ram = parse_hardware(text).ram
    assert ram is not None
    assert ram.channels == channels


@pytest.mark.parametrize(
    "words",
    [
        "no graphics card",
        "no dedicated graphics",
        "without a graphics card",
        "no video card",
        "ohne Grafikkarte",
        "keine dedizierte GPU",
        "keine Grafikkarte",
        "sans carte graphique",
        "sin tarjeta gráfica",
        "无独显",
        "没有独立显卡",
        "没有显卡",
    ],
)
def test_that_there_is_no_card_is_understood_in_other_words(words: str) -> None:
    hardware = parse_hardware(f"i5-8500, 16GB, {words}")
    assert hardware.gpus == []
    assert NO_GPU_NAMED not in (hardware.notes or "")


def test_a_card_that_is_not_in_use_for_something_else_is_still_there() -> None:
    assert [gpu.name for gpu in parse_hardware("RTX 3060, i5-8500, 16GB, no graphics on the CPU").gpus] == ["RTX 3060"]


@pytest.mark.parametrize(
    "shown",
    [
        "32,0 GB (27,6 GB verwendbar)",  # German
        "32,0 Go (27,6 Go utilisable)",  # French
        "32,0 GB (27,6 GB utilizable)",  # Spanish
        "32,0 GB (27,6 GB utilizzabile)",  # Italian
        "32,0 GB (utilizável: 27,6 GB)",  # Portuguese
        "32,0 GB (dostępne: 27,6 GB)",  # Polish
        "32.0 GB (27.6 GB 可用)",
    ],
)
def test_what_windows_calls_usable_is_no_second_size_in_any_language(shown: str) -> None:
    page = (
        "Gerätename\tLAPTOP-7HQ\nProzessor\tAMD Ryzen AI 9 HX 370 w/ Radeon 890M            2.00 GHz\n"
        f"Installierter RAM\t{shown}\nGrafikkarte\tAMD Radeon(TM) 890M Graphics (4 GB)\nEdition\tWindows 11 Home\n"
    )
    hardware = parse_hardware(page)
    assert [card.name for card in resolve(hardware).cards] == ["AMD Radeon 890M"]
    assert hardware.ram is not None
    assert hardware.ram.total_gb == 32


@pytest.mark.parametrize(
    ("text", "gpu", "count", "gb"),
    [
        ("R9700 AI PRO 32GB x2", "AMD Radeon AI PRO R9700", 2, 32),
        ("r9700 ai pro 32gb x2, 64GB RAM", "AMD Radeon AI PRO R9700", 2, 32),
        ("b60 pro 24gb x4", "Intel Arc Pro B60", 4, 24),
        ("4x arc b60 pro 24gb", "Intel Arc Pro B60", 4, 24),
        ("rtx 3090 turbo 24gb x2", "NVIDIA GeForce RTX 3090", 2, 24),
        ("RTX 3090 Gaming OC 24GB x4, 128GB", "NVIDIA GeForce RTX 3090", 4, 24),
        ("rx 580 nitro+ 8gb x2, 32gb ram", "AMD Radeon RX 580", 2, 8),
        ("rx 6800 red devil 16gb x2, 32gb ram", "AMD Radeon RX 6800", 2, 16),
        ("arc a770 limited edition 16gb x2", "Intel Arc A770", 2, 16),
        ("sapphire rx 7900 xtx pulse 24gb x2, 64gb", "AMD Radeon RX 7900 XTX", 2, 24),
    ],
)
def test_a_size_behind_the_name_of_an_edition_is_the_cards(text: str, gpu: str, count: int, gb: float) -> None:
    hardware = parse_hardware(text)
    assert [card.name for card in resolve(hardware).cards] == [gpu] * count
    assert hardware.gpus[0].vram_gib == gb
    stated = hardware.ram.total_gb if hardware.ram else None
    assert stated in (None, 32, 64, 128)
    assert stated is None or f"{stated:g}gb" in text.lower().replace(f"{gb:g}gb x", "")


_VEGA_20 = (
    "Display controller: Advanced Micro Devices, Inc. [AMD/ATI] Vega 20 [Radeon Pro VII/Radeon Instinct MI50 32GB]"
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"2x MI50 32GB\n05:00.0 {_VEGA_20} (rev 01)\n08:00.0 {_VEGA_20} (rev 01)\n", ["AMD Instinct MI50"] * 2),
        (f"MI50 cards:\n05:00.0 {_VEGA_20} (rev 01)\n08:00.0 {_VEGA_20} (rev 01)\n", ["AMD Instinct MI50"] * 2),
        (
            "64:00.0 Display controller: Advanced Micro Devices, Inc. [AMD/ATI] Strix [Radeon 880M / 890M] (rev c1)\n"
            "Ryzen AI 9 HX 370",
            ["AMD Radeon 890M"],
        ),
    ],
)
def test_what_is_said_beside_lspci_tells_which_of_the_products_it_is(text: str, names: list[str]) -> None:
    assert [card.name for card in resolve(parse_hardware(f"{text}\n128GB RAM")).cards] == names


_CLINFO = """\
  Platform Name                                   AMD Accelerated Parallel Processing
Number of devices                                 1
  Device Name                                     gfx1100
  Device Vendor                                   Advanced Micro Devices, Inc.
  Device Version                                  OpenCL 2.0
  Device Type                                     GPU
  Device Board Name (AMD)                         Radeon RX 7900 XT
  Device Topology (AMD)                           PCI-E, 0000:03:00.0
  Max compute units                               42
  Global memory size                              21458059264 (19.98GiB)
"""


@pytest.mark.parametrize(
    "pasted",
    [
        _CLINFO,
        f"$ clinfo\nNumber of platforms                               1\n{_CLINFO}",
        "$ clinfo -l\nPlatform #0: AMD Accelerated Parallel Processing\n `-- Device #0: gfx1100\n"
        "$ clinfo | grep -E 'Board|Global mem'\n  Board name: Radeon RX 7900 XT\n"
        "  Global memory size: 21458059264 (19.98GiB)\n",
    ],
)
def test_clinfo_lists_a_card_and_its_memory(pasted: str) -> None:
    hardware = parse_hardware(f"{pasted}Ryzen 9 5900X / 64gb ddr4 3600")
    assert [card.name for card in resolve(hardware).cards] == ["AMD Radeon RX 7900 XT"]
    assert hardware.ram is not None
    assert hardware.ram.total_gb == 64


def test_clinfo_lists_a_card_without_the_processors_graphics_and_the_processor() -> None:
    text = """\
  Platform Name                                   Intel(R) OpenCL Graphics
Number of devices                                 2
  Device Name                                     Intel(R) Arc(TM) A770 Graphics
  Device Type                                     GPU
  Global memory size                              16225243136 (15.11GiB)
  Device Name                                     Intel(R) UHD Graphics 770
  Device Type                                     GPU
  Global memory size                              26640953344 (24.81GiB)

  Platform Name                                   Intel(R) OpenCL
Number of devices                                 1
  Device Name                                     12th Gen Intel(R) Core(TM) i5-12600K
  Device Type                                     CPU
  Global memory size                              33301192704 (31.01GiB)
"""
    hardware = parse_hardware(text + "32GB")
    assert [card.name for card in resolve(hardware).cards] == ["Intel Arc A770"]
    assert hardware.cpu is not None
    assert "12600K" in (hardware.cpu.model or "")


@pytest.mark.parametrize(
    "text",
    [
        "C:\\llama> llama-bench.exe --list-devices\nAvailable devices:\n"
        "  Vulkan0: AMD Radeon RX 7900 XTX (24560 MiB, 23800 MiB free)\n7700X, 32GB",
        "PS C:\\Program Files (x86)\\Intel\\oneAPI> sycl-ls\n[level_zero:gpu][level_zero:0] Intel(R) oneAPI Unified "
        "Runtime over Level-Zero, Intel(R) Arc(TM) B580 Graphics 20.1.0 [1.6.33184]\n32 GB",
        "load_backend: loaded Vulkan backend from C:\\llama\\ggml-vulkan.dll\n"
        "ggml_vulkan: 0 = AMD Radeon RX 7900 XTX (AMD proprietary driver) | uma: 0 | fp16: 1 | warp size: 64\n32GB RAM",
    ],
)
def test_a_prompt_or_a_path_of_windows_tells_the_system(text: str) -> None:
    assert parse_hardware(text).os == "windows"


def test_a_system_that_is_stated_counts_for_more_than_a_path_of_windows() -> None:
    text = "Ubuntu 24.04, RX 7900 XTX, 64GB\nC:\\llama> llama-server.exe --list-devices"
    assert parse_hardware(text).os == "ubuntu 24.04"
    assert parse_hardware("RX 7900 XTX, 64GB, models in D:\\gguf\\ of an old disk").os is None


@pytest.mark.parametrize(
    ("text", "card", "ram_gb"),
    [
        ("Ryzen 7 5700G 32gb ddr4 3200 (vega 8 igpu, 4GB uma)", "AMD Radeon Vega 8", 32),
        ("8845HS 780M, 64GB, 16GB VRAM allocated in bios", "AMD Radeon 780M", 64),
        ("8845HS 780M, 64GB, 16GB VRAM set in the BIOS", "AMD Radeon 780M", 64),
        ("Ryzen AI Max+ 395 128GB, 96GB dedicated VRAM, win 11", "AMD Radeon 8060S", 128),
    ],
)
def test_what_a_processors_gpu_is_given_is_no_second_size_of_ram(text: str, card: str, ram_gb: float) -> None:
    hardware = parse_hardware(text)
    assert [one.name for one in resolve(hardware).cards] == [card]
    assert hardware.ram is not None
    assert hardware.ram.total_gb == ram_gb


@pytest.mark.parametrize(
    ("text", "graphics"),
    [
        ("Minisforum UM780 XTX 7840HS 64GB ddr5 5600 ubuntu", "Radeon 780M"),
        ("Beelink SER8 8845HS 64GB", "Radeon 780M"),
        ("Ryzen AI 9 HX 370, 32GB", "Radeon 890M"),
        ("Ryzen AI 7 350 32GB", "Radeon 860M"),
        ("Ryzen 7 250, 32GB DDR5-5600", "Radeon 780M"),
        ("Beelink SER9 Pro, Ryzen 7 H255, 32GB LPDDR5X", "Radeon 780M"),
        ("Ryzen 9 270, 32 GB", "Radeon 780M"),
        ("Legion Go Z1 Extreme, 16GB", "Radeon 780M"),
    ],
)
def test_graphics_of_a_processor_are_used_where_no_other_gpu_is_named(text: str, graphics: str) -> None:
    hardware = parse_hardware(text)
    assert [gpu.name for gpu in hardware.gpus] == [f"AMD {graphics}"]
    (said,) = (one for one in resolve(hardware).assumed if one.field == "hardware.gpus")
    assert (said.value, said.matters) == (f"AMD {graphics}", "everything")
    assert "of the processor: used, as no other GPU was named" in said.why
    assert not any("Radeon" in gpu.name for gpu in parse_hardware(f"RTX 3060, {text}").gpus)


@pytest.mark.parametrize(
    "said",
    [
        "no GPU", "CPU only", "only CPU", "nur CPU", "solo CPU", "CPU inference", "running on the CPU", "purely on CPU",
        "ohne GPU", "keine GPU", "sans GPU", "pas de GPU", "sin GPU", "senza GPU", "sem GPU", "geen GPU", "без GPU",
        "无GPU", "没有GPU", "GPU unused", "GPU is not used", "iGPU disabled", "without using the iGPU",
        "in an LXC without GPU passthrough",
        "don't use the iGPU",
    ],
)  # fmt: skip
def test_graphics_of_a_processor_are_not_used_where_the_text_says_so(said: str) -> None:
    hardware = parse_hardware(f"Beelink SER8 8845HS 64GB, {said}")
    assert hardware.gpus == []
    assert "of the processor" not in (hardware.notes or "")


def test_a_processors_whole_name_may_be_followed_by_no_gpu() -> None:
    assert parse_hardware("AMD Ryzen 7 7840U w/ Radeon 780M Graphics, 32GB, no GPU").gpus == []
