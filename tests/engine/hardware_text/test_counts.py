"""Counts of cores, threads, sockets and cards, where one could be taken for another."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.errors import InvalidHardware
from service.engine.hardware_text import parse_hardware

FETCHED = "OS: Ubuntu 22.04\nKernel: 5.15\nCPU: Intel Xeon E5-2680 v4 ({}) @ 3.300GHz\nGPU: NVIDIA GeForce RTX 3090\n"


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("RTX 4090 laptop, 13900HK, 20 cores", 6),  # 14 cores, 20 threads
        ("RTX 4090 laptop, 13900HK, 14 cores", 6),
        ("RTX 4060 laptop, i7-13650HX, 14 cores", 6),
        ("RTX 4090, 13900K, 32 cores", 8),
        ("RTX 4090, Ultra 7 155H, 16 cores", 6),
    ],
)
def test_engines_run_on_the_performance_cores_whichever_count_is_stated(text: str, cores: int) -> None:
    assert resolve(parse_hardware(text)).physical_cores == cores


def test_all_cores_count_of_a_hybrid_with_one_thread_on_each() -> None:
    """Prompts on 18 threads are predicted well only with all its cores (tests/data/perf_2026.jsonl, daim-step37)."""
    assert resolve(parse_hardware("RTX 5090, Core Ultra 7 270K Plus, 24 cores")).physical_cores == 24


def test_a_count_that_is_a_processors_threads_is_said_to_be_taken_as_them() -> None:
    hardware = parse_hardware("i9-14900K 32 cores, 4090, 64GB")
    assert hardware.cpu is not None
    assert (hardware.cpu.physical_cores, hardware.notes) == (24, "32 cores: taken as threads")


def test_the_cores_of_a_guessed_hybrid_are_said_to_be_performance_cores() -> None:
    rig = resolve(parse_hardware("RTX 4090 laptop, 13905H, 20 cores"))
    assert next(a.value for a in rig.assumed if a.field == "hardware.cpu").startswith(
        "raptor lake, 6 performance cores"
    )


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("RTX 3090, Xeon Gold 6154 (72 threads), 256GB", 36),
        ("RTX 3090, Xeon Gold 6154 (36 cores / 72 threads), 256GB", 36),
        ("RTX 3090, Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz (56 threads)", 28),  # noonghunna/club-3090 issue 356
        (FETCHED.format(56), 28),
    ],
)
def test_threads_of_two_processors_make_two_sockets_which_is_said(text: str, cores: int) -> None:
    hardware = parse_hardware(text)
    assert (resolve(hardware).sockets, resolve(hardware).physical_cores) == (2, cores)
    assert "threads: taken as those of 2 sockets" in (hardware.notes or "")


@pytest.mark.parametrize(
    "text", ["RTX 3090, EPYC 7763, 128 threads", FETCHED.format(28), "RTX 3090, 5950X, 64 threads"]
)
def test_threads_of_one_processor_or_of_none_make_no_second_socket(text: str) -> None:
    assert resolve(parse_hardware(text)).sockets == 1


def test_cores_of_each_processor_are_those_of_all_together() -> None:
    rig = resolve(parse_hardware("RTX 3090, 2x E5-2698B v3, 16 cores each, 256GB DDR4"))
    assert (rig.sockets, rig.physical_cores) == (2, 32)


def test_a_count_behind_cores_is_of_sockets_and_not_of_channels() -> None:  # kvcache-ai/ktransformers issue 824
    text = "Intel(R) Xeon(R) Gold 6330 CPU @ 2.00GHz  ，2T的内存 ，2个物理cpu , cpu cores：28 *2  。使用一张 nvidia L40"
    hardware = parse_hardware(text)
    assert hardware.ram is not None
    assert hardware.ram.channels is None
    assert (hardware.cpu and hardware.cpu.sockets, resolve(hardware).physical_cores) == (2, 56)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("NVIDIA RTX 3090, GPU0: RTX 3090", 1),
        ("2x RTX 3090\nGPU0: RTX 3090 24GB\nGPU1: RTX 3090 24GB\n64GB RAM", 2),
        ("RTX 3090 + 3060, 64GB. GPU0: 3060 GPU1: 3090", 2),
        ("GPU0: RTX 3090\nGPU1: RTX 3090", 2),
        ("GPU1: RTX 3090, GPU0: RTX 3090", 2),
        ("RTX 3090, GPU0: RTX 3090, GPU1: RTX 3090", 2),
    ],
)
def test_cards_listed_by_their_numbers_are_those_named_before(text: str, count: int) -> None:
    assert len(resolve(parse_hardware(text)).cards) == count


def test_lanes_behind_the_first_and_the_second_card_are_links() -> None:
    hardware = parse_hardware("first 3090 x16, second 3090 x4, 5950X")
    assert [(gpu.count, gpu.pcie) for gpu in hardware.gpus] == [(1, "x16"), (1, "x4")]


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        ("RTX 3090 PCIe 16x", [(1, "x16")]),
        ("- RTX 3090 - PCIe 16x\n- RTX 3060 - PCIe 4x\n- 64GB RAM", [(1, "x16"), (1, "x4")]),
        ("2x RTX 3090, PCIe 4.0 8x each, 64GB RAM", [(2, "4.0 x8")]),
        ("RTX 3060 12GB (PCIe gen4 8x)", [(1, "4.0 x8")]),
        ("RTX 3090 16x PCIe, 64GB RAM", [(1, "x16")]),
        ("A100 80GB PCIe 4.0 16x", [(1, "4.0 x16")]),
        ("A100 PCIe 8x", [(8, None)]),  # a name
        ("RTX 3090 PCIe 3.0 4x RTX 3060", [(1, "3.0"), (4, None)]),
    ],
)
def test_lanes_behind_pcie_are_a_link_whichever_side_their_x_is_on(text: str, cards: list[tuple[int, str]]) -> None:
    assert [(gpu.count, gpu.pcie) for gpu in parse_hardware(text).gpus] == cards


@pytest.mark.parametrize(
    "cards",
    [
        "4× RTX 3090 (1 Ti + 3 FE), 96GB total",
        "**4x RTX 3090** (3 FE, 1 Ti)",
        "4x RTX 3090 (1x Ti + 3x FE, 96GB total)",
        "4x 3090s (3 FE and 1 Ti) 96GB total",
    ],
)
def test_cards_of_two_kinds_in_a_bracket_are_as_many_as_stand_before_it(cards: str) -> None:
    rig = resolve(parse_hardware(f"{cards}, EPYC 7532, 256GB DDR4"))
    assert sorted(card.name for card in rig.cards) == [*["NVIDIA GeForce RTX 3090"] * 3, "NVIDIA GeForce RTX 3090 Ti"]


def test_cards_in_a_bracket_that_are_not_as_many_as_stand_before_it_are_asked_about() -> None:
    with pytest.raises(InvalidHardware):
        parse_hardware("4x RTX 3090 (1 Ti + 4 FE), EPYC 7532, 256GB DDR4")


def test_a_question_about_lanes_quotes_what_was_written() -> None:
    with pytest.raises(InvalidHardware, match=r"^`RTX 3090 16x` cannot be read: 16 cards, or a link"):
        parse_hardware("RTX 3090 16x, 64GB RAM")


@pytest.mark.parametrize(
    "text",
    [
        "4x RTX 3090, 96GB VRAM. One card sits on a PCIe x1 link",  # prismix.dev/news/12baecad60c3
        "4x 3090 (one of them at x1), 128GB RAM",
        "2x 3090, the second via oculink",
        "4x 3090, one x1, 128GB RAM",
        "RTX 5090 + 2x 3090, one at x4",
        "RTX 3090 x4, one on PCIe x1",
    ],
)
def test_the_link_of_one_of_several_cards_is_not_that_of_all(text: str) -> None:
    with pytest.raises(InvalidHardware, match="which links do the other cards have"):
        parse_hardware(text)


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("2x 3090, one on x16 and one on x4", ["x16/x4"]),
        ("2x 3090, one on x16 and the other on x4", ["x16/x4"]),
        ("4x 3090, each one on x8", ["x8"]),
        ("RTX 5090, RTX 3090, the second on PCIe 4.0 x4", [None, "4.0 x4"]),
    ],
)
def test_links_of_each_card_are_read_where_it_is_clear_whose_they_are(text: str, links: list[str | None]) -> None:
    assert [gpu.pcie for gpu in parse_hardware(text).gpus] == links


@pytest.mark.parametrize(
    ("text", "nvlink"),
    [("4x 3090, nvlink between 2, 128GB", None), ("2x 3090, nvlink between two cards", True), ("2x 3090 nvlink", True)],
)
def test_nvlink_between_two_of_more_cards_is_a_note(text: str, nvlink: bool | None) -> None:
    hardware = parse_hardware(text)
    assert [gpu.nvlink for gpu in hardware.gpus] == [nvlink]
    assert nvlink or "nvlink between 2" in (hardware.notes or "")


@pytest.mark.parametrize("text", ["3090, EPYC 7402, 24 cores 48T, 256GB", "3090, EPYC 7402, 24c 48t, 256GB"])
def test_a_t_behind_cores_counts_threads(text: str) -> None:
    hardware = parse_hardware(text)
    assert hardware.ram is not None
    assert (resolve(hardware).physical_cores, hardware.ram.total_gb) == (24, 256)


@pytest.mark.parametrize(
    ("text", "sockets"),
    [
        ("Xeon Gold 6248, 2 NUMA nodes, 384GB, 3090", 2),
        ("EPYC 7302, two NUMA nodes, 384GB, 3090", 2),
        ("1x Xeon Gold 6248, 2 NUMA nodes, 192GB, 3090", 1),
        ("Xeon 6980P, 2 NUMA nodes with SNC, 384GB, 3090", 1),
        ("EPYC 7302P, 2 NUMA nodes, 256GB, 3090", 1),  # made for one socket
        ("EPYC 7742 with NPS2, 2 NUMA nodes, 512GB, 3090", 1),
    ],
)
def test_two_numa_nodes_of_a_server_are_two_sockets_unless_a_socket_is_divided(text: str, sockets: int) -> None:
    hardware = parse_hardware(text)
    assert resolve(hardware).sockets == sockets
    assert ("2 NUMA nodes: taken as 2 sockets" in (hardware.notes or "")) is (sockets == 2)


@pytest.mark.parametrize("board", ["X99 dual board", "dual motherboard", "dual CPU board"])
def test_a_dual_board_has_two_sockets(board: str) -> None:
    for cpu in ("E5-2690 v4", "2x E5-2690 v4"):
        assert resolve(parse_hardware(f"2x RTX 3090, {board}, {cpu}, 128GB")).sockets == 2


def test_one_core_that_something_uses_is_not_all_that_there_are() -> None:  # github.com/meta-llama/llama issue 79
    text = "GPU: RTX 2070 super\nCPU: Ryzen 5800x, less than one core used\nRAM: 32GB, but 16GB or less is difficult"
    rig = resolve(parse_hardware(text))
    assert (rig.physical_cores, rig.ram_bytes >> 30) == (8, 32)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("RTX 4090, 7950X (Navi 21 before), 64GB", "Navi 21"),
        ("RTX 4090, step 3, 64GB RAM", "step 3"),
        ("2x RTX 3080 20 GB, 256K context, `cpu_moe_offload_layers: 26`", "cpu_moe_offload_layers; 26"),
        ("RTX 2070, 15 GiB RAM, 0 swap", "0 swap"),
        ("RTX 4060, 0 GPU detected", "0 GPU; detected"),
    ],
)
def test_a_number_that_names_what_stands_before_it_counts_nothing(text: str, note: str) -> None:
    hardware = parse_hardware(text)
    assert len(resolve(hardware).cards) == (2 if text.startswith("2x") else 1)
    assert note in (hardware.notes or "")


@pytest.mark.parametrize(
    "text",
    [
        "RTX 3090, karty 2, 64GB",
        "RTX 3090, Grafikkarten: 2",
        "RTX 3090, SLI 2",
        "RTX 3090 owned 3, 64GB",
        "RTX 3090, total 4, 64GB",
        "4 asus tuf 3090, 64GB",
        "| Rank 0 | RTX 3090 |\n| Rank 2 | RTX 3090 |",
    ],
)
def test_a_number_that_may_count_cards_is_asked_about(text: str) -> None:
    with pytest.raises(InvalidHardware):
        parse_hardware(text)


@pytest.mark.parametrize("pages", ["hugepages 1G x 200", "1GB hugepages", "200x 1G huge pages", "hugepages: 1G"])
def test_huge_pages_are_no_modules(pages: str) -> None:
    hardware = parse_hardware(f"EPYC 7543P, 8x64GB 3200, {pages}, no GPU")
    assert hardware.ram is not None
    assert (hardware.ram.total_gb, hardware.ram.channels, hardware.notes) == (512, 8, pages)
