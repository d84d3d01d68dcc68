"""Counts of cores, threads, sockets and cards, where one could be taken for another."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
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


def test_a_count_that_is_a_processors_threads_is_said_to_be_taken_as_them() -> None:
    hardware = parse_hardware("i9-14900K 32 cores, 4090, 64GB")
    assert hardware.cpu is not None
    assert (hardware.cpu.physical_cores, hardware.notes) == (24, "32 cores: taken as threads")


def test_the_cores_of_a_guessed_hybrid_are_said_to_be_performance_cores() -> None:
    rig = resolve(parse_hardware("RTX 4090 laptop, 13900HK, 20 cores"))
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
