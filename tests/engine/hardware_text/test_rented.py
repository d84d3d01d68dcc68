"""Rented machines: parts of a larger host, virtual machines and containers, as their users write or paste them."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.errors import InvalidHardware
from service.engine.hardware_text import parse_hardware


@pytest.mark.parametrize(
    ("text", "cores", "gb"),
    [
        ("1x RTX 4090, AMD EPYC 7543 32-Core, 16/64 cpu, 64/258 GB", 8, 64),
        ("2x RTX 3090, AMD EPYC 7502 32-Core Processor, 32.0/64 cpu, 129/516 GB", 16, 129),
        ("1x RTX 4090 | EPYC 7B13 | 32/128 cpu | 125/503GB", 16, 125),
        ("RTX 3090 (24GB), 12/48 vCPUs, 32/128 GB RAM", 6, 32),
        ("1x RTX 3060 12 GB, Core™ i5-10400F, 12/12 cpu, 16/16 GB", 6, 16),
        ("Proxmox LXC with 64GB of 256GB RAM, 16 of 64 cores, RTX 3090", 16, 64),
        ("RTX 3090, EPYC 7402P, 96 GB RAM, 8 out of 48 threads", 4, 96),
    ],
)
def test_of_a_part_of_a_host_the_part_counts(text: str, cores: int, gb: float) -> None:
    hardware = parse_hardware(text)
    rig = resolve(hardware)
    assert (rig.physical_cores, hardware.ram and hardware.ram.total_gb) == (cores, gb)
    assert ("as the host's" in (hardware.notes or "")) == ("12/12" not in text)


@pytest.mark.parametrize("text", ["RTX 3090, 32/64 GB RAM", "RTX 3090, EPYC 7302, 16/32 cores", "RTX 3090, 64/16 cpu"])
def test_two_numbers_that_may_be_alternatives_are_asked_about(text: str) -> None:
    with pytest.raises(InvalidHardware):
        parse_hardware(text)


# An offer on vast.ai, as its page is copied (the numbers of the host and machine are made up).
_OFFER = """m:12345 host:54321 Sweden, SE
1x RTX 4090
Max CUDA: 12.8
82.6 TFLOPS
24 GB 865.6 GB/s
SYS-7049GP-TRT
PCIE 3.0,16x 12.1 GB/s
Xeon® Gold 6138
10.0/80 cpu 48/387 GB
SAMSUNG MZ7LH960
494 MB/s 120.0 GB
899 Mbps 903 Mbps
249 ports
97.6 DLPerf
"""


def test_a_marketplaces_offer_is_read_with_the_rates_of_links_and_drives_as_notes() -> None:
    hardware = parse_hardware(_OFFER)
    assert [(gpu.name, gpu.count, gpu.vram_gib, gpu.pcie) for gpu in hardware.gpus] == [("RTX 4090", 1, 24, "3.0 x16")]
    assert hardware.gpus[0].bandwidth_gbs is None
    assert hardware.ram is not None
    assert (hardware.ram.total_gb, hardware.ram.measured_bandwidth_gbs) == (48, None)
    rig = resolve(hardware)
    assert (rig.cpu_model, rig.physical_cores) == ("Intel Xeon Gold 6138", 5)


@pytest.mark.parametrize("text", ["RTX 5090, PCIE 4.0 x16 25.4 GB/s, 64GB", "RTX 5090, 64GB, PCIE 4.0,16x 25.4 GB/s"])
def test_the_rate_of_a_link_is_no_bandwidth_of_a_memory(text: str) -> None:
    hardware = parse_hardware(text)
    assert (hardware.gpus[0].pcie, hardware.gpus[0].bandwidth_gbs) == ("4.0 x16", None)
    assert hardware.ram is not None
    assert hardware.ram.measured_bandwidth_gbs is None


def test_colabs_panel_shows_what_is_in_use_and_what_there_is() -> None:
    hardware = parse_hardware("T4\nSystem RAM 1.2 / 12.7 GB\nGPU RAM 0.0 / 15.0 GB\nDisk 38.3 / 112.6 GB")
    assert hardware.ram is not None
    assert (hardware.ram.total_gb, hardware.gpus[0].vram_gib) == (12.7, 15)


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("VPS: 8 vCores AMD EPYC Milan, 32 GB RAM, no GPU", 4),
        ("VM.Standard.A1.Flex, 4 OCPU, 24 GB", 4),
        ("OCI Ampere A1 4 OCPUs 24GB RAM", 4),
    ],
)
def test_vcores_are_threads_and_oracles_ocpus_are_cores(text: str, cores: int) -> None:
    rig = resolve(parse_hardware(text))
    assert rig.physical_cores == cores
    assert rig.cards == ()


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("P40 24GB ECC off, 64GB RAM", 24_576),
        ("2x Tesla P40 (ECC disabled), Xeon E5-2690 v4, 128GB", 24_576),
        ("3x P40 (no ECC), 64GB RAM", 24_576),
        ("P40, Xeon E5-2690 v4, 128GB non-ECC", 23_040),
        ("P40, 128GB no ECC", 23_040),
        ("P40 24GB ECC, 128GB RAM", 23_040),
    ],
)
def test_a_card_without_ecc_has_all_its_memory(text: str, mib: int) -> None:
    assert resolve(parse_hardware(text)).cards[0].total == mib << 20


def test_watts_with_a_space_before_the_card_are_a_note() -> None:
    hardware = parse_hardware("4x RTX 3090 350 W/ GPU, EPYC 7402P, 256GB")
    assert [(gpu.name, gpu.count) for gpu in hardware.gpus] == [("RTX 3090", 4)]
    assert "350 W" in (hardware.notes or "")
