"""What less common tools print, verbatim: parts of inxi and vulkaninfo, Metal's log, PyTorch's report, lscpu of ARM."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.errors import InvalidHardware
from service.engine.hardware import Cpu, Ram
from service.engine.hardware_text import parse_hardware

INXI_G = """Graphics:
  Device-1: NVIDIA GA102 [GeForce RTX 3090] vendor: eVga.com. driver: nvidia
    v: 535.183.01 alternate: nouveau,nvidia_drm non-free: 535.xx+
    status: current (as of 2023-12) arch: Ampere code: GAxxx
    process: TSMC n7 (7nm) built: 2020-22 pcie: gen: 1 speed: 2.5 GT/s
    lanes: 16 link-max: gen: 4 speed: 16 GT/s ports: active: none
    off: DP-1,DP-2 empty: DP-3,HDMI-A-1 bus-ID: 0b:00.0 chip-ID: 10de:2204
  Display: x11 server: X.Org v: 21.1.4 driver: X: loaded: nvidia gpu: nvidia
  API: OpenGL v: 4.6.0 NVIDIA 535.183.01 renderer: NVIDIA GeForce RTX 3090/PCIe/SSE2
"""
METAL = """ggml_metal_library_init: using embedded metal library
ggml_metal_device_init: GPU name:   {}
ggml_metal_device_init: GPU family: MTLGPUFamilyApple9  (1009)
ggml_metal_device_init: has unified memory    = true
ggml_metal_device_init: recommendedMaxWorkingSetSize  = {} MB
"""
# of a DGX Spark
LSCPU_OF_TWO_KINDS = """Architecture:                aarch64
CPU(s):                      20
Vendor ID:                   ARM
  Model name:                Cortex-X925
    Model:                   1
    Thread(s) per core:      1
    Core(s) per socket:      10
    Socket(s):               1
    Stepping:                r0p1
  Model name:                Cortex-A725
    Model:                   1
    Thread(s) per core:      1
    Core(s) per socket:      10
    Socket(s):               1
NUMA:
  NUMA node(s):              1
NVIDIA GB10, 128GB
"""
# github.com/Sandermage/genesis-vllm-patches issue 24 and github.com/vllm-project/vllm pull request 9293, in parts
COLLECT_ENV = """Collecting environment information...
==============================
        System Info
==============================
OS                           : Ubuntu 24.04.4 LTS (x86_64)
GCC version                  : (Ubuntu 13.3.0-6ubuntu2~24.04.1) 13.3.0
Python version               : 3.12.12 (main, Oct 31 2025, 23:02:31) [Clang 21.1.4 ] (64-bit runtime)
Python platform              : Linux-{}-x86_64-with-glibc2.39
GPU models and configuration :
GPU 0: NVIDIA GeForce RTX 3090
GPU 1: NVIDIA GeForce RTX 3090
"""


def names(text: str) -> list[str]:
    return [card.name for card in resolve(parse_hardware(text)).cards]


def test_the_graphics_of_inxi_alone_name_the_cards_and_no_version_does() -> None:
    assert names(INXI_G) == ["NVIDIA GeForce RTX 3090"]
    assert names("RTX 3090, OpenGL v: 4.6.0, 64GB") == ["NVIDIA GeForce RTX 3090"]


@pytest.mark.parametrize(
    ("chip", "lent", "gb"),
    [
        ("Apple M4 Max", "55662.79", 64),
        ("Apple M4 Max", "115448.73", 128),
        ("Apple M2 Ultra", "154618.82", 192),
        ("Apple M2 Max", "21845.34", 32),  # github.com/ollama/ollama issue 434, whose MB were MiB
        ("Apple M2 Max", "73728,00", 96),  # github.com/ggml-org/llama.cpp issue 3213
        ("Apple M1", "10922.67", 16),
        ("MTL0 (Apple M3 Ultra)", "464000.00", 512),
    ],
)
def test_metals_log_names_the_chip_and_what_macos_lends_tells_its_memory(chip: str, lent: str, gb: float) -> None:
    hardware = parse_hardware(METAL.format(chip, lent))
    assert hardware.ram is not None
    assert (hardware.ram.total_gb, hardware.os) == (gb, "macos")
    assert f"{gb} GB: taken as the memory" in (hardware.notes or "")


def test_a_raised_limit_of_metal_tells_no_memory() -> None:
    hardware = parse_hardware(METAL.format("Apple M1 Max", "64424.51") + "64 GB")
    assert hardware.ram is not None
    assert (hardware.ram.total_gb, hardware.notes) == (64, None)


def test_an_arm_processor_with_two_kinds_of_cores_has_them_all() -> None:
    rig = resolve(parse_hardware(LSCPU_OF_TWO_KINDS))
    assert (rig.cpu_model, rig.physical_cores, names(LSCPU_OF_TWO_KINDS)) == ("NVIDIA GB10", 20, ["NVIDIA GB10"])
    assert resolve(parse_hardware("NVIDIA GB10, 10x Cortex-X925, 10x Cortex-A725, 128GB")).physical_cores == 20


def test_devices_that_vulkaninfo_only_numbers() -> None:
    listed = "GPU id : 0 (NVIDIA GeForce RTX 3080):\nGPU id : 1 (AMD Radeon RX 6800 XT (RADV NAVI21)):\n"
    again = "GPU id : 0 (NVIDIA GeForce RTX 3080) [VK_KHR_xcb_surface]:\n"
    assert names(listed + again) == ["NVIDIA GeForce RTX 3080", "AMD Radeon RX 6800 XT"]
    assert names("GPU0: AMD Radeon RX 7900 XTX (RADV NAVI31)\nGPU1: llvmpipe (LLVM 17.0.6, 256 bits)") == [
        "AMD Radeon RX 7900 XTX"
    ]


def test_pytorchs_report_is_read_with_blanks_before_its_colons_and_tells_wsl() -> None:
    read = parse_hardware(COLLECT_ENV.format("6.17.0-23-generic"))
    assert ([gpu.count for gpu in read.gpus], read.os) == ([2], "linux")
    assert parse_hardware(COLLECT_ENV.format("5.15.153.1-microsoft-standard-WSL2")).os == "wsl2"
    assert parse_hardware("RTX 3090, Kernel: 6.6.87.2-microsoft-standard-WSL2, 32GB").os == "wsl2"


def test_a_processor_of_a_generation_is_read_in_the_long_form_of_inxi() -> None:
    text = "CPU:\n  Info: 10-core (6-mt/4-st) model: 12th Gen Intel Core i5-12600K bits: 64 type: MST AMCP\n" + INXI_G
    rig = resolve(parse_hardware(text))
    assert (rig.cpu_model, rig.physical_cores) == ("Intel Core i5-12600K", 6)


# github.com/ollama/ollama issue 13569
SHARED_CHIP = (
    "08:00.0 VGA compatible controller: Advanced Micro Devices, Inc. [AMD/ATI] Navi 21 "
    "[Radeon RX 6800/6800 XT / 6900 XT] (rev c1)\n"
)


def test_a_card_named_elsewhere_says_which_of_a_shared_chip_it_is() -> None:
    assert names(SHARED_CHIP + "Ollama does not use the GPU, a Radeon RX 6800 XT") == ["AMD Radeon RX 6800 XT"]
    with pytest.raises(InvalidHardware, match="several cards have this chip"):
        parse_hardware(SHARED_CHIP + "Ryzen 5 5600X")


def test_lines_of_a_container_are_read_without_its_name() -> None:  # github.com/TabbyML/tabby issue 726
    log = "tabby_1  | ggml_init_cublas: found 1 CUDA devices:\n"
    log += "tabby_1  |   Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6\n"
    assert names(log) == ["NVIDIA GeForce RTX 3090"]


def test_a_picture_beside_a_macs_summary_is_no_mac() -> None:  # github.com/geerlingguy/sbc-reviews issue 95
    text = """                 -/+:.          jgeerling@Mac-Studio-1
                :++++.          OS: 64bit macOS
               /+++/.           Kernel: arm64 Darwin 25.2.0
  osssssssssssssssssssssssso/`  Disk: 2091G / 7999G (27%)
  `syyyyyyyyyyyyyyyyyyyyyyyy+`  CPU: Apple M3 Ultra
   `ossssssssssssssssssssss/    GPU: Apple M3 Ultra
     :ooooooooooooooooooo+.     RAM: 1610MiB / 524288MiB
"""
    hardware = parse_hardware(text)
    assert (names(text), hardware.ram and hardware.ram.total_gb) == (["Apple M3 Ultra"], 512)


@pytest.mark.parametrize(
    ("text", "cpu"),
    [
        ("Intel Core Ultra 7 (155H), RTX 4070", "Intel Core Ultra 7 155H"),
        ("RTX 3050ti, i5 11400H, Chat model used: Llama 3.1 8B Instruct 128k", "i5 11400H"),  # nomic-ai/gpt4all 2767
    ],
)
def test_a_processors_number_is_in_a_bracket_too_and_a_context_is_none(text: str, cpu: str) -> None:
    assert (parse_hardware(text).cpu or Cpu()).model == cpu


# Of three machines on the Ubuntu Forums, in parts.
SPECCY = """Summary
        Operating System
            Windows 10 Pro 64-bit
        CPU
            Intel Core i5 4670 @ 3.40GHz    55 °C
            Haswell 22nm Technology
        RAM
            16,0GB Dual-Channel DDR3 @ 644MHz (9-9-9-24)
        Motherboard
            ASUSTeK COMPUTER INC. GRYPHON Z87 (SOCKET 1150)    34 °C
        Graphics
            Standard Monitor (1440x900@32Hz)
            Intel HD Graphics 520 (ASUStek Computer Inc)
            2047MB NVIDIA GeForce RTX 2060 (Gigabyte)    68 °C
            ForceWare version: 362.00
        Storage
            238GB Samsung SSD 840 PRO Series (SATA (SSD))    26 °C
            476GB Micron MTFDHBA512TCK (Unknown (SSD))
        Optical Drives
            No optical disk drives detected
        Audio
            Realtek High Definition Audio
"""


@pytest.mark.parametrize("indented", [True, False])
def test_speccys_summary_has_cards_cpu_and_ram_and_its_disks_are_no_ram(indented: bool) -> None:
    hardware = parse_hardware(SPECCY if indented else "\n".join(line.strip() for line in SPECCY.split("\n")))
    assert [gpu.name for gpu in hardware.gpus] == ["NVIDIA GeForce RTX 2060"]
    assert hardware.gpus[0].vram_gib is None  # 2,047 MB are the most that it can say
    assert hardware.cpu == Cpu(model="Intel Core i5 4670")
    assert hardware.ram == Ram(total_gb=16, type="DDR3", channels=2, mts=1288)
    assert (hardware.os, hardware.notes) == ("windows", None)


def test_a_card_said_behind_speccys_summary_counts_too() -> None:
    assert sorted(names(SPECCY + "I also have a Tesla P40")) == ["NVIDIA GeForce RTX 2060", "Tesla P40"]
