"""Figures in descriptions that could be taken as others: threads, clocks, displayed sizes, shares of one memory."""

from __future__ import annotations

from collections import Counter

import pytest

from service.engine.catalogue import resolve
from service.engine.errors import AdvisorError, InvalidHardware
from service.engine.hardware import Hardware, Ram
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


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("My 3090 rig: 5950X, RTX 3090 24GB, 64GB RAM", 1),
        ("My 3090 rig: 5950X, 2x RTX 3090, 64GB RAM", 2),
        ("Running on 2x 3090. Specs: 2x RTX 3090, EPYC 7302, 256GB", 2),
        # kijai/ComfyUI-GIMM-VFI/issues/15, with another card
        (
            "OOM on RTX 3090\nTotal VRAM 24576 MB, total RAM 65277 MB\n"
            "Device: cuda:0 NVIDIA GeForce RTX 3090 : cudaMallocAsync",
            1,
        ),
        ("RTX 3090 24GB, RTX 3090 24GB, 5950X, 64GB RAM", 2),
        ("EVGA RTX 3090. MSI RTX 3090. 64GB RAM", 2),
        ("GPU 1: RTX 3090\nGPU 2: RTX 3090\n64GB RAM", 2),
    ],
)
def test_a_card_named_again_amid_other_parts_is_the_same(text: str, count: int) -> None:
    assert len(resolve(parse_hardware(text)).cards) == count


@pytest.mark.parametrize(
    "text",
    [
        "3090 rig: 5950X, 2x RTX 3090, 64GB RAM",
        "Ryzen 5 3600, 5090 + 3090, 64GB DDR4. The cards: RTX 5090 and RTX 3090",
    ],
)
def test_a_card_named_again_with_another_number_is_asked_about(text: str) -> None:
    with pytest.raises(InvalidHardware, match="named before"):
        parse_hardware(text)


@pytest.mark.parametrize(
    "text",
    [
        "RTX 3090, 64GB DDR4, 2TB NVMe PCIe 4.0",
        "RTX 3090, 64GB DDR4, Samsung 990 Pro 2TB PCIe 4.0 NVMe",
        "RTX 3090, 64GB DDR4, NVMe SSD (PCIe 4.0 x4)",
        "RTX 3090, 7950X, 10GbE PCIe x4 NIC, 64GB",
        # JustVugg/colibri/issues/605
        "* GPU: RTX 3090\n* Model drive: Samsung SSD 980 PRO 1TB NVMe, NTFS (ntfs3), PCIe4-class\n* RAM: 62 GB total",
    ],
)
def test_the_link_of_a_drive_or_a_network_card_is_no_gpus(text: str) -> None:
    assert [gpu.pcie for gpu in parse_hardware(text).gpus] == [None]


@pytest.mark.parametrize(
    ("text", "cpu"),
    [
        ("Ryzen AI 365 Notebook, 32Gb RAM 5600, 1Tb NVME", "AMD Ryzen AI 9 365"),  # JustVugg/colibri/issues/999
        ("RTX 3090, Xeon W-3365, 256GB", "Intel Xeon W-3365"),
        ("RTX 3090, Xeon w9-3495X, 256GB", "Intel Xeon w9-3495X"),
        ("GTX 1660 SUPER, Ryzen 5 3600 X, 16GB", "AMD Ryzen 5 3600X"),  # `2400 G` in nomic-ai/gpt4all/issues/376
    ],
)
def test_a_number_is_no_other_processors(text: str, cpu: str) -> None:
    assert resolve(parse_hardware(text)).cpu_model == cpu


@pytest.mark.parametrize(
    ("text", "vram", "ram"),
    [
        ("Intel Core i5-13600K/64G/RTX 5070 Ti 16GB/Samsung SSD 980 PRO", 16, 64),  # JustVugg/colibri/issues/605
        ("a 4090. I have 32gb of system ram, 24 of vram.", 24, 32),  # Comfy-Org/ComfyUI/issues/4853
    ],
)
def test_sizes_are_read_between_slashes_and_without_unit(text: str, vram: float, ram: float) -> None:
    hardware = parse_hardware(text)
    assert [gpu.vram_gib for gpu in hardware.gpus] == [vram]
    assert hardware.ram is not None
    assert hardware.ram.total_gb == ram


@pytest.mark.parametrize(
    ("text", "card"),
    [
        ("the Razer Blade18 4090 has both dedicated and shared memory", "NVIDIA GeForce RTX 4090 Laptop GPU"),
        ("Legion5 4060, 16GB RAM", "NVIDIA GeForce RTX 4060 Laptop GPU"),
        ("笔记本RTX4090 16G", "NVIDIA GeForce RTX 4090 Laptop GPU"),  # SkyworkAI/Skywork-R1V/issues/20
        ("ноутбук RTX 4060, 16 ГБ ОЗУ", "NVIDIA GeForce RTX 4060 Laptop GPU"),
        ("Dell XPS 15 9520 RTX 3050 Ti, 32GB RAM", "NVIDIA GeForce RTX 3050 Ti Laptop GPU"),
        ("msi raider ge78 4080, 64GB RAM", "NVIDIA GeForce RTX 4080 Laptop GPU"),
    ],
)
def test_the_card_of_a_laptop_is_one_of_a_laptop(text: str, card: str) -> None:
    assert [found.name for found in resolve(parse_hardware(text)).cards] == [card]


@pytest.mark.parametrize(
    ("text", "kind", "mts"),
    [
        ("RTX 3090, 64GB DDR3200", None, 3200),
        ("8x RTX 3090 / AMD Epyc 7443P - 256GB DDR-3200", None, 3200),  # ikawrakow/ik_llama.cpp/pull/1644
        ("RTX 3090, 64GB DDR 4 3200", "DDR4", 3200),
    ],
)
def test_the_rate_behind_ddr_is_read_without_its_kind(text: str, kind: str | None, mts: int) -> None:
    ram = parse_hardware(text).ram
    assert ram is not None
    assert (ram.type, ram.mts) == (kind, mts)


@pytest.mark.parametrize(
    ("text", "gb"),
    [
        ("macbook air m2 8gb 256gb", 8),
        ("M4 Pro 24GB 512GB", 24),
        ("Mac Studio M2 Ultra 128gb/1tb", 128),
        ("m1 max 64gb 2tb", 64),
    ],
)
def test_the_size_that_no_mac_is_sold_with_is_the_drives(text: str, gb: float) -> None:
    assert ram_of(text) == gb


def test_a_size_behind_a_card_and_a_comma_is_the_cards_beside_modules() -> None:
    hardware = parse_hardware("Memory: 32GB DDR4 3600 mhz (4x 8GB)\n\nGPU: GeForce RTX 3060, 12GB")
    assert cards_of(hardware) == [("GeForce RTX 3060", 1, 12.0)]
    assert hardware.ram is not None
    assert hardware.ram.total_gb == 32


def test_what_ik_llama_says_is_free_on_a_card_is_no_ram() -> None:  # ikawrakow/ik_llama.cpp/pull/1080
    started = "  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes, VRAM: 24077 MiB\n"
    assert parse_hardware(f"{started}CUDA0: using device CUDA0 - 23683 MiB free").ram is None


@pytest.mark.parametrize(
    ("cpu", "generation", "cores"),
    [
        ("i7-5820K", "haswell", 6),
        ("5960X", "haswell", 8),
        ("i7-4930K", "ivy bridge", 6),
        ("i7-4790K", "haswell", 4),
        ("Ryzen 9 8945HS", "zen4", 8),
        ("Ryzen 9 6900HX", "zen3", 8),
        ("Ryzen 9 9955HX", "zen5", 16),
    ],
)
def test_boards_of_four_channels_and_laptops_have_their_own_cores(cpu: str, generation: str, cores: int) -> None:
    rig = resolve(parse_hardware(f"RTX 3090, {cpu}, 64GB RAM"))
    assert (rig.cpu_generation, rig.physical_cores) == (generation, cores)


@pytest.mark.parametrize(
    ("text", "cards", "vram", "ram"),
    [
        ("У меня 2х RTX 3090, Ryzen 9 5950X, 128 Гб DDR4", 2, 24, 128),
        ("双3090，e5 2696v4双路，128g内存", 2, 24, 128),
        ("3090 2장, 5950x, 램 128기가", 2, 24, 128),
        ("[GPU] 2x 3090 [CPU] 5950X [RAM] 128GB", 2, 24, 128),
        ("48GB VRAM 2x 3090 / 128GB RAM", 2, 24, 128),
        ("Dell R730 2x2680v4 2x P40 128GB", 2, 22, 128),
        ("T7910 dual E5-2683 v4 128GB + RTX 3090", 1, 24, 128),
        ("M3 Max (16/40) 128GB", 1, 120, 128),
        ("ASUS GX10 128GB", 1, 118, 128),
        ("GPU: RTX 3080 Ti FTW3 Ultra 12GB\nRAM: 128GB Corsair Vengeance LPX 3200MHz (4x32GB)", 1, 12, 128),
    ],
)
def test_the_same_machine_is_read_in_other_ways_to_write_it(text: str, cards: int, vram: float, ram: float) -> None:
    rig = resolve(parse_hardware(text))
    assert (len(rig.cards), round(rig.cards[0].total / 2**30), ram_of(text)) == (cards, vram, ram)


def test_virtual_memory_is_no_ram() -> None:
    assert ram_of("3060, 16GB RAM + 32GB virtual memory") == 16


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        (
            "CPU: AMD Ryzen 7 5700X3D 8-Core Processor (16 cores)\nGPU: RTX 5060 Ti 16GB",
            8,
        ),  # AlexsJones/llmfit/issues/13
        ("RTX 3060, Ryzen 7 5700X3D (16 cores)", 8),
        ("RTX 3060, Ryzen 9 5900XT 16-Core Processor (32 cores)", 16),
    ],
)
def test_twice_the_cores_of_a_desktop_are_its_threads(text: str, cores: int) -> None:
    assert resolve(parse_hardware(text)).physical_cores == cores


def test_two_numbers_of_cores_are_asked_about() -> None:
    with pytest.raises(InvalidHardware, match="There are two numbers"):
        parse_hardware("32 core EPYC, 64 cores, RTX 3060")


def test_lines_of_a_journal_are_read_without_what_stands_before_them() -> None:
    lines = (
        "ggml_cuda_init: found 2 CUDA devices:",
        "  Device 0: NVIDIA GeForce RTX 3060, compute capability 8.6, VMM: yes",
        "  Device 1: NVIDIA GeForce RTX 3060, compute capability 8.6, VMM: yes",
    )
    journal = "\n".join(f"oct 29 13:35:49 morty ollama[43973]: {line}" for line in lines)
    assert cards_of(parse_hardware(journal)) == [("NVIDIA GeForce RTX 3060", 2, None)]  # ollama/ollama/issues/7403


def test_an_unknown_card_is_asked_about_without_a_space_too() -> None:
    with pytest.raises(InvalidHardware, match="GT 740"):
        parse_hardware("i7-9700 16GB GT740")


@pytest.mark.parametrize(
    ("text", "card"),
    [
        ("GTX 890M", None),  # no Radeon 880M
        ("Radeon 880M, 32GB DDR5-5600", "AMD Radeon 880M"),
        ("R9 390 8GB, i5 4690k", "AMD Radeon R9 390"),  # no Ryzen AI Max 390
        ("EVGA 750 G3, RTX 3090", None),  # a power supply, no GTX 750 Ti
        ("750 Ti", "NVIDIA GeForce GTX 750 Ti"),
        ("780M, 32GB DDR5-5600", "AMD Radeon 780M"),  # and the GTX 780M only by its line
        ("GTX 780M, i7-4700MQ", "NVIDIA GeForce GTX 780M"),
        ("GTX Titan 6GB", "NVIDIA GeForce GTX TITAN"),
        ("Titan RTX", "NVIDIA TITAN RTX"),
        ("R9 Fury X", "AMD Radeon R9 Fury X"),
        ("RTX3060 6GB, i7, 16GB RAM", "NVIDIA GeForce RTX 3060 Laptop GPU"),  # the desktop's has 8 or 12
    ],
)
def test_a_card_is_not_taken_for_another_makers_of_the_same_number(text: str, card: str | None) -> None:
    if card is None:
        with pytest.raises(AdvisorError):
            resolve(parse_hardware(text))
    else:
        assert [c.name for c in resolve(parse_hardware(text)).cards] == [card]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("HP Z840, 2x K80", "4x K80 12GB"),
        ("Tesla M60", "2x Tesla M60 8GB"),
        ("4x MI250X", "8x MI250X 64GB"),
        ("A16 64GB", "4x A16 16GB"),
    ],
)
def test_of_a_board_with_several_gpus_their_number_is_asked_for(text: str, right: str) -> None:
    with pytest.raises(InvalidHardware, match=right):
        parse_hardware(text)
    assert parse_hardware(right).gpus[0].count == int(right[0])


@pytest.mark.parametrize(
    "text",
    ["1000x RTX 3090", "2000 RTX 3090", "1000x 3090, 5950X", "128x 3090, 5950X, 64GB", "RTX 3090 x1000", "100 3090"],
)
def test_more_cards_than_a_machine_has_are_refused_and_taken_for_nothing_else(text: str) -> None:
    with pytest.raises(InvalidHardware, match=r"1 to 64 GPUs|64 GPUs at most"):  # 1000X was a Ryzen, 2000 a year
        parse_hardware(text)


@pytest.mark.parametrize("text", ["a thousand RTX 3090", "dozens of 3090", "RTX 3090 x 64"])
def test_a_number_of_cards_that_is_unclear_is_asked_for(text: str) -> None:
    with pytest.raises(InvalidHardware):
        parse_hardware(text)


@pytest.mark.parametrize("text", ["5950x 3090 64gb", "5950X, RTX 3090, 64GB, 3840 x 2160"])
def test_a_processor_before_a_card_is_neither_a_count_nor_a_screen(text: str) -> None:
    hardware = parse_hardware(text)
    assert [(gpu.name.upper().removeprefix("RTX "), gpu.count) for gpu in hardware.gpus] == [("3090", 1)]
    assert resolve(hardware).cpu_model == "AMD Ryzen 9 5950X"


@pytest.mark.parametrize(
    ("text", "gpus", "ram"),
    [
        ('{"gpu": ["RTX 3090", "RTX 3090"], "cpu": "5950X", "ram": "64GB"}', [("RTX 3090", 2)], 64),
        ('{"gpu": [{"model": "RTX 4090", "count": 2}], "ram": {"total_gb": 512}}', [("RTX 4090", 2)], 512),
        ('{"gpu": [{"count": 2, "name": "RTX 4090", "memory": "24GB"}], "memory": 64}', [("RTX 4090", 2)], 64),
        ('{"gpus": [{"name": "RTX 2060", "vram_mb": 6144}], "ram_mb": 65536, "os": "Linux"}', [("RTX 2060", 1)], 64),
        ('{"gpu": "NVIDIA GeForce RTX 3060",\n "vram_total": "11910 MB",\n "vram_free": "~10156 MB"}',
         [("NVIDIA GeForce RTX 3060", 1)], None),
        ('{"cpu_model": "AMD Ryzen 9 7900X", "gpu": {"available": true, "gpus": [{"name": "NVIDIA RTX 4080"}]},'
         ' "memory": {"total_bytes": 68719476736}}', [("NVIDIA RTX 4080", 1)], 64),
    ],
)  # fmt: skip
def test_json_of_another_program_is_read_as_words(text: str, gpus: list[tuple[str, int]], ram: float | None) -> None:
    hardware = parse_hardware(text)
    assert list(Counter(gpu.name for gpu in hardware.gpus for _ in range(gpu.count)).items()) == gpus
    assert (hardware.ram and hardware.ram.total_gb) == ram


@pytest.mark.parametrize("key", ["gpu", "gpus"])
def test_a_number_in_json_that_may_count_cards_is_asked_about(key: str) -> None:
    with pytest.raises(InvalidHardware):
        parse_hardware(f'{{"{key}": [{{"name": "RTX 3090", "cnt": 2}}]}}')


@pytest.mark.parametrize(
    ("text", "gpus", "ram"),
    [
        ("3x AMD Instinct MI50/MI60, 128GB", [("AMD Instinct MI50", 3)], 128),  # llama.cpp/issues/16424
        ("epyc 7642 256G-RAM 3080-10G x2", [("3080", 2)], 256),  # ktransformers/issues/764
        ("4x 3090s (24 GB RAM each), 256 GB RAM", [("3090", 4)], 256),  # textgen/issues/5151
        ("RTX 2070, two 16GB memory sticks", [("RTX 2070", 1)], 32),  # SDCN/issues/26
        ("4 GPUS, A10Gs, each with 24GiB GDDR6 RAM", [("A10G", 4)], None),  # vllm/issues/9373
        ("CPU: AMD RYZEN AI MAX+ 395 w/ Radeon 8060S\nRAM: 123Gi\n- **GPU 0:** NVIDIA GeForce RTX 3090 | 24576 MiB",
         [("NVIDIA GeForce RTX 3090", 1)], 123),  # club-3090/issues/120
    ],
)  # fmt: skip
def test_counts_and_sizes_in_other_words(text: str, gpus: list[tuple[str, int]], ram: float | None) -> None:
    hardware = parse_hardware(text)
    assert [(gpu.name, gpu.count) for gpu in hardware.gpus] == gpus
    assert (hardware.ram and hardware.ram.total_gb) == ram


@pytest.mark.parametrize(
    ("text", "cores", "isa"),
    [
        ("AMD FX(tm)-6300 Six-Core Processor, RAM 8GiB DDR3, GTX 1050ti", 6, "avx"),
        ("old cpuX5675 GPU RTX3070", 6, "sse"),  # github.com/ollama/ollama/issues/2903
        ("2x Xeon X5570, RTX 3060", 8, "sse"),
        ("Xeon E5410, GTX 1050 Ti", 4, "sse"),
    ],
)
def test_processors_without_avx2_are_known_by_their_numbers(text: str, cores: int, isa: str) -> None:
    rig = resolve(parse_hardware(text))
    assert (rig.physical_cores, rig.isa) == (cores, isa)


@pytest.mark.parametrize("text", ["RTX 3090 или 4090", "RTX 3090或者4090", "RTX 3090 ou 4090", "una 3090 o una 4090"])
def test_or_is_or_in_other_languages_too(text: str) -> None:
    with pytest.raises(InvalidHardware, match="which of the two"):
        parse_hardware(text)


@pytest.mark.parametrize(
    ("text", "card"),
    [
        ("Quadro P6000, 24GB RAM", None),  # github.com/XavierXiao/Dreambooth-Stable-Diffusion/issues/7: the card's
        ("Quadro P6000, 24GB system RAM", 24),
        ("RTX 5080, 16GB RAM", 16),  # as most machines have
    ],
)
def test_a_size_that_is_the_cards_and_no_usual_ram_is_asked_about(text: str, card: float | None) -> None:
    if card is None:
        with pytest.raises(InvalidHardware, match="the card's memory or the machine's"):
            parse_hardware(text)
    else:
        assert parse_hardware(text).ram == Ram(total_gb=card)


def test_pcie_with_a_hyphen_is_a_link_and_no_count() -> None:  # github.com/robertrosenbusch/gfx803_rocm/issues/51
    read = parse_hardware("- RX 580 #1 → PCIe-3 x16 (16 GB/s)\n- RX 580 #2 → M.2 → PCIe-3 x4 (4 GB/s) riser")
    assert sum(gpu.count for gpu in read.gpus) == 2


def test_gpu_cores_are_no_cores_of_the_cpu() -> None:  # github.com/Lospi/MetalDuck/issues/5
    listed = "Chip: Apple M2 Pro\nCPU Cores: 10 (6P   4E)\nGPU Cores: 16\nMemory: 16 GB\n"
    for text in (listed, "\n".join(f"- **{line.replace(':', ':**')}" for line in listed.splitlines())):
        assert [card.name for card in resolve(parse_hardware(text)).cards] == ["Apple M2 Pro 16-core GPU"]
    assert resolve(parse_hardware("RTX 3050\nGPU Cores: 2560\nRyzen 5600X")).physical_cores == 6


@pytest.mark.parametrize(
    "text",
    [
        "will it support 4GB RTX3050 with 40GB RAM i5 12th gen",  # github.com/kuleshov/minillm/issues/18
        "so It won't work on rtx 3050 4gb + i5-11400H 40gb ram ?",
    ],
)
def test_a_question_on_what_runs_is_no_plan(text: str) -> None:
    rig = resolve(parse_hardware(text))
    assert [card.name for card in rig.cards] == ["NVIDIA GeForce RTX 3050 Laptop GPU"]


def test_a_services_log_with_its_dates_in_chinese() -> None:  # github.com/ollama/ollama/issues/9245
    head = "2月 21 13:31:11 tc ollama[285585]: "
    read = parse_hardware(
        f"{head}device count 1\n{head}[GPU-433dad3d-903e] CUDA totalMem 16076 mb\n"
        f'{head}time=2025-02-21T13:31:11 level=INFO source=types.go:130 msg="inference compute" id=GPU-433dad3d-903e '
        'library=cuda name="NVIDIA GeForce RTX 4080" total="15.7 GiB" available="15.4 GiB"'
    )
    assert ([gpu.name for gpu in read.gpus], read.notes) == (["NVIDIA GeForce RTX 4080"], None)


@pytest.mark.parametrize(
    ("text", "vram", "ram"),
    [("GH200 624GB", 144, 480), ("GH200 576GB", 96, 480), ("GH200 480GB", None, 480), ("GH200 144GB", 144, None)],
)
def test_the_sum_of_a_gh200s_memories_is_taken_apart(text: str, vram: float | None, ram: float | None) -> None:
    hardware = parse_hardware(text)
    assert (hardware.gpus[0].vram_gib, ram_of(text)) == (vram, ram)


def test_memory_on_a_processor_is_no_cards() -> None:
    hardware = parse_hardware("RTX 3090, Xeon Max 9480 64GB HBM, 512GB DDR5")
    assert (hardware.gpus[0].vram_gib, ram_of("RTX 3090, Xeon Max 9480 64GB HBM, 512GB DDR5")) == (None, 512)
    assert resolve(hardware).cpu_generation == "sapphire rapids"


@pytest.mark.parametrize(
    ("text", "card", "ram"),
    [
        ("NVIDIA RTX4070 12G\nThe remaining video memory is 10G", 10, None),  # github.com/ollama/ollama issue 7585
        (
            "Total RAM: 119.63 GB\nAvailable RAM: 51.55 GB\nBackend: CUDA\nGPU: RTX 3090",
            None,
            51.55,
        ),  # as llmfit prints
        ("GPU: RTX 3090, free VRAM: 20GB, free memory: 50 GB, RAM: 64 GB", 20, 50),
        ("RTX 3090 (20GB free), 64GB RAM, 50GB free RAM", 20, 50),
    ],
)
def test_what_is_free_is_of_the_memory_that_is_named(text: str, card: float | None, ram: float | None) -> None:
    hardware = parse_hardware(text)
    assert hardware.gpus[0].free_gib == card
    assert (hardware.ram.free_gb if hardware.ram else None) == ram


@pytest.mark.parametrize("system", ["nobara 41", "Pop!_OS 22.04", "bazzite 42", "openSUSE Leap 15.6", "Kubuntu 24.10"])
def test_the_version_of_a_system_is_no_count(system: str) -> None:
    assert resolve(parse_hardware(f"RTX 4090, 7950X, 64GB, {system}")).os == "linux"


@pytest.mark.parametrize(
    ("text", "ram"),
    [
        ("2x E5-2690 v4, 128GB per CPU, RTX 3090", 256),
        ("E5-2699 v4 x 2, 8x32GB DDR4-2400 per CPU, 4x P40", 512),
        ("dual socket AMD EPYC 9965 with ~768GB RAM per socket, around 256GiB/s RAM bandwidth, no GPU", 1536),
        (
            "EPYC 9274F\nTotal Memory:576 GB (DDR5 RDIMM 4800)，12根内存，6x32G+6x64G\nRTX 4090",
            576,
        ),  # ktransformers issue 587
    ],
)
def test_memory_said_of_each_socket_or_in_parts_is_summed(text: str, ram: float) -> None:
    assert ram_of(text) == ram


def test_memory_of_each_socket_is_asked_about_where_their_number_is_unknown() -> None:
    with pytest.raises(InvalidHardware, match="sum of all sockets"):
        parse_hardware("E5-2690 v4, 128GB per CPU, RTX 3090")


@pytest.mark.parametrize(
    ("text", "vram", "ram"),
    [
        ("GPU RTX 3060 12GB, I use one 6GB model (and 64GB RAM). 10GB SDXL image models", 12, 64),  # gpt4all issue 1843
        ("4060 Ti, 16GB model, 64GB RAM", 16, 64),
        ("RTX 3090, 64GB DDR4 RAM Model: Corsair", None, 64),
        ("RTX 3090, 32GB RAM, but 16GB or less is difficult", None, 32),
        ("GTX 1060 6GB VRAM; 32 GB RAM; 2 x SATA SSDs, 256 GB each; 2 x SATA HDDs, 2 TB each", 6, 32),  # lms issue 582
        ("Ryzen 7 3700x with 32 GByte RAM and 22 TByte Storage, Quadro P620", None, 32),  # janhq/jan issue 8934
        ("2x RTX 3080 20 GB, 2x 1536 MB reserve", 20, None),
        ("RTX 4050 6gb and 16gb ram and am running ministral 8b", 6, 16),  # LostRuins/koboldcpp issue 1294
        ("AMD Ryzen 7 8845HS\nGPU: AMD Radeon 780M (iGPU) 4GB VRAM + 20GB Shared", None, None),  # llama.cpp issue 24664
        ("RTX 3050 4G显存+16G内存", 4, 16),  # lllyasviel/Fooocus issue 260
        ("Total VRAM 2048 MB, total RAM 8082 MB\nyour GPU seems to have 4GB or less\nDevice: cuda:0 GTX 960M", 2, 7.89),
    ],
)
def test_sizes_of_models_drives_and_needs_are_no_memory_of_the_machine(
    text: str, vram: float | None, ram: float | None
) -> None:
    assert (parse_hardware(text).gpus[0].vram_gib, ram_of(text)) == (vram, ram)


def test_what_can_be_ordered_is_not_there_yet() -> None:  # randaller/llama-chat issue 12
    with pytest.raises(InvalidHardware, match="may be a plan"):
        parse_hardware("I have a 3090. I can order up to 192GB of RAM")


@pytest.mark.parametrize(
    "text",
    [
        "I'd be interested in the results for my M4 Max (16 CPU, 40 GPU) with 64GB",
        "tell me if this will work with M4 Max 64GB",
        "M4 Max, it should be seeing 64GB",
    ],
)
def test_wishes_and_expectations_are_no_plans(text: str) -> None:
    assert ram_of(text) == 64


@pytest.mark.parametrize(
    ("text", "ram", "free"),
    [
        ("Mac mini, Apple M2 Pro, 32 GB unified, boot volume 460 GiB / ~20 GiB free", 32, None),  # Rapid-MLX pull 2512
        ("I have 40gb ram, using page file with 32gb size, RTX 3090", 40, None),  # ComfyUI-WanVideoWrapper issue 636
        ("RTX 3080 Ti, 64GB. Model: Qwen3.6-35B-A3B IQ4_K_R4 (18.37 GiB), 2 reps", 64, None),  # ik_llama.cpp pull 1687
        ("Ryzen AI Max+ 395 (16 C/32 T), Radeon 8060S – 40 CU, 128 GB LPDDR5X", 128, None),  # ComfyUI issue 10277
        ("Now I upgraded my GPU RTX 5060 Ti 16GB, 27,9GB RAM", 27.9, None),  # ComfyUI issue 12451
    ],
)
def test_what_is_on_a_drive_or_in_a_model_is_no_ram(text: str, ram: float, free: float | None) -> None:
    found = parse_hardware(text).ram
    assert found is not None
    assert (found.total_gb, found.free_gb) == (ram, free)
