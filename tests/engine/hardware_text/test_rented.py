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
    assert ("as the host's, whose memory channels it shares" in (hardware.notes or "")) == ("12/12" not in text)


@pytest.mark.parametrize(
    "text",
    [
        "RTX 3090, 32/64 GB RAM",
        "RTX 3090, EPYC 7302, 16/32 cores",
        "RTX 3090, 64/16 cpu",
        "RTX 3090, Ryzen 9 5950X, 16/32 cpu, 64GB",  # its cores and threads
        "RTX 3090, 4 of 32GB RAM",  # modules
        "RTX 3090, uses 20GB of 64GB RAM",
        "RTX 3090, 20GB of 64GB RAM left",
        "RTX 3090, Ryzen 9 5950X, using 14 of 16 threads, 64GB",
        "#SBATCH --gres=gpu:a100:1 --cpus-per-task=8 --mem-per-cpu=4G",
        "salloc --gpus=2 --cpus-per-task=16 --mem=100G, A100 80GB",
        "#SBATCH --gres=gpu:2 --cpus-per-task=16 --mem=100G, L40S",
        "rig:\n  gpu: RTX 3090\n  cpu: 5950X\n  cpus: 16\n  ram: 64GB",
    ],
)
def test_numbers_that_may_be_no_part_of_a_host_are_asked_about(text: str) -> None:
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


def test_the_ram_behind_the_rate_of_a_drive_is_read() -> None:
    hardware = parse_hardware("RTX 3090, NVMe 3500 MB/s 64GB RAM")
    assert hardware.ram is not None
    assert hardware.ram.total_gb == 64


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


@pytest.mark.parametrize(
    ("text", "card", "n", "cores", "gb"),
    [
        ("g7e.12xlarge", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 2, 24, 512),
        ("GCP g4-standard-48", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 1, 24, 180),
        ("a3-highgpu-1g (H100)", "NVIDIA H100 80GB HBM3", 1, 13, 234),
        ("Azure Standard_NV36ads_A10_v5", "NVIDIA A10-24Q", 1, 18, 440),
        ("Standard_NC6s_v3", "Tesla V100-PCIE-16GB", 1, 3, 112),
        ("OCI VM.GPU.A10.1", "NVIDIA A10", 1, 15, 240),
        ("BM.GPU.H100.8", "NVIDIA H100 80GB HBM3", 8, 112, 2048),
        ("Lambda gpu_8x_h100_sxm5", "NVIDIA H100 80GB HBM3", 8, 104, 1800),
        ("gpu_1x_gh200", "NVIDIA GH200 480GB", 1, 64, 432),
        ("OVH l40s-90", "NVIDIA L40S", 1, 8, 90),
        ("Scaleway L4-1-24G", "NVIDIA L4", 1, 4, 48),
        ("gpu-h100x1-80gb droplet", "NVIDIA H100 80GB HBM3", 1, 10, 240),
        ("Hetzner GEX63", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 1, 8, 128),
        ("Google Colab T4", "Tesla T4", 1, 1, 12.7),
        ("Colab Pro A100", "NVIDIA A100-SXM4-40GB", 1, 6, 83.5),
        ("Kaggle T4 x2", "Tesla T4", 2, 2, 29),
        ("Colab, T4, 51GB RAM", "Tesla T4", 1, 8, 51),
        ("Paperspace A100-80G, 12 vCPU, 90GB RAM", "NVIDIA A100-SXM4-80GB", 1, 6, 90),
        ("A100-80G-PCIe, 28 cores, 120 GB RAM, 9 GB root disk, 75 GB ephemeral", "NVIDIA A100 80GB PCIe", 1, 28, 120),
    ],
)  # fmt: skip
def test_products_of_today_are_known_by_their_names(text: str, card: str, n: int, cores: int, gb: float) -> None:
    rig = resolve(parse_hardware(text))
    assert [found.name for found in rig.cards] == [card] * n
    assert (rig.physical_cores, round(rig.ram_bytes / 2**30, 1)) == (cores, gb)


@pytest.mark.parametrize(
    ("text", "generation", "cores", "gb"),
    [
        ("AWS c7i.8xlarge", "sapphire rapids", 16, 64),
        ("m7a.4xlarge", "zen4", 16, 64),
        ("r8g.xlarge", "neoverse", 4, 32),
        ("AWS c5a.8xlarge", "zen2", 16, 64),
        ("c3-standard-22, no GPU", "sapphire rapids", 11, 88),
        ("c4-standard-32", "emerald rapids", 16, 120),
        ("c4-highmem-16", "emerald rapids", 8, 124),
        ("n2-highcpu-16", "cascade lake", 8, 16),
        ("Hetzner CCX63", "zen3", 24, 192),
        ("Hetzner CAX41", "neoverse n1", 16, 32),
        ("Hetzner AX102", "zen4", 16, 128),
        ("AX162-R", "zen4", 48, 256),
    ],
)
def test_machines_without_a_gpu_are_known_by_their_names(text: str, generation: str, cores: int, gb: float) -> None:
    rig = resolve(parse_hardware(text))
    assert rig.cards == ()
    assert (rig.cpu_generation, rig.physical_cores, rig.ram_bytes >> 30) == (generation, cores, gb)


@pytest.mark.parametrize("text", ["c7i.8xlarge with an RTX 3090", "g7e.2xlarge, L40S", "g7e.2xlarge or g6e.2xlarge"])
def test_another_card_than_that_of_the_product_is_asked_about(text: str) -> None:
    with pytest.raises(InvalidHardware):
        parse_hardware(text)


@pytest.mark.parametrize(
    ("text", "card", "n", "cores", "gb"),
    [
        ("#SBATCH --gres=gpu:a100:2 --cpus-per-task=16 --mem=128G", "NVIDIA A100-SXM4-80GB", 2, 8, 128),
        ("#SBATCH --gpus=l40s:1\n#SBATCH --cpus-per-task=8\n#SBATCH --mem=64G", "NVIDIA L40S", 1, 4, 64),
        ("docker run --gpus 1 --memory=64g --cpus=16, RTX 4090", "NVIDIA GeForce RTX 4090", 1, 8, 64),
        ("docker run --gpus all --memory=64g --cpus=16, RTX 4090", "NVIDIA GeForce RTX 4090", 1, 8, 64),
        ("k8s pod: limits cpu 16, memory 64Gi, nvidia.com/gpu: 1 (RTX A6000)", "NVIDIA RTX A6000", 1, 8, 64),
        (
            'resources:\n  limits:\n    cpu: "16"\n    memory: 64Gi\n    nvidia.com/gpu: 2\nGPU: 2x L40S',
            "NVIDIA L40S",
            2,
            8,
            64,
        ),
    ],
)
def test_what_a_container_or_job_asks_for_is_its_machine(text: str, card: str, n: int, cores: int, gb: float) -> None:
    rig = resolve(parse_hardware(text))
    assert [found.name for found in rig.cards] == [card] * n
    assert (rig.physical_cores, rig.ram_bytes >> 30) == (cores, gb)


def test_a_limit_next_to_the_hosts_memory_is_asked_about() -> None:
    with pytest.raises(InvalidHardware, match="two sizes"):
        parse_hardware("RTX 4090, EPYC 7543, 258GB RAM, docker --memory 64g --cpus 16")


def test_a_slice_of_a_card_with_a_long_name_is_read() -> None:
    text = "NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb, 16 vCPU, 64 GB RAM"
    assert 23 << 30 < resolve(parse_hardware(text)).cards[0].total < 24 << 30


@pytest.mark.parametrize("text", ["Colab T4", "EPYC 7543, RTX 4090, 16/64 cpu, 64/258 GB"])
def test_what_is_taken_of_a_rented_machine_is_no_mere_note(text: str) -> None:
    assert not any(
        "used for no figure" in one.why and "GB" in one.value for one in resolve(parse_hardware(text)).assumed
    )
