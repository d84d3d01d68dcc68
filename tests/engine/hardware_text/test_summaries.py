"""What lspci, neofetch and inxi say of a machine, in their own formats (written here, with names of the PCI list)."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.errors import InvalidHardware
from service.engine.hardware import Cpu, Hardware, Ram
from service.engine.hardware_text import parse_hardware

NEOFETCH = """\
            .-/+oossssoo+/-.               me@box
        `:+ssssssssssssssssss+:`           -------
      -+ssssssssssssssssssyyssss+-         OS: Ubuntu 22.04.4 LTS x86_64
    .ossssssssssssssssssdMMMNysssso.       Host: B550 AORUS ELITE V2
   /ssssssssssshdmmNNmmyNMMMMhssssss/      Kernel: 6.5.0-28-generic
  +ssssssssshmydMMMMMMMNddddyssssssss+     Uptime: 3 hours, 12 mins
 /sssssssshNMMMyhhyyyyhmNMMMNhssssssss/    Resolution: 2560x1440
.ssssssssdMMMNhsssssssssshNMMMdssssssss.   CPU: AMD Ryzen 7 5800X (16) @ 3.800GHz
+sssshhhyNMMNyssssssssssssyNMMMysssssss+   GPU: NVIDIA GeForce RTX 3060 Lite Hash Rate
ossyNMMMNyMMhsssssssssssssshmmmhssssssso   GPU: NVIDIA GeForce RTX 3090
ossyNMMMNyMMhsssssssssssssshmmmhssssssso   Memory: 5923MiB / 64220MiB
"""
FASTFETCH = """\
OS: Windows 11 (Pro) x86_64
Host: MS-7D91 (2.0)
Kernel: WIN32_NT 10.0.26100
Uptime: 5 hours
CPU: AMD Ryzen 9 7950X (32) @ 5.88 GHz
GPU 1: NVIDIA GeForce RTX 4090 (24.00 GiB) [Discrete]
GPU 2: AMD Radeon(TM) Graphics (512.00 MiB) [Integrated]
Memory: 11.23 GiB / 61.97 GiB (18%)
Swap: 0 B / 4.00 GiB (0%)
"""
INXI = """\
System:
  Host: box Kernel: 6.8.0-40-generic arch: x86_64 bits: 64
Machine:
  Type: Desktop Mobo: ASUSTeK model: ROG STRIX X570-E GAMING v: Rev X.0x
CPU:
  Info: 16-core model: AMD Ryzen 9 5950X bits: 64 type: MT MCP cache: L2: 8 MiB
  Speed (MHz): avg: 2200 min/max: 2200/5083
Graphics:
  Device-1: NVIDIA GA102 [GeForce RTX 3090] vendor: ZOTAC driver: nvidia v: 550.90.07
  Device-2: NVIDIA GP102GL [Tesla P40] driver: nvidia v: 550.90.07
Audio:
  Device-1: NVIDIA GA102 High Definition Audio driver: snd_hda_intel
Memory:
  System RAM: total: 128 GiB available: 125.68 GiB used: 9.1 GiB (7.2%)
"""
LSPCI = """\
00:02.0 VGA compatible controller: Intel Corporation Raptor Lake-S GT1 [UHD Graphics 770] (rev 04)
01:00.0 VGA compatible controller [0300]: NVIDIA Corporation AD102 [GeForce RTX 4090] [10de:2684] (rev a1)
01:00.1 Audio device: NVIDIA Corporation AD102 High Definition Audio Controller (rev a1)
02:00.0 3D controller: NVIDIA Corporation GP102GL [Tesla P40] (rev a1)
"""


def names(hardware: Hardware) -> list[str]:
    return [gpu.name for gpu in hardware.gpus for _ in range(gpu.count)]


@pytest.mark.parametrize("text", [NEOFETCH, "\n".join(line[43:] for line in NEOFETCH.splitlines())])
def test_neofetch_is_read_with_its_picture_or_without(text: str) -> None:
    hardware = parse_hardware(text)
    assert names(hardware) == ["NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 3090"]
    assert resolve(hardware).cpu_model == "AMD Ryzen 7 5800X"
    assert hardware.ram is not None
    assert (hardware.ram.total_gb, hardware.ram.free_gb) == (62.71, 56.93)


def test_fastfetch_gives_the_system_and_leaves_out_the_processors_gpu() -> None:
    hardware = parse_hardware(FASTFETCH)
    assert (names(hardware), hardware.os) == (["NVIDIA GeForce RTX 4090"], "windows")
    halo = FASTFETCH.replace("GPU 1: NVIDIA GeForce RTX 4090 (24.00 GiB) [Discrete]\n", "").replace(
        "AMD Radeon(TM) Graphics", "AMD Radeon 8060S Graphics"
    )
    assert [card.name for card in resolve(parse_hardware(halo)).cards] == ["AMD Radeon 8060S"]


def test_inxi_is_read_and_sound_cards_are_none() -> None:
    hardware = parse_hardware(f"{INXI}\nDDR4-3600")
    assert names(hardware) == ["NVIDIA GeForce RTX 3090", "NVIDIA Tesla P40"]
    assert resolve(hardware).cpu_model == "AMD Ryzen 9 5950X"
    assert hardware.ram is not None
    assert (hardware.ram.total_gb, hardware.ram.mts) == (128.0, 3600)


def test_lspci_gives_the_cards_in_pci_order() -> None:
    hardware = parse_hardware(f"{LSPCI}i9-13900K 128GB DDR5-5200")
    assert names(hardware) == ["NVIDIA GeForce RTX 4090", "NVIDIA Tesla P40"]
    assert resolve(hardware).order_known
    verbose = LSPCI.replace("(rev 04)\n", "(rev 04)\n\tSubsystem: Device 1043:8882\n\tKernel driver in use: i915\n")
    assert names(parse_hardware(f"{verbose}\t96GB RAM")) == names(hardware)
    assert resolve(parse_hardware(f"{verbose}\t96GB RAM")).ram_bytes == 96 * 2**30
    mobile = "01:00.0 VGA compatible controller: NVIDIA Corporation AD107M [GeForce RTX 4060 Max-Q / Mobile] (rev a1)"
    assert [card.name for card in resolve(parse_hardware(mobile)).cards] == ["NVIDIA GeForce RTX 4060 Laptop GPU"]
    halo = (
        "c1:00.0 Display controller: Advanced Micro Devices, Inc. [AMD/ATI] Strix Halo [Radeon Graphics / Radeon 8060S]"
    )
    assert [card.name for card in resolve(parse_hardware(f"{halo}\n128GB")).cards] == ["AMD Radeon 8060S"]


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ("Advanced Micro Devices, Inc. [AMD/ATI] Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE]", "several cards"),
        ("NVIDIA Corporation Device 2b85 (rev a1)", "no name there"),
    ],
)
def test_a_chip_that_lspci_does_not_tell_apart_is_asked_about(line: str, asks: str) -> None:
    with pytest.raises(InvalidHardware, match=asks):
        parse_hardware(f"03:00.0 VGA compatible controller: {line}\n7800X3D, 64GB")


def test_screenfetch_says_ram_for_memory() -> None:
    # github.com/geerlingguy/ai-benchmarks/issues/2, geerlingguy, 2024-11-20 (its picture in part)
    read = parse_hardware(
        " -/+:.          OS: 64bit macOS  \n:++++.           Kernel: arm64 Darwin 24.1.0\n"
        "  `syyyyyyyyyy+`  CPU: Apple M4\n   `ossssss/    GPU: Apple M4 \n     :ooo+.     RAM: 3320MiB / 32768MiB"
    )
    assert [gpu.name for gpu in read.gpus] == ["Apple M4"]
    assert (read.ram and read.ram.total_gb, read.os) == (32, "macos")


def test_a_list_written_by_hand_is_no_summary_of_a_tool() -> None:
    read = parse_hardware("OS: Ubuntu\nKernel: 6.3\nCPU: 2x Xeon 6138\nGPU: 2x 3090\nMemory: 64GB")
    assert [(gpu.name, gpu.count) for gpu in read.gpus] == [("3090", 2)]
    one = parse_hardware("OS: Ubuntu\nKernel: 6.3\nCPU: Ryzen 5950X\nGPU: RX 6900 XT\nMemory: 64GB")
    assert [m.ram.total_gb if m.ram else None for m in (read, one)] == [64, 64]


@pytest.mark.parametrize(
    ("text", "cpu", "cores", "card"),
    [
        (
            "Operating System: Kubuntu 24.04\nKDE Plasma Version: 5.27.11\nQt Version: 5.15.13\n"
            "Kernel Version: 6.8.0-45-generic (64-bit)\nGraphics Platform: X11\n"
            "Processors: 16 × AMD Ryzen 7 5800X 8-Core Processor\nMemory: 32.0 GiB of RAM\n"
            "Graphics Processor: NVIDIA GeForce RTX 3060/PCIe/SSE2",
            "AMD Ryzen 7 5800X",
            8,
            "NVIDIA GeForce RTX 3060",
        ),
        (
            "## Hardware Information:\n- **Hardware Model:** ASUS TUF GAMING X570-PLUS\n- **Memory:** 32.0 GiB\n"
            "- **Processor:** AMD Ryzen™ 9 5950X × 32\n- **Graphics:** NVIDIA Corporation GA102 [GeForce RTX 3090]\n"
            "- **Disk Capacity:** 2.0 TB\n\n## Software Information:\n- **OS Name:** Fedora Linux 42\n"
            "- **OS Type:** 64-bit\n- **GNOME Version:** 48\n- **Windowing System:** Wayland",
            "AMD Ryzen 9 5950X",
            16,
            "NVIDIA GeForce RTX 3090",
        ),
    ],
)
def test_the_settings_of_desktops_count_threads(text: str, cpu: str, cores: int, card: str) -> None:
    read = parse_hardware(text)
    rig = resolve(read)
    assert (rig.cpu_model, rig.sockets, rig.physical_cores) == (cpu, 1, cores)
    assert ([c.name for c in rig.cards], read.ram and read.ram.total_gb) == ([card], 32)


def test_two_processors_of_a_server_are_no_threads() -> None:
    for text in ("Processors: 2 x Xeon 6138\n3090, 64GB", "Processor: Xeon 6138 x 2\n3090, 64GB"):
        assert resolve(parse_hardware(text)).sockets == 2


def test_a_bare_number_behind_the_label_of_memory_is_gigabytes() -> None:
    read = parse_hardware("gpu: RTX 3090\nvram: 24\nram: 64\ncpu: Ryzen 5800X")
    assert ([gpu.vram_gib for gpu in read.gpus], read.ram and read.ram.total_gb) == ([24], 64)


# The list: as in a guide to a server's hardware in a public repository (SYS-6029P-TRT), with a card added.
LSHW_SHORT = """\
H/W path          Device          Class          Description
============================================================
                                  system         SYS-6029P-TRT (091715D9)
/0                                bus            X11DPi-NT
/0/0                              memory         64KiB BIOS
/0/13                             memory         128GiB System Memory
/0/13/0                           memory         32GiB DIMM DDR4 Synchronous 2666 MHz (0.4 ns)
/0/13/1                           memory         [empty]
/0/48                             processor      Intel(R) Xeon(R) Silver 4114 CPU @ 2.20GHz
/0/4c                             processor      Intel(R) Xeon(R) Silver 4114 CPU @ 2.20GHz
/0/100/1/0        /dev/fb0        display        TU102 [GeForce RTX 2080 Ti]
/0/100/1f.3       card0           multimedia     C620 Audio
/1                eno1            network        Ethernet interface"""
LSHW_DISPLAY = """\
$ sudo lshw -C display
  *-display
       description: VGA compatible controller
       product: GA102 [GeForce RTX 3090]
       vendor: NVIDIA Corporation
       physical id: 0
       bus info: pci@0000:01:00.0
       version: a1
       width: 64 bits
       clock: 33MHz
       capabilities: pm msi pciexpress vga_controller bus_master cap_list rom
       configuration: driver=nvidia latency=0
       resources: irq:145 memory:f6000000-f6ffffff
  *-display
       description: Display controller
       product: AlderLake-S GT1
       vendor: Intel Corporation
       physical id: 2
       configuration: driver=i915 latency=0
64GB RAM"""
LSHW = """\
myhost
    description: Desktop Computer
    width: 64 bits
  *-core
       description: Motherboard
     *-memory
          description: System Memory
          physical id: f
          slot: System board or motherboard
          size: 64GiB
        *-bank:0
             description: DIMM DDR4 Synchronous Unbuffered (Unregistered) 3200 MHz (0.3 ns)
             size: 32GiB
     *-cpu
          description: CPU
          product: AMD Ryzen 9 5950X 16-Core Processor
          vendor: Advanced Micro Devices [AMD]
          configuration: cores=16 enabledcores=16 microcode=169 threads=32
     *-pci
        *-display
             product: Navi 21 [Radeon RX 6900 XT]
             vendor: Advanced Micro Devices, Inc. [AMD/ATI]"""


def test_lshw_s_list_gives_cards_sockets_and_ram() -> None:
    read = parse_hardware(LSHW_SHORT)
    assert [(gpu.name, gpu.count) for gpu in read.gpus] == [("NVIDIA GeForce RTX 2080 Ti", 1)]
    assert (read.cpu.model, read.cpu.sockets) == ("Intel(R) Xeon(R) Silver 4114 CPU @ 2.20GHz", 2)  # type: ignore[union-attr]
    assert (read.ram.total_gb, read.ram.type, read.ram.mts) == (128, "DDR4", 2666)  # type: ignore[union-attr]
    assert read.notes is None


def test_lshw_of_one_class_gives_its_cards_without_intel_s_graphics() -> None:
    read = parse_hardware(LSHW_DISPLAY)
    assert [gpu.name for gpu in read.gpus] == ["NVIDIA GeForce RTX 3090"]
    assert read.ram == Ram(total_gb=64)


def test_lshw_s_tree_gives_the_whole_machine() -> None:
    read = parse_hardware(LSHW)
    assert [gpu.name for gpu in read.gpus] == ["AMD Radeon RX 6900 XT"]
    assert read.cpu == Cpu(model="AMD Ryzen 9 5950X 16-Core Processor", physical_cores=16)
    assert read.ram == Ram(total_gb=64, type="DDR4", mts=3200)


def test_a_chip_that_lshw_does_not_tell_apart_is_asked_about() -> None:
    with pytest.raises(InvalidHardware, match="several cards have this chip"):
        parse_hardware("/0/100/1/0  /dev/fb0  display  Tahiti XT [Radeon HD 7970/8970 OEM / R9 280X]")


def test_comfyuis_report_and_its_log() -> None:
    # github.com/Comfy-Org/ComfyUI/issues/5278, yankilong, and 5511, EasyComfyui, 2024-11-06
    report = "## Devices\n- **Name:** cuda:0 NVIDIA GeForce RTX 2060 : cudaMallocAsync\n  - **VRAM Total:** 12884443136"
    assert [gpu.vram_gib for gpu in parse_hardware(f"{report}\n  - **Torch VRAM Free:** 1925").gpus] == [12.0]
    log = "Total VRAM 24576 MB, total RAM 49088 MB\n[2024-11-06 23:40:42.576] Device: cuda:0 NVIDIA GeForce RTX 3090"
    machine = parse_hardware(log)
    assert [gpu.name for gpu in machine.gpus] == ["NVIDIA GeForce RTX 3090"]
    assert machine.ram is not None
    assert machine.ram.total_gb == 47.94


def test_two_machines_of_one_kind_are_asked_about() -> None:
    # github.com/exo-explore/exo/issues/1641, tikilas, 2026-03-02
    with pytest.raises(InvalidHardware, match="several machines"):
        parse_hardware("Hardware:\nDevice 1: Mac Studio M3 ULTRA, 512GB RAM\nDevice 2: Mac Studio M3 ULTRA, 512GB RAM")


SSU = """\
# Scanned Hardware
Computer:
          BaseBoard Manufacturer:"ASUSTeK COMPUTER INC."
          Processor:"11th Gen Intel(R) Core(TM) i7-11700K @ 3.60GHz , GenuineIntel"
          Sound Card:"NVIDIA Virtual Audio Device (Wave Extensible) (WDM)"
          - "Displays"
               - "MAG 276CF E20"
                    Display Name:"MAG 276CF E20"
          - "Display"
               Intel ® Graphics Driver Version:"27.20.100.9466"
               - "Intel(R) Arc(TM) A770 Graphics"
                    Adapter RAM:"1.00 GB"
                    - "Caption":"Intel(R) Arc(TM) A770 Graphics"
               - "Intel(R) UHD Graphics Family"
                    Adapter RAM:"1.00 GB"
                    Video Processor:"Intel(R) UHD Graphics Family"
          - "Memory"
               Physical Memory (Available):"12,25 GB"
               Physical Memory (Installed):"64 GB"
               - "BANK 0"
                    Capacity:"32 GB"
                    Channel:"Controller0-ChannelA-DIMM0"
                    Configured Clock Speed:"3200 MHz"
                    Data Width:"64 bits"
                    Memory Type:"DDR4"
               - "BANK 1"
                    Capacity:"32 GB"
                    Channel:"Controller1-ChannelA-DIMM0"
                    Configured Clock Speed:"3200 MHz"
                    Data Width:"64 bits"
                    Memory Type:"DDR4"
"""


@pytest.mark.parametrize("text", [SSU, "\n".join(line.strip() for line in SSU.split("\n"))])
def test_the_report_of_intels_support_utility(text: str) -> None:
    # after IGCIT/Intel-GPU-Community-Issue-Tracker-IGCIT/issues/203, 498 and 1370
    machine = parse_hardware(text)
    assert [(gpu.name, gpu.count, gpu.vram_gib) for gpu in machine.gpus] == [
        ("Intel(R) Arc(TM) A770 Graphics", 1, None)
    ]
    assert (resolve(machine).cpu_model, machine.ram) == (
        "Intel Core i7-11700K",
        Ram(total_gb=64, type="DDR4", channels=2, mts=3200),
    )


# A card as in github.com/fastfetch-cli/fastfetch/issues/1284, the memory as in issues/1174, the rest in their form.
FETCHED = """\
[
  {
    "type": "OS",
    "result": {
      "id": "arch",
      "name": "Arch Linux"
    }
  },
  {
    "type": "CPU",
    "result": {
      "cpu": "AMD Ryzen 7 5800X",
      "cores": {
        "physical": 8,
        "logical": 16,
        "online": 16
      },
      "packages": 1
    }
  },
  {
    "type": "GPU",
    "result": [
      {
        "coreCount": 60,
        "memory": {
          "dedicated": {
            "total": 16935841792,
            "used": 606416896
          }
        },
        "name": "AMD Radeon RX 7800 XT",
        "type": "Discrete",
        "vendor": "AMD"
      },
      {
        "name": "AMD Radeon Graphics",
        "type": "Integrated",
        "vendor": "AMD"
      }
    ]
  },
  {
    "type": "Memory",
    "result": {
      "total": 33247907840,
      "used": 3278094336
    },
    "stat": 0
  }
]
"""


@pytest.mark.parametrize("text", [FETCHED, "\n".join(FETCHED.splitlines()[1:-1])])
def test_fastfetch_s_json_gives_the_machine_whole_or_in_part(text: str) -> None:
    read = parse_hardware(text)
    assert [(gpu.name, gpu.vram_gib) for gpu in read.gpus] == [("AMD Radeon RX 7800 XT", None)]
    assert read.cpu == Cpu(model="AMD Ryzen 7 5800X", physical_cores=8)
    assert read.ram == Ram(total_gb=30.96, free_gb=27.91)
    assert read.notes is None


# github.com/intel-gpu/intel-gpu-i915-backports/issues/167, with another card.
XPU_SMI = """\
xpu-smi discovery
+-----------+--------------------------------------------------------------------------------------+
| Device ID | Device Information                                                                   |
+-----------+--------------------------------------------------------------------------------------+
| 0         | Device Name: Intel(R) UHD Graphics 770                                               |
|           | PCI BDF Address: 0000:00:02.0                                                        |
+-----------+--------------------------------------------------------------------------------------+
| 1         | Device Name: Intel(R) Arc(TM) A770 Graphics                                          |
|           | Memory Physical Size: 15473.58 MiB                                                   |
+-----------+--------------------------------------------------------------------------------------+
"""


def test_xpu_smi_gives_the_cards_without_the_processors_own() -> None:
    read = parse_hardware(XPU_SMI)
    assert names(read) == ["Intel(R) Arc(TM) A770 Graphics"]
    assert resolve(read).cards[0].total >> 30 == 15
    assert read.notes is None


def test_cudas_device_query_gives_cards_and_memory() -> None:
    read = parse_hardware(
        'Device 0: "NVIDIA GeForce GTX 1060"\n'
        "  CUDA Driver Version / Runtime Version          12.2 / 12.1\n"
        "  Total amount of global memory:                 3018 MBytes (3164602368 bytes)\n"
    )
    assert [card.name for card in resolve(read).cards] == ["NVIDIA GeForce GTX 1060 3GB"]


# github.com/smxi/inxi/issues/192
def test_the_card_that_draws_the_screen_tells_inxis_chip_apart() -> None:
    read = parse_hardware(
        "CPU:       Topology: Quad Core model: Intel Core i5-3570K bits: 64 type: MCP arch: Ivy Bridge rev: 9\n"
        "Graphics:  Device-1: Advanced Micro Devices [AMD/ATI] Ellesmere [Radeon RX 470/480/570/570X/580/580X/590] \n"
        "           vendor: Micro-Star MSI driver: amdgpu v: kernel bus ID: 01:00.0 \n"
        "           OpenGL: renderer: AMD Radeon RX 480 Graphics (POLARIS10 DRM 3.32.0 5.2.13-1 LLVM 8.0.1) v: 4.5\n"
    )
    assert [card.name for card in resolve(read).cards] == ["AMD Radeon RX 480"]
    assert read.cpu == Cpu(model="Intel Core i5-3570K")


# github.com/easybuilders/easybuild-framework/pull/3978
def test_rocm_smi_names_a_card_by_the_words_that_are_a_card() -> None:
    series = "GPU[0] : Card series: Fiji [Radeon R9 FURY / NANO Series]\nGPU[0] : Card model: Radeon R9 FURY X\n"
    assert [card.name for card in resolve(parse_hardware(series)).cards] == ["AMD Radeon R9 Fury X"]
    csv = "device,Card series,Card model\ncard0,Arcturus GL-XL [AMD Instinct MI100],0x0c34\n"
    assert [card.name for card in resolve(parse_hardware(csv)).cards] == ["AMD Instinct MI100"]


def test_lscpu_without_its_model_gives_the_cores_of_all_sockets() -> None:
    cut_off = "Architecture: x86_64\nCPU(s): 192\nThread(s) per core: 2\nCore(s) per socket: 48\n"
    assert parse_hardware(f"RTX 3090\n{cut_off}").cpu == Cpu(sockets=2, physical_cores=96)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("DMI Product Name: 83F5\nGPU: RTX 5090 Laptop", "DMI Product Name: 83F5"),
        ("RTX 3090\nScore: 76 (A)", "Score: 76 (A)"),
        ("RTX 3090\nTicket: AB-1234", "Ticket: AB-1234"),
    ],
)
def test_a_line_whose_label_is_of_no_part_and_that_names_none_is_handed_back(text: str, kept: str) -> None:
    assert kept in (parse_hardware(text).notes or "")


@pytest.mark.parametrize(
    "text", ["RTX 3090\nAnzahl: 2", "RTX 3090\nOthers: 4", "RTX 3090\nОперативка: 128", "RTX 3090\nSticks: 83F5"]
)
def test_a_count_or_a_part_s_label_is_asked_about_still(text: str) -> None:
    with pytest.raises(InvalidHardware):
        parse_hardware(text)
