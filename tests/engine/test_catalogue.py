"""The catalogue's rows are complete and right where they can be checked; machines resolve as their platforms are."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest
from msgspec.structs import replace

from service.engine.catalogue import engine_devices, resolve, rigs_of
from service.engine.catalogue.families import family_of
from service.engine.catalogue.host import ALL_CORE_AT_ZERO, ALL_CORE_PER_BASE
from service.engine.catalogue.names import cpu_row, gpu_rows, misspelt, nearest, ram_named
from service.engine.catalogue.rows import known_cpus, known_gpus
from service.engine.errors import InvalidHardware, UnknownHardware
from service.engine.hardware import Cpu, Gpu, Hardware, Ram, Rig
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.form import canonical, to_shorthand
from service.engine.units import GIB, MIB

DATA = Path(__file__).parents[1] / "data"
THREADRIPPER = Cpu(model="AMD Ryzen Threadripper PRO 7965WX", sockets=1, physical_cores=24)
EIGHT_CHANNELS = Ram(total_gb=256, type="DDR5", channels=8, mts=4800)

# Two dies, each a device of its own for ROCm; the package has twice as much.
ONE_DIE = {"MI250"}
# Sold in a size that the other list has as a product of its own, or lacks.
ALSO_SOLD = {"P100": {12}, "RTX 2060": {12}, "RTX 2060 12GB": {6}}


def rig(*gpus: Gpu, cpu: Cpu | None = THREADRIPPER, ram: Ram | None = EIGHT_CHANNELS, os: str | None = None) -> Rig:
    return resolve(Hardware(gpus=list(gpus), cpu=cpu, ram=ram, os=os))


def assumed(machine: Rig) -> set[str]:
    return {assumption.field for assumption in machine.assumed}


def test_there_are_at_least_120_gpus_and_60_cpus_each_with_a_source() -> None:
    assert len({row.name for row in known_gpus()}) >= 120
    assert len({row.name for row in known_cpus()}) >= 60
    assert all(row.source for row in known_gpus())
    assert all(row.source for row in known_cpus())
    assert {row.backend for row in known_gpus()} == {"cuda", "rocm", "sycl", "metal", "vulkan"}


def test_every_number_in_the_catalogue_is_possible() -> None:
    for gpu in known_gpus():
        assert gpu.unified or (gpu.vram_gib or 0) >= 2, gpu.name
        assert gpu.bandwidth_gbs is None or 12 <= gpu.bandwidth_gbs <= 8000, gpu.name
        assert (gpu.compute_capability is not None) == (gpu.backend == "cuda"), gpu.name
        assert gpu.fp16_tflops, (
            f"{gpu.name}: prompts would be predicted by its memory bandwidth, up to six times too slow"
        )
        if gpu.driver_mib:
            assert 0.9 * gpu.driver_mib <= 1024 * (gpu.vram_gib or 0) <= 1.08 * gpu.driver_mib, gpu.name
    for cpu in known_cpus():
        assert 2 <= cpu.cores <= 192, cpu.name
        assert 1 <= cpu.sockets <= 8, cpu.name
        assert cpu.isa in {"avx2", "avx512", "vnni", "neon", "apple", "avx", "sse"}, cpu.name
        assert cpu.channels in {1, 2, 4, 6, 8, 12} or cpu.isa == "apple", cpu.name


def test_memory_agrees_with_the_hardware_list_of_huggingface_tasks() -> None:
    listed = json.loads((DATA / "huggingface_tasks_hardware.json").read_text())["memory_gb"]
    compared = 0
    for name, sizes in listed.items():
        rows = [row for row in gpu_rows(name) if row.vram_gib is not None]
        for row in rows if name not in ONE_DIE else ():
            assert row.vram_gib in set(sizes) | ALSO_SOLD.get(name, set()), name
        compared += bool(rows)
    assert compared >= 120


@pytest.mark.parametrize(
    ("name", "mib"),
    [
        ("RTX 4090", 24564), ("RTX 3090", 24576), ("RTX 5090", 32607),
        ("A2", 15356), ("A16", 15356), ("L40", 46068), ("Tesla K80", 11441),  # with ECC, as they are delivered
    ],
)  # fmt: skip
def test_memory_is_what_the_driver_reports(name: str, mib: int) -> None:
    assert rig(Gpu(name=name)).cards[0].total == mib * MIB
    assert rig(Gpu(name=name, vram_gib=gpu_rows(name)[0].vram_gib)).cards[0].total == mib * MIB


def test_bandwidths_and_int8_rates_are_those_the_speed_model_was_fitted_with() -> None:
    table: dict[str, tuple[int, int | None]] = {
        "P40": (347, 47),
        "Quadro RTX 8000": (672, 261),
        "RTX 2060": (336, 103),
        "RTX 3090": (936, 284),
    }
    table |= {"RTX 3090 Ti": (1008, 320), "RTX A6000": (768, 309), "A100 80GB PCIe": (1935, 624)}
    table |= {"RTX 6000 Ada": (960, 728), "RTX 4060 Ti": (288, 176), "RTX 4080": (717, 390), "RTX 4090": (1008, 661)}
    table |= {"RTX PRO 6000": (1792, 1007), "RTX 5090": (1792, 838), "RTX 4060 Laptop": (256, None)}
    for name, (bandwidth, tops) in table.items():
        row = gpu_rows(name)[0]
        assert row.bandwidth_gbs == pytest.approx(bandwidth, abs=1), name
        assert tops is None or row.int8_tops == pytest.approx(tops, abs=1), name


@pytest.mark.parametrize("kind", ["gpus", "cpus"])
def test_names_in_published_measurements_resolve_or_are_refused_on_purpose(kind: str) -> None:
    for name, expected in json.loads((DATA / "hardware_names.json").read_text())[kind].items():
        row = (gpu_rows(name) or (None,))[0] if kind == "gpus" else cpu_row(name)
        assert (row.name if row else None) == expected, name


def test_a_name_that_several_generations_had_is_refused_with_all_of_them() -> None:
    with pytest.raises(UnknownHardware) as error:
        rig(Gpu(name="RTX 4090"), Gpu(name="RTX 6000"))
    assert error.value.field == "hardware.gpus[1].name"
    assert {"NVIDIA RTX 6000 Ada Generation", "Quadro RTX 6000"} <= set(error.value.choices)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("RTX3090", "NVIDIA GeForce RTX 3090"),
        ("GTX1080Ti", "NVIDIA GeForce GTX 1080 Ti"),
        ("RX7900XTX", "AMD Radeon RX 7900 XTX"),
        ("NVIDIA GeForce RTX 3070 Mobile", "NVIDIA GeForce RTX 3070 Laptop GPU"),
        ("geforce rtx4090", "NVIDIA GeForce RTX 4090"),
        ("4090D", "NVIDIA GeForce RTX 4090 D"),
        ("Intel(R) Arc(TM) A770 Graphics", "Intel Arc A770"),
        ("AMD Radeon™ RX 7900 XTX", "AMD Radeon RX 7900 XTX"),
        ("Tesla V100-PCIE-16GB", "Tesla V100-PCIE-16GB"),
        ("W7900", "AMD Radeon PRO W7900"),
    ],
)
def test_a_gpu_is_known_by_its_usual_spellings(spelling: str, name: str) -> None:
    assert gpu_rows(spelling)[0].name == name


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("Intel(R) Xeon(R) CPU E5-2690 v3 @ 2.60GHz", "Intel Xeon E5-2690 v3"),
        ("13th Gen Intel(R) Core(TM) i5-13600K", "Intel Core i5-13600K"),
        ("AMD Ryzen 9 7950X 16-Core Processor", "AMD Ryzen 9 7950X"),
        ("5950x", "AMD Ryzen 9 5950X"),
        ("Ryzen9 7950X", "AMD Ryzen 9 7950X"),
        ("8480+", "Intel Xeon Platinum 8480+"),
        ("Xeon 8480", "Intel Xeon Platinum 8480+"),
        ("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", "AMD Ryzen AI Max+ 395"),
        ("Core Ultra 9 285K", "Intel Core Ultra 9 285K"),
        ("Xeon 6 6787P", "Intel Xeon 6787P"),
    ],
)
def test_a_cpu_is_known_by_its_usual_spellings(spelling: str, name: str) -> None:
    row = cpu_row(spelling)
    assert row is not None
    assert row.name == name


def test_an_unknown_gpu_is_taken_with_its_memory_and_its_bandwidth() -> None:
    machine = rig(Gpu(name="NVIDIA GeForce RTX 6090", vram_gib=48, bandwidth_gbs=2500))
    card = machine.cards[0]
    assert (card.total, card.bandwidth_gbs, card.backend, card.bandwidth_known) == (48 * GIB, 2500, "cuda", True)
    assert not rig(Gpu(name="NVIDIA GeForce RTX 6090", vram_gib=48)).cards[0].bandwidth_known
    with pytest.raises(UnknownHardware, match="vram_gib"):
        rig(Gpu(name="NVIDIA GeForce RTX 6090"))


def test_an_unknown_cpu_is_taken_by_its_makers_numbering_and_said_so() -> None:
    machine = rig(cpu=Cpu(model="EPYC 9385"))
    assert (machine.cpu_generation, machine.physical_cores, machine.isa) == ("zen5", 32, "vnni")
    said = next(a for a in machine.assumed if a.field == "hardware.cpu")
    assert "EPYC 9385" in said.why
    assert "nearest: AMD EPYC 9" in said.why
    assert rig(cpu=Cpu(model="EPYC 9385", physical_cores=24)).physical_cores == 24
    named_by_family = rig(cpu=Cpu(model="Xeon Emerald Rapids")).assumed
    assert "names no model" in next(a for a in named_by_family if a.field == "hardware.cpu").why
    assert rig(cpu=Cpu(model="Loongson 3C5000")).cpu_generation == "unknown"


def test_a_memory_size_in_the_name_or_next_to_it_chooses_the_product() -> None:
    assert rig(Gpu(name="A100 40GB")).cards[0].bandwidth_gbs < 1600
    assert rig(Gpu(name="RTX 3080", vram_gib=12)).cards[0].bandwidth_gbs > 900
    assert rig(Gpu(name="RTX 4090 48GB")).cards[0].total == 48 * GIB
    assert "hardware.gpus[0].vram_gib" in assumed(rig(Gpu(name="RTX 4060 Ti")))
    assert "hardware.gpus[0].vram_gib" not in assumed(rig(Gpu(name="RTX 4060 Ti", vram_gib=16)))


@pytest.mark.parametrize(
    ("text", "mib", "gbs", "ram_gb"),
    [
        ("GH200", 97871, 4000, 480),
        ("NVIDIA GH200 480GB", 97871, 4000, 480),
        ("GH200 120GB", 97871, 4000, 120),
        ("GH200 96GB, 480GB LPDDR5X", 97871, 4000, 480),
        ("GH200 480GB, 64 vCPU, 432GB RAM", 97871, 4000, 432),
        ("2x GH200 480GB", 97871, 4000, 960),
        ("GH200 144GB, 480GB LPDDR5X", 146831, 4900, 480),
    ],
)
def test_a_gh200_has_its_own_memory_and_the_480_gb_in_its_name_are_ram(
    text: str, mib: int, gbs: int, ram_gb: int
) -> None:
    stated = parse_hardware(text)
    for hardware in (stated, canonical(stated), parse_hardware(to_shorthand(stated))):
        machine = resolve(hardware)
        assert {(card.total // MIB, card.bandwidth_gbs) for card in machine.cards} == {(mib, gbs)}
        assert machine.ram_bytes == ram_gb * GIB


def test_only_a_gh200_has_a_size_in_its_name_that_is_not_its_memory() -> None:
    assert {row.name for row in known_gpus() if ram_named(row)} == {"NVIDIA GH200 480GB"}
    by_driver = resolve(Hardware(gpus=[Gpu(name="NVIDIA GH200 480GB"), Gpu(name="NVIDIA GH200 144G HBM3e")]))
    assert [card.total // MIB for card in by_driver.cards] == [146831, 97871]


WITHOUT_GRAPHICS = (
    "Ryzen 5 5600X", "Ryzen 7 5700X3D", "Ryzen 5 5500", "Ryzen 7 1700", "Ryzen 5 7500F", "i5-12400F", "i7-14700KF",
    "Core Ultra 7 265KF", "i7-5820K", "i9-10900X", "i5-9400F",
)  # fmt: skip
WITH_GRAPHICS = (
    "Ryzen 7 5700G", "Ryzen 7 7800X3D", "Ryzen 9 9950X", "Ryzen 5 7600", "i5-12400", "i9-14900K", "i7-8700K", "i7-4770",
    "Core Ultra 9 285K", "Xeon E5-2680 v4", "EPYC 7302P", "Threadripper 3970X",
)  # fmt: skip


@pytest.mark.parametrize(
    ("cpu", "drives"), [*((cpu, True) for cpu in WITHOUT_GRAPHICS), *((cpu, False) for cpu in WITH_GRAPHICS)]
)
def test_the_only_card_drives_the_display_where_the_cpu_has_no_graphics(cpu: str, drives: bool) -> None:
    machine = resolve(parse_hardware(f"RTX 3060 12GB, {cpu}, 32GB"))
    assert machine.cards[0].display == drives
    assert machine.cards[0].reserve == (1024 if drives else 512) * MIB
    assert ("hardware.gpus[0].display" in assumed(machine)) == drives


@pytest.mark.parametrize(
    "text",
    [
        "RTX 3060 12GB, i5-12400F, 32GB, headless",
        "RTX 3060 12GB (no display), i5-12400F, 32GB",
        "RTX 3060 12GB, i5-12400F, 32GB, Ubuntu Server 24.04",
        "RTX 3060 12GB, i5-12400F, 32GB, Windows 11",
        "RTX 3060 12GB [11.5 GiB free], i5-12400F, 32GB",
        "2x RTX 3060 12GB, i5-12400F, 32GB",
        "Tesla P40, i5-12400F, 32GB",
    ],
)
def test_no_display_is_assumed_where_the_text_says_more_or_the_card_has_no_output(text: str) -> None:
    assert "hardware.gpus[0].display" not in assumed(resolve(parse_hardware(text)))


def test_cards_are_ordered_fastest_first_and_keep_what_a_paste_said_of_them() -> None:
    slow = Gpu(name="RTX 3090", count=2, uuids=["GPU-" + "a" * 36, "GPU-" + "b" * 36], pci_order=[0, 2], free_gib=20)
    machine = rig(slow, Gpu(name="RTX 5090", pci_order=[1], display=True))
    assert [card.name for card in machine.cards] == ["NVIDIA GeForce RTX 5090"] + ["NVIDIA GeForce RTX 3090"] * 2
    assert [card.pci_index for card in machine.cards] == [1, 0, 2]
    assert [card.display for card in machine.cards] == [True, False, False]
    assert machine.cards[2].uuid == "GPU-" + "b" * 36
    assert machine.cards[1].free == 20 * GIB
    assert machine.order_known
    assert not rig(Gpu(name="RTX 3090")).order_known


def test_devices_are_named_by_position_and_backend() -> None:
    machine = rig(Gpu(name="RTX 5090"), Gpu(name="RTX 3090", count=2))
    devices = engine_devices(machine, "ik_llama.cpp", (0, 2))
    assert [(d.name, d.gpu) for d in devices] == [("CUDA0", 0), ("CUDA1", 2)]
    assert engine_devices(rig(Gpu(name="RX 7900 XTX")), "llama.cpp", [0])[0].name == "ROCm0"
    assert engine_devices(rig(Gpu(name="Arc B580")), "llama.cpp", [0])[0].name == "SYCL0"
    mac = rig(Gpu(name="Apple M3 Ultra"), cpu=None, ram=Ram(total_gb=512))
    assert engine_devices(mac, "ik_llama.cpp", [0])[0].name == "Metal"
    assert engine_devices(mac, "llama.cpp", [0])[0].name == "MTL0"


def test_ram_bandwidth_is_four_fifths_of_the_channels_within_what_the_dies_take() -> None:
    assert rig(cpu=Cpu(model="Xeon 8480+")).cpu_bandwidth_gbs == pytest.approx(0.8 * 8 * 4800 * 8 / 1000)
    fast = Ram(total_gb=256, channels=8, mts=5600)
    assert rig(ram=fast).cpu_bandwidth_gbs == 235
    two = rig(cpu=Cpu(model="EPYC 9115", sockets=2), ram=Ram(total_gb=768))
    assert two.cpu_bandwidth_gbs == 2 * 220
    assert two.physical_cores == 32
    assert rig(ram=Ram(total_gb=256, measured_bandwidth_gbs=225)).cpu_bandwidth_gbs == 225
    assert rig(ram=Ram(total_gb=256, measured_bandwidth_gbs=225)).bandwidth_measured


def test_four_modules_on_a_desktop_are_two_channels() -> None:
    machine = rig(cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=128, channels=4, mts=5200))
    assert machine.cpu_bandwidth_gbs == pytest.approx(0.8 * 2 * 5200 * 8 / 1000)
    assert "hardware.ram.channels" in assumed(machine)


@pytest.mark.parametrize(
    ("cpu", "cores"),
    [
        (Cpu(model="i9-14900K"), 8),
        (Cpu(model="13th Gen Intel(R) Core(TM) i5-13600K", physical_cores=14), 6),
        (Cpu(model="i9-13900K", physical_cores=4), 4),
        (Cpu(model="Core Ultra 9 285K"), 8),
        (Cpu(model="i5-12400"), 6),
        (Cpu(model="Ryzen 9 7950X"), 16),
        (Cpu(model="Apple M3"), 4),  # llama.cpp issue 7577
        (Cpu(model="Apple M4 Pro", physical_cores=14), 10),  # TG 133 with 10, 86 with 14: PrismML-Eng/llama.cpp pull 33
    ],
)
def test_threads_run_on_the_performance_cores_of_a_hybrid_cpu(cpu: Cpu, cores: int) -> None:
    assert rig(cpu=cpu, ram=Ram(total_gb=64)).physical_cores == cores


def test_hybrid_cpus_have_more_cores_than_performance_cores() -> None:
    hybrid = [row for row in known_cpus() if row.generation in {"raptor lake", "alder lake"}]
    of_one_kind = {f"Intel Core i5-{number}" for number in ("12400", "12400F", "12500", "12600")}
    assert {row.name for row in hybrid if row.performance_cores is None} == of_one_kind
    four = [row.name for row in hybrid if row.performance_cores not in {None, 6, 8}]
    assert all(re.fullmatch(r"Intel Core i5-1[23]\d{3}H", name) for name in four)
    assert all(row.performance_cores == 4 for row in hybrid if row.name in four)
    assert all((row.performance_cores or 0) < row.cores for row in known_cpus())


@pytest.mark.parametrize(
    ("name", "cores", "mts", "generation", "clock"),  # cores that engines run on; Intel ARK's base clocks
    [("i7-8700", 6, 2666, "skylake", 3.2), ("i5-10400F", 6, 2666, "skylake", 2.9),
     ("i7-11700", 8, 3200, "rocket lake", 2.5), ("i7-12700", 8, 4800, "alder lake", 2.1),
     ("12th Gen Intel(R) Core(TM) i7-12700H", 6, 4800, "alder lake", None),
     ("i7-13700H", 6, 5200, "raptor lake", None), ("13900HX", 8, 5600, "raptor lake", None),
     ("i7-14700", 8, 5600, "raptor lake", 2.1), ("Core Ultra 9 185H", 6, 5600, "meteor lake", 2.3),
     ("Core Ultra 5 125H", 4, 5600, "meteor lake", 1.2), ("Ryzen 7 6800H", 8, 4800, "zen3", 3.2),
     ("AMD Ryzen 7 8845HS w/ Radeon 780M Graphics", 8, 5600, "zen4", 3.8)],
)  # fmt: skip
def test_common_desktops_and_laptops_are_no_guess(
    name: str, cores: int, mts: int, generation: str, clock: float | None
) -> None:
    row = cpu_row(name)
    assert row is not None
    assert (row.mts, row.generation, row.base_ghz) == (mts, generation, clock)
    machine = resolve(parse_hardware(f"RTX 3060 12GB, {name}, 32GB"))
    assert machine.physical_cores == cores
    assert "hardware.cpu" not in assumed(machine)


def test_laptops_of_2023_are_of_the_generation_that_their_third_digit_names() -> None:
    # AMD's numbers of mobile processors since 2023 (heise.de 7448605): 7735HS and 7730U are Zen 3, 7840HS is Zen 4
    names = ("Ryzen 7 7735HS", "Ryzen 7 7730U", "Ryzen 5 7535U", "Ryzen 5 7520U", "Ryzen 5 7640HS", "Ryzen 9 7900")
    found = [row.generation for name in names if (row := family_of(name)) is not None]
    assert found == ["zen3", "zen3", "zen3", "zen2", "zen4", "zen4"]


def test_what_is_not_stated_is_assumed_and_listed_with_what_it_changes() -> None:
    machine = rig(Gpu(name="RTX 3090"), cpu=None, ram=None)
    assert assumed(machine) >= {"hardware.cpu", "hardware.ram.total_gb", "hardware.ram.mts", "hardware.gpus[0].pcie"}
    assert all(a.value and a.why and a.matters for a in machine.assumed)
    assert assumed(rig(Gpu(name="RTX 3090", pcie="4.0 x16"))) == set()


def test_assumptions_are_listed_by_what_they_change_and_name_the_users_entry() -> None:
    machine = rig(Gpu(name="RTX 3090"), Gpu(name="RTX 5090", pcie="5.0 x16"), cpu=None, ram=None)
    fields = [a.field for a in machine.assumed]
    assert fields[:2] == ["hardware.ram.total_gb", "hardware.cpu"]
    assert fields[-2:] == ["hardware.gpus[0].pcie", "hardware.cpu.ghz"] or "hardware.cpu.ghz" not in fields
    assert "the card and the platform" in next(a.why for a in machine.assumed if a.field == "hardware.gpus[0].pcie")


def test_the_assumed_all_core_clock_is_the_line_through_the_catalogues_clocks() -> None:
    known = [(row.base_ghz, row.all_core_ghz) for row in known_cpus() if row.all_core_ghz and row.base_ghz]
    slope, at_zero = statistics.linear_regression(*zip(*known, strict=True))
    for base in (2.0, 3.0, 4.5):
        assert ALL_CORE_AT_ZERO + ALL_CORE_PER_BASE * base == pytest.approx(at_zero + slope * base, rel=0.02)


@pytest.mark.parametrize(
    ("pcie", "gbs"),
    [
        ("4.0 x16", [31.52, 31.52]),
        ("3.0 x8", [7.88, 7.88]),
        ("5.0 x8/x8", [31.52, 31.52]),
        ("4.0 x16/x4", [31.52, 7.88]),
        ("4.0 x4 (chipset)", [7.88, 7.88]),
        ("x16 (3.0 platform)", [15.76, 15.76]),
        ("gen4 x8", [15.76, 15.76]),
    ],
)
def test_a_stated_link_is_taken_at_its_word(pcie: str, gbs: list[float]) -> None:
    machine = rig(Gpu(name="RTX 5090", count=2, pcie=pcie))
    assert [card.pcie_gbs for card in machine.cards] == pytest.approx(gbs)


def test_an_unstated_link_is_the_lesser_of_card_and_platform() -> None:
    assert rig(Gpu(name="RTX 5090")).cards[0].pcie_gbs == pytest.approx(3.94 * 16)
    assert rig(Gpu(name="RTX 3090")).cards[0].pcie_gbs == pytest.approx(1.97 * 16)
    assert rig(Gpu(name="RTX 5090"), cpu=Cpu(model="EPYC 7302")).cards[0].pcie_gbs == pytest.approx(1.97 * 16)
    desktop = rig(Gpu(name="RTX 3090", count=2), cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=64))
    assert desktop.cards[1].pcie_gbs == pytest.approx(1.97 * 8)


@pytest.mark.parametrize(
    ("card", "pcie", "gbs"),
    [("RTX 3090", "5.0 x16", 31.52), ("RTX 4060", "4.0 x16", 15.76), ("RTX 3090", "3.0 x16", 15.76)],
)
def test_a_card_is_no_faster_in_a_slot_of_a_later_generation_or_more_lanes(card: str, pcie: str, gbs: float) -> None:
    machine = rig(Gpu(name=card, pcie=pcie), cpu=Cpu(model="Ryzen 9 7950X"))
    assert machine.cards[0].pcie_gbs == pytest.approx(gbs)
    said = [a.why for a in machine.assumed if a.field == "hardware.gpus[0].pcie"]
    assert bool(said) == (pcie != "3.0 x16")
    assert all("the slot's: the card has PCIe" in why for why in said)


@pytest.mark.parametrize("other", [Gpu(name="RTX 3090", pcie="4.0 x4"), Gpu(name="RTX 3090", pcie="oculink")])
def test_a_card_on_four_lanes_of_its_own_leaves_the_first_all_sixteen(other: Gpu) -> None:
    """A Ryzen 5000 has 16 lanes for cards, 4 for M.2 and 4 to the chipset: aightbits.com, PCIe, April 2025."""
    desktop = rig(Gpu(name="RTX 5090"), other, cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=64))
    assert [card.pcie_gbs for card in desktop.cards] == pytest.approx([3.94 * 16, 1.97 * 4])


@pytest.mark.parametrize("small", ["GT 710", "GT 1030"])
def test_a_card_whose_own_connector_has_four_lanes_or_fewer_takes_none_of_the_first(small: str) -> None:
    desktop = rig(Gpu(name="RTX 4090"), Gpu(name=small), cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=64))
    assert desktop.cards[0].pcie_gbs == pytest.approx(1.97 * 16)


def test_cards_with_only_a_generation_stated_share_a_desktops_lanes() -> None:
    desktop = rig(Gpu(name="RTX 3090", count=2, pcie="4.0"), cpu=Cpu(model="Ryzen 9 5950X"), ram=Ram(total_gb=64))
    assert desktop.cards[0].pcie_gbs == pytest.approx(1.97 * 8)


def test_a_bandwidth_that_modules_have_in_theory_is_no_measurement() -> None:
    """`Memory Bandwidth: 89.6 GB/s (theoretical)` of DDR5-5600: r/LocalLLaMA 1ofxt6s."""
    ram = Ram(total_gb=64, type="DDR5", channels=2, mts=5600, measured_bandwidth_gbs=89.6)
    stated = rig(cpu=Cpu(model="Core Ultra 9 285K"), ram=ram)
    assert not stated.bandwidth_measured
    assert stated.cpu_bandwidth_gbs == pytest.approx(0.8 * 89.6, rel=0.01)
    assert "hardware.ram.measured_bandwidth_gbs" in assumed(stated)
    one_die = rig(cpu=Cpu(model="Ryzen 7 9700X"), ram=Ram(total_gb=32, type="DDR5", measured_bandwidth_gbs=96))
    assert not one_die.bandwidth_measured  # `32GB DDR5 ~96 GB/s`, of which its die can read two thirds
    measured = replace(ram, measured_bandwidth_gbs=75.0)
    assert rig(cpu=Cpu(model="Core Ultra 9 285K"), ram=measured).cpu_bandwidth_gbs == 75.0


@pytest.mark.parametrize("count", [3, 5, 7])
def test_many_cards_of_a_desktop_have_four_lanes_each(count: int) -> None:
    """Five cards at x8/x4/x4/x4/x4, seven at no less than x4: Panchovix's 7800X3D, llama.cpp pull 13435."""
    desktop = rig(Gpu(name="RTX 4090", count=count), cpu=Cpu(model="Ryzen 7 7800X3D"), ram=Ram(total_gb=192))
    assert [card.pcie_gbs for card in desktop.cards] == pytest.approx([1.97 * 4] * count)


def test_a_mac_lets_its_gpu_have_three_quarters_of_memory_and_two_thirds_of_a_small_one() -> None:
    large = rig(Gpu(name="Apple M1 Max"), cpu=None, ram=Ram(total_gb=64))
    assert large.cards[0].usual_limit == 49152 * MIB
    assert large.os == "macos"
    assert large.isa == "apple"
    assert large.cards[0].unified
    small = rig(Gpu(name="Apple M1 Pro"), cpu=None, ram=Ram(total_gb=16))
    assert (small.cards[0].usual_limit or 0) // MIB == 10922


def test_a_gpu_in_a_cpu_reads_ram_of_the_speed_that_was_stated() -> None:
    def bandwidth(name: str, mts: int | None = None, channels: int | None = None) -> float:
        ram = Ram(total_gb=64, mts=mts, channels=channels)
        return rig(Gpu(name=name), cpu=None, ram=ram).cards[0].bandwidth_gbs

    assert bandwidth("Radeon 780M") == pytest.approx(89.6)
    assert bandwidth("Radeon 780M", mts=4800) == pytest.approx(76.8)
    assert bandwidth("Radeon 780M", mts=5600, channels=1) == pytest.approx(44.8)
    assert bandwidth("Radeon 8060S", mts=8000) == pytest.approx(256)
    assert bandwidth("Apple M4 Max", mts=6400) == pytest.approx(546)
    assert bandwidth("Jetson AGX Orin 64GB", mts=6400) == pytest.approx(204.8)


def test_no_gpu_is_a_machine() -> None:
    machine = rig()
    assert machine.cards == ()
    assert not machine.order_known


@pytest.mark.parametrize(
    ("hardware", "field"),
    [
        (Hardware(gpus=[Gpu(name="RTX 3090", count=0)]), "hardware.gpus[0].count"),
        (Hardware(gpus=[Gpu(name="RTX 3090", count=65)]), "hardware.gpus[0].count"),
        (Hardware(gpus=[Gpu(name="RTX 3090", count=40)] * 2), "hardware.gpus"),
        (Hardware(gpus=[Gpu(name=" ")]), "hardware.gpus[0].name"),
        (Hardware(gpus=[Gpu(name="RTX 3090", vram_gib=-24)]), "hardware.gpus[0].vram_gib"),
        (Hardware(gpus=[Gpu(name="RTX 3090", vram_gib=float("nan"))]), "hardware.gpus[0].vram_gib"),
        (Hardware(gpus=[Gpu(name="RTX 3090", vram_gib=24, free_gib=25)]), "hardware.gpus[0].free_gib"),
        (Hardware(gpus=[Gpu(name="RTX 3090", free_gib=25)]), "hardware.gpus[0].free_gib"),
        (Hardware(gpus=[Gpu(name="RTX 5090"), Gpu(name="RTX 3090", free_gib=99)]), "hardware.gpus[1].free_gib"),
        (Hardware(gpus=[Gpu(name="RTX 3090", free_gib=-1)]), "hardware.gpus[0].free_gib"),
        (Hardware(gpus=[Gpu(name="RTX 3090", bandwidth_gbs=0)]), "hardware.gpus[0].bandwidth_gbs"),
        (Hardware(gpus=[Gpu(name="RTX 3090", pcie="fast")]), "hardware.gpus[0].pcie"),
        (Hardware(gpus=[Gpu(name="RTX 3090", pcie="4.0 x3")]), "hardware.gpus[0].pcie"),
        (Hardware(gpus=[Gpu(name="RTX 3090", uuids=["GPU-1; rm"])]), "hardware.gpus[0].uuids"),
        (Hardware(gpus=[Gpu(name="RTX 3090", count=2, pci_order=[0])]), "hardware.gpus[0].pci_order"),
        (Hardware(gpus=[], ram=Ram(total_gb=20_000)), "hardware.ram.total_gb"),
        (Hardware(gpus=[], ram=Ram(total_gb=-1)), "hardware.ram.total_gb"),
        (Hardware(gpus=[], ram=Ram(channels=0)), "hardware.ram.channels"),
        (Hardware(gpus=[], cpu=Cpu(sockets=-1)), "hardware.cpu.sockets"),
        (Hardware(gpus=[], notes="a\x00b"), "hardware.notes"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(hardware: Hardware, field: str) -> None:
    with pytest.raises(InvalidHardware) as error:
        resolve(hardware)
    assert error.value.field == field


def test_nearest_names_are_at_most_five_and_known() -> None:
    assert len(nearest("RTX 5091")) == 5
    assert nearest("RTX 5091")[0] == "NVIDIA GeForce RTX 5090"
    assert "AMD EPYC 7302" in nearest("EPYC 7303", cpu=True)


@pytest.mark.parametrize(
    ("name", "cores"),
    [("i5-9300H", 4), ("i7-8750H", 6), ("i7-9750H", 6), ("i9-9880H", 8), ("i9-8950HK", 6), ("i7-9700F", 8)],
)
def test_a_laptop_s_core_of_the_8th_to_10th_generation_has_fewer_cores_than_a_desktop_s(name: str, cores: int) -> None:
    """An i7-9750H was given eight threads for its six cores (Intel ARK)."""
    assert rig(cpu=Cpu(model=name), ram=Ram(total_gb=32)).physical_cores == cores


def test_a_guessed_cpu_says_nothing_of_memory_whose_speed_was_given() -> None:
    """A 5800XT with DDR4-3600 was "zen3, 8 cores, 2x DDR at 3200 MT/s", as if 3600 had not been read."""
    said = {
        mts: next(a.value for a in rig(cpu=Cpu(model="Ryzen 7 5800XT"), ram=Ram(total_gb=64, mts=mts)).assumed)
        for mts in (3600, None)
    }
    assert said == {3600: "zen3, 8 cores", None: "zen3, 8 cores, 2x DDR at 3200 MT/s"}


def test_the_only_size_of_a_machine_s_memory_is_no_assumption() -> None:
    assert all(a.field != "hardware.ram.total_gb" for a in resolve(parse_hardware("DGX Spark")).assumed)


@pytest.mark.parametrize(
    ("name", "cpu", "first"),
    [
        ("RTX 9999", False, "RTX"),
        ("RTX 6090", False, "RTX"),
        ("RTX 6000 Pro", False, "RTX PRO 6000"),
        ("i7-9750H", True, "i7"),
        ("EPYC 9999", True, "EPYC"),
    ],
)
def test_the_nearest_names_are_of_the_same_product_line(name: str, cpu: bool, first: str) -> None:
    found = nearest(name, cpu=cpu)
    assert len(found) == 5
    assert all(first in candidate for candidate in found[:2])


@pytest.mark.parametrize(
    ("name", "cpu", "maker", "first"),
    [
        ("Ryzen 5 2600", True, "AMD", "AMD Ryzen 5 3600"),
        ("FX-8350", True, "AMD", "AMD Ryzen AI 7 350"),
        ("Pentium G4560", True, "Intel", "Intel Pentium Gold 8505"),
        ("Radeon VII Pro", False, "AMD", "AMD Radeon Pro Vega II Duo"),
    ],
)
def test_the_nearest_names_are_of_the_maker_that_a_name_shows(name: str, cpu: bool, maker: str, first: str) -> None:
    found = nearest(name, cpu=cpu)
    assert found[0] == first
    assert all(candidate.startswith(maker) for candidate in found)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("I265K", ("Intel Core Ultra 7 265K", "Intel Core Ultra 7 265KF")),
        ("309O", ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090 Ti")),
        ("Gold6148X", ("Intel Xeon Gold 6148", "Intel Xeon Gold 6148F")),
        ("toaster9", ()),
    ],
)
def test_what_a_misspelt_name_may_mean_is_a_gpu_or_a_cpu_only_where_one_is_near(
    name: str, meant: tuple[str, ...]
) -> None:
    assert misspelt(name) == meant


def test_four_gpus_without_a_cpu_are_in_a_server() -> None:
    three, four = (resolve(Hardware(gpus=[Gpu(name="NVIDIA GeForce RTX 3090", count=n)])) for n in (3, 4))
    assert four.cpu_bandwidth_gbs > 2 * three.cpu_bandwidth_gbs
    assert four.cards[0].pcie_gbs > three.cards[0].pcie_gbs
    assert "server" in next(a.value for a in four.assumed if a.field == "hardware.cpu")


# Azure's pages of ND A100 v4 (EPYC 7V12) and ND H100 v5 (4th generation Xeon), AWS's of g6e (3rd generation EPYC)
@pytest.mark.parametrize(
    ("text", "generation", "cores", "gbs"),
    [
        ("runpod 1x H200 SXM 141GB, 24 vCPU 251GB", "sapphire rapids", 12, 0.8 * 8 * 38.4),
        ("H100 80GB, 26 vCPU, 200GB RAM", "sapphire rapids", 13, 0.8 * 8 * 38.4),
        ("A100 80GB, 12 vCPU, 120GB", "zen2", 6, 0.8 * 8 * 25.6),
        ("g5.12xlarge", "zen2", 24, 0.8 * 8 * 25.6),
        ("L40S", "zen3", 32, 0.8 * 8 * 25.6),
        ("GH200, 480GB RAM", "grace", 72, 0.8 * 8 * 68.3),
    ],
)
def test_a_card_that_is_sold_for_servers_only_is_in_one(text: str, generation: str, cores: int, gbs: float) -> None:
    machine = resolve(parse_hardware(text))
    assert (machine.cpu_generation, machine.physical_cores) == (generation, cores)
    assert machine.cpu_bandwidth_gbs == pytest.approx(gbs, rel=0.01)
    (said,) = [a for a in machine.assumed if a.field == "hardware.cpu"]
    assert f"server CPU, {generation}, {cores} cores, all" in said.value
    assert machine.cards[0].name in said.why


@pytest.mark.parametrize(
    "text", ["P40 24GB", "P100 16GB", "V100 32GB", "MI50 32GB", "MI100", "T4", "RTX A6000", "RTX PRO 6000", "A2",
             "RTX 6000 Ada", "A100 80GB + RTX 4090"],
)  # fmt: skip
def test_a_card_that_is_put_into_desktops_too_may_be_in_one(text: str) -> None:
    machine = resolve(parse_hardware(f"{text}, 64GB RAM"))
    assert machine.cpu_bandwidth_gbs < 50
    assert "desktop" in next(a.value for a in machine.assumed if a.field == "hardware.cpu")


def test_a_named_cpu_beside_a_card_for_servers_is_taken_at_its_word() -> None:
    assert resolve(parse_hardware("H100, Ryzen 9 7950X, 64GB")).cpu_model == "AMD Ryzen 9 7950X"


def test_an_unknown_server_with_slow_ddr4_has_pcie_3() -> None:
    cpu = Cpu(model="some Xeon", sockets=2, physical_cores=48)
    slow, fast = (
        resolve(Hardware(gpus=[Gpu(name="NVIDIA GeForce RTX 3090")], cpu=cpu, ram=Ram(type="DDR4", mts=mts)))
        for mts in (2400, 3200)
    )
    assert slow.cards[0].pcie_gbs == pytest.approx(fast.cards[0].pcie_gbs / 2, rel=0.01)


@pytest.mark.parametrize(
    ("name", "vram", "card", "says"),
    [
        ("RTX PRO 6000 (Max-Q)", None, "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", ""),
        ("RTX 6000 (Ada)", None, "NVIDIA RTX 6000 Ada Generation", ""),
        ("RTX 3090 (24GB)", None, "NVIDIA GeForce RTX 3090", ""),
        ("RTX 3090 (watercooled)", None, "NVIDIA GeForce RTX 3090", "the remark `watercooled` after the name"),
        ("RTX 3090 (or a 4090?)", None, "NVIDIA GeForce RTX 3090", "names another card: taken by the name"),
        ("RTX 4080 (a 4090 really)", 24, "NVIDIA GeForce RTX 4090", "this card has the 24 GiB stated"),
        ("NVIDIA RTX 6000 (an RTX A6000)", None, "NVIDIA RTX A6000", "alone is not a card of the catalogue"),
    ],
)
def test_a_remark_behind_a_gpu_s_name(name: str, vram: float | None, card: str, says: str) -> None:
    machine = Hardware(gpus=[Gpu(name=name, vram_gib=vram)])
    for form in (machine, canonical(machine), parse_hardware(to_shorthand(machine))):
        rig = resolve(form)
        assert rig.cards[0].name == card
        why = [a.why for a in rig.assumed if a.field == "hardware.gpus[0].name"]
        assert says in why[0] if says else not why


def test_cards_of_two_makers_are_each_makers_alone_and_all_of_them_with_vulkan() -> None:
    mixed = Hardware(gpus=[Gpu(name="RTX 3090"), Gpu(name="RX 7900 XTX")])
    assert [[card.backend for card in rig.cards] for rig in rigs_of(mixed)] == [["cuda"], ["rocm"], ["vulkan"] * 2]
    assert resolve(mixed) == rigs_of(mixed)[-1]
    assert [d.name for d in engine_devices(resolve(mixed), "llama.cpp", (0, 1))] == ["Vulkan0", "Vulkan1"]
    assert any(a.field == "hardware.gpus.backend" for a in resolve(mixed).assumed)


def test_two_gpus_that_share_a_machines_memory_are_two_machines() -> None:
    with pytest.raises(InvalidHardware, match="whole machine"):
        resolve(Hardware(gpus=[Gpu(name="DGX Spark", count=2)]))


@pytest.mark.parametrize(
    ("name", "seen_free"),
    [
        ("RTX 4090", 22_994),
        ("RTX 3090", 23_306),
        ("RTX 4060 Ti 16GB", 15_225),
        ("RTX 4070 SUPER", 11_053),
        ("RTX 5070", 11_013),
        ("RTX 2080 Ti", 10_121),
    ],
)
def test_on_windows_a_card_keeps_free_what_no_program_gets_there(name: str, seen_free: int) -> None:
    """`seen_free`: MiB that CUDA prints as free there (catalogue/budget.py), with a context of about 450 MiB."""
    (plain,), *others = (resolve(parse_hardware(name + more)).cards for more in ("", ", Windows 11", ", WSL2"))
    for (card,) in others:
        assert card.total == card.free == plain.total
        assert seen_free - 480 < (card.total - card.reserve) / MIB - 450 < seen_free + 20
    assert plain.reserve == 512 * MIB


def test_on_windows_what_is_in_use_is_part_of_what_no_program_gets() -> None:
    (idle,), (busy,), (shared,) = (
        resolve(parse_hardware(text)).cards
        for text in ("RTX 4090, Windows", "RTX 4090 [23.4 GiB free], Windows", "Strix Halo 128GB, Windows")
    )
    assert busy.total - busy.free + busy.reserve == pytest.approx(idle.reserve, abs=MIB)
    assert shared.reserve == 512 * MIB


def test_a_jetson_has_the_cores_and_tensor_rates_of_its_module() -> None:
    nano, agx = (resolve(parse_hardware(name)) for name in ("Jetson Orin Nano Super 8GB", "Jetson AGX Orin 64GB"))
    assert (nano.isa, nano.physical_cores, agx.physical_cores) == ("neon", 6, 12)
    assert nano.cards[0].bandwidth_gbs == pytest.approx(102.4)
    assert (agx.cards[0].fp16_tflops, agx.cards[0].int8_tops) == (42.5, 85.0)
    assert agx.cards[0].total < 60 * GIB
    assert nano.usable_ram / GIB == pytest.approx(5.13, abs=0.01)
    assert agx.usable_ram / GIB == pytest.approx(54.4)


# Names: NVIDIA's Virtual GPU Software User Guide, as nvidia-smi shows them; MIG User Guide, "MIG Device Names"
# and "Supported MIG Profiles" (of an A30 or RTX PRO 6000 a slice has a quarter of the memory and of the SMs).
@pytest.mark.parametrize(
    ("name", "gib", "bandwidth", "tflops"),
    [("NVIDIA L40S-24Q", 24, 864.0, 362.0), ("GRID A100-10C", 10, 1555.2, 311.9),
     ("NVIDIA A100D-20C", 20, 2039.0, 311.9), ("NVIDIA A100-1-5C", 5, 1555.2 / 8, 44.6),
     ("GRID T4-16Q", 16, 320.0, 65.1), ("NVIDIA RTX6000-Ada-24Q", 24, 960.0, 364.2),
     ("NVIDIA H100XM-80C", 80, 3352.0, 989.5), ("NVIDIA A30-1-6C", 6, 933.1 / 4, 165.1 / 4),
     ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 20, 1555.2 / 2, 311.9 * 3 / 7),
     ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", 10, 2039.0 / 8, 44.6), ("A100 80GB (MIG 1g.10gb)", 10, 2039.0 / 8, 44.6),
     ("A100 MIG 3g.40gb", 40, 2039.0 / 2, 311.9 * 3 / 7), ("A100 MIG 3g.20gb", 20, 1555.2 / 2, 311.9 * 3 / 7),
     ("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", 40, 3352.0 / 2, 989.5 / 7),
     ("RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb", 24, 448.0, 126.0)],
)  # fmt: skip
def test_a_virtual_gpu_has_its_part_of_the_card(name: str, gib: float, bandwidth: float, tflops: float) -> None:
    machine = rig(Gpu(name=name))
    (card,) = machine.cards
    is_slice = "MIG" in name or "-1-" in name  # whose driver lists less
    assert 0.9 * gib * GIB < card.total < gib * GIB if is_slice else card.total == gib * GIB
    assert card.bandwidth_gbs == pytest.approx(bandwidth, rel=0.02)
    assert card.fp16_tflops == pytest.approx(tflops, rel=0.02)
    (said,) = [one for one in machine.assumed if one.field.endswith(".name")]
    assert ("(MIG)" in said.why) == is_slice
    shown = f"|   0  {name}                Off |   00000000:0E:00.0 Off |   0 |\n| N/A |  17MiB /  {gib * 1024}MiB |"
    for text in (f"{name}, 64GB", to_shorthand(Hardware(gpus=[Gpu(name=name)])), f"NVIDIA-SMI 570\n{shown}"):
        assert [one.total for one in resolve(parse_hardware(text)).cards] == [card.total]


@pytest.mark.parametrize(
    ("name", "gib"),
    [("A100-SXM4-40GB MIG 1g.5gb", 4.75), ("A100-SXM4-80GB MIG 3g.40gb", 39.25), ("H100 80GB HBM3 MIG 1g.10gb", 9.62),
     ("H100 80GB HBM3 MIG 3g.40gb", 39.38), ("A30 MIG 1g.6gb", 5.81), ("A30 MIG 2g.12gb", 11.69)],
)  # fmt: skip
def test_a_slice_has_no_more_than_its_driver_lists(name: str, gib: float) -> None:
    """Posted outputs of `nvidia-smi mig -lgip`, and the recorded table of an A30."""
    assert 0.95 * gib < rig(Gpu(name=name)).cards[0].total / GIB < 1.01 * gib


def test_a_virtual_gpu_larger_than_its_card_is_none() -> None:
    assert gpu_rows("NVIDIA T4-24Q") == ()
    assert gpu_rows("Core i9-10C") == ()


@pytest.mark.parametrize(
    ("name", "cores"),  # performance cores, where there are others; Intel's and AMD's specifications
    [("i5-1235U", 2), ("i7-1280P", 6), ("i5-12600HX", 4), ("i7-12650HX", 6), ("i7-7500U", 2), ("i9-10885H", 8),
     ("Core Ultra 7 265", 8), ("Core Ultra 5 225", 6), ("Core Ultra 9 285H", 6), ("Core 7 240H", 6),
     ("Xeon E5-2620 v4", 8), ("Xeon E5-1650 v2", 6), ("Xeon E-2288G", 8), ("Xeon E-2224", 4), ("Xeon W-1290P", 10),
     ("Xeon Platinum 8175M", 24), ("EPYC 7K62", 48), ("EPYC 9B14", 96), ("EPYC 7203", 8),
     ("Ryzen 5 2500U", 4), ("Ryzen 7 3750H", 4), ("Ryzen 9 7940HX", 16), ("Ryzen 7 255", 8), ("Ryzen 3 3250U", 2),
     ("10500T", 6), ("10900T", 10), ("9100F", 4), ("13th gen i9", 8), ("8th gen i5", 6)],
)  # fmt: skip
def test_a_cpu_without_a_row_has_the_cores_that_its_maker_states(name: str, cores: int) -> None:
    assert cpu_row(name) is None
    found = family_of(name)
    assert found is not None
    assert found.cores == cores


def test_cards_beside_an_arm_processor_are_driven_by_vulkan() -> None:
    # github.com/geerlingguy/ai-benchmarks/issues/23, 2025-09-22: no ROCm there
    for text in ("AMD RX 7900 XT 20GB on Pi 5", "Arc A770, Ampere Altra Q80-30, 128GB"):
        (card,) = resolve(parse_hardware(text)).cards
        assert card.backend == "vulkan"
    (card,) = resolve(parse_hardware("RTX 3090, Ampere Altra Q80-30, 128GB")).cards
    assert card.backend == "cuda"


@pytest.mark.parametrize(
    ("text", "gbs"),
    [
        ("i5-12400F, 32GB DDR4", 0.8 * 51.2),  # boards of the 12th to 14th generation have either
        ("i5-12400F, 32GB DDR5", 0.8 * 76.8),
        ("i5-12400F, 32GB", 0.8 * 76.8),
        ("i5-12400F, 32GB DDR4-3600", 0.8 * 57.6),
        ("64GB DDR5", 0.8 * 89.6),
    ],
)
def test_ram_of_another_kind_than_the_platforms_has_the_usual_rate_of_its_kind(text: str, gbs: float) -> None:
    assert resolve(parse_hardware(f"RTX 3060 12GB, {text}")).cpu_bandwidth_gbs == pytest.approx(gbs)


def test_a_gpu_that_shares_the_ram_reads_the_kind_that_is_stated() -> None:
    # 17gw.com, thread 1659: an N5 Pro has slots for DDR5, where the catalogue's HX 370 has LPDDR5X
    (slots,) = resolve(parse_hardware("Ryzen AI 9 HX PRO 370, Radeon 890M, 96GB DDR5")).cards
    (soldered,) = resolve(parse_hardware("Ryzen 7 8845HS, Radeon 780M, 32GB LPDDR5X")).cards
    assert (slots.bandwidth_gbs, soldered.bandwidth_gbs) == (89.6, 120.0)


@pytest.mark.parametrize(
    ("text", "cores", "isa", "gbs"),
    [
        # a NAS, where a Pentium Gold was read as a Xeon Gold of 56 cores, and a Celeron as a desktop with AVX2
        ("UGREEN DXP4800 Plus, Pentium Gold 8505, 64GB DDR5", 5, "avx2", 76.8),
        ("Synology DS923+, AMD Ryzen R1600, 32GB", 2, "avx2", 38.4),
        ("Synology DS1621+ (AMD V1500B), 32GB ECC", 4, "avx2", 38.4),
        ("Celeron J4125, 16GB", 4, "sse", 38.4),
        ("Celeron N5105, 32GB", 4, "sse", 46.9),
    ],
)
def test_processors_of_a_nas_are_known(text: str, cores: int, isa: str, gbs: float) -> None:
    rig = resolve(parse_hardware(text))
    assert (rig.physical_cores, rig.isa, rig.cards) == (cores, isa, ())
    assert rig.cpu_bandwidth_gbs == pytest.approx(0.8 * gbs, rel=0.01)


@pytest.mark.parametrize(
    ("name", "ram_gb", "meant"),
    [
        ("M4 Max", 36, "Apple M4 Max 32-core GPU"),
        ("Apple M3 Max", 96, "Apple M3 Max 30-core GPU"),
        ("Apple M3 Max", 64, "Apple M3 Max"),
        ("M3 Max 40-core GPU", 36, "Apple M3 Max"),
    ],
)
def test_a_mac_named_by_its_chip_alone_has_the_gpu_that_its_memory_is_sold_with(
    name: str, ram_gb: float, meant: str
) -> None:
    rig = resolve(Hardware(gpus=[Gpu(name=name)], ram=Ram(total_gb=ram_gb)))
    assert (rig.cards[0].name, rig.cpu_model) == (meant, meant.partition(" Max")[0] + " Max")


def test_old_server_cards_have_ecc_unless_more_is_free_than_it_leaves() -> None:
    """A Tesla P40 in posted outputs of nvidia-smi: 23,040 MiB with ECC, which is on as delivered, 24,576 without."""
    stated = {
        text: resolve(parse_hardware(f"{text}, 64GB DDR4-2400"))
        for text in ("Tesla P40", "P40 24GB", "P40 24GB free", "P40 10GB free")
    }
    totals = {text: machine.cards[0].total // MIB for text, machine in stated.items()}
    assert totals == {"Tesla P40": 23_040, "P40 24GB": 23_040, "P40 24GB free": 24_576, "P40 10GB free": 23_040}
    assert {text for text, machine in stated.items() if "hardware.gpus[0].free_gib" in assumed(machine)} == {
        "Tesla P40", "P40 24GB",
    }  # fmt: skip


def test_a_paste_shows_whether_ecc_is_off() -> None:
    table = """\
|   0  Tesla P40                      Off | 00000000:3E:00.0 Off |                  Off |
| N/A   36C    P8               9W / 250W |      4MiB / 24576MiB |      0%      Default |
"""
    for text, total in (
        (table, 24_576),
        (table.replace("   4MiB", "3000MiB"), 24_576),
        (table.replace("24576", "23040"), 23_040),
    ):
        assert resolve(parse_hardware(text + "64GB DDR4-2400 RAM")).cards[0].total == total * MIB
