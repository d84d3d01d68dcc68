"""Which models fit on one machine at the same time."""

from __future__ import annotations

from math import ceil

import msgspec
import pytest

from service.engine.advice import AdvisedConfig, Commands, DeviceMemory
from service.engine.catalogue import resolve
from service.engine.config import Flags
from service.engine.goal import Constraints
from service.engine.hardware_text import parse_hardware
from service.engine.side_by_side import even_share, memory_by_device, room_left, side_by_side
from service.engine.units import GIB

RIG = resolve(parse_hardware("2x RTX 3090, Ryzen 9 7950X, 64GB DDR5-5600"))


def config(use: dict[str, float], env: str = "") -> AdvisedConfig:
    devices = [
        DeviceMemory(
            device=name, gpu=None, weights_mib=mib, kv_mib=0, compute_mib=0, output_mib=0, overhead_mib=0,
            total_mib=mib, total_low_mib=mib, total_high_mib=mib, capacity_mib=24_000 if name != "CPU" else 60_000,
            reserve_mib=512, free_mib=0, fits=True, basis="exact",
        )
        for name, mib in use.items()
    ]  # fmt: skip
    return AdvisedConfig(
        id="a", rank=1, engine="llama.cpp", variant="Q4_K_M", bpw=4.8, strategy="all on GPU", flags=Flags(), speed=[],
        commands=Commands(download="", server=f"{env}llama-server -m a.gguf", bench=""), devices=devices,
        goal_seconds=(1, 1, 1), max_context=4096,
    )  # fmt: skip


SMALL, LARGE = config({"CUDA0": 8_000, "CPU": 1_000}), config({"CUDA0": 20_000, "CPU": 1_000})


def test_the_largest_sets_that_fit_are_named_and_what_others_lack() -> None:
    found = side_by_side({"a": SMALL, "b": SMALL, "c": SMALL, "large": LARGE}, RIG)
    assert found.together == [["a", "b", "c"]]
    assert "a and b and c fit side by side." in found.text
    assert "a and large do not: GPU 0 lacks 3.9 GiB." in found.text


def test_all_that_fit_are_said_in_one_sentence() -> None:
    assert side_by_side({"a": SMALL, "b": SMALL}, RIG).text == "All of them fit side by side."


@pytest.mark.parametrize(("env", "together"), [("", []), ("CUDA_VISIBLE_DEVICES=1 ", [["a", "b"]])])
def test_devices_are_the_machines_not_what_the_engine_calls_them(env: str, together: list[list[str]]) -> None:
    other = msgspec.structs.replace(
        LARGE, commands=Commands(download="", server=f"{env}llama-server -m b.gguf", bench="")
    )
    assert side_by_side({"a": LARGE, "b": other}, RIG).together == together


def test_ram_is_shared_too() -> None:
    found = side_by_side({"a": config({"CPU": 40_000}), "b": config({"CPU": 30_000})}, RIG)
    lacking = 70_000 / 1024 - RIG.usable_ram / GIB
    assert found.text == f"a and b do not: RAM lacks {lacking:.1f} GiB. Unload one before the other starts."


def test_what_runs_alongside_others_gets_what_they_leave() -> None:
    limits = room_left([SMALL, config({"CUDA0": 4_000, "CPU": 9_000})], RIG, Constraints())
    assert limits is not None
    assert limits.reserve_mib == [512 + 8_000 + 4_000, 512]
    assert limits.max_ram_gib == pytest.approx(RIG.usable_ram / GIB - 10_000 / 1024)
    stricter = room_left([SMALL], RIG, Constraints(max_ram_gib=2, reserve_mib=[0, 100]))
    assert stricter == Constraints(max_ram_gib=2, reserve_mib=[8_000, 100])
    assert room_left([config({"CPU": 90_000})], RIG, Constraints()) is None


def test_an_even_share_is_the_same_for_each_of_several() -> None:
    limits = even_share(3, RIG, Constraints(reserve_mib=0))
    assert limits is not None
    total = RIG.cards[0].total / (1 << 20)
    assert limits.reserve_mib == [ceil(total * 2 / 3)] * 2
    assert limits.max_ram_gib == pytest.approx(RIG.usable_ram / GIB / 3)


def test_a_gpu_without_memory_of_its_own_shares_the_ram() -> None:
    apple = resolve(parse_hardware("Apple M2 Max 64GB"))
    assert apple.cards[0].one_pool
    needs = memory_by_device(config({"MTL0": 20_000, "CPU": 1_000}), apple)
    assert needs == {"RAM": (21_000, apple.usable_ram / (1 << 20))}
