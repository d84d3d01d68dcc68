"""Hardware as people type it in forums: read as meant, or refused with what to write, never read as something else."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.errors import InvalidHardware
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.form import canonical, to_shorthand


def gpus(*cards: Gpu) -> list[Gpu]:
    return list(cards)


@pytest.mark.parametrize(
    ("text", "generation", "sockets"),
    [
        ("dual EPYC Genoa 64 cores", "zen4", 2),
        ("AMD EPYC-Milan Processor 16 cores", "zen3", 1),
        ("Xeon Sapphire Rapids 56 core", "sapphire rapids", 1),
        ("Intel Xeon Processor (Skylake, IBRS) 16 cores", "skylake", 1),
        ("Xeon CascadeLake 16 cores", "cascade lake", 1),
    ],
)
def test_a_server_cpu_is_known_by_its_code_name(text: str, generation: str, sockets: int) -> None:
    read = parse_hardware(f"3090, {text}, 64GB")
    rig = resolve(read)
    assert (rig.cpu_generation, rig.sockets, read.notes) == (generation, sockets, None)
    assert resolve(parse_hardware(to_shorthand(read))).cpu_generation == generation


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("four 3090s", gpus(Gpu(name="3090", count=4))),
        ("1660s", gpus(Gpu(name="1660s"))),
        ("twelve 3090s", gpus(Gpu(name="3090", count=12))),
        ("two 3090's", gpus(Gpu(name="3090", count=2))),
        ("5 3090s", gpus(Gpu(name="3090", count=5))),
        ("3090*2", gpus(Gpu(name="3090", count=2))),
        ("3090x2", gpus(Gpu(name="3090", count=2))),
        ("3090 x2", gpus(Gpu(name="3090", count=2))),
        ("dual 3090", gpus(Gpu(name="3090", count=2))),
        ("P40 x3", gpus(Gpu(name="P40", count=3))),
        ("3090 24gb x 2", gpus(Gpu(name="3090", count=2, vram_gib=24))),
        ("24gb 3090", gpus(Gpu(name="3090", vram_gib=24))),
        ("3090 with 24GB VRAM", gpus(Gpu(name="3090", vram_gib=24))),
        ("2x mi50 32gb", gpus(Gpu(name="mi50", count=2, vram_gib=32))),
        ("2x 3090 (24GB, nvlink)", gpus(Gpu(name="3090", count=2, vram_gib=24, nvlink=True))),
        ("2x3090 (nvlink)", gpus(Gpu(name="3090", count=2, nvlink=True))),
        ("2x 3090 no nvlink", gpus(Gpu(name="3090", count=2, nvlink=False))),
        ("4090 and 3090", gpus(Gpu(name="4090"), Gpu(name="3090"))),
        ("one 3090 and 2 p40s", gpus(Gpu(name="3090"), Gpu(name="p40", count=2))),
        ("7900xtx + 7600xt", gpus(Gpu(name="7900xtx"), Gpu(name="7600xt"))),
        ("7900xtx+7600xt", gpus(Gpu(name="7900xtx"), Gpu(name="7600xt"))),
        ("3090 FE", gpus(Gpu(name="3090"))),
        ("oculink 3090", gpus(Gpu(name="3090", pcie="oculink"))),
        ("thunderbolt eGPU 3090", gpus(Gpu(name="3090", pcie="thunderbolt"))),
        ("3090 via thunderbolt 5", gpus(Gpu(name="3090", pcie="thunderbolt 5"))),
        ("3090 (egpu)", gpus(Gpu(name="3090", pcie="egpu"))),
        ("RTX 3090, PCIe 3.0 x4", gpus(Gpu(name="RTX 3090", pcie="3.0 x4"))),
        ("2x3090 x16/x4", gpus(Gpu(name="3090", count=2, pcie="x16/x4"))),
        ("2x 3090, x16/x4", gpus(Gpu(name="3090", count=2, pcie="x16/x4"))),
        ("2x 3090, pcie 4.0 x8", gpus(Gpu(name="3090", count=2, pcie="4.0 x8"))),
        ("3090 + 4090, x16/x4", gpus(Gpu(name="3090", pcie="x16"), Gpu(name="4090", pcie="x4"))),
        ("6 x 3090 pcie 3.0 x8 each", gpus(Gpu(name="3090", count=6, pcie="3.0 x8"))),
        ("3090 in x4 slot", gpus(Gpu(name="3090", pcie="x4"))),
        ("3090 on an x4 riser", gpus(Gpu(name="3090", pcie="x4"))),
        ("3090 + 4090 (both x8)", gpus(Gpu(name="3090", pcie="x8"), Gpu(name="4090", pcie="x8"))),
        (
            "5090 on PCIe 5.0 x16, 2x 4090, each on PCIe 4.0 x8",
            gpus(Gpu(name="5090", pcie="5.0 x16"), Gpu(name="4090", count=2, pcie="4.0 x8")),
        ),
        (
            "2x 5090 + 2x 4090, each on PCIe 4.0 x8",
            gpus(Gpu(name="5090", count=2, pcie="4.0 x8"), Gpu(name="4090", count=2, pcie="4.0 x8")),
        ),
        ("3090 + 4090, both at PCIe 4.0 x8", gpus(Gpu(name="3090", pcie="4.0 x8"), Gpu(name="4090", pcie="4.0 x8"))),
        ("RTX 3090 on PCIe 3.0 x16 @ x8", gpus(Gpu(name="RTX 3090", pcie="3.0 x8"))),
        ("RTX 3060 12GB (chipset x4)", gpus(Gpu(name="RTX 3060", vram_gib=12, pcie="x4"))),
        ("a 3090 in the x4 chipset slot", gpus(Gpu(name="3090", pcie="x4"))),
        ("2x 3090 (one on x16 and one on x1 riser)", gpus(Gpu(name="3090", count=2, pcie="x16/x1"))),
        ("2x 3090, one pcie 4.0 x16, the other pcie 4.0 x4", gpus(Gpu(name="3090", count=2, pcie="4.0 x16/x4"))),
        # club-3090 issue 294: `2x 3090 (x4x4)`
        ("2x 3090 (x4x4)", gpus(Gpu(name="3090", count=2, pcie="x4"))),
        ("4x 3090 bifurcated x4x4x4x4", gpus(Gpu(name="3090", count=4, pcie="x4"))),
        ("1x 3090 x4", gpus(Gpu(name="3090", pcie="x4"))),
        ("2x 3090 x8", gpus(Gpu(name="3090", count=2, pcie="x8"))),
        ("3090 x4", gpus(Gpu(name="3090", count=4))),
        ("I have a 3090", gpus(Gpu(name="3090"))),
        ("my rig: 3090", gpus(Gpu(name="3090"))),
    ],
)
def test_gpus(text: str, expected: list[Gpu]) -> None:
    machine = parse_hardware(f"{text}, 64GB DDR5")
    assert machine.gpus == expected
    assert machine.ram == Ram(total_gb=64, type="DDR5")
    assert canonical(parse_hardware(to_shorthand(machine))).gpus == canonical(machine).gpus


@pytest.mark.parametrize(
    ("text", "card", "vram"),
    [
        ("rtx pro 6000 blackwell max-q", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 95.6),
        ("5060ti 16gb", "NVIDIA GeForce RTX 5060 Ti", 15.9),
        ("A100 80GB PCIe", "NVIDIA A100 80GB PCIe", 80),
        ("H100 SXM", "NVIDIA H100 80GB HBM3", 79.6),
        ("gtx 1080ti", "NVIDIA GeForce GTX 1080 Ti", 11),
        ("Arc B580", "Intel Arc B580", 12),
        ("RTX 4090 laptop 16GB", "NVIDIA GeForce RTX 4090 Laptop GPU", 16),
        ("M4 Max 128GB", "Apple M4 Max", 120),
        ("Strix Halo 128GB", "AMD Radeon 8060S", 116),
        ("Ryzen AI Max+ 395 128GB", "AMD Radeon 8060S", 116),
        ("DGX Spark", "NVIDIA GB10", 117.8),
        ("MSI Suprim RTX 3090", "NVIDIA GeForce RTX 3090", 24),
    ],
)
def test_names(text: str, card: str, vram: float) -> None:
    found = resolve(parse_hardware(text)).cards
    assert [(c.name, round(c.total / 2**30, 1)) for c in found] == [(card, vram)]


@pytest.mark.parametrize(
    ("text", "model", "sockets", "cores"),
    [
        ("TR 3960X", "AMD Ryzen Threadripper 3960X", 1, 24),
        ("TR Pro 5975WX", "AMD Ryzen Threadripper PRO 5975WX", 1, 32),
        ("dual xeon 6138", "Intel Xeon Gold 6138", 2, 40),
        ("2 x EPYC 9355", "AMD EPYC 9355", 2, 64),
        ("2 EPYC 9355", "AMD EPYC 9355", 2, 64),
        ("2x AMD EPYC 7742 64-Core", "AMD EPYC 7742", 2, 128),
        ("2 AMD EPYC 7742 64-Core Processors", "AMD EPYC 7742", 2, 128),
        ("5950X, 12 cores", "AMD Ryzen 9 5950X", 1, 12),
        ("16 core ryzen 5950x", "AMD Ryzen 9 5950X", 1, 16),
        ("16 core cpu", None, 1, 16),
        ("Xeon E5-2687W v4", "Intel Xeon E5-2687W v4", 1, 12),
        ("Strix Halo 128GB", "AMD Ryzen AI Max+ 395", 1, 16),
    ],
)
def test_cpus(text: str, model: str | None, sockets: int, cores: int) -> None:
    rig = resolve(parse_hardware(text if "Strix" in text else f"3090, {text}"))
    assert (rig.cpu_model, rig.sockets, rig.physical_cores) == (model, sockets, cores)


@pytest.mark.parametrize(
    ("ram", "gb"),
    [
        ("64 GB @ 3200\n- 2x 16GB Kingston\n- 2x 16GB Corsair", 64),
        ("96 GB @ 3200\n2x32GB\n2x16GB", 96),
        ("96GB, 32GB x2, 2x16GB", 96),
        ("64GB (2x32GB), 2x32GB DDR4", 64),
        ("2x32GB DDR4-3200, 2x32GB", 64),  # named again
    ],
)
def test_kits_of_modules_add_up_to_the_size_that_is_stated(ram: str, gb: float) -> None:
    hardware = parse_hardware(f"RTX 3090\nRyzen 9 5950X\n{ram}")
    assert hardware.ram is not None
    assert hardware.ram.total_gb == gb


@pytest.mark.parametrize(
    ("text", "ram"),
    [
        ("192GB 62 GB/s", Ram(total_gb=192, measured_bandwidth_gbs=62)),
        ("64 gigs of ram", Ram(total_gb=64)),
        ("128 gig ddr5", Ram(total_gb=128, type="DDR5")),
        ("128gb ddr4 3600 (4x32)", Ram(total_gb=128, type="DDR4", channels=4, mts=3600)),
        ("8x32GB 3200", Ram(total_gb=256, channels=8, mts=3200)),
        ("256GB ECC 2400", Ram(total_gb=256, mts=2400)),
        ("256GB DDR4 ECC 2400", Ram(total_gb=256, type="DDR4", mts=2400)),
        ("96GB 6000 CL30", Ram(total_gb=96, mts=6000)),
        ("64GB, 3200MHz", Ram(total_gb=64, mts=3200)),
        ("64GB, dual channel", Ram(total_gb=64, channels=2)),
        ("8 sticks of 64GB", Ram(total_gb=512, channels=8)),
        ("64GB, 2ch DDR5", Ram(total_gb=64, type="DDR5", channels=2)),
        ("64GB 2-channel", Ram(total_gb=64, channels=2)),
        ("64 GB (2 channels)", Ram(total_gb=64, channels=2)),
        ("512GB x 8ch", Ram(total_gb=512, channels=8)),
        ("64GB DDR5 x 2ch", Ram(total_gb=64, type="DDR5", channels=2)),
        ("12x DDR5 8800 1.1TB", Ram(total_gb=1126.4, type="DDR5", channels=12, mts=8800)),
        ("DDR4-3200 90GB", Ram(total_gb=90, type="DDR4", mts=3200)),
    ],
)
def test_ram(text: str, ram: Ram) -> None:
    assert parse_hardware(f"3090, {text}") == Hardware(gpus=[Gpu(name="3090")], ram=ram)


@pytest.mark.parametrize(
    "text",
    [
        "64GB x 12ch DDR5-6400",
        "64GB*12ch DDR5-6400",
        "64GB DDR5-6400 x 12ch",
        "64GB RDIMM x 12ch DDR5-6400",
        "12ch x 64GB DDR5-6400",
        "12通道 x 64GB DDR5-6400",
        "12 channels of 64GB DDR5-6400",
        "12 channels, 64GB each, DDR5-6400",
        "12-channel with 64GB each, DDR5-6400",
        "12-channel 64GB RDIMMs DDR5-6400",
        "64GB per channel x 12, DDR5-6400",
        "64GB per channel, 12 channels DDR5-6400",
        "12 channels; 64 GB per channel; DDR5-6400",
        "64GB per channel, DDR5-6400; 12 channels",
        "DDR5-6400 64GB x 12ch = 768GB",
        "768GB DDR5-6400 (12ch x 64GB)",
        "768GB (64GB×12 channels) DDR5-6400",
    ],
)
def test_the_size_of_each_channels_module_is_not_the_sum(text: str) -> None:
    ram = Ram(total_gb=768, type="DDR5", channels=12, mts=6400)
    assert parse_hardware(f"3090, {text}") == Hardware(gpus=[Gpu(name="3090")], ram=ram)


@pytest.mark.parametrize(
    "text",
    [
        "3090, ryzen 5950x + 128gb ddr4 3600 (4x32)",
        "3090 ryzen 5950x 128gb ddr4 3600 (4x32)",
        "128gb ddr4 3600 (4x32) RTX 3090 and a ryzen 5950x",
        "3090 with a ryzen 5950x and 128gb ddr4 3600 (4x32)",
    ],
)
def test_a_whole_machine_in_any_order(text: str) -> None:
    rig = resolve(parse_hardware(text))
    assert [card.name for card in rig.cards] == ["NVIDIA GeForce RTX 3090"]
    assert (rig.cpu_model, rig.ram_bytes >> 30, round(rig.cpu_bandwidth_gbs)) == ("AMD Ryzen 9 5950X", 128, 46)


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("3090 300W", "300W"),
        ("4x3090 power limited to 250W", "power limited to 250W"),
        ("3090 (300W)", "300W"),
        ("3090, 250 W/card", "250 W/card"),  # club-3090's issues, September 2026; elsewhere `w/` is `with`
        ("2x 3090 (230 W per card)", "230 W per card"),
        ("3090, 32GB swap", "32GB swap"),
        ("3090 + 128GB swap", "128GB swap"),
        ("3090, swap 100GB", "swap 100GB"),
        ("3090, 2TB NVMe, 850W PSU", "2TB NVMe; 850W PSU"),
        ("3090 2x 2TB NVMe raid 0", "2x 2TB NVMe raid 0"),
        ("3090, 2TB Samsung 980 Pro NVMe SSD", "2TB Samsung 980 Pro NVMe SSD"),
        ("3090, WD Black SN850X 4TB", "WD Black SN850X 4TB"),
        ("MSI Suprim RTX 3090", "MSI; Suprim"),
        ("3090, my old toaster", "toaster"),
    ],
)
def test_what_changes_no_figure_is_noted_and_reported(text: str, notes: str) -> None:
    machine = parse_hardware(f"{text}, 64GB DDR4")
    assert machine.notes == notes
    assert machine.ram == Ram(total_gb=64, type="DDR4")
    assert {gpu.name.removeprefix("RTX ") for gpu in machine.gpus} == {"3090"}
    for form in (machine, canonical(machine)):
        (said,) = [a for a in resolve(form).assumed if a.field == "hardware.notes"]
        assert said.value == notes


@pytest.mark.parametrize("text", ["EPYC 7402, 8x32GB 3200", "7950x 64gb", "EPYC 9355"])
def test_a_cpu_without_a_gpu_is_a_machine_without_and_says_so(text: str) -> None:
    machine = parse_hardware(text)
    assert machine.gpus == []
    said = resolve(canonical(machine)).assumed[0]
    assert (said.field, said.value) == ("hardware.gpus", "none")
    assert "hardware.notes" not in [a.field for a in resolve(machine).assumed]
    stated = parse_hardware(f"no GPU, {text}")
    assert stated.notes is None
    assert (stated.cpu, stated.ram) == (machine.cpu, machine.ram)


def test_a_cpu_behind_cpu_only() -> None:
    machine = parse_hardware("cpu only 5950x 64gb")
    assert machine == Hardware(gpus=[], cpu=Cpu(model="5950x"), ram=Ram(total_gb=64))


@pytest.mark.parametrize(
    ("text", "gbs", "says"),
    [
        ("5090 oculink", 7.88, "4.0 x4"),
        ("3090 thunderbolt", 3.94, "3.0 x4"),
        ("3090 egpu", 3.94, "3.0 x4"),
        ("GTX 1080 Ti oculink", 3.94, "3.0 x4"),
    ],
)
def test_a_link_said_in_a_word_is_four_lanes(text: str, gbs: float, says: str) -> None:
    rig = resolve(parse_hardware(f"{text}, Ryzen 9 9950X"))
    assert rig.cards[0].pcie_gbs == pytest.approx(gbs)
    assert [a.value for a in rig.assumed if a.field == "hardware.gpus[0].pcie"] == [says]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("four 4070s", "`4x 4070`, or `4070 SUPER`"),
        ("3090s, 64GB", "how many of them"),
        ("2x 1660s, 64GB", "which card it is"),
        ("3090, 309O", "no GPU or CPU of that name"),
        ("3090, planning to add a 4090 later", "no GPU or CPU of that name"),
        ("3090, 64GB, 32GB", "two sizes of RAM"),
        ("3090, 512GB 8x32GB", "the modules add up to 256 GB"),
        ("3090, 2x32GB, 2x16GB", "are they 96 GB together"),
        ("4x 3090, 96GB total", "the memory of the GPU or the machine's"),
        ("3090, 64GB, 2x32GB, 2x16GB", "the modules add up to 32 GB"),
        ("16GB 6800", "it may be a GPU or RAM"),
        ("2x16GB 6800, EPYC 9355", "it may be a GPU or RAM"),
        ("64GB DDR4 4090, 3090", "`4090` is a GPU: write a comma"),
        ("GTX 1080 Ti DDR5 22GB", "is it the RAM?"),
        ("3090 + 4090, PCIe 4.0 x8", "after the GPU that has it"),
        ("5090 (x16), 4090 (x4), 64GB RAM", "16 cards, or a link"),
        ("5090 x8 + 4090 x8, 64GB RAM", "8 cards, or a link"),
        ("RTX 5090 + RTX 3090, second card x4, 64GB RAM", "4 cards, or a link"),
        ("RTX 5090 + RTX 3090 (the other one x4), 64GB RAM", "4 cards, or a link"),
        ("2x RTX 3090, 2nd GPU PCIe 3.0 x4, 64GB RAM", "which links do the other cards have"),
        ("3090 and 3060, x8 each, 64GB RAM", "after the GPU that has it"),
        ("3x3090, x16/x4", "after the GPU that has it"),
        ("PCIe 4.0 x8, 3090", "after the GPU that has it"),
        ("toaster", "no GPU found (`toaster` is not known here)"),
        ("0x RTX 3090, 64GB", "leave out what is not there"),
    ],
)
def test_what_may_be_two_things_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidHardware) as error:
        parse_hardware(text)
    assert says in error.value.detail


@pytest.mark.parametrize(
    ("text", "card", "gib"),
    [
        # github.com/lmstudio-ai/lmstudio-bug-tracker/issues/334, warm-july, 2025-01-21
        ("I'm on a Thinkbook 16p G5. Win 11, I have a RTX 4060", "NVIDIA GeForce RTX 4060 Laptop GPU", 8),
        # github.com/TaterTotterson/microWakeWord-Trainer-Nvidia-Docker/issues/62, Akash47007, 2026-09-18
        ("Asus rog strix g16 g615lr wit rtx 5070ti", "NVIDIA GeForce RTX 5070 Ti Laptop GPU", 12),
        ("Lenovo Legion 5 Pro RTX 4070 32GB RAM", "NVIDIA GeForce RTX 4070 Laptop GPU", 8),
        ("Legion T5 tower, RTX 4070, 32GB", "NVIDIA GeForce RTX 4070", 12),
        ("ThinkPad P1 with a 4090 eGPU, 64GB", "NVIDIA GeForce RTX 4090", 24),
        # makers' names and model numbers, which stand before the card as a count would
        ("Lenovo Legion 7i Gen 9 RTX 4070, 32GB", "NVIDIA GeForce RTX 4070 Laptop GPU", 8),
        ("Acer Predator Helios 300 RTX 3060 16GB", "NVIDIA GeForce RTX 3060 Laptop GPU", 6),
        ("MSI Vector 16 HX RTX 5080 32GB", "NVIDIA GeForce RTX 5080 Laptop GPU", 16),
        ("Gigabyte Aorus 17X RTX 4090 64GB", "NVIDIA GeForce RTX 4090 Laptop GPU", 16),
        ("XMG Neo 16 RTX 4090 64GB", "NVIDIA GeForce RTX 4090 Laptop GPU", 16),
        ("ROG Strix Scar 18 RTX 5090 64GB", "NVIDIA GeForce RTX 5090 Laptop GPU", 24),
        ("Surface Laptop Studio 2 RTX 4060 64GB", "NVIDIA GeForce RTX 4060 Laptop GPU", 8),
        ("ROG Zephyrus G14 RTX 4090 32GB", "NVIDIA GeForce RTX 4090 Laptop GPU", 16),
        ("ROG Strix RTX 4090 OC, 7950X, 64GB", "NVIDIA GeForce RTX 4090", 24),
        ("RTX 4070 Aorus Master, 5800X, 32GB", "NVIDIA GeForce RTX 4070", 12),
    ],
)
def test_the_name_of_a_laptop_says_that_its_card_is_a_laptops(text: str, card: str, gib: int) -> None:
    found = resolve(parse_hardware(text)).cards
    assert [(c.name, round(c.total / 2**30)) for c in found] == [(card, gib)]


@pytest.mark.parametrize(
    ("text", "vram", "ram"),
    [
        ("i3-12100F / RTX 3060 12GB / 32GB RAM", 12, 32),
        ("RTX 4090 24GB / 128GB DDR5 / 9950X", 24, 128),
        ("RTX 4090 24GB, 9950X, 192GB DDR5 5200 (4 sticks)", 24, 192),
    ],
)
def test_parts_may_have_slashes_between_them_and_ram_the_number_of_its_sticks(text: str, vram: int, ram: int) -> None:
    found = parse_hardware(text)
    assert (found.gpus[0].vram_gib, found.ram and found.ram.total_gb) == (vram, ram)


@pytest.mark.parametrize(
    ("text", "card", "tflops"),
    [
        # github.com/lmstudio-ai/lmstudio-bug-tracker/issues/2017, thewesjohnson, 2026-06-06
        ("my other machine, a 32GB M1 Max (24 GPU cores)", "Apple M1 Max 24-core GPU", 7.8),
        ("Apple M1 Max, 64GB unified memory, 32 GPU cores", "Apple M1 Max", 10.4),
        # github.com/raullenchai/Rapid-MLX/pull/585, raullenchai, 2026-06-15
        ("Apple M3 Ultra, 256 GB RAM, 28 CPU cores, 60 GPU cores", "Apple M3 Ultra 60-core GPU", 21.3),
        ("M2 Ultra Mac Studio (60 core 192Gb)", "Apple M2 Ultra 60-core GPU", 21.5),  # more than its CPU has
        ("M3 Max MacBook Pro (16 core 128GB)", "Apple M3 Max", 14.2),  # of the CPU
    ],
)
def test_a_mac_has_the_gpu_cores_that_are_named_after_its_memory(text: str, card: str, tflops: float) -> None:
    (found,) = resolve(parse_hardware(text)).cards
    assert (found.name, found.fp16_tflops) == (card, tflops)


def test_cores_that_only_the_gpu_of_a_mac_can_have_are_no_note() -> None:
    assert parse_hardware("M1 Ultra Mac Studio (64 core 128Gb)").notes is None
    assert parse_hardware("Mac Studio M1 Ultra, 48 core CPU, 128GB").notes == "48 core CPU"


def test_cores_beyond_those_of_a_cpu_are_threads_or_a_question() -> None:
    # github.com/AlexsJones/llmfit/issues/91, alerque, 2026-02-26: it has 12 cores
    read = parse_hardware("AMD Ryzen AI 9 HX 370 w/ Radeon 890M (24 cores) (Framework 13) with 96GB of system RAM.")
    assert read.cpu == Cpu(model="AMD Ryzen AI 9 HX 370", physical_cores=12)
    assert "24 cores: taken as threads" in (read.notes or "")
    for text in ("Xeon 6138, 40 cores, 3090, 64GB", "i9-14900K 30 cores, 4090, 64GB"):
        with pytest.raises(InvalidHardware, match="cores` cannot be read: it has 2"):
            parse_hardware(text)


def test_more_sockets_than_a_cpu_works_in_are_asked_about() -> None:
    # github.com/ollama/ollama/issues/1637, Pblmr, 2023-12-20: two of 12 cores
    with pytest.raises(InvalidHardware, match="no board has 12 of them"):
        parse_hardware("a DELL with 12*2 Intel Xeon CPU Silver 4214R with 64 GB of RAM")


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("want 3-4gb left on the 3090", ["reserve_mib"]),
        ("keep 4GB free on the card", ["reserve_mib"]),
        ("4gb reserved for display", ["reserve_mib"]),
        ("8-10 gb of system memory reserved", ["max_ram_gib"]),
        ("need to keep 10GB RAM for VMs", ["max_ram_gib"]),
        ("want to keep 3-4gb free", ["reserve_mib", "max_ram_gib"]),
        ("keep 4GB of RAM and VRAM", ["reserve_mib", "max_ram_gib"]),
    ],
)
def test_memory_that_shall_stay_free_is_asked_for_as_a_limit(text: str, limits: list[str]) -> None:
    with pytest.raises(InvalidHardware, match="is a limit, not hardware") as error:
        parse_hardware(f"RTX 3090, 64GB RAM, {text}")
    assert [limit for limit in ("reserve_mib", "max_ram_gib") if limit in error.value.detail] == limits


@pytest.mark.parametrize(
    "text", ["I keep a 24GB RTX 3090 for this", "RTX 3090. 6.135 GB of memory reserved.", "RTX 3090, leaving 20GB free"]
)
def test_what_a_machine_has_is_no_limit(text: str) -> None:
    assert len(parse_hardware(text).gpus) == 1


def test_a_card_that_the_label_of_its_line_plans_is_not_there() -> None:
    # a project's notes on its machines, 2026: **GPU Upgrade (pending):** RTX 5060 Ti 16GB OC via OCuLink
    with pytest.raises(InvalidHardware, match="it may be a plan"):
        parse_hardware("48GB DDR5\n- **GPU Upgrade (pending):** RTX 5060 Ti 16GB OC via OCuLink")


@pytest.mark.parametrize(
    ("text", "gpu", "ram"),
    [
        # github.com/lllyasviel/Fooocus/issues/271, OpaoGuoNai, 2023-08-26
        ("RAM：12G\nVRAM：8G\nGPU：gtx1070", Gpu(name="gtx 1070", vram_gib=8), 12),
        # github.com/lucidrains/deep-daze/issues/202, ntntisthebomb, 2022-06-04
        ("i have an rtx 3070 with 32 gbs of ram", Gpu(name="rtx 3070"), 32),
        ("32 GB de RAM y una RTX 3060 con 12 GB de VRAM", Gpu(name="RTX 3060", vram_gib=12), 32),
    ],
)
def test_each_size_belongs_to_what_its_label_names(text: str, gpu: Gpu, ram: int) -> None:
    machine = parse_hardware(text)
    assert (machine.gpus, machine.ram) == ([gpu], Ram(total_gb=ram))


def test_a_tool_adds_to_the_cards_that_the_text_names_too() -> None:
    listed = "index, name, memory.total [MiB], memory.free [MiB]\n0, NVIDIA GeForce RTX 3080, 20480 MiB, 18432 MiB"
    (card,) = parse_hardware(f"I have a 3080 and 64GB ram\n{listed}").gpus
    assert (card.vram_gib, card.free_gib) == (20, 18)
    # github.com/meta-llama/llama/issues/425, hans-ekbrand, 2023-07-31
    devices = "\n".join(f"  Device {i}: NVIDIA GeForce GTX 1060 3GB, compute capability 6.1" for i in range(4))
    rig = resolve(parse_hardware(f"on 4 x GTX 1060\nggml_init_cublas: found 4 CUDA devices:\n{devices}"))
    assert [card.total >> 30 for card in rig.cards] == [3] * 4


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        # github.com/meta-llama/llama/issues/79, chris-aeviator, 2023-03-07
        ("3090, only 18% utilization", "18%; utilization"),
        (
            "llama.cpp 65B 4bit, 3090",
            "llama.cpp 65B 4bit",
        ),  # github.com/ggml-org/llama.cpp/issues/34, neuhaus, 2023-03-12
        ("Windows 11 24H2, 3090", "24H2"),  # github.com/ollama/ollama/issues/8651, yiteei, 2025-01-29
        ("3090, SSD NVMe 4 To", "SSD; NVMe 4TB"),  # a project's notes in French
        # github.com/ollama/ollama/issues/1495, rgaidot, 2023-12-13
        ("3090, SSD Crucial MX500 1To", "SSD Crucial MX500 1TB"),
        ("RTX 3090 GA102", "GA102"),  # github.com/black-forest-labs/flux/issues/67, duracell80, 2024-08-11
        ("3090, Intel UHD Graphics 630", "Intel UHD Graphics 630"),
        ("3090, 850W 80+ Gold", "850W; 80+ Gold"),  # mylocalai.org/blog/best-budget-ai-pc-build
        ("3090, 27 t/s at 64k", "27 t/s; 64k"),
        ("one PC with a 3090", "one"),
    ],
)
def test_numbers_that_are_no_parts_are_notes(text: str, notes: str) -> None:
    machine = parse_hardware(f"{text}, 64GB RAM")
    assert (machine.notes, machine.ram) == (notes, Ram(total_gb=64))
    assert [gpu.name.removeprefix("RTX ") for gpu in machine.gpus] == ["3090"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1070gtx 8gb", Gpu(name="gtx 1070", vram_gib=8)),  # github.com/ToTheBeginning/PuLID/issues/73, 2024-09-17
        ("Intel ARC 770", Gpu(name="Intel Arc A770")),  # github.com/ollama/ollama/issues/8651, yiteei, 2025-01-29
        # r/LocalLLaMA, 1wp7zyb, 2026-09-26
        ("4 old used 3060s connected via OCuLink. With my 12GB 3060", Gpu(name="3060", count=4, vram_gib=12)),
        ("AMD Radeon 780M Graphics [Integrated]", Gpu(name="AMD Radeon 780M Graphics")),  # as fastfetch marks it
    ],
)
def test_other_spellings_of_cards(text: str, expected: Gpu) -> None:
    (gpu,) = parse_hardware(f"{text}, 64GB RAM").gpus
    assert (gpu.name.lower(), gpu.count, gpu.vram_gib) == (expected.name.lower(), expected.count, expected.vram_gib)


@pytest.mark.parametrize(
    ("text", "model", "sockets", "cores"),
    [
        ("双插槽Xeon gold6126 cpu", "Intel Xeon Gold 6126", 2, 24),  # github.com/kvcache-ai/ktransformers/issues/453
        ("i5-12400F (6 cœurs)", "Intel Core i5-12400F", 1, 6),  # a project's notes in French
        ("My VPS Specs:\nCPU: 8", None, 1, 4),  # github.com/ollama/ollama/issues/2915, RahulVerma989, 2024-03-04
        ("cuatro vCPU", None, 1, 2),
        # github.com/lmstudio-ai/lmstudio-bug-tracker/issues/1204, renepijnacker, 2025-11-08
        ("GMKTEK AMD Strix Halo 395 MAX", "AMD Ryzen AI Max+ 395", 1, 16),
    ],
)
def test_other_spellings_of_processors(text: str, model: str | None, sockets: int, cores: int) -> None:
    rig = resolve(parse_hardware(f"{text}\n128GB RAM", gpus_required=False))
    assert (rig.cpu_model, rig.sockets, rig.physical_cores) == (model, sockets, cores)


@pytest.mark.parametrize(
    ("text", "cpu", "cards"),
    [
        ("3090, 5950X X570 motherboard", "AMD Ryzen 9 5950X", 1),
        ("EPYC 7532 ROMED8-2T mainboard, 4x 3090", "AMD EPYC 7532", 4),
        ("3090 MSI motherboard", None, 1),
    ],
)
def test_a_part_in_front_of_a_boards_name_is_no_part_of_it(text: str, cpu: str | None, cards: int) -> None:
    rig = resolve(parse_hardware(f"{text}, 64GB"))
    assert (rig.cpu_model, [card.name for card in rig.cards]) == (cpu, ["NVIDIA GeForce RTX 3090"] * cards)


def test_memory_that_something_uses_is_not_all_that_a_card_has() -> None:
    with pytest.raises(InvalidHardware, match="is it what is used, or all that the card has"):
        parse_hardware("3060 is working 100% and using 8Gb of vram")


def test_a_question_quotes_whole_words() -> None:
    # github.com/oobabooga/textgen/issues/5971, lawallet, 2024-05-01
    with pytest.raises(InvalidHardware, match="`Windows 11, 3090"):
        parse_hardware("Windows 11, 3090 and 2080ti (22gb) or 2 2080ti(22gb)")


@pytest.mark.parametrize(
    "system", ["Ubuntu", "Windows", "macOS", "Debian 12", "CUDA", "Fedora Linux", "Windows 11 Pro"]
)
@pytest.mark.parametrize("gap", ["\n", " ", ", "])
def test_a_size_behind_a_systems_name_is_not_its_version(system: str, gap: str) -> None:
    machine = parse_hardware(f"{system}{gap}64 GB RAM\nRyzen 5950X", gpus_required=False)
    assert machine.ram == Ram(total_gb=64)


def test_a_card_behind_a_systems_name_is_not_its_version() -> None:
    assert [gpu.name for gpu in parse_hardware("Ubuntu 3090 64GB RAM").gpus] == ["3090"]


@pytest.mark.parametrize(
    ("text", "cards", "cpu"),
    [
        ("CPU: Xeon\n5090, 64GB", ["NVIDIA GeForce RTX 5090"], "Xeon"),
        ("i5\n3090\n64GB", ["NVIDIA GeForce RTX 3090"], "i5"),
        ("EPYC\n7900 XTX\n64GB", ["AMD Radeon RX 7900 XTX"], "EPYC"),
        ("Samsung SSD\n64 GB RAM\n3090", ["NVIDIA GeForce RTX 3090"], None),
        ("RTX 3090, swap\n64 GB RAM", ["NVIDIA GeForce RTX 3090"], None),
        ("PCIe\n2 x RTX 3090\n64GB", ["NVIDIA GeForce RTX 3090"] * 2, None),
    ],
)
def test_a_part_does_not_go_on_in_the_next_line(text: str, cards: list[str], cpu: str | None) -> None:
    read = parse_hardware(text)
    assert ([card.name for card in resolve(read).cards], read.ram) == (cards, Ram(total_gb=64))
    assert (read.cpu.model if read.cpu else None) == cpu


@pytest.mark.parametrize(
    "text",
    [
        "> I have a 3090 and a 5950X\n> 64GB RAM",  # as replies quote it
        "# My machine: RTX 3090, Ryzen 5950X, 64GB RAM",  # as scripts and headings have it
        "### Hardware: Ryzen 5950X · RTX 3090 · NVMe 1TB · 64GB RAM",
        "Environment: Ubuntu 22.04, RTX 3090\nCPU: 5950X\nRAM: 64GB",
        "GPU\nModel: RTX 3090\nCPU\nModel: Ryzen 5950X\nRAM: 64GB",
        "# dmidecode -t 17 | grep Size\n3090, 5950X, 64GB",
    ],
)
def test_signs_and_labels_in_front_of_a_line_do_not_hide_it(text: str) -> None:
    rig = resolve(parse_hardware(text))
    assert [card.name for card in rig.cards] == ["NVIDIA GeForce RTX 3090"]
    assert (rig.cpu_model, rig.ram_bytes >> 30) == ("AMD Ryzen 9 5950X", 64)


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        # a project's notes, 2026: Ollama `qwen2.5:3b` on an RTX 3050 4 GB
        ("qwen2.5:3b on a 3090", "qwen2.5:3b"),
        ("gpt-oss-120b and Qwen3-30B-A3B, 3090", "gpt-oss-120b; Qwen3-30B-A3B"),
        # github.com/nomic-ai/gpt4all/issues/2796, Flu, 2024-08-07
        ("Windows 11 Pro 64 bit 23H2, 3090", "64 bit; 23H2"),
        # github.com/robertrosenbusch/gfx803_rocm/issues/38, nkls4223, 2025-07-29
        ("it has 4 PCIE-Ports, 3090", "4 PCIE-Ports"),
    ],
)
def test_models_and_ports_are_notes(text: str, notes: str) -> None:
    machine = parse_hardware(f"{text}, 64GB RAM")
    assert (machine.notes, [gpu.name for gpu in machine.gpus]) == (notes, ["3090"])


def test_cards_are_counted_behind_their_name_in_japanese() -> None:
    assert parse_hardware("RTX 4090 2枚挿しの自作PC, 64GB").gpus == [Gpu(name="RTX 4090", count=2)]


def test_cards_of_one_entry_have_links_of_one_generation() -> None:
    with pytest.raises(InvalidHardware, match="write the link after the GPU that has it"):
        parse_hardware("2x 3090, one pcie 4.0 x16, the other pcie 3.0 x4, 64GB RAM")


@pytest.mark.parametrize(
    ("text", "mts"),
    [
        ("DDR5 5600 running at 4800, 128GB, 9950X", 4800),
        ("128GB DDR5-6000 (running at 5200), 9950X", 5200),
        ("7950X, 4x32gb (runs at 3600 because 4 sticks)", 3600),
        ("4x32GB DDR5 running at 3600, 7950X", 3600),
        ("128GB DDR5 5600 @ 4800, 9950X", 4800),
        ("128GB DDR5-5600 at 3600MT/s, 7950X", 3600),
    ],
)
def test_ram_has_the_rate_at_which_it_runs(text: str, mts: int) -> None:
    hardware = parse_hardware(text)
    assert hardware.ram is not None
    assert hardware.ram.mts == mts
    assert hardware.cpu is not None
    assert hardware.cpu.model in ("9950X", "7950X")


def test_the_rate_of_a_drive_is_neither_the_rams_nor_a_cards() -> None:
    """`System RAM 32GB DDR5 … Gen4 NVMe ~7 GB/s sequential read`: compiledthoughts.dev, May 2026."""
    text = "RTX 5060 Ti 16GB\nSystem RAM\n32GB DDR5\nNVMe SSD\nGen4 NVMe\n~7 GB/s sequential read"
    hardware = parse_hardware(text)
    assert hardware.ram is not None
    assert hardware.ram.measured_bandwidth_gbs is None
    assert parse_hardware("RTX 3090, SSD 2TB 7 GB/s, 64GB RAM").gpus[0].bandwidth_gbs is None


def test_a_number_of_a_card_and_a_cpu_is_asked_about_beside_a_rate_of_ram() -> None:
    with pytest.raises(InvalidHardware, match="it is a GPU and a CPU"):
        parse_hardware("7600, 2x16GB 5600, 3060 12gb")


@pytest.mark.parametrize("box", ["GMKtec EVO-X2", "Framework Desktop with Ryzen", "Bosgame M5", "Beelink GTR9 Pro AMD"])
def test_a_machine_may_be_named_with_its_processor(box: str) -> None:
    """`GMKtec EVO-X2 AI Max+ 395 128GB`, as shops write it."""
    hardware = parse_hardware(f"{box} AI Max+ 395 128GB")
    assert hardware.cpu is not None
    assert (hardware.cpu.model or "").lower().endswith("ai max+ 395")
    assert hardware.ram == Ram(total_gb=128)


def test_links_on_lines_of_numbered_cards_are_theirs() -> None:
    text = "GPU 1: RTX 3090 (PCIe 4.0 x8)\nGPU 2: RTX 3060 12GB (PCIe 3.0 x4)\nRyzen 9 3900X\n64GB"
    assert [gpu.pcie for gpu in parse_hardware(text).gpus] == ["4.0 x8", "3.0 x4"]


def test_an_architecture_is_no_system() -> None:
    """`RTX 5090 Laptop (24 GB GDDR7, Blackwell arch), AMD Ryzen 9 9955HX3D`, a comment in a public repository."""
    assert parse_hardware("RTX 5090 Laptop (24 GB GDDR7, Blackwell arch), 64GB RAM").os is None
    assert parse_hardware("RTX 3090, 64GB RAM, Arch").os == "arch"


@pytest.mark.parametrize("text", ["dual EPYC 7532s, 512GB", "2x Xeon Gold 6248s, 512GB"])
def test_a_plural_of_processors_is_not_part_of_their_name(text: str) -> None:
    cpu = parse_hardware(text).cpu
    assert cpu is not None
    assert (cpu.sockets, (cpu.model or "")[-1]) == (2, (cpu.model or "").rstrip("s")[-1])


def test_links_are_listed_with_commas_too() -> None:
    # github.com/ikawrakow/ik_llama.cpp/pull/668, Thireus, 2025-08-08
    text = "2x RTX PRO 6000 Blackwell Workstation Edition + 1x 5090\nIntel i9-7980xe with 32GB of DDR4 (x16, x16, x8)"
    assert [gpu.pcie for gpu in parse_hardware(text).gpus] == ["x16", "x8"]


@pytest.mark.parametrize(
    "text",
    [
        "Motherboard: X570 Taichi, CPU: 5950X, GPU: 3090, RAM: 64GB",
        "Case: Define 7 | GPU: 3090 | CPU: 5950X | RAM: 64GB",
        "Storage: 2TB NVMe, RAM: 64GB, 3090, 5950X",
        "Driver: 550.54, RTX 3090, 5950X, 64GB",
        "Build: RTX 3090, 5950X, 64GB",
        "-> RTX 3090\n-> Ryzen 5950X\n-> 64GB RAM",
        "100% sure it is a 3090, 5950X, 64GB RAM",
    ],
)
def test_what_stands_first_in_a_line_does_not_hide_its_other_parts(text: str) -> None:
    rig = resolve(parse_hardware(text))
    assert [card.name for card in rig.cards] == ["NVIDIA GeForce RTX 3090"]
    assert (rig.cpu_model, rig.ram_bytes >> 30) == ("AMD Ryzen 9 5950X", 64)
