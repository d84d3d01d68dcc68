"""Rented machines: by the name of the product, in shorthand, and parts of a larger machine.

Sources: aws.amazon.com/ec2/instance-types, cloud.google.com/compute/docs/gpus, Microsoft's sizes of virtual machines,
hetzner.com/dedicated-rootserver; AWS as meta-pytorch/torchx's specs/named_resources_aws.py has it too. Memory is in
GiB, a vCPU a thread.
"""

from __future__ import annotations

import re

import msgspec

from service.engine.hardware import Gpu, Ram
from service.engine.hardware_text.found import Found, merged, unreadable

# One row per instance family, `{}` being the size: its card and, per size, the number of cards, vCPUs and GiB.
_FAMILIES = {
    "g4dn.{}": ("T4", "xlarge 1 4 16, 2xlarge 1 8 32, 4xlarge 1 16 64, 8xlarge 1 32 128, 16xlarge 1 64 256, "
             "12xlarge 4 48 192, metal 8 96 384"),
    "g5.{}": ("A10G", "xlarge 1 4 16, 2xlarge 1 8 32, 4xlarge 1 16 64, 8xlarge 1 32 128, 16xlarge 1 64 256, "
           "12xlarge 4 48 192, 24xlarge 4 96 384, 48xlarge 8 192 768"),
    "g6.{}": ("L4", "xlarge 1 4 16, 2xlarge 1 8 32, 4xlarge 1 16 64, 8xlarge 1 32 128, 16xlarge 1 64 256, "
           "12xlarge 4 48 192, 24xlarge 4 96 384, 48xlarge 8 192 768"),
    "g6e.{}": ("L40S", "xlarge 1 4 32, 2xlarge 1 8 64, 4xlarge 1 16 128, 8xlarge 1 32 256, 16xlarge 1 64 512, "
            "12xlarge 4 48 384, 24xlarge 4 96 768, 48xlarge 8 192 1536"),
    "p3.{}": ("V100-SXM2-16GB", "2xlarge 1 8 61, 8xlarge 4 32 244, 16xlarge 8 64 488"),
    "p3dn.{}": ("V100-SXM2-32GB", "24xlarge 8 96 768"),
    "p4d.{}": ("A100-SXM4-40GB", "24xlarge 8 96 1152"),
    "p4de.{}": ("A100-SXM4-80GB", "24xlarge 8 96 1152"),
    "p5.{}": ("H100 80GB HBM3", "48xlarge 8 192 2048"),
    "p5en.{}": ("H200", "48xlarge 8 192 2048"),
    "p6-b200.{}": ("B200", "48xlarge 8 192 2048"),
    "g2-standard-{}": ("L4", "4 1 4 16, 8 1 8 32, 12 1 12 48, 16 1 16 64, 24 2 24 96, 32 1 32 128, "
                    "48 4 48 192, 96 8 96 384"),
    "a2-highgpu-{}": ("A100-SXM4-40GB", "1g 1 12 85, 2g 2 24 170, 4g 4 48 340, 8g 8 96 680"),
    "a2-megagpu-{}": ("A100-SXM4-40GB", "16g 16 96 1360"),
    "a2-ultragpu-{}": ("A100-SXM4-80GB", "1g 1 12 170, 2g 2 24 340, 4g 4 48 680, 8g 8 96 1360"),
    "a3-highgpu-{}": ("H100 80GB HBM3", "8g 8 208 1872"),
    "a3-megagpu-{}": ("H100 80GB HBM3", "8g 8 208 1872"),
    "nc{}as_t4_v3": ("T4", "4 1 4 28, 8 1 8 56, 16 1 16 110, 64 4 64 440"),
    "nc{}ads_a100_v4": ("A100 80GB PCIe", "24 1 24 220, 48 2 48 440, 96 4 96 880"),
    "nc{}ads_h100_v5": ("H100 NVL", "40 1 40 320"),
    "nc{}adis_h100_v5": ("H100 NVL", "80 2 80 640"),
    "nd{}asr_v4": ("A100-SXM4-40GB", "96 8 96 900"),
    "nd{}amsr_a100_v4": ("A100-SXM4-80GB", "96 8 96 1900"),
    "nd{}isr_h100_v5": ("H100 80GB HBM3", "96 8 96 1900"),
}  # fmt: skip
_PRODUCTS = {
    "gex44": "RTX 4000 SFF Ada, i5-13500, 64GB RAM",
    "gex130": "RTX 6000 Ada, Xeon Gold 5412U, 128GB RAM",
    "gex131": "RTX PRO 6000 Blackwell Max-Q, Xeon Gold 5412U, 256GB RAM",
}
_NAME = re.compile(
    r"\b(?:standard[_ ])?((?:g[2-6]|p[3-6]|a[23]|n[cd]\d)[\w-]*(?:\.\d{0,2}(?:xlarge|metal))?|gex\d{2,3})(?:-1)?\b",
    re.I,
)


def _plain(name: str) -> str:
    return re.sub(r"[_-]", "", name.lower())  # Azure's `NC64as_T4_v3` is also written NC64asT4v3


def _named() -> dict[str, str]:
    found = dict(_PRODUCTS)
    for family, (card, sizes) in _FAMILIES.items():
        for size, n, threads, gib in (row.split() for row in sizes.split(", ")):
            found[_plain(family.format(size))] = f"{n}x {card}, {threads} vCPU, {gib}GB RAM"
    return found


_INSTANCES = _named()

# What is rented of the host's, as vast.ai lists it (`16/64 cpu, 64/258 GB`), or in words (`16 of 64 cores`). Two
# numbers of cores or threads with a stroke between them are those of one processor (`8/16 cores`).
_PART_OF_CPUS = re.compile(
    r"(?<![\w./])(\d{1,3})(?:\.\d)?(?:\s?/\s?(\d{1,3})(?:\.\d)?\s?(v-?cpus?|v-?cores?|cpus?)"
    r"|\s(?:out\s)?of\s(?:the\s|its\s|my\s)?(\d{1,3})\s(v-?cpus?|v-?cores?|cpus?|threads?|cores?))\b(?!\s?[/%])",
    re.I,
)
_GB = r"(?:g(?:i?b)?|gi)"
_PART_OF_RAM = re.compile(
    rf"(?<![\w./])(\d{{1,4}}(?:\.\d)?)\s?{_GB}?\s?/\s?(\d{{1,4}}(?:\.\d)?)\s?{_GB}\b(?!\s?v)", re.I
)
_PART_OF_RAM_IN_WORDS = re.compile(
    rf"(?<![\w./])(\d{{1,4}}(?:\.\d)?)\s?{_GB}?\s(?:out\s)?of\s(?:the\s|its\s|my\s)?(\d{{1,4}}(?:\.\d)?)\s?{_GB}\s"
    r"(?:of\s)?(?:system\s|host\s)?(?:ram|memory)\b(?!\s(?:is\s|are\s)?(?:used|free|in\suse|available|occupied))",
    re.I,
)
# Colab's panel says how much is in use: `System RAM 1.2 / 12.7 GB`.
_IN_USE = re.compile(r"\b((?:system|gpu)\sram|disk)\s?:?\s?\d{1,3}(?:\.\d)?\s/\s(\d{1,4}(?:\.\d)?\s?GB)\b", re.I)


def without_instances(text: str) -> tuple[str, list[str]]:
    """Return the text without the names of rented machines, and each of these in shorthand."""
    machines = dict.fromkeys(found for m in _NAME.finditer(text) if (found := _INSTANCES.get(_plain(m[1]))))
    return _NAME.sub(lambda m: "" if _plain(m[1]) in _INSTANCES else m[0], text), list(machines)


def without_hosts(text: str) -> tuple[str, list[str]]:
    """Return the text with only the part of a machine that is rented, and notes on what was taken as the host's.

    A size is one of two, as in `32/64 GB`, unless threads are stated in the same way.
    """
    notes: list[str] = []

    def rented(m: re.Match[str], part: str, whole: str, unit: str) -> str:
        if float(part) > float(whole):
            return m[0]
        if part != whole:
            notes.append(f"{m[0]}: {part} are taken as this machine's, {whole} as the host's")
        return f"{part} {unit}"

    def cpus(m: re.Match[str]) -> str:
        unit = "cores" if (m[5] or "").lower().startswith("core") else "vCPU"
        return rented(m, m[1], m[2] or m[4], unit)

    text = _IN_USE.sub(r"\1 \2", text)
    out = _PART_OF_CPUS.sub(cpus, text)
    out = _PART_OF_RAM_IN_WORDS.sub(lambda m: rented(m, m[1], m[2], "GB RAM"), out)
    if out != text and len(_PART_OF_RAM.findall(out)) == 1:
        out = _PART_OF_RAM.sub(lambda m: rented(m, m[1], m[2], "GB RAM"), out)
    return out, notes


def as_rented(said: Found, machine: Found) -> Found:
    """Return what a text says of a rented machine, with what the product has besides; the product says which cards.

    Raises InvalidHardware for other cards than those of the product.
    """
    card = machine.gpus[0]
    if said.gpus and not (len(said.gpus) == 1 and _is_in(said.gpus[0], card)):
        names = " + ".join(gpu.name for gpu in said.gpus)
        raise unreadable(names, f"what is rented under this name has {card.count}x {card.name}: leave out one of them")
    return msgspec.structs.replace(
        said,
        gpus=machine.gpus,
        cpu=said.cpu or machine.cpu,
        ram=merged(Ram, [ram for ram in (said.ram, machine.ram) if ram]),
        notes="; ".join(filter(None, (said.notes, machine.notes))) or None,
    )


def _is_in(gpu: Gpu, card: Gpu) -> bool:
    """Return whether a name may mean the card: `8x A100` and `A100` the A100-SXM4-40GB, of which there are eight."""
    numbers = re.findall(r"[a-z]*\d+[a-z]*", gpu.name.lower())
    return gpu.count in (1, card.count) and all(number in card.name.lower() for number in numbers)
