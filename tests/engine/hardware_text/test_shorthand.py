"""Shorthand as people write it in chat."""

from __future__ import annotations

from contextlib import suppress

import pytest

from service.engine.catalogue import resolve
from service.engine.errors import InvalidHardware, UnknownHardware
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.form import canonical


def test_gpus_cpu_and_ram_on_one_line() -> None:
    assert parse_hardware("2x5090 + 2x4090, EPYC 9355, 512GB DDR5-4800 x8") == Hardware(
        gpus=[Gpu(name="5090", count=2), Gpu(name="4090", count=2)],
        cpu=Cpu(model="EPYC 9355"),
        ram=Ram(total_gb=512, type="DDR5", channels=8, mts=4800),
    )


def test_the_two_rigs_of_the_demo_resolve() -> None:
    lab = resolve(parse_hardware("2x5090 + 2x4090, Xeon 8480+, 512GB DDR5-4800 x8"))
    assert [card.name[-4:] for card in lab.cards] == ["5090", "5090", "4090", "4090"]
    assert lab.cpu_model == "Intel Xeon Platinum 8480+"
    home = resolve(parse_hardware("RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"))
    assert (home.cpu_model, home.ram_bytes >> 30, round(home.cpu_bandwidth_gbs)) == ("AMD Ryzen 9 7950X", 128, 70)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("RTX 3090", [Gpu(name="RTX 3090")]),
        ("3090 x2", [Gpu(name="3090", count=2)]),
        ("dual RTX 3090", [Gpu(name="RTX 3090", count=2)]),
        ("4090 24GB pcie 4.0 x8", [Gpu(name="4090", vram_gib=24, pcie="4.0 x8")]),
        ("2x RTX 4090 PCIe gen4 x16", [Gpu(name="RTX 4090", count=2, pcie="4.0 x16")]),
        ("2x5090+2x4090", [Gpu(name="5090", count=2), Gpu(name="4090", count=2)]),
        ("RTX 3060 12GB; GTX 1080 Ti", [Gpu(name="RTX 3060", vram_gib=12), Gpu(name="GTX 1080 Ti")]),
        ("2x RTX 3090 nvlink", [Gpu(name="RTX 3090", count=2, nvlink=True)]),
        ("RTX 3090 20 GiB free", [Gpu(name="RTX 3090", free_gib=20)]),
        ("RTX 3090 pcie 4.0 x8 copies 12.4 GB/s", [Gpu(name="RTX 3090", pcie="4.0 x8", measured_copy_gbs=12.4)]),
        ("RTX 9999 48GB 2000 GB/s", [Gpu(name="RTX 9999", vram_gib=48, bandwidth_gbs=2000)]),
        ('gpu "My card, rev. 2" [24 GiB; 936 GB/s]', [Gpu(name="My card, rev. 2", vram_gib=24, bandwidth_gbs=936)]),
        ("A100 40GB PCIe x2", [Gpu(name="A100 PCIe", count=2, vram_gib=40)]),
        ("H100 PCIe x2", [Gpu(name="H100 PCIe", count=2)]),
        ("H100 PCIe 5.0 x8", [Gpu(name="H100", pcie="5.0 x8")]),
        ("RTX 3090 PCIe x4", [Gpu(name="RTX 3090", pcie="x4")]),
        ("2x RTX3090", [Gpu(name="RTX 3090", count=2)]),
        ("RTX4090 24GB", [Gpu(name="RTX 4090", vram_gib=24)]),
        ("rtx4090 Ryzen9 7950X", [Gpu(name="rtx 4090")]),
        ("no GPU", []),
        ("CPU only, EPYC 9355", []),
    ],
)
def test_gpus(text: str, gpus: list[Gpu]) -> None:
    assert parse_hardware(text).gpus == gpus


@pytest.mark.parametrize(
    ("text", "cpu"),
    [
        ("Xeon 8480+", Cpu(model="Xeon 8480+")),
        ("2x EPYC 9115", Cpu(model="EPYC 9115", sockets=2)),
        ("dual Xeon E5-2690 v4", Cpu(model="Xeon E5-2690 v4", sockets=2)),
        ("dual-socket Xeon E5-2690 v4", Cpu(model="Xeon E5-2690 v4", sockets=2)),
        ("2 sockets EPYC 9115", Cpu(model="EPYC 9115", sockets=2)),
        ("5950X", Cpu(model="5950X")),
        ("Ryzen 5 5600G", Cpu(model="Ryzen 5 5600G")),
        ("i9-14900K", Cpu(model="i9-14900K")),
        ("AMD Ryzen Threadripper PRO 7965WX 24-Cores", Cpu(model="AMD Ryzen Threadripper PRO 7965WX 24-Cores")),
        ("EPYC 9999 (64 cores)", Cpu(model="EPYC 9999", physical_cores=64)),
    ],
)
def test_cpus(text: str, cpu: Cpu) -> None:
    assert parse_hardware(f"RTX 3090, {text}").cpu == cpu


@pytest.mark.parametrize(
    ("text", "ram"),
    [
        ("512GB DDR5-4800 x8", Ram(total_gb=512, type="DDR5", channels=8, mts=4800)),
        ("128GB DDR4", Ram(total_gb=128, type="DDR4")),
        ("64 GB", Ram(total_gb=64)),
        ("1TB DDR4-3200 8-channel", Ram(total_gb=1024, type="DDR4", channels=8, mts=3200)),
        ("8x64GB DDR5-6000", Ram(total_gb=512, type="DDR5", channels=8, mts=6000)),
        ("192GB DDR5 6000MHz dual channel", Ram(total_gb=192, type="DDR5", channels=2, mts=6000)),
        (
            "768GB DDR5 5600 MT/s 12 channels 450 GB/s",
            Ram(total_gb=768, type="DDR5", channels=12, mts=5600, measured_bandwidth_gbs=450),
        ),
    ],
)
def test_ram(text: str, ram: Ram) -> None:
    assert parse_hardware(f"RTX 3090, {text}").ram == ram


def test_a_mac_is_gpu_cpu_and_memory_at_once() -> None:
    mac = parse_hardware("M3 Ultra 512GB")
    assert mac == Hardware(
        gpus=[Gpu(name="Apple M3 Ultra")], cpu=Cpu(model="Apple M3 Ultra"), ram=Ram(total_gb=512), os="macos"
    )
    assert parse_hardware("Apple M4 Max (40-core GPU) 128GB").ram == Ram(total_gb=128)
    binned = resolve(parse_hardware("M4 Max 32-core 36GB"))
    assert binned.cards[0].bandwidth_gbs == 410


@pytest.mark.parametrize(
    ("text", "gpu"),
    [
        ("GB10 128GB", "NVIDIA GB10"),
        ("DGX Spark 128GB", "NVIDIA GB10"),
        ("Ryzen AI Max+ 395 128GB", "AMD Radeon 8060S"),
        ("Jetson AGX Orin 32GB", "Jetson AGX Orin 32GB"),
    ],
)
def test_a_size_next_to_a_gpu_without_memory_is_the_machines(text: str, gpu: str) -> None:
    machine = parse_hardware(text)
    assert machine.gpus[0].vram_gib is None
    assert machine.ram == Ram(total_gb=32 if "32GB" in text else 128)
    assert resolve(machine).cards[0].name == gpu


@pytest.mark.parametrize("text", ["Mac Studio M3 Ultra 512GB", "Mac Studio Apple M3 Ultra 512GB"])
def test_a_mac_may_be_called_by_its_case(text: str) -> None:
    assert parse_hardware(text) == parse_hardware("M3 Ultra 512GB")
    assert parse_hardware("MacBook Pro M3 Max 64GB").gpus == [Gpu(name="Apple M3 Max")]
    assert parse_hardware("Mac mini M4 Pro 48GB").ram == Ram(total_gb=48)


def test_commas_may_be_missing_where_a_cpu_or_ram_begins() -> None:
    machine = parse_hardware("2x RTX 3090 AMD Ryzen 9 7950X 128GB DDR5 windows 11".replace(" windows", ", windows"))
    assert machine.gpus == [Gpu(name="RTX 3090", count=2)]
    assert machine.cpu == Cpu(model="AMD Ryzen 9 7950X")
    assert machine.ram == Ram(total_gb=128, type="DDR5")
    assert machine.os == "windows 11"


def test_json_is_the_api_s_own_form() -> None:
    text = '{"gpus": [{"name": "RTX 3090", "count": 2}], "ram": {"total_gb": 128}, "notes": "under the desk"}'
    assert parse_hardware(text) == Hardware(
        gpus=[Gpu(name="RTX 3090", count=2)], ram=Ram(total_gb=128), notes="under the desk"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("7600", "`7600` cannot be read: it is a GPU and a CPU: write `AMD Radeon RX 7600` or `AMD Ryzen 5 7600`"),
        ("RTX 4090, -64GB", "`-64GB` cannot be read: a count or a size cannot be negative"),
        ("-5x4090, 64GB", "`-5x4090` cannot be read"),
        ("RTX 4090 -24GB, 64GB", "`RTX 4090 -24GB` cannot be read"),
        ("512GB DDR5", "no GPU found"),
        ("RTX 3090, no GPU", "leave out one"),
        ("RTX 3090, Ryzen 9 7950X, EPYC 9355", "one kind of CPU"),
        ("RTX 3090 [fast]", "in brackets write"),
        ("99x RTX 3090", "99 cannot be right"),
        ("RTX 3090, 99999GB", "99999 cannot be right"),
        ('{"gpus": [{"name": "RTX 3090", "cnt": 2}]}', "unknown field `cnt`"),
        ("RTX 3090, 512MB RAM", "no size of a machine's RAM"),
        ("RTX 3090, 99999999999999999TB", "no size of a machine's RAM"),
        ('{"gpus": [{"name": "RTX 3090"', "begins like JSON"),
        ("", "no GPU found"),
    ],
)
def test_what_cannot_be_read_is_quoted_with_what_would_be_right(text: str, says: str) -> None:
    with pytest.raises(InvalidHardware) as error:
        parse_hardware(text)
    assert says in error.value.detail
    assert (error.value.field or "").startswith("hardware")


def test_json_errors_say_where() -> None:
    with pytest.raises(InvalidHardware) as error:
        parse_hardware('{"gpus": [{"name": "RTX 3090", "count": "two"}]}')
    assert error.value.field == "hardware.gpus[0].count"


def test_a_name_that_no_list_has_is_left_to_resolve() -> None:
    machine = parse_hardware("RTX 3095")
    with pytest.raises(UnknownHardware, match="RTX 3090"):
        resolve(machine)


def test_a_size_in_a_name_is_kept_where_a_card_is_sold_with_several() -> None:
    small, large = (canonical(Hardware(gpus=[Gpu(name=f"RTX 3060 {size}GB")])) for size in (8, 12))
    assert (small.gpus[0].vram_gib, large.gpus[0].vram_gib) == (8, 12)


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("i9-14900K 64GB no GPU", "no GPU, i9-14900K, 64GB"),
        ("RTX 3090, i9 13th gen, 64GB", "RTX 3090, 13th gen i9, 64GB"),
        ("RTX 3090, 128GB DDR4 quad", "RTX 3090, 128GB quad-channel DDR4"),
        ("3x 3090 at 8x/8x/4x, 64GB", "3x 3090 at x8/x8/x4, 64GB"),
        ("RTX 3090, 65536 MiB", "RTX 3090, 64GB RAM"),
        ("2x 3090 + 3060, PCIe-3 (x16, x16, x8)", "2x 3090 PCIe 3.0 x16, 3060 PCIe 3.0 x8"),
        ("RTX 3090, 64GBDDR5", "RTX 3090, 64GB DDR5"),
        ("RTX 3090, 2x32gbram", "RTX 3090, 2x32GB RAM"),
        ("RTX 3090, 7950X3D, 64GB, RAM runs at 3600", "RTX 3090, 7950X3D, 64GB 3600MHz"),
        ("RTX 3090, 5700X with 64GB of 3200 RAM", "RTX 3090, 5700X, 64GB 3200MHz RAM"),
        ("RTX 3090, 10980XE, 256GB quad 3200", "RTX 3090, 10980XE, 256GB quad channel 3200MHz"),
        ("RTX 3090, dual 8480C, 512GB", "RTX 3090, 2x Xeon 8480C, 512GB"),
        ("RTX 3090, Ryzen 5700 X3D, 64GB", "RTX 3090, Ryzen 5700X3D, 64GB"),
        ("HP ZBook Ultra G1a 128GB", "Ryzen AI Max+ 395 128GB"),
        ("RTX 4090 x16 5.0, 64GB", "RTX 4090 PCIe 5.0 x16, 64GB"),
        ("64GB without a GPU", "no GPU, 64GB"),
        ("Ryzen 9 7950X 128GB CPU only", "no GPU, Ryzen 9 7950X, 128GB"),
        ("cpu: ryzen 7950x ram: 64gb gpu: 4090", "RTX 4090, Ryzen 9 7950X, 64GB"),
        ("GPU: 2x3090 CPU: EPYC 7402 RAM: 256GB DDR4", "2x RTX 3090, EPYC 7402, 256GB DDR4"),
        ("3090 and 64gb of ddr4 with a 5800x3d", "RTX 3090, 64GB DDR4, Ryzen 7 5800X3D"),
        ("64gb ddr5 with my 4090 and a 7950x", "RTX 4090, 64GB DDR5, Ryzen 9 7950X"),
        ("rtx 5090 (32gb) / 9950x3d / 192gb", "RTX 5090 32GB, Ryzen 9 9950X3D, 192GB"),
        ("CPU only: 2x EPYC 9654, 768GB", "no GPU, 2x EPYC 9654, 768GB"),
        ("no gpu: ryzen 7950x, 64gb", "no GPU, Ryzen 9 7950X, 64GB"),
    ],
)
def test_parts_are_told_apart_without_commas(text: str, same_as: str) -> None:
    assert canonical(parse_hardware(text)) == canonical(parse_hardware(same_as))


@pytest.mark.parametrize("text", ["16gb vram", "24GB VRAM, 64GB RAM", "8 GB of video memory"])
def test_memory_without_its_card_is_asked_for_by_name(text: str) -> None:
    with pytest.raises(InvalidHardware, match="which GPU has that"):
        parse_hardware(text)


@pytest.mark.parametrize(
    ("text", "gpu", "ram"),
    [
        ("4060 laptop 32gb", Gpu(name="4060 laptop"), 32),
        ("3090 64gb", Gpu(name="3090"), 64),
        ("4060 ti [32 GiB]", Gpu(name="4060 ti", vram_gib=32), None),
        ("2080ti 22gb", Gpu(name="2080ti", vram_gib=22), None),  # rebuilt, and sold as such
        ("4090 48gb", Gpu(name="4090", vram_gib=48), None),
        ("7900 xtx 24gb 64gb", Gpu(name="7900 xtx", vram_gib=24), 64),
        ("3060 12gb x2 64gb", Gpu(name="3060", vram_gib=12, count=2), 64),
    ],
)
def test_a_size_that_no_such_card_has_is_the_machines(text: str, gpu: Gpu, ram: float | None) -> None:
    read = parse_hardware(text)
    assert read.gpus == [gpu]
    assert (read.ram.total_gb if read.ram else None) == ram


@pytest.mark.parametrize("text", ["4060 ti 32gb", "4060 ti 32gb, 64gb ram", "2x 3090 64gb", "A6000 96gb"])
def test_a_size_that_may_be_a_rebuilt_cards_or_the_machines_is_asked_for(text: str) -> None:
    with pytest.raises(InvalidHardware, match=r"is sold with \d+(?: or \d+)* GB: write `.*GB RAM`, or `.* GiB\]`"):
        parse_hardware(text)


@pytest.mark.parametrize(
    ("text", "gpu"),
    [
        ("laptop with rtx 4060, 32gb", "rtx 4060 laptop"),
        ("gaming laptop with a 4080 and 32gb", "4080 laptop"),
        ("laptop 4060 8gb 32gb ram", "4060 laptop"),
        ("laptop, 64gb, oculink 3080", "3080"),
        ("rtx 4060 8gb, i7-13620h, 16gb ddr5-4800", "rtx 4060 laptop"),
        ("rtx 5070 12gb, i9-13900hk, 32gb ddr5-5200", "rtx 5070"),  # a laptop's has 8
    ],
)
def test_the_card_in_a_laptop_is_not_the_larger_one_of_that_name(text: str, gpu: str) -> None:
    assert [one.name for one in parse_hardware(text).gpus] == [gpu]


@pytest.mark.parametrize(
    ("text", "cores", "note"),
    [
        ("runpod a100 80gb 8 vcpu 117 GB ram", 4, "runpod; 8 vcpu: a rented vCPU is taken as half a core"),
        ("A2000 12gb in a dell precision 3660 with i9-12900 and 128gb", None, "dell; precision 3660"),
        ("5090; 256 GB RAM; Threadripper 7970X; 2 nvme gen5", None, "2 nvme gen5"),
        ("RTX 3090, Ryzen 5600, 64GB DDR4, Phanteks P5000 case", None, "Phanteks P5000 case"),
        ("RTX 3090, Ryzen 9 5950X (32) @ 3.4GHz, 64GB", None, "32 threads; 3.4GHz"),
    ],
)
def test_what_a_machine_has_besides_is_handed_back(text: str, cores: int | None, note: str) -> None:
    found = parse_hardware(text)
    assert (found.cpu.physical_cores if found.cpu else None, found.notes) == (cores, note)


@pytest.mark.parametrize(
    ("text", "free"), [("RTX 4090, 3 GB already used by desktop", 21), ("RTX 3090 (512MiB in use)", 23.5)]
)
def test_what_something_else_holds_of_a_card_is_not_free(text: str, free: float) -> None:
    assert parse_hardware(f"{text}, 64GB RAM").gpus[0].free_gib == free


@pytest.mark.parametrize(
    ("ram", "free"),
    [
        ("RAM: 251 GiB (~120 GiB used)", 131),
        ("8x32GB DDR4-3200 (120GB in use)", 136),
        ("256GB RAM (120GB used, 130GB free)", 130),
        ("64GB RAM, 2TB SSD (30GB used)", None),
        ("64GB RAM, 16GB swap (5GB used)", None),
    ],
)
def test_what_is_used_of_the_ram_in_its_own_bracket_is_not_free(ram: str, free: float | None) -> None:
    hardware = parse_hardware(f"- RTX 3090\n- {ram}\n- EPYC 7532")
    assert hardware.gpus[0].free_gib is None
    assert hardware.ram is not None
    assert hardware.ram.free_gb == free


@pytest.mark.parametrize(
    "text",
    [
        "2x RTX 4090, 3 GB used",
        "64GB RAM, 20 GB used, RTX 3090",
        "RTX 3090, 30GB used",
        "RTX 3090, 64GB RAM (50GB used by the model)",
        "RTX 3090, 16GB RAM (30GB used)",
    ],
)
def test_a_used_size_of_which_the_rest_is_not_known_is_asked_about(text: str) -> None:
    with pytest.raises(InvalidHardware, match="used"):
        parse_hardware(text)


def test_the_gpu_of_a_processor_beside_a_card_is_left_out_and_said() -> None:
    hardware = parse_hardware("Ryzen AI Max+ 395 128GB, RTX 5090")
    assert [gpu.name for gpu in hardware.gpus] == ["RTX 5090"]
    assert "AMD Radeon 8060S of the processor: not counted" in (hardware.notes or "")


def test_no_discrete_gpu_leaves_the_one_in_the_processor() -> None:
    assert [gpu.name for gpu in parse_hardware("i5-1240P 16gb, iris xe, no discrete gpu").gpus] == ["iris xe"]
    assert parse_hardware("i5-12400 16gb, no discrete gpu").gpus == []
    with pytest.raises(InvalidHardware, match="no GPU"):
        parse_hardware("RTX 3090, no discrete gpu")


def test_a_card_without_memory_is_refused_and_not_taken_for_one_whose_memory_nobody_stated() -> None:
    hardware = canonical(Hardware(gpus=[Gpu(name="RTX 3090", vram_gib=0)]))
    with pytest.raises(InvalidHardware, match="cannot be right"):
        resolve(hardware)


@pytest.mark.parametrize(
    "computer",
    [
        "HP Laptop 15",
        "AWOW AK-10",
        "Blackview MP-100 mini-pc",
        "Minisforum UM780 XTX",
        "Acer Aspire A515-45",
        "HP EliteDesk 800 G3",
        "HP OMEN 25L",
    ],
)
def test_the_name_of_a_ready_made_computer_is_a_note(computer: str) -> None:
    hardware = parse_hardware(f"{computer}, Ryzen 5 5500U, 16GB RAM")
    assert hardware.cpu is not None
    assert hardware.cpu.model == "Ryzen 5 5500U"
    assert hardware.gpus == []
    assert computer.split()[0] in (hardware.notes or "")


@pytest.mark.parametrize(
    ("text", "card"),
    [
        ("HP Laptop 15, RTX 3060, 16GB RAM", "RTX 3060 laptop"),
        ("gaming laptop 17 RTX 4080", "RTX 4080 laptop"),
        ("Minisforum P40, 64GB RAM", "P40"),  # a card all the same
    ],
)
def test_the_size_of_a_laptop_counts_no_cards_and_a_computer_s_maker_hides_none(text: str, card: str) -> None:
    assert [(gpu.name, gpu.count) for gpu in parse_hardware(text).gpus] == [(card, 1)]


@pytest.mark.parametrize(
    ("text", "gpus", "sockets"),
    [
        ("Framework 13 7840U 780M, 32GB DDR5-5600", ["AMD Radeon 780M"], 1),
        ("Framework 16 7940HS RX 7700S 64GB", ["AMD Radeon RX 7700S"], 1),
        ("Surface Pro 9 i7-1255U 16GB", [], 1),
        ("legion 5 4060, 5800H, 16gb", ["NVIDIA GeForce RTX 4060 Laptop GPU"], 1),
        ("Asus ProArt P16 HX 370 4070 32GB", ["NVIDIA GeForce RTX 4070 Laptop GPU"], 1),
        ("XPS 15 9560 i7-7700HQ 1050 16GB", ["NVIDIA GeForce GTX 1050 Laptop GPU"], 1),
        ("thinkpad t480 16gb i5-8350u", [], 1),
        ("2 EPYC 9654, 1.5TB", [], 2),
        ("HP Z8 G4 2 6248R 384GB", [], 2),
        ("x99 dual 2680v4, 128gb", [], 2),
    ],
)
def test_the_number_in_a_products_name_is_no_number_of_cpus_and_no_card(
    text: str, gpus: list[str], sockets: int
) -> None:
    rig = resolve(canonical(parse_hardware(text)))
    assert [card.name for card in rig.cards] == gpus
    assert (rig.sockets, rig.cpu_model is not None) == (sockets, True)


@pytest.mark.parametrize(
    ("text", "gb"), [("M1 Max 64", 64), ("Macbook M1 Max 64", 64), ("M3 Ultra 512", 512), ("M4 Max 128", 128)]
)
def test_a_bare_number_behind_a_mac_is_its_memory_where_it_is_no_number_of_cores(text: str, gb: int) -> None:
    ram = parse_hardware(text).ram
    assert ram is not None
    assert ram.total_gb == gb


@pytest.mark.parametrize("text", ["M4 Pro 16", "M2 Max 38"])
def test_a_bare_number_behind_a_mac_that_is_no_size_of_its_memory_is_asked_about(text: str) -> None:
    with pytest.raises(InvalidHardware):
        parse_hardware(text)


@pytest.mark.parametrize(("text", "gb"), [("M1 Max 32", 32), ("M1 Ultra 64", 64), ("M4 16", 16)])
def test_a_bare_number_behind_a_mac_that_may_be_its_cores_is_its_memory_and_it_says_so(text: str, gb: int) -> None:
    hardware = parse_hardware(text)
    assert hardware.ram is not None
    assert hardware.ram.total_gb == gb
    assert f"{gb}: taken as GB of memory, not as the number of GPU cores" in (hardware.notes or "")
    more = parse_hardware(f"{text}, 64GB") if gb == 32 else None
    assert more is None or (more.ram is not None and more.ram.total_gb == 64 and not more.notes)


def test_a_number_of_sizes_is_ram_where_no_link_has_such_a_width_and_it_says_so() -> None:
    hardware = parse_hardware("RTX 3090, 4x32")
    assert hardware.ram is not None
    assert (hardware.ram.total_gb, hardware.ram.channels) == (128, 4)
    assert hardware.notes == "4x32: taken as RAM, 4 modules of 32 GB"
    for text in ("RTX 3090, 5600X, 2x16", "3090 2x24"):
        with pytest.raises(InvalidHardware, match="RAM"):
            parse_hardware(text)


@pytest.mark.parametrize(
    ("text", "sockets", "cores"),
    [
        ("2 7763 1TB DDR4-3200 4x3090", 2, 128),
        ("dual 2696v4, 256GB DDR4, 2x P40", 2, 44),
        ("2x Xeon Platinum 8168 24 cores, 512GB, RTX 4090", 2, 48),
    ],
)
def test_the_number_of_sockets_is_read_before_digits_alone_and_counts_cores_of_each(
    text: str, sockets: int, cores: int
) -> None:
    rig = resolve(parse_hardware(text))
    assert (rig.sockets, rig.physical_cores) == (sockets, cores)


@pytest.mark.parametrize("text", ["RTX 4090 Ti, 64GB", "RTX 3090 XT 24GB, 64GB RAM", "RX 6600 GRE, 32GB"])
def test_a_suffix_that_makes_another_card_of_a_name_is_asked_about(text: str) -> None:
    with pytest.raises(InvalidHardware, match="no GPU of that name"):
        parse_hardware(text)


@pytest.mark.parametrize("text", ["RTX 3090 x64-based", "RTX 3090 x64, 32GB"])
def test_the_x64_of_a_system_type_is_no_number_of_cards(text: str) -> None:
    with suppress(InvalidHardware):
        assert [gpu.count for gpu in parse_hardware(text).gpus] == [1]


@pytest.mark.parametrize(
    ("text", "gb"), [("64GB DDR5-4800 x12", 768), ("512GB DDR5-4800 x8", 512), ("64GB DDR4 x8", 64)]
)
def test_a_number_behind_memory_counts_modules_only_where_the_size_cannot_be_the_sum(text: str, gb: int) -> None:
    ram = parse_hardware(f"RTX 3090, EPYC 9654, {text}").ram
    assert ram is not None
    assert ram.total_gb == gb


@pytest.mark.parametrize(
    ("text", "gpus", "gb"),
    [
        ("Dell R740xd dual 6248R 768GB 2x Tesla T4", [("Tesla T4", 2)], 768),
        ("双路8480 8通道DDR5 1TB 单卡5090", [("5090", 1)], 1024),
        ("我有两张4090和一块3090，内存256GB", [("4090", 2), ("3090", 1)], 256),
        ("MBP 14 M3 Pro 36GB", [("Apple M3 Pro", 1)], 36),
        ("2x 3090, 48GB total, 7950X, 64GB", [("3090", 2)], 64),
    ],
)
def test_counts_and_sizes_go_to_what_they_can_be_of(text: str, gpus: list[tuple[str, int]], gb: int) -> None:
    machine = parse_hardware(text)
    assert [(gpu.name, gpu.count) for gpu in machine.gpus] == gpus
    assert machine.ram is not None
    assert machine.ram.total_gb == gb


@pytest.mark.parametrize(
    ("text", "count", "gb"),
    [
        ("RTX3090×2，64GB，i9-13900K", 2, 64),
        ("RTX 3090, メモリ64GB, Ryzen 7 5800X", 1, 64),
        ("RTX 3090 24 ГБ, 64 ГБ ОЗУ, Ryzen 9 7950X", 1, 64),
    ],
)
def test_memory_and_counts_in_other_scripts_are_not_lost(text: str, count: int, gb: int) -> None:
    machine = parse_hardware(text)
    assert [gpu.count for gpu in machine.gpus] == [count]
    assert machine.ram is not None
    assert machine.ram.total_gb == gb


@pytest.mark.parametrize("text", ["4090 + 64GB RAM + 5090 soon", "RTX 3090, 64GB, 5090 on order"])
def test_a_card_that_is_to_come_is_asked_about(text: str) -> None:
    with pytest.raises(InvalidHardware, match="plan"):
        parse_hardware(text)


@pytest.mark.parametrize("text", ["2 NVIDIA L40s", "4x V100s", "two V100s 32GB"])
def test_a_plural_that_is_another_card_as_well_is_asked_about(text: str) -> None:
    with pytest.raises(InvalidHardware, match="which card is it"):
        parse_hardware(text)


@pytest.mark.parametrize(("text", "name"), [("4x L40s", "4x L40s"), ("2 L40S", "2x L40S"), ("2 A100s", "2x A100")])
def test_a_name_that_ends_in_s_is_that_card_where_nothing_else_is_meant(text: str, name: str) -> None:
    (gpu,) = parse_hardware(text).gpus
    assert f"{gpu.count}x {gpu.name}" == name


def test_a_heading_that_alone_names_a_card_is_no_title() -> None:
    # github.com/geerlingguy/ai-benchmarks/issues/43, geerlingguy, 2025-12-09: it had no GPU
    machine = parse_hardware("# Benchmark Nvidia RTX 4090\n## Testing on Intel Core Ultra 265K Custom PC 64GB")
    assert [gpu.name for gpu in machine.gpus] == ["Nvidia RTX 4090"]
    machine = parse_hardware("## RTX 4090 results\n2x 3090, 64GB")
    assert [(gpu.name, gpu.count) for gpu in machine.gpus] == [("3090", 2)]


@pytest.mark.parametrize("text", ["E5-2696v4 兩顆", "E5-2696v4 两颗", "兩顆 E5-2696v4", "2x E5-2696v4"])
def test_what_is_counted_in_chinese_may_stand_first(text: str) -> None:
    # github.com/YaoFANGUK/video-subtitle-extractor/issues/309, einatu, 2024-05-11
    assert resolve(parse_hardware(f"1080ti\n{text}")).physical_cores == 44


@pytest.mark.parametrize("ram", ["Kingston 2x8", "RAM: 2x8", "Corsair Vengeance LPX 16GB"])
def test_sticks_of_a_maker_are_ram(ram: str) -> None:
    # github.com/dartraiden/NVIDIA-patcher/issues/261, slove1545, 2025-05-23
    machine = parse_hardware(f"P106-100, 2200G, {ram}")
    assert machine.ram is not None
    assert (machine.ram.total_gb, resolve(machine).cpu_generation) == (16, "zen")


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("5090 + 3090. The 5090 is PCIe 5.0 x8, the 3090 PCIe 4.0 x4.", "5090 PCIe 5.0 x8, 3090 PCIe 4.0 x4"),
        ("4090 + 3090 (4090 on x16, 3090 on chipset x4)", "4090 pcie x16, 3090 pcie x4"),
        ("2x 3090 + 3060 12GB (3060 on x1 riser)", "2x 3090, 3060 12GB pcie x1"),
        ("3090 + 4090. I run the 4090 as main GPU", "3090, 4090"),
        ("2x3090, 1x4090. 3090s on PCIe 3.0 x8, 4090 on PCIe 4.0 x16", "2x 3090 PCIe 3.0 x8, 4090 PCIe 4.0 x16"),
        ("3090 + 3060 — 3090 for attention, 3060 for the rest", "3090, 3060"),
        ("a 7900 XTX. 7900 XTX has 24GB", "7900 XTX 24GB"),
        ("2x 3090. One 3090 is at x4", "3090, 3090 pcie x4"),
        ("3090 on x16, 3090 on x4", "3090 pcie x16, 3090 pcie x4"),
    ],
)
def test_a_card_that_is_named_again_is_not_another_card(text: str, same_as: str) -> None:
    assert parse_hardware(text).gpus == parse_hardware(same_as).gpus


def test_which_of_two_equal_cards_is_meant_is_asked() -> None:
    with pytest.raises(InvalidHardware, match="with its details behind it"):
        parse_hardware("3090 pcie x16, 3090 pcie x4. The 3090 is at x8")


@pytest.mark.parametrize(
    "text", ["3090, 7950X, iGPU for display", "3090, display runs on the iGPU", "3090 headless (monitor on iGPU)"]
)
def test_a_display_on_the_processors_gpu_is_on_no_card(text: str) -> None:
    assert [gpu.display for gpu in parse_hardware(text).gpus] == [False]


@pytest.mark.parametrize(
    ("text", "free"),
    [
        ("3090 for LLMs, the second GPU is a 1050 Ti for display", [None, 0]),
        ("5090 + 3090 (display only)", [None, 0]),
        ("5090 + 3090 for display", [None, None]),
        ("5090, 3090 pcie x16, 3090 pcie x4 (display only)", [None, None, 0]),
        ("3090 (display only)", [None]),
    ],
)
def test_a_card_for_the_display_alone_gets_nothing(text: str, free: list[float | None]) -> None:
    hardware = parse_hardware(text)
    assert [gpu.free_gib for gpu in hardware.gpus] == free
    assert ("left to the display" in (hardware.notes or "")) == (0 in free)


@pytest.mark.parametrize(
    ("text", "each"),
    [
        ("2x Arc Pro B60 48GB (2x24), 9950X, 64GB DDR5", 24),
        ("2x 3090 48GB VRAM (2x24GB), 9950X, 64GB DDR5", 24),
        ("2x RTX 3080 (2x20GB), 9950X, 64GB DDR5", 20),
        ("2x 3090 48GB (24GB each), 9950X, 64GB DDR5", 24),
        ("2x RTX 5060 Ti 32GB (2x16GB), 9950X, 64GB (2x32GB) DDR5", 16),
    ],
)
def test_a_product_in_brackets_behind_as_many_cards_is_their_memory(text: str, each: int) -> None:
    hardware = parse_hardware(text)
    assert [round(card.total / 2**30) for card in resolve(hardware).cards] == [each, each]
    assert hardware.ram is not None
    assert hardware.ram.total_gb == 64


def test_a_product_in_brackets_that_no_card_has_stays_the_ram() -> None:
    hardware = parse_hardware("2x RTX 3090 (2x32GB)")
    assert hardware.ram is not None
    assert (hardware.ram.total_gb, hardware.ram.channels) == (64, 2)


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("ASUS Dual RTX 4060 Ti 16GB, 5800X, 64GB", 1),
        ("single ASUS Dual RTX 4070, 64GB", 1),
        ("2x ASUS Dual RTX 4060 Ti 16GB, 5800X, 64GB", 2),
        ("ASUS dual RTX 3090, 64GB", 2),  # never sold as a Dual
        ("MSI GeForce RTX 3060 VENTUS 2X 12G OC, Ryzen 5 7600, 64GB", 1),
        ("INNO3D RTX 4070 X3, 64GB", 1),
        ("INNO3D GeForce RTX 4070 Ti SUPER Twin X2 16GB, 64GB", 1),
        ("Zotac 5060 Ti 16GB Twin Edge, 64GB", 1),
        ("Gigabyte RTX 4070 Windforce 3X, 64GB", 1),
        ("XFX RX 580 GTS 8GB x2, 64GB", 2),
        ("XFX Speedster MERC 310 RX 7900 XTX, 64GB", 1),
        ("Gainward RTX 3060 Dual Fan 12GB, 64GB", 1),
    ],
)
def test_the_name_of_a_cooler_counts_no_cards(text: str, n: int) -> None:
    hardware = parse_hardware(text)
    assert sum(gpu.count for gpu in hardware.gpus) == n
    assert hardware.ram is not None
    assert hardware.ram.total_gb == 64


@pytest.mark.parametrize(
    "text", ["EPYC 9355P, ASRock GENOAD8X-2T/BCM, 512GB DDR5", "RTX 3090 -50 mV undervolt, EPYC 9355P, 512GB DDR5"]
)
def test_a_hyphen_in_a_name_and_a_voltage_are_no_negative_size(text: str) -> None:
    hardware = parse_hardware(text)
    assert hardware.ram is not None
    assert hardware.ram.total_gb == 512


def test_what_the_firmware_lends_the_gpu_is_no_more_than_a_part_of_the_ram() -> None:
    rig = resolve(parse_hardware("Bosgame M5, Ryzen AI MAX+ 395, gfx1151, 96 GB BIOS-allocated VRAM"))
    assert [round(card.total / 2**30) for card in rig.cards] == [96]
    assert rig.ram_bytes == 128 * 2**30


def test_cores_and_clock_of_an_altra_are_in_its_name() -> None:
    rig = resolve(parse_hardware("Ampere Altra Max Processor M128-30 CPU @ 3.0GHz, 256GB"))
    assert (rig.physical_cores, rig.ghz) == (128, 3.0)


@pytest.mark.parametrize(
    ("text", "cpu", "sockets"),
    [("i7 (8th gen), RTX 3090", "8th gen i7", None), ("Xeon 6430 双路, RTX 3090", "Xeon 6430", 2)],
)
def test_what_stands_behind_a_cpu_is_read_as_in_front_of_it(text: str, cpu: str, sockets: int | None) -> None:
    found = parse_hardware(text).cpu
    assert found is not None
    assert (found.model, found.sockets) == (cpu, sockets)


@pytest.mark.parametrize(
    "text", ["RTX 3090 x 99999, 64GB", "12345 RTX 3090", "3.5x RTX 3090", "1e3x RTX 3090", "9999999999x RTX 3090"]
)
def test_a_number_of_cards_that_no_machine_has_is_not_taken_as_one(text: str) -> None:
    with pytest.raises(InvalidHardware, match=r"64 (GPUs )?at most"):
        parse_hardware(text)
