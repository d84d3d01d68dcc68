"""Output of tools, as people paste it. Where each paste is from stands in tests/data/README.md."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from service.engine.catalogue import resolve
from service.engine.errors import InvalidHardware
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.hardware_text import parse_hardware

PASTES = Path(__file__).parents[2] / "data" / "pastes"


def paste(name: str) -> str:
    return (PASTES / f"{name}.txt").read_text()


def parsed(*names: str) -> Hardware:
    return parse_hardware("\n".join(map(paste, names)), gpus_required=False)


def test_nvidia_smi_of_a_610_driver_gives_free_memory_display_and_order() -> None:
    assert parsed("nvidia_smi_610").gpus == [
        Gpu(name="NVIDIA GeForce RTX 5090", free_gib=3.499, pci_order=[0]),
        Gpu(name="NVIDIA GeForce RTX 5090", free_gib=3.353, pci_order=[1], display=True),
    ]


def test_nvidia_smi_with_processes_below_it() -> None:
    machine = parsed("nvidia_smi_550")
    assert [(gpu.name, gpu.free_gib) for gpu in machine.gpus] == [
        ("NVIDIA GeForce RTX 4090", 23.493),
        ("NVIDIA GeForce RTX 4090", 23.54),
    ]
    assert resolve(machine).order_known


def test_a_name_that_was_cut_is_completed_by_its_memory() -> None:
    assert parsed("nvidia_smi_470_cut_name").gpus[0].name == "Tesla V100-SXM2-32GB"


def test_a_name_cut_too_short_asks_for_the_list_and_takes_it() -> None:
    with pytest.raises(InvalidHardware, match="nvidia-smi -L"):
        parsed("nvidia_smi_470_ambiguous_name")
    listed = "".join(f"GPU {i}: NVIDIA GeForce RTX 3090 (UUID: GPU-{i}{'a' * 7}-1-2-3-4)\n" for i in range(2))
    machine = parse_hardware(paste("nvidia_smi_470_ambiguous_name") + listed)
    assert [gpu.name for gpu in machine.gpus] == ["NVIDIA GeForce RTX 3090"] * 2
    assert [gpu.uuids for gpu in machine.gpus] == [["GPU-0aaaaaaa-1-2-3-4"], ["GPU-1aaaaaaa-1-2-3-4"]]


def test_of_a_gpu_that_mig_cuts_up_a_slice_counts() -> None:
    listed = parsed("nvidia_smi_list")
    assert [gpu.name for gpu in listed.gpus] == [
        "NVIDIA GeForce RTX 3090",
        "NVIDIA RTX A6000",
        "NVIDIA A100-PCIE-40GB MIG 3g.20gb",
    ]
    assert listed.gpus[-1].uuids == ["MIG-2d9e1f30-4b56-4c78-8d9a-1e2f3a4b5c6d"]
    assert "the largest slice of each GPU is counted" in (listed.notes or "")


def test_of_a_table_of_mig_slices_the_largest_counts_and_the_list_names_them() -> None:
    table = parsed("nvidia_smi_535_mig")
    assert [(gpu.name, gpu.free_gib) for gpu in table.gpus] == [("NVIDIA A30 MIG 2g.12gb", 11.663)]
    assert resolve(table).cards[0].free < 12 << 30
    assert "the largest slice of each GPU is counted" in (table.notes or "")
    small, large = (f"MIG-{c * 8}-1-2-3-4" for c in "ab")
    slices = f"  MIG 1g.6gb      Device  0: (UUID: {small})\n  MIG 2g.12gb     Device  1: (UUID: {large})\n"
    listed = f"GPU 0: NVIDIA A30 (UUID: GPU-{'a' * 8}-1-2-3-4)\n{slices}"
    both = parse_hardware(paste("nvidia_smi_535_mig") + listed)
    assert [(gpu.name, gpu.vram_gib) for gpu in both.gpus] == [("NVIDIA A30 MIG 2g.12gb", None)]
    assert 11 << 30 < resolve(both).cards[0].total < 12 << 30


@pytest.mark.parametrize(
    ("card", "card_mib", "slice_mib", "name"),
    [
        ("A100-SXM4-80GB", 81_920, 40_192, "3g.40gb"),
        ("A100-SXM4-40GB", 40_960, 4_864, "1g.5gb"),
        ("H100 80GB HBM3", 81_559, 9_984, "1g.10gb"),
        ("H200", 143_771, 16_384, "1g.18gb"),
        ("RTX PRO 5000 Blac...", 48_935, 24_000, "2g.24gb"),  # cut off by nvidia-smi
    ],
)
def test_a_slice_in_the_table_is_named_by_its_share_of_the_memory(
    card: str, card_mib: int, slice_mib: int, name: str
) -> None:
    table = (
        f"|   0  NVIDIA {card:22} On | 00000000:0B:00.0 Off |                   On |\n"
        f"| N/A   47C    P0    32W / 165W | 50MiB / {card_mib}MiB |     N/A      Default |\n"
        f"| MIG devices:  |\n|  0    2   0   0  |     25MiB / {slice_mib}MiB  | 28      0 |  2   0    2    0    0 |\n"
    )
    found = parse_hardware(table + "64GB RAM")
    assert [gpu.name for gpu in found.gpus] == [f"NVIDIA {card.replace('...', 'kwell')} MIG {name}"]
    rig = resolve(found)
    assert rig.cards[0].free == pytest.approx((slice_mib - 25) << 20, rel=0.001)
    assert [one.why for one in rig.assumed if "cut up by MIG" in one.value] == ["how the text was read"]


def test_csv_with_a_header_gives_links_uuids_and_free_memory() -> None:
    first, second = parsed("nvidia_smi_csv").gpus
    assert (first.pcie, first.display, first.free_gib) == ("4.0 x16", True, 22.991)
    assert (second.pcie, second.display, second.pci_order) == ("4.0 x8", None, [1])
    assert second.uuids == ["GPU-0b7c9d1e-2f34-4a56-8b78-9c0d1e2f3a4b"]


def test_csv_without_a_header_gives_names_and_totals() -> None:
    assert parsed("nvidia_smi_csv_noheader").gpus == [
        Gpu(name="NVIDIA GeForce RTX 3090", count=2, pci_order=[0, 1]),
    ]
    assert parsed("nvidia_smi_csv_nounits").gpus == [Gpu(name="NVIDIA GeForce RTX 5060 Ti", vram_gib=16)]


def test_no_devices_is_no_gpu() -> None:
    assert parse_hardware("No devices were found").gpus == []


def test_the_engines_device_list_gives_what_is_free() -> None:
    machine = parsed("list_devices_cuda")
    assert [(gpu.name, gpu.free_gib) for gpu in machine.gpus] == [
        ("NVIDIA GeForce RTX 5090", 30.848),
        ("NVIDIA GeForce RTX 4070 Laptop GPU", 7.369),
    ]
    assert all(gpu.pci_order is None for gpu in machine.gpus)


def test_an_integrated_radeon_is_known_by_its_chip() -> None:
    card = resolve(parsed("list_devices_rocm")).cards[0]
    assert (card.name, card.total >> 20) == ("AMD Radeon 8060S", 110511)


def test_what_a_cuda_build_prints_when_it_starts() -> None:
    assert parsed("cuda_init_ik").gpus == [Gpu(name="NVIDIA RTX A6000")]


def test_lists_of_the_same_gpus_by_two_tools_count_them_once() -> None:
    both = parsed("nvidia_smi_610", "list_devices_cuda")
    assert [gpu.name for gpu in both.gpus] == ["NVIDIA GeForce RTX 5090"] * 2 + ["NVIDIA GeForce RTX 4070 Laptop GPU"]


def test_lscpu_of_two_sockets() -> None:
    cpu = Cpu(model="AMD EPYC 9115 16-Core Processor", sockets=2, physical_cores=32, numa_nodes=2)
    assert parsed("lscpu_epyc").cpu == cpu


def test_recorded_output_of_linux_tools() -> None:
    cpu = Cpu(model="EPYC Genoa", sockets=1, physical_cores=2)  # `AMD EPYC`, family 25, model 17
    assert parsed("lscpu_recorded").cpu == cpu
    assert parsed("cpuinfo_recorded").cpu == cpu
    assert parsed("free_recorded").ram == Ram(total_gb=23.54, free_gb=21.07)
    assert parsed("meminfo_recorded").ram == Ram(total_gb=23.54, free_gb=21.07)


def test_free_in_gib_and_mib() -> None:
    assert parsed("free_h").ram == Ram(total_gb=503, free_gb=477)
    assert parsed("free_m").ram == Ram(total_gb=125.63, free_gb=114.46)


def test_dmidecode_counts_filled_channels_and_the_speed_that_is_set() -> None:
    assert parsed("dmidecode_desktop").ram == Ram(total_gb=32, type="DDR5", channels=2, mts=6000)
    assert parsed("dmidecode_server").ram == Ram(total_gb=1024, type="DDR4", channels=16, mts=2933)


def test_usable_memory_counts_and_modules_say_the_rest() -> None:
    ram = parsed("free_h", "dmidecode_server").ram
    assert ram == Ram(total_gb=503, free_gb=477, type="DDR4", channels=16, mts=2933)


@pytest.mark.parametrize("name", ["rocm_smi.csv", "rocm_smi.json"])
def test_rocm_smi_as_csv_and_json(name: str) -> None:
    assert parsed(name).gpus == [Gpu(name="Radeon RX 7900 XT", free_gib=19.958, pci_order=[0])]


def test_rocm_smi_as_text() -> None:
    assert parsed("rocm_smi").gpus == [Gpu(name="AMD Instinct MI60", count=2, free_gib=31.974, pci_order=[0, 1])]


def test_rocm_smi_without_names_says_what_to_run() -> None:
    with pytest.raises(InvalidHardware, match="--showproductname"):
        parsed("rocm_smi_concise")


def test_system_profiler_of_a_mac() -> None:
    assert parsed("system_profiler") == Hardware(
        gpus=[Gpu(name="Apple M4 Max")],
        cpu=Cpu(model="Apple M4 Max", physical_cores=16),
        ram=Ram(total_gb=64),
        os="macos",
    )


def test_powershell_lists_leave_out_integrated_graphics_and_the_4_gib_cap() -> None:
    machine = parsed("cim_lists")
    assert machine.gpus == [Gpu(name="NVIDIA GeForce RTX 4090")]
    assert resolve(machine).cards[0].total >> 20 == 24564
    assert machine.cpu == Cpu(model="AMD Ryzen 9 7950X 16-Core Processor", sockets=1, physical_cores=16)
    assert machine.ram == Ram(total_gb=96, type="DDR5", channels=2, mts=5200)
    assert machine.os == "windows"


def test_powershell_tables() -> None:
    machine = parsed("cim_tables")
    assert machine.gpus == [Gpu(name="AMD Radeon RX 9070 XT")]
    assert machine.cpu == Cpu(model="13th Gen Intel(R) Core(TM) i5-13600K", sockets=1, physical_cores=14)
    assert machine.ram == Ram(total_gb=64, mts=6000)


def test_dxdiag_gives_cpu_ram_and_the_cards_that_are_more_than_the_desktop_s() -> None:
    machine = parsed("dxdiag", "dxdiag_cards")
    assert machine.gpus == [Gpu(name="NVIDIA GeForce RTX 5070 Ti Laptop GPU")]
    assert machine.cpu == Cpu(model="AMD Ryzen 7 5800X 8-Core Processor")
    assert machine.ram == Ram(total_gb=16)
    assert (machine.os, machine.notes) == ("windows", None)


def test_a_card_that_dxdiag_lists_for_each_of_its_monitors_is_one_and_that_is_said() -> None:
    machine = parsed("dxdiag_cards", "dxdiag_cards")
    assert machine.gpus == [Gpu(name="NVIDIA GeForce RTX 5070 Ti Laptop GPU")]
    assert "for each of its monitors" in (machine.notes or "")


def test_msinfo32_gives_cores_ram_and_the_display_adapter() -> None:
    machine = parsed("msinfo32")
    assert machine.gpus == [Gpu(name="NVIDIA GeForce RTX 3070")]
    assert machine.cpu == Cpu(model="12th Gen Intel(R) Core(TM) i9-12900", sockets=1, physical_cores=16)
    assert (machine.ram, machine.notes) == (Ram(total_gb=64), None)
    assert parsed("msinfo32_comma").ram == Ram(total_gb=32)


def test_vulkaninfo_gives_gpus_and_no_software_renderer() -> None:
    assert parsed("vulkaninfo_summary").gpus == [Gpu(name="NVIDIA GeForce RTX 3090")]
    machine = parsed("vulkaninfo")
    assert machine.gpus == [Gpu(name="AMD Radeon RX 580 Series", vram_gib=8)]
    assert resolve(machine).cards[0].total >> 30 == 8
    assert machine.notes is None


def test_a_paste_and_shorthand_go_together() -> None:
    machine = parse_hardware(paste("nvidia_smi_550") + "\n5950X, 128GB DDR4\n")
    assert len(machine.gpus) == 2
    assert machine.cpu == Cpu(model="5950X")
    assert machine.ram == Ram(total_gb=128, type="DDR4")


def test_prompts_and_fences_around_a_paste_are_passed_over() -> None:
    text = f"```\n$ nvidia-smi\n{paste('nvidia_smi_550')}```\nuser@host:~$ lscpu\n{paste('lscpu_epyc')}\n"
    machine = parse_hardware(text)
    assert len(machine.gpus) == 2
    assert machine.cpu is not None


def test_everything_at_once() -> None:
    names = ("nvidia_smi_csv", "nvidia_smi_550", "list_devices_cuda", "lscpu_epyc", "free_h", "dmidecode_server")
    machine = parsed(*names)
    assert [gpu.name[-4:] for gpu in machine.gpus] == ["4090", "4090", "5090", " GPU"]
    assert machine.cpu is not None
    assert machine.ram is not None
    assert machine.ram.channels == 16


@pytest.mark.parametrize(
    "names",
    [
        ("nvidia_smi_550", "lscpu_epyc", "free_h"),
        ("nvidia_smi_550", "lscpu_recorded", "free_h"),
        ("lscpu_epyc", "free_h", "nvidia_smi_550"),
        ("free_h", "nvidia_smi_csv", "lscpu_epyc"),
        ("nvidia_smi_550", "lscpu_epyc", "meminfo_recorded"),
        ("dxdiag", "vulkaninfo", "nvidia_smi_550", "lscpu_epyc", "free_h"),
        ("vulkaninfo_summary", "msinfo32", "nvidia_smi_550", "free_h"),
    ],
)
def test_outputs_need_no_empty_lines_between_them(names: tuple[str, ...]) -> None:
    lines = "\n".join(map(paste, names)).splitlines()
    machine = parse_hardware("\n".join(line for line in lines if line.strip()))
    assert sum(gpu.count for gpu in machine.gpus if "4090" in gpu.name) == 2
    assert machine.cpu is not None
    assert machine.ram is not None
    assert machine.ram.total_gb in (503, 23.54)


def test_what_follows_the_output_of_lscpu_and_free_is_read_too() -> None:
    lines = (paste("lscpu_epyc") + paste("free_h")).splitlines()
    machine = parse_hardware("\n".join([*(line for line in lines if line.strip()), "no GPU"]))
    assert (machine.gpus, machine.ram) == ([], Ram(total_gb=503, free_gb=477))
    assert machine.cpu == parsed("lscpu_epyc").cpu
    stated = parse_hardware(paste("lscpu_recorded").rstrip() + "\nRAM: 512GB\nno GPU")
    assert stated.ram == Ram(total_gb=512)


def test_task_manager_gives_cards_cpu_and_ram_and_leaves_out_what_shares_the_ram() -> None:
    machine = parsed("task_manager")
    assert machine.gpus == [Gpu(name="NVIDIA RTX 4000 Ada Generation Laptop GPU", free_gib=12)]
    assert machine.cpu == Cpu(model="13th Gen Intel(R) Core(TM) i7-13800H", sockets=1, physical_cores=14)
    assert (machine.ram, machine.os) == (Ram(total_gb=64, mts=5600), "windows")


def test_task_manager_with_a_decimal_comma_and_a_disk_below_what_the_settings_say() -> None:
    machine = parsed("task_manager_comma")
    assert [(gpu.name, gpu.count) for gpu in machine.gpus] == [("NVIDIA GeForce RTX 3060 Laptop GPU", 1)]
    assert machine.ram == Ram(total_gb=16, mts=3200)
    assert machine.cpu is not None
    assert resolve(machine).cpu_model == "AMD Ryzen 5 5600H"


def test_rocminfo_gives_cards_cpu_and_ram_and_leaves_out_the_processors_graphics() -> None:
    machine = parsed("rocminfo")
    assert [(gpu.name, gpu.count) for gpu in machine.gpus] == [("AMD Radeon RX 7900 XTX", 2)]
    assert machine.cpu == Cpu(model="AMD Ryzen 9 7900X 12-Core Processor")
    assert machine.ram == Ram(total_gb=125.6)


def test_the_devices_in_a_servers_log_are_read_with_the_processor_and_the_ram() -> None:
    """The form of ggml-org/llama.cpp #27189."""
    card = "Vulkan0 : AMD Radeon RX 7900 XTX (RADV NAVI31) (24560 MiB, 22883 MiB free)"
    host = "CPU     : AMD Ryzen 7 5800X3D 8-Core Processor (31995 MiB, 31995 MiB free)"
    said = ("device_info:", f"  - {card}", f"  - {host}")
    hardware = parse_hardware("\n".join(f"0.00.031.18{i} I cmn  common_param: {text}" for i, text in enumerate(said)))
    assert [gpu.name for gpu in hardware.gpus] == ["AMD Radeon RX 7900 XTX (RADV NAVI31)"]
    assert hardware.cpu is not None
    assert hardware.cpu.model == "AMD Ryzen 7 5800X3D 8-Core Processor"
    assert hardware.ram is not None
    assert hardware.ram.total_gb == 31.25


@pytest.mark.parametrize("number", ["5600", "3600", "5700", "7600", "3200", "9700"])
@pytest.mark.parametrize(
    "text", ["RTX 3060 12GB, 32GB RAM, {}", "RTX 3060, {}, 32GB RAM", "GeForce RTX 3060, 32GB RAM, {}"]
)
def test_a_number_in_a_list_of_parts_is_no_memory_of_its_card(text: str, number: str) -> None:
    with suppress(InvalidHardware):
        hardware = parse_hardware(text.format(number))
        assert [gpu.vram_gib for gpu in hardware.gpus] in ([None], [12])
        assert hardware.ram is not None
        assert hardware.ram.total_gb == 32


def test_a_cpu_whose_name_a_virtual_machine_hides_is_known_by_its_family_and_model() -> None:
    cpu = parsed("lscpu_virtual_machine").cpu
    assert cpu == Cpu(model="Xeon Emerald Rapids", sockets=1, physical_cores=16)
    fields = "model name\t: Intel(R) Xeon(R) Processor @ 2.90GHz\ncpu family\t: 6\nmodel\t\t: {}\nstepping\t: {}\n"
    for model, stepping, name in ((85, 4, "Xeon Skylake"), (85, 7, "Xeon Cascade Lake"), (106, 6, "Xeon Ice Lake")):
        found = parse_hardware(fields.format(model, stepping), gpus_required=False).cpu
        assert found == Cpu(model=name)


@pytest.mark.parametrize(
    ("log", "name", "gib"),
    [  # the first from github.com/ollama/ollama/issues/5988, cut off at both ends
        (
            'compute" id=GPU-bca3 library=cuda compute=8.6 name="NVIDIA GeForce RTX 3060" total="12.0 GiB',
            "RTX 3060",
            12,
        ),
        (
            'library=cuda variant=v12 \nname="NVIDIA GeForce RTX 2060" total="6.0 GiB" available="5.0 GiB"',
            "RTX 2060",
            6,
        ),
        (
            'msg="inference compute" id=GPU-b569 filter_id="" library=CUDA compute=8.6 name=CUDA0 '
            'description="NVIDIA GeForce RTX 3070" libdirs=ollama,cuda_v12 type=discrete total="8.0 GiB"',
            "RTX 3070",
            8,
        ),
    ],
)
def test_ollamas_log_is_read_cut_off_wrapped_and_as_of_late(log: str, name: str, gib: int) -> None:
    ram = 'time=2026-05-21T17:21:01 level=INFO msg="system memory" total="95.3 GiB" free="70.6 GiB"'
    hardware = parse_hardware(f"{log}\n{ram}")
    assert [gpu.name for gpu in hardware.gpus] == [f"NVIDIA GeForce {name}"]
    assert round(resolve(hardware).cards[0].total / 2**30) == gib
    assert hardware.ram is not None
    assert hardware.ram.total_gb == 95.3


def test_devices_of_vulkan_in_wsl_and_without_a_name_of_their_own() -> None:
    listed = (
        "GPU0:\n    deviceName  = Microsoft Direct3D12 (NVIDIA GeForce RTX 4090)\n"
        "    deviceType  = PHYSICAL_DEVICE_TYPE_DISCRETE_GPU\nGPU1:\n"
        "    deviceName  = Microsoft Direct3D12 (AMD Radeon(TM) Graphics)\n"
        "    deviceType  = PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU\n"
    )
    assert [gpu.name for gpu in parse_hardware(listed).gpus] == ["NVIDIA GeForce RTX 4090"]
    started = (
        "ggml_vulkan: Found 2 Vulkan devices:\n"
        "ggml_vulkan: 0 = AMD Radeon RX 9070 XT (AMD proprietary driver) | uma: 0 | fp16: 1 | warp size: 64\n"
        "ggml_vulkan: 1 = AMD Radeon(TM) Graphics (AMD proprietary driver) | uma: 1 | fp16: 1 | warp size: 32"
    )
    assert [gpu.name for gpu in parse_hardware(started).gpus] == ["AMD Radeon RX 9070 XT"]
    devices = (  # github.com/ggml-org/llama.cpp/issues/23769, bassmaster187, 2026-05-27
        "0.00.706.404 I   - Vulkan0 : Intel(R) Arc(TM) Pro B70 Graphics (32558 MiB, 31789 MiB free)\n"
        "0.00.707.479 I   - Vulkan1 : AMD Radeon(TM) Graphics (16066 MiB, 15263 MiB free)\n"
        "0.00.707.486 I   - CPU     : AMD Ryzen 9 7950X3D 16-Core Processor           (31621 MiB, 21372 MiB free)"
    )
    (card,) = resolve(parse_hardware(devices)).cards
    assert (card.name, card.backend) == ("Intel Arc Pro B70", "vulkan")


@pytest.mark.parametrize(
    ("pasted", "names", "ram"),
    [
        # From logs of llama.cpp, 2026: HIP lists a desktop processor's graphics under the processor's name.
        (
            "ggml_cuda_init: found 2 ROCm devices (Total VRAM: 35814 MiB):\n"
            "  Device 0: AMD Radeon RX 7900 XT, gfx1100 (0x1100), VMM: no, Wave Size: 32, VRAM: 20464 MiB\n"
            "  Device 1: AMD Ryzen 9 7950X 16-Core Processor, gfx1036 (0x1036), VMM: no, VRAM: 15350 MiB",
            ["AMD Radeon RX 7900 XT"],
            None,
        ),
        (
            "Available devices:\n  ROCm0: AMD Ryzen 7 7700 8-Core Processor (15479 MiB, 15400 MiB free)\n"
            "  ROCm1: AMD Radeon RX 9060 XT (16304 MiB, 16200 MiB free)",
            ["AMD Radeon RX 9060 XT"],
            None,
        ),
        # `amd-smi static`, cut off, from bug reports of 2026.
        (
            "$ amd-smi static\nGPU: 0\n    ASIC:\n        MARKET_NAME: AMD Radeon RX 9070 XT\n"
            "        TARGET_GRAPHICS_VERSION: gfx1201\n    BUS:\n        MAX_PCIE_SPEED: 32 GT/s\n"
            "GPU: 1\n    ASIC:\n        MARKET_NAME: AMD Instinct MI210",
            ["AMD Radeon RX 9070 XT", "AMD Instinct MI210"],
            None,
        ),
        # `free` without its head, or with one that lost its indent, as reports copy it.
        ("Mem:           125Gi       5.1Gi        68Gi\n\nGPU: RTX 3090", ["RTX 3090"], 125),
        (
            "total        used        free      shared  buff/cache   available\n"
            "Mem:           125Gi       5.7Gi       1.1Gi       4.8Mi       119Gi       119Gi\n\nGPU: RTX 3090",
            ["RTX 3090"],
            125,
        ),
        # fastfetch, cut off above the processor; dxdiag, quoted; lists of cards below their number.
        (
            "Terminal: ghostty 1.2.3\nCPU: AMD Ryzen 9 5950X (32) @ 5.08 GHz\n"
            "GPU 1: NVIDIA GeForce RTX 3090 [Discrete]\nMemory: 8.14 GiB / 62.70 GiB (13%)",
            ["NVIDIA GeForce RTX 3090"],
            62.7,
        ),
        (
            "> Processor: 13th Gen Intel(R) Core(TM) i9-13900K (32 CPUs), ~3.0GHz <br>\n> Memory: 65536MB RAM <br>\n"
            "> Card name: NVIDIA GeForce RTX 4080 <br>",
            ["NVIDIA GeForce RTX 4080"],
            64,
        ),
        (
            "3 GPU(s) detected\nGPU 0: NVIDIA GeForce RTX 3090\nGPU 1: NVIDIA GeForce RTX 3090\n"
            "GPU 2: NVIDIA GeForce RTX 3050",
            ["NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3050"],
            None,
        ),
        ("- GPU 0: RTX 3090, 24,576 MiB\n- GPU 1: RTX 4090, 24,564 MiB", ["RTX 3090", "RTX 4090"], None),
    ],
)
def test_parts_of_what_tools_print_are_read(pasted: str, names: list[str], ram: float | None) -> None:
    hardware = parse_hardware(pasted)
    assert [gpu.name for gpu in hardware.gpus] == names
    assert (hardware.ram.total_gb if hardware.ram else None) == ram


def test_a_number_of_cards_that_their_list_lacks_is_asked_about() -> None:
    with pytest.raises(InvalidHardware, match="4 GPUs"):
        parse_hardware("4 GPU(s) detected\nGPU 0: NVIDIA GeForce RTX 3090\nGPU 1: NVIDIA GeForce RTX 3090")


@pytest.mark.parametrize(
    "text",
    [
        "Ryzen 5 3600, 32GB RAM, RTX 3060, X11",
        "GPU: NVIDIA GeForce RTX 3060\nDisplay: x11 server: X.Org v: 1.21.1.4\nRAM: 32GB",
        "Ubuntu 22.04 (X11), RTX 3060, 32GB DDR4",
        "- GPU: RTX 3060\n- Desktop: KDE Plasma 6 X11\n- RAM: 32GB",
        "RTX 3060, 32GB, X11",
        "ROCM used to build PyTorch: N/A\nNVIDIA GeForce RTX 3060, 32GB RAM",
        "CPU: [Ryzen 9 7950X](https://example.com/a)\nGPU: [RTX 3060](https://example.com/b)\nRAM: 32GB",
        "GPU: RTX 3060\nRAM: 32GB（双通道）",
        "RTX 3060, 32GB (dual)",
        "running Gemma 2 27B on RTX 3060, 32GB",
        "llama3(8B) on RTX 3060, 32GB",
        "RTX 3060, 32GB, llama.cpp (7825)",
        "Ryzen 9 9950X3D (16C/32T, 1 NUMA), RTX 3060, 32GB",
        "GPU: RTX 3060\nMemory: 32 GiB of RAM (30.9 GiB usable)",
    ],
)
def test_what_stands_around_the_parts_is_no_number_of_them(text: str) -> None:
    rig = resolve(parse_hardware(text))
    assert [card.name for card in rig.cards] == ["NVIDIA GeForce RTX 3060"]
    assert rig.ram_bytes == 32 * 2**30


_STARTED = "Device {}: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes"


@pytest.mark.parametrize("n", [1, 2])
def test_a_second_log_of_the_same_machine_adds_no_cards(n: int) -> None:
    log = "\n".join((f"ggml_cuda_init: found {n} CUDA devices:", *(f"  {_STARTED.format(i)}" for i in range(n))))
    assert len(resolve(parse_hardware(f"{log}\nversion: 8284 (463b6a963)\n{log}")).cards) == n


@pytest.mark.parametrize("memory", ["Memory: 62.70 GiB used: 3.2 GiB", "Memory: total: 62.70 GiB available: 60 GiB"])
def test_inxis_line_of_memory_is_the_ram(memory: str) -> None:
    text = (
        "CPU:\n  Info: 8-core model: AMD Ryzen 7 5800X bits: 64\nGraphics:\n"
        f"  Device-1: NVIDIA GA106 [GeForce RTX 3060] driver: nvidia v: 535.183.01\nInfo:\n  {memory}"
    )
    ram = parse_hardware(text).ram
    assert ram is not None
    assert ram.total_gb == 62.7


@pytest.mark.parametrize(
    "line",
    ["OS: Win 11", "os: Win10 x64", "**os:** win 11", "* Windows Version: 11 23H2", "Windows version: Windows 11"],
)
def test_windows_is_known_by_its_short_name_and_by_its_version(line: str) -> None:
    assert resolve(parse_hardware(f"{line}\nRTX 3060")).windows
