"""Whole machines by name: what is rented as a product, what shares its memory with a GPU, and several of them."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.errors import InvalidHardware
from service.engine.hardware import Ram
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.form import to_shorthand
from service.engine.units import GIB, MIB

SFF = "NVIDIA RTX 4000 SFF Ada Generation"


def cards(text: str) -> list[str]:
    return [card.name for card in resolve(parse_hardware(text)).cards]


@pytest.mark.parametrize(
    ("text", "card", "n", "ram_gb"),
    [
        ("Hetzner GEX44", SFF, 1, 64),
        ("Hetzner GEX44 (RTX 4000 Ada, €200/mo)", SFF, 1, 64),
        ("Hetzner GEX44, RTX 4000 SFF Ada 20GB VRAM, i5-13500, 64GB RAM", SFF, 1, 64),
        ("### p5.48xlarge (8× H100, NVSwitch)", "NVIDIA H100 80GB HBM3", 8, 2048),
        ("g5.12xlarge (A10G)", "NVIDIA A10G", 4, 192),
        # github.com/autogluon/tabarena/issues/185
        ("I have been able to run many of the models using g6.2xlarge instances.", "NVIDIA L4", 1, 32),
        ("GEX131, 512GB RAM", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 1, 512),
    ],
)
def test_a_rented_product_says_which_cards_and_the_text_what_differs(
    text: str, card: str, n: int, ram_gb: float
) -> None:
    hardware = parse_hardware(text)
    assert cards(text) == [card] * n
    assert hardware.ram is not None
    assert hardware.ram.total_gb == ram_gb


@pytest.mark.parametrize(
    "text",
    [
        "g5.xlarge with an RTX 3090",
        "EC2 g6.12xlarge (L4) and g5.12xlarge (A10G) with vLLM",
        "p5.48xlarge, 4x H100",
        "NVIDIA GB10 (DGX Spark, Asus Ascent GX10, Jetson Thor)",
        "RTX 3090 workstation + Jetson Orin Nano 8 GB",
        "Radeon 780M, Radeon 8060S, 64GB",
        "M3 Ultra 512GB, RTX 4090",
    ],
)
def test_parts_of_several_machines_are_asked_about(text: str) -> None:
    with pytest.raises(InvalidHardware):
        parse_hardware(text)


@pytest.mark.parametrize(
    ("text", "card"),
    [
        ("AMD Ryzen AI MAX 385 „Strix Halo“, iGPU Radeon 8050S, 30 GiB RAM", "AMD Radeon 8050S"),
        ("Strix Halo, Ryzen AI Max 390, 64GB", "AMD Radeon 8050S"),
        ("Ryzen AI Max+ 392, 128GB", "AMD Radeon 8060S"),
        ("AMD RYZEN AI MAX+ 388 w/ Radeon 8060S, 64GB", "AMD Radeon 8060S"),
        ("MSI EdgeXpert MS-C931 (DGX Spark platform). GB10 Grace Blackwell Superchip, 128GB unified", "NVIDIA GB10"),
    ],
)
def test_a_machine_named_in_several_ways_is_counted_once(text: str, card: str) -> None:
    assert cards(text) == [card]


# kristopherclark.com, on two GPUs, 2026: an Arc Pro B70 has 32 GB
@pytest.mark.parametrize(
    "text", ["RTX 3090 (24 GB GDDR6X), Intel Arc Pro B70 (16 GB GDDR6)", "RTX 3090 16GB GDDR6 card"]
)
def test_a_size_within_a_name_is_asked_about_as_one_behind_it(text: str) -> None:
    with pytest.raises(InvalidHardware, match="is sold with"):
        parse_hardware(text)


@pytest.mark.parametrize("text", ["GPU name: Apple M3 Max\nGPU memory: 64 GB", "M3 Max, GPU memory 64GB"])
def test_the_gpu_memory_of_a_mac_is_its_ram(text: str) -> None:  # github.com/philipturner/applegpuinfo/issues/4
    assert (ram := parse_hardware(text).ram) is not None
    assert ram.total_gb == 64


def test_a_name_keeps_no_bracket_of_which_the_size_was_taken() -> None:  # as kristopherclark.com writes them
    assert [gpu.name for gpu in parse_hardware("NVIDIA RTX 3090 (24 GB GDDR6X), 64GB").gpus] == [
        "NVIDIA RTX 3090 GDDR6X"
    ]
    assert [gpu.name for gpu in parse_hardware("4x A100-SXM4-40GB, 340GB RAM").gpus] == ["A100-SXM4"]
    with pytest.raises(InvalidHardware, match=r"write `Arc Pro B70 GDDR6, 16GB RAM`"):
        parse_hardware("Arc Pro B70 (16 GB GDDR6), 64GB")


@pytest.mark.parametrize(("size", "gbs"), [(40, 1555.2), (80, 2039.0)])
def test_an_a100_of_either_size_is_known_by_its_socket(size: int, gbs: float) -> None:
    (card,) = resolve(parse_hardware(f"A100 {size}GB SXM, EPYC 7742, 512GB")).cards
    assert (card.name, card.bandwidth_gbs) == (f"NVIDIA A100-SXM4-{size}GB", gbs)


def test_more_free_memory_than_a_card_has_is_asked_about() -> None:  # github.com/ikawrakow/ik_llama.cpp/issues/893
    log = (
        "ggml_cuda_init: found 1 CUDA devices:\n  Device 0: NVIDIA GeForce RTX 3080, compute capability 8.6, VMM: yes\n"
        "CUDA0: using device CUDA0 - 19840 MiB free"
    )
    with pytest.raises(InvalidHardware, match="free cannot be right"):
        resolve(parse_hardware(log))
    assert parse_hardware(log.replace("19840", "9000")).gpus[0].free_gib == pytest.approx(8.79, abs=0.01)


def test_two_gpus_of_which_one_is_named_are_asked_about() -> None:
    with pytest.raises(InvalidHardware, match="it names 1"):
        parse_hardware("Local dual-GPU rig: RTX 2070 (Vulkan) + a secondary NVIDIA GPU (CUDA).")


# As github.com/unslothai/unsloth/issues/4497 names the processor, with a card beside it.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("AMD Ryzen 7 8845HS w/ Radeon 780M, RTX 4060 8GB, 32GB RAM", {"RTX 4060 laptop": 8}),
        ("8845HS with Radeon 780M, RTX 3060 12GB, 3090 24GB, 64GB RAM", {"RTX 3060": 12, "3090": 24}),
        ("8845HS w/ Radeon 780M, 24GB 3090, 64GB", {"3090": 24}),
    ],
)
def test_memory_stays_with_its_card_beside_a_gpu_in_the_processors_name(text: str, expected: dict[str, float]) -> None:
    assert {gpu.name: gpu.vram_gib for gpu in parse_hardware(text).gpus} == expected


@pytest.mark.parametrize(
    "text",
    [
        "RTX 4070, 32GB (16GB for WSL)",
        "RTX 4070, RAM: 32 GB DDR5 (16 GB for WSL2 and 32 GB swap)",
        "RTX 4070, 32GB total, 16GB allocated to WSL2",
        "WSL2, 32GB of RAM but .wslconfig memory=16GB, RTX 4070",
    ],
)
def test_what_windows_lends_wsl_is_the_ram(text: str) -> None:
    rig = resolve(parse_hardware(text))
    assert rig.ram_bytes == 16 << 30  # all of it, where WSL has half of the machine's unless it is said
    assert rig.usable_ram == 14 << 30


@pytest.mark.parametrize("text", ["2013 Mac Pro with dual FirePro D300 GPUs", "Mac Pro 7,1 with two Radeon Pro W6800X"])
def test_a_mac_with_an_intel_processor_has_the_cards_apple_sold_for_it(text: str) -> None:
    assert len(cards(f"{text}, 64GB")) == 2


def test_a_board_with_two_gpus_of_a_mac_pro_is_asked_about() -> None:
    with pytest.raises(InvalidHardware, match="2 GPUs of 32 GB"):
        parse_hardware("Mac Pro 2019, AMD Radeon PRO W6800X Duo, 192GB RAM")


@pytest.mark.parametrize(
    ("text", "name", "ram_gb"),
    [
        ("RTX 4090 Laptop GPU 32GB", "NVIDIA GeForce RTX 4090 Laptop GPU", 32),
        (
            "NVIDIA GeForce RTX 3080 Laptop GPU, Intel UHD Graphics (16 GB Shared Video RAM), 64GB",
            "RTX 3080 Laptop",
            64,
        ),
        ("i9 14900HX/32GB/1TB/16GB RTX4090/240Hz", "RTX 4090", 32),
        ("RTX 3090 Ti on the sibling x8 bridge (00:03.2, bus 2f), 64GB", "RTX 3090 Ti", 64),
        ("1x Arc Pro B70 (Battlemage G31, 32 GiB / 32656 MiB reported), 64GB", "Arc Pro B70", 64),
        ("RTX 3090 eGPU (Thunderbolt-4 enclosure), 16 CPU PCIe 5.0 lanes, EUR 184/mo, 64GB", "RTX 3090", 64),
    ],
)
def test_figures_of_other_things_are_no_part_of_the_machine(text: str, name: str, ram_gb: float) -> None:
    hardware = parse_hardware(text)
    assert [name in card for card in cards(text)] == [True]
    assert hardware.ram is not None
    assert hardware.ram.total_gb == ram_gb


@pytest.mark.parametrize(
    "text",
    [
        "- NVIDIA GPU (e.g., RTX 3070) with ~8GB VRAM",
        "On multi-GPU systems (e.g.\n  Intel iGPU + RTX 4090)",
        "a fresh Vast.ai instance (RTX 3090/4090 recommended)",
    ],
)
def test_an_example_and_what_is_recommended_are_no_machine(text: str) -> None:
    with pytest.raises(InvalidHardware, match="may be a plan"):
        parse_hardware(text)


@pytest.mark.parametrize(
    ("text", "card"),
    [
        ("this dual-GPU laptop (Intel iGPU + RTX 4080 Optimus)", "NVIDIA GeForce RTX 4080 Laptop GPU"),
        ("RTX 2070 Max-Q, 16GB RAM", "NVIDIA GeForce RTX 2070 Laptop GPU"),
        ("Ryzen 9 8945HS, 32GB LPDDR5X, RTX 4070, 14-inch OLED", "NVIDIA GeForce RTX 4070 Laptop GPU"),
        ("nvidia-smi: RTX 5090, 67°C, 29375/32607 MiB, 64GB RAM", "NVIDIA GeForce RTX 5090"),
        ("No GPU offload viable (AMD Radeon 890M, 512 MB VRAM), 32 GB RAM", "AMD Radeon 890M"),
        ("| **My desktop (RTX 4090 only)** | 64GB |", "NVIDIA GeForce RTX 4090"),
    ],
)
def test_a_card_is_known_by_the_words_around_it(text: str, card: str) -> None:
    assert cards(text) == [card]


def test_a_desktops_card_stays_one_beside_a_laptops_processor_when_its_memory_says_so() -> None:
    hardware = parse_hardware("Ryzen 7 7840HS, RTX 3060 12GB")
    assert cards("Ryzen 7 7840HS, RTX 3060 12GB") == cards(to_shorthand(hardware)) == ["NVIDIA GeForce RTX 3060"]


def test_a_card_beside_a_mac_that_a_tool_lists_is_asked_about() -> None:
    with pytest.raises(InvalidHardware, match="Several machines"):
        parse_hardware("$ sysctl -n machdep.cpu.brand_string hw.memsize\nApple M2 Ultra\n206158430208\nAMD RX 460 4GB")


@pytest.mark.parametrize(
    ("stated", "name"),
    [
        ("RTX 4080, 32GB RAM", "RTX 4080 laptop"),
        ("RTX 4080 12GB, 32GB RAM", "RTX 4080 laptop"),
        ("RTX 4080 16GB, 32GB RAM", "RTX 4080"),
        ("RTX 4080 over OCuLink, 32GB RAM", "RTX 4080"),
        ("RTX 4080 as an external GPU, 32GB RAM", "RTX 4080"),
        ("an external RTX 4080, 32GB RAM", "RTX 4080"),
        ("2x RTX 4080, 32GB RAM", "RTX 4080"),
        ("GPU 0: NVIDIA GeForce RTX 4080 (UUID: GPU-0123456789abcdef)", "NVIDIA GeForce RTX 4080"),
    ],
)
@pytest.mark.parametrize(
    "cpu",
    [
        "Model name:          Intel(R) Core(TM) i9-13980HX\nSocket(s):           1\nCore(s) per socket:  24\n\n",
        "i9-13980HX, ",
        "AMD Ryzen AI 9 HX PRO 370, ",
    ],
)
def test_a_card_beside_a_laptops_processor_is_the_laptops_unless_it_cannot_be(stated: str, name: str, cpu: str) -> None:
    if stated.startswith("GPU 0") and cpu.endswith(", "):
        cpu = f"CPU: {cpu.removesuffix(', ')}\n"
    assert [gpu.name for gpu in parse_hardware(cpu + stated).gpus] == [name]


def test_an_external_gpu_that_is_not_there_links_no_other() -> None:
    for said in ("no external GPU", "without an eGPU"):
        assert [(gpu.name, gpu.pcie) for gpu in parse_hardware(f"MacBook Air M2 16GB, {said}").gpus] == [
            ("Apple M2", None)
        ]


# As in nomic-ai/gpt4all issues 328 and 364: a `3070 with 8gb of ram` and `2 1080ti with 11 gb ram`, beside the RAM.
@pytest.mark.parametrize(
    ("text", "vram", "ram"),
    [
        ("32GB of RAM, I only have a 3070 with 8GB of RAM", 8, 32),
        ("2 1080ti with 11 gb ram, 100 gb ram", 11, 100),
        ("GPU: RTX 4090, GPU memory: 24GB, CPU mem: 502Gi", 24, 502),
    ],
)
def test_the_ram_of_a_card_is_its_own_where_another_size_is_called_ram(text: str, vram: float, ram: float) -> None:
    read = parse_hardware(text)
    assert (read.gpus[0].vram_gib, read.ram and read.ram.total_gb) == (vram, ram)


@pytest.mark.parametrize(
    "text", ["RTX 4060 Ti with 16GB RAM, 512GB", "5090 with 32GB RAM, 4090 with 64GB RAM", "RTX 5090 with 32GB of RAM"]
)
def test_the_ram_of_a_card_is_asked_about_where_no_other_size_is_called_ram(text: str) -> None:
    with pytest.raises(InvalidHardware):
        parse_hardware(text)


def test_memory_of_a_card_counted_in_thousands_is_what_it_is_sold_with() -> None:
    assert parse_hardware("RTX 4090, 25.8GB VRAM").gpus[0].vram_gib == 24
    with pytest.raises(InvalidHardware):
        parse_hardware("RTX 4090, 27.5GB VRAM")


@pytest.mark.parametrize(
    "text",
    [
        "RTX 3090, MSI TRX40 PRO 10G, 64GB RAM",  # https://jonready.com/blog/posts/local-llm-rig.html
        "RTX 3090, 64GB RAM, 3x WD Red 8 TB NAS HDD",  # poctoprod.org, a build with a Ryzen 9 5950X
        "RTX 3090, 64GB RAM, Samsung 980 2TB",  # as shops name it
        "RTX 3090, 64GB RAM, 2x Samsung SSD 970 500GB",
        "RTX 3090, 64GB RAM, --cpu_infer 65",  # kvcache-ai/ktransformers issue 319
        "Six models. RTX 3090, 64GB RAM",  # https://pickingsolutions.tech/case-studies/local-llm-lab
        "I have an RTX 3090 and I really want to try this, 64GB RAM",  # oobabooga/textgen issue 1537
        "RTX 3090, 64GB RAM, working set ~22 GB",
    ],
)
def test_what_boards_drives_and_options_are_called_is_no_part(text: str) -> None:
    read = parse_hardware(text)
    assert ([(gpu.name, gpu.count) for gpu in read.gpus], read.ram) == ([("RTX 3090", 1)], Ram(total_gb=64))


@pytest.mark.parametrize(("name", "card"), [("K4000", "Quadro K4000"), ("P4000 8GB", "Quadro P4000")])
def test_an_old_quadro_is_known_by_its_number(name: str, card: str) -> None:
    assert resolve(parse_hardware(f"{name}, i7-4770, 32GB")).cards[0].name == card


def test_a_count_in_brackets_before_a_server_processor_is_of_its_sockets() -> None:
    cpu = parse_hardware("P40, (2) Xeon E5-2690 v4, 128GB").cpu
    assert cpu is not None
    assert cpu.sockets == 2


# modelscope/facechain issue 473: `GTX1050 Ti 4GB? I kept getting error about not having 18Gb`.
@pytest.mark.parametrize("need", ["error about not having 18Gb", "it needs 18GB", "the model requires at least 48GB"])
def test_what_something_needs_is_not_what_there_is(need: str) -> None:
    assert parse_hardware(f"GTX 1050 Ti 4GB, {need}").ram is None
    assert parse_hardware(f"GTX 1050 Ti 4GB, 16GB RAM, {need}").ram == Ram(total_gb=16)


def test_cores_of_a_line_of_processors_are_cores_and_no_processors() -> None:
    read = parse_hardware("a VM with 8 XEON cores, 32 GB ram and an NVIDIA RTX 3090")  # mudler/LocalAI issue 957
    assert read.cpu is not None
    assert (read.cpu.physical_cores, read.cpu.sockets) == (8, None)


def test_memory_under_a_heading_is_of_what_the_heading_names() -> None:
    read = parse_hardware("## RAM\n32,0 GB\n\n## VRAM\n6GB\nNVIDIA RTX A3000 laptop")  # ollama/ollama issue 3511
    assert (read.gpus[0].vram_gib, read.ram) == (6, Ram(total_gb=32))


@pytest.mark.parametrize("text", ["64GB RAM, I want to use a 3090", "RTX 3060, and want to try two 5060 Ti"])
def test_a_card_that_someone_wants_to_try_is_a_plan(text: str) -> None:
    with pytest.raises(InvalidHardware, match="may be a plan"):
        parse_hardware(text)


def test_a_model_that_someone_wants_to_run_is_no_plan() -> None:
    assert cards("I want to run Llama 70B on my RTX 3090, 64GB RAM") == ["NVIDIA GeForce RTX 3090"]


@pytest.mark.parametrize(
    ("text", "gib"),
    [
        # github.com/lmstudio-ai/lmstudio-bug-tracker/issues/1790, BrunchFox, 2026-04-13
        ("Strix Halo system with 128GB unified memory. AMD memory / GPU memory setting configured to 96GB", 96),
        ("Ryzen AI Max+ 395, 128GB, VRAM set to 96GB in BIOS", 96),
        # github.com/noamsto/nix-amd-ai/issues/42, expelledboy, 2026-08-27
        ("Ryzen AI MAX+ 395, **128 GB**, ttm.pages_limit=25165824 ttm.page_pool_size=25165824", 96),
        # cardosofelipe/strix-halo-optimizations, 2026-04-17
        ("Ryzen AI MAX+ 395, 64GB, booted with iommu=pt amdgpu.gttsize=60416 ttm.pages_limit=15466496", 59),
        # github.com/lmstudio-ai/lmstudio-bug-tracker/issues/935, BryttanyBCH, 2025-10-08
        ("Strix Halo, 128GB RAM, 120 GB of GTT", 120),
        ("Ryzen AI Max+ 395, 128GB, GTT size: 110 GiB", 110),
        ("Ryzen AI Max+ 395, 128GB, GTT: 30GB", 30),
        ("Strix Halo, 128GB RAM, GTT 126976 MiB", 124),
        ("Strix Halo 128GB (126,976 MiB GTT)", 124),
        ("Strix Halo, 128GB, GTT limit raised to 114688 MiB", 112),
        ("Ryzen AI Max+ 395, 128GB, VRAM set to 98304 MiB", 96),
    ],
)
def test_a_gpu_without_memory_of_its_own_gets_what_its_owner_gave_it(text: str, gib: int) -> None:
    (card,) = resolve(parse_hardware(text)).cards
    assert (card.name, card.total >> 30) == ("AMD Radeon 8060S", gib)


@pytest.mark.parametrize(
    ("text", "ram_gb"),
    [
        # github.com/kyuz0/amd-strix-halo-toolboxes/issues/76
        ("AI MAX+ 395 and 128GB RAM, gttsize=131072 ttm.pages_limit=33554432", 128),
        ("AI MAX+ 395, 128GB RAM, amdgpu.gttsize=131072", 128),
        ("AI MAX+ 395, 64GB RAM, 64GB GTT", 64),
    ],
)
def test_a_limit_as_large_as_the_memory_adds_none(text: str, ram_gb: int) -> None:
    rig = resolve(parse_hardware(text))
    assert rig.ram_bytes >> 30 == ram_gb
    assert 0.8 * ram_gb < rig.cards[0].total / GIB < ram_gb - 2


def test_a_mac_has_the_limit_that_its_owner_set() -> None:
    default, own = (
        resolve(parse_hardware(f"Mac mini M4 16 GB, iogpu.wired_limit_mb={mib}")).cards[0] for mib in (0, 13312)
    )
    assert (own.total, own.raised_by) == (13312 * MIB, "")
    assert default.raised_by


@pytest.mark.parametrize(
    ("text", "ram_gb"),
    [
        ("Ryzen 7 7840HS, Radeon 780M, 4GB VRAM, 64GB DDR5", 64),
        ("Ryzen 7 7840HS, Radeon 780M 4GB, 64GB DDR5", 64),
        ("Radeon 780M, 64GB, UMA frame buffer size 16G", 64),
        # github.com/lmstudio-ai/lmstudio-bug-tracker/issues/935, kundeng, 2025-09-15
        ("bosgame m5, Ryzen AI Max+ 395 128GB, by default allocates 64GB to RAM and 64GB to VRAM", 128),
    ],
)
def test_what_the_firmware_sets_aside_for_a_gpu_does_not_limit_it(text: str, ram_gb: int) -> None:
    machine = parse_hardware(text)
    (card,) = resolve(machine).cards
    assert machine.ram is not None
    assert (machine.ram.total_gb, (card.usual_limit or 0) >> 30) == (ram_gb, ram_gb // 2)
    assert "set aside by the firmware, which is no limit" in (machine.notes or "")
    (stated,) = resolve(parse_hardware(f"Radeon 780M [4 GiB], {ram_gb}GB")).cards
    assert stated.total >> 30 == 4


@pytest.mark.parametrize(
    ("text", "card"),
    [
        # github.com/openvinotoolkit/openvino/issues/36270, PlanteAmigor, 2026-06-16
        ("Ubuntu 26.04 (Core Ultra 9 285H, Xe driver), integrated Arc GPU", "Intel Arc 140T"),
        ("Core Ultra 7 255H, Intel Arc Graphics", "Intel Arc 140T"),
        ("Core Ultra 7 155H (22), Intel Arc Graphics", "Intel Arc Graphics 128EU"),
        ("Core Ultra 5 228V with its iGPU", "Intel Arc 130V"),
        ("Ryzen 7 8845HS iGPU", "AMD Radeon 780M"),
        ("Ryzen AI 9 HX PRO 370, integrated graphics", "AMD Radeon 890M"),
        # y0o.de, Michael Kofler, gpt-oss-20b auf einer iGPU 780M
        ("AMD 8745H-CPU, die CPU enthält auch eine integrierte GPU (Radeon 780M)", "AMD Radeon 780M"),
        # 17gw.com, thread 1659: Qwen3-Coder-Next on an N5 Pro
        ("AMD Ryzen AI 9 HX PRO 370处理器，12核24线程，16个RDNA 3.5计算单元的核显。", "AMD Radeon 890M"),
        ("AMD Ryzen 7 8700G, using the iGPU", "AMD Radeon 780M"),
        ("Ryzen 7 8845HS, no iGPU", None),
        ("Ryzen 7 8845HS", "AMD Radeon 780M"),
        ("i7-12700K iGPU", None),
    ],
)
def test_a_processors_own_gpu_is_there_unless_the_text_says_otherwise(text: str, card: str | None) -> None:
    assert cards(f"{text}, 32GB RAM") == ([card] if card else [])


def test_a_machine_and_the_line_of_its_processor_are_one() -> None:
    # github.com/kyuz0/amd-strix-halo-toolboxes/issues/42, galievruslan, 2026-01-07
    rig = resolve(parse_hardware("GMKTEC EVO-X2 based on an AMD Ryzen AI Max+ with 128GB of memory, Fedora 43"))
    assert (rig.cpu_model, [card.name for card in rig.cards]) == ("AMD Ryzen AI Max+ 395", ["AMD Radeon 8060S"])
    rig = resolve(parse_hardware("Framework Desktop, Ryzen AI Max 385, 64GB"))  # it is sold with three processors
    assert (rig.cpu_model, [card.name for card in rig.cards]) == ("AMD Ryzen AI Max 385", ["AMD Radeon 8050S"])


def test_one_socket_that_is_used_of_two_and_the_rate_of_its_mrdimms() -> None:
    # github.com/kvcache-ai/ktransformers/issues/1730, yumenoshizuku, 2025-12-18
    machine = parse_hardware(
        "- CPU: Single Intel Xeon 6960P (Running on a dual-socket machine, using 1 CPU)\n"
        "- RAM: 12 * 96 GB DDR5 MRDIMM-8800\n- GPU: Single RTX PRO 6000 Blackwell Server GPU"
    )
    assert machine.ram == Ram(total_gb=1152, type="DDR5", channels=12, mts=8800)
    assert machine.cpu is not None
    assert machine.cpu.sockets == 1


def test_units_of_a_card_are_no_cores_and_no_cards() -> None:
    # r/LocalLLaMA 1ofxt6s, optimizing gpt-oss-120b on an RX 6900 XT, 2025-10-25
    machine = parse_hardware(
        "- **GPU**: AMD Radeon RX 6900 XT 16GB VRAM\n  - Stream Processors: 5120\n  - Compute Units: 80\n"
        "- **CPU**: AMD Ryzen 9 7900\n- **Memory**: 64GB"
    )
    assert [gpu.name for gpu in machine.gpus] == ["AMD Radeon RX 6900 XT"]
    assert machine.notes == "Stream Processors: 5120; Compute Units: 80"
    machine = parse_hardware("RTX 3090, 328 Tensor cores, Tensor Cores: 328, Ryzen 9 7900, 16 RDNA 3.5 compute units")
    assert machine.notes == "328 Tensor cores; Tensor Cores: 328; 16 RDNA 3.5 compute units"


@pytest.mark.parametrize(
    ("text", "name", "gbs"),
    [
        ("MacBook Pro M4 Max 36GB", "Apple M4 Max 32-core GPU", 410),
        ("MacBook Pro M4 Max 48GB", "Apple M4 Max", 546),
        ("M3 Max 96GB", "Apple M3 Max 30-core GPU", 300),
        ("M5 Max 32-core GPU 36GB", "Apple M5 Max 32-core GPU", 460),
        ("Mac Studio, M5 Max, 36 GB", "Apple M5 Max 32-core GPU", 460),
    ],
)
def test_a_mac_of_a_memory_sold_with_the_smaller_gpu_only_has_that(text: str, name: str, gbs: float) -> None:
    (card,) = resolve(parse_hardware(text)).cards
    assert (card.name, card.bandwidth_gbs) == (name, gbs)


@pytest.mark.parametrize("said", ["GGML_VULKAN=ON", "built with -DGGML_VULKAN=1", "running on RADV"])
def test_the_option_that_builds_a_back_end_names_it(said: str) -> None:
    assert parse_hardware(f"RX 7900 XT, 64GB, {said}").backend == "vulkan"


@pytest.mark.parametrize(
    ("cpu", "listed", "names"),
    [
        # the forms of Linux's PCI list, as neofetch and fastfetch print them
        ("12th Gen Intel i7-12700H", ("NVIDIA GeForce RTX 3050", "Intel Alder Lake-P"), ["NVIDIA GeForce RTX 3050"]),
        (
            "Intel i7-10750H",
            ("Intel CometLake-H GT2 [UHD Graphics]", "NVIDIA GeForce RTX 2080"),
            ["NVIDIA GeForce RTX 2080"],
        ),
        ("AMD Ryzen 7 4800H", ("AMD ATI Renoir", "NVIDIA GeForce RTX 3090"), ["NVIDIA GeForce RTX 3090"]),
        ("Intel i5-10400F", ("Intel DG2 [Arc A770]",), ["Intel Arc A770"]),
        ("Intel i5-8265U", ("Intel WhiskeyLake-U GT2 [UHD Graphics 620]",), []),
        ("AMD Ryzen 7 6800H", ("AMD ATI Rembrandt",), ["AMD Radeon 680M"]),
    ],
)
def test_graphics_listed_by_the_code_name_of_a_processor_are_no_card(
    cpu: str, listed: tuple[str, ...], names: list[str]
) -> None:
    lines = ["OS: Arch Linux x86_64", "Kernel: 6.17", f"CPU: {cpu} (16) @ 4.6GHz", *(f"GPU: {gpu}" for gpu in listed)]
    assert cards("\n".join([*lines, "Memory: 5031MiB / 15694MiB"])) == names


@pytest.mark.parametrize(
    ("name", "mib", "whole"),
    [
        ("NVIDIA GeForce RTX 4060 ...", 8188, "NVIDIA GeForce RTX 4060 Laptop GPU"),
        ("NVIDIA GeForce RTX 5070 ...", 12227, "NVIDIA GeForce RTX 5070 Ti Laptop GPU"),
    ],
)
def test_a_name_that_nvidia_smi_cut_off_is_longer_than_what_stands_there(name: str, mib: int, whole: str) -> None:
    rows = (
        f"|   0  {name}    On  |   00000000:01:00.0  On |                  N/A |\n"
        f"| N/A   45C    P8              3W /   95W |    1203MiB / {mib:>6}MiB |      4%      Default |"
    )
    head = "| NVIDIA-SMI 580.95.05              Driver Version: 581.57         CUDA Version: 13.0     |"
    assert cards(f"{head}\n{rows}\nCPU: i7-13620H, 16 GB RAM") == [whole]
