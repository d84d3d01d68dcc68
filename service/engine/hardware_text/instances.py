"""Rented machines: by the name of the product, in shorthand, and parts of a larger machine.

Sources: aws.amazon.com/ec2/instance-types (AWS as meta-pytorch/torchx's specs/named_resources_aws.py has it too),
cloud.google.com/compute/docs/gpus and /general-purpose-machines, Microsoft's sizes of virtual machines,
hetzner.com/dedicated-rootserver and /cloud, docs.oracle.com's compute shapes, lambda.ai/instances,
ovhcloud.com/public-cloud/prices, scaleway.com/gpu-instances, docs.digitalocean.com/products/droplets. Memory is in
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
    "g7e.{}": ("RTX PRO 6000 Blackwell Server Edition", "2xlarge 1 8 64, 4xlarge 1 16 128, 8xlarge 1 32 256, "
            "12xlarge 2 48 512, 24xlarge 4 96 1024, 48xlarge 8 192 2048"),
    "p3.{}": ("V100-SXM2-16GB", "2xlarge 1 8 61, 8xlarge 4 32 244, 16xlarge 8 64 488"),
    "p3dn.{}": ("V100-SXM2-32GB", "24xlarge 8 96 768"),
    "p4d.{}": ("A100-SXM4-40GB", "24xlarge 8 96 1152"),
    "p4de.{}": ("A100-SXM4-80GB", "24xlarge 8 96 1152"),
    "p5.{}": ("H100 80GB HBM3", "4xlarge 1 16 256, 48xlarge 8 192 2048"),
    "p5e.{}": ("H200", "48xlarge 8 192 2048"),
    "p5en.{}": ("H200", "48xlarge 8 192 2048"),
    "p6-b200.{}": ("B200", "48xlarge 8 192 2048"),
    "g2-standard-{}": ("L4", "4 1 4 16, 8 1 8 32, 12 1 12 48, 16 1 16 64, 24 2 24 96, 32 1 32 128, "
                    "48 4 48 192, 96 8 96 384"),
    "g4-standard-{}": ("RTX PRO 6000 Blackwell Server Edition", "48 1 48 180, 96 2 96 360, 192 4 192 720, "
                    "384 8 384 1440"),
    "a2-highgpu-{}": ("A100-SXM4-40GB", "1g 1 12 85, 2g 2 24 170, 4g 4 48 340, 8g 8 96 680"),
    "a2-megagpu-{}": ("A100-SXM4-40GB", "16g 16 96 1360"),
    "a2-ultragpu-{}": ("A100-SXM4-80GB", "1g 1 12 170, 2g 2 24 340, 4g 4 48 680, 8g 8 96 1360"),
    "a3-highgpu-{}": ("H100 80GB HBM3", "1g 1 26 234, 2g 2 52 468, 4g 4 104 936, 8g 8 208 1872"),
    "a3-megagpu-{}": ("H100 80GB HBM3", "8g 8 208 1872"),
    "a3-ultragpu-{}": ("H200", "8g 8 224 2952"),
    "a4-highgpu-{}": ("B200", "8g 8 224 3968"),
    "nc{}as_t4_v3": ("T4", "4 1 4 28, 8 1 8 56, 16 1 16 110, 64 4 64 440"),
    "nc{}_v3": ("V100-PCIE-16GB", "6s 1 6 112, 12s 2 12 224, 24s 4 24 448, 24rs 4 24 448"),
    "nc{}ads_a100_v4": ("A100 80GB PCIe", "24 1 24 220, 48 2 48 440, 96 4 96 880"),
    "nc{}ads_h100_v5": ("H100 NVL", "40 1 40 320"),
    "nc{}adis_h100_v5": ("H100 NVL", "80 2 80 640"),
    "nd{}asr_v4": ("A100-SXM4-40GB", "96 8 96 900"),
    "nd{}amsr_a100_v4": ("A100-SXM4-80GB", "96 8 96 1900"),
    "nd{}isr_h100_v5": ("H100 80GB HBM3", "96 8 96 1900"),
    "nd{}isr_h200_v5": ("H200", "96 8 96 1850"),
    "nd{}isr_mi300x_v5": ("MI300X", "96 8 96 1850"),
    # Parts of an A10, as their driver names them.
    "nv6ads_a10_{}": ("A10-4Q", "v5 1 6 55"),
    "nv12ads_a10_{}": ("A10-8Q", "v5 1 12 110"),
    "nv18ads_a10_{}": ("A10-12Q", "v5 1 18 220"),
    "nv36ad{}_a10_v5": ("A10-24Q", "s 1 36 440, ms 1 36 880"),
    "nv72ads_a10_{}": ("A10-24Q", "v5 2 72 880"),
    "vm.gpu.a10.{}": ("A10", "1 1 30 240, 2 2 60 480"),
    "bm.gpu.a10.{}": ("A10", "4 4 128 1024"),
    "bm.gpu4.{}": ("A100-SXM4-40GB", "8 8 128 2048"),
    "bm.gpu.a100-v2.{}": ("A100-SXM4-80GB", "8 8 256 2048"),
    "bm.gpu.h100.{}": ("H100 80GB HBM3", "8 8 224 2048"),
    "gpu_{}_a10": ("A10", "1x 1 30 200"),
    "gpu_{}_a100": ("A100-PCIE-40GB", "1x 1 30 200"),
    "gpu_{}_a100_sxm4": ("A100-SXM4-40GB", "1x 1 30 200"),
    "gpu_{}_a100_80gb_sxm4": ("A100-SXM4-80GB", "8x 8 240 1800"),
    "gpu_{}_a6000": ("RTX A6000", "1x 1 14 100, 2x 2 28 200, 4x 4 56 400"),
    "gpu_{}_h100_pcie": ("H100 PCIe", "1x 1 26 225"),
    "gpu_{}_h100_sxm5": ("H100 80GB HBM3", "1x 1 26 225, 2x 2 52 450, 4x 4 104 900, 8x 8 208 1800"),
    "gpu_{}_b200_sxm6": ("B200", "8x 8 208 2900"),
    "l4-{}": ("L4", "90 1 22 90, 180 2 45 180, 360 4 90 360, 1-24g 1 8 48, 2-24g 2 16 96, 4-24g 4 32 192, "
           "8-24g 8 64 384"),
    "l40s-{}": ("L40S", "90 1 15 90, 180 2 30 180, 360 4 60 360, 1-48g 1 8 96, 2-48g 2 16 192, 4-48g 4 32 384, "
             "8-48g 8 64 768"),
    "a10-{}": ("A10", "45 1 30 45, 90 2 60 90, 180 4 120 180"),
    "a100-{}": ("A100 80GB PCIe", "180 1 15 180, 360 2 30 360"),
    "h100-{}": ("H100 PCIe", "380 1 30 380, 760 2 60 760, 1-80g 1 24 240, 2-80g 2 48 480"),
    "gpu-h100x{}": ("H100 80GB HBM3", "1-80gb 1 20 240, 8-640gb 8 160 1920"),
    "gpu-l40sx{}": ("L40S", "1-48gb 1 8 64"),
}  # fmt: skip
_PRODUCTS = {
    "gex44": "RTX 4000 SFF Ada, i5-13500, 64GB RAM",
    "gex45": "RTX PRO 4000 Blackwell SFF, i5-13500, 64GB RAM",
    "gex63": "RTX PRO 6000 Blackwell Max-Q, Core Ultra 7 265, 128GB RAM",
    "gex130": "RTX 6000 Ada, Xeon Gold 5412U, 128GB RAM",
    "gex131": "RTX PRO 6000 Blackwell Max-Q, Xeon Gold 5412U, 256GB RAM",
    "gpu_1x_gh200": "GH200, 64 cores, 432GB RAM",
    "ax102": "Ryzen 9 7950X3D, 128GB RAM, no GPU",
    "ax162-r": "EPYC 9454P, 256GB RAM, no GPU",
    "ax162-s": "EPYC 9454P, 128GB RAM, no GPU",
    "ex44": "i5-13500, 64GB RAM, no GPU",
}
# Hetzner's cloud servers: threads, and GiB; those of CAX are cores of an Altra.
_CLOUD_SERVERS = (
    "ccx13 2 8, ccx23 4 16, ccx33 8 32, ccx43 16 64, ccx53 32 128, ccx63 48 192, "
    "cax11 2 4, cax21 4 8, cax31 8 16, cax41 16 32"
)
# Machines without a GPU whose name tells size and kind: GiB a thread by the kind, and the processor by the series.
_AMAZONS = re.compile(r"(?!c5n)([cmr])([5-8])([agi]?)[a-z]{0,3}\.(?:(large)|(\d{0,2})xlarge)", re.I)
_GIB_A_THREAD = {"c": 2, "m": 4, "r": 8}
_AMAZONS_CPUS = {
    "5": "Xeon Skylake", "5a": "EPYC Naples", "c5a": "EPYC Rome", "6i": "Xeon Ice Lake", "6a": "EPYC Milan",
    "7i": "Xeon Sapphire Rapids", "7a": "EPYC Genoa", "8a": "EPYC Turin", "6g": "Graviton2",
    "7g": "Graviton3", "8g": "Graviton4",
}  # fmt: skip
_ONE_THREAD = ("7a", "8a", "6g", "7g", "8g")  # a core
_GOOGLES = re.compile(r"(n2|n2d|c3|c3d|c4)-(standard|highmem|highcpu)-(\d{1,3})", re.I)
_GIB_BY_KIND = {"standard": 4.0, "highmem": 8.0, "highcpu": 2.0}
_OTHER_GIB = {("c4", "standard"): 3.75, ("c4", "highmem"): 7.75, ("n2", "highcpu"): 1.0, ("n2d", "highcpu"): 1.0}
_GOOGLES_CPUS = {
    "n2": "Xeon Cascade Lake", "n2d": "EPYC Milan", "c3": "Xeon Sapphire Rapids", "c3d": "EPYC Genoa",
    "c4": "Xeon Emerald Rapids",
}  # fmt: skip
_NAME = re.compile(
    r"(?<![\w./-])(?:standard[_ ]|ml\.)?"
    r"([a-z]{1,4}[\w-]{0,20}\d[\w-]{0,20}(?:\.[\w-]{1,20}){0,3}|[vb]m\.gpu[\w.-]{0,16}\d)(?<![_-])\b",
    re.I,
)
_NUMBERED = re.compile(r"(gex\d{2,3})-1", re.I)


def _named() -> dict[str, str]:
    found = dict(_PRODUCTS)
    for family, (card, sizes) in _FAMILIES.items():
        for size, n, threads, gib in (row.split() for row in sizes.split(", ")):
            name = family.format(size)
            found[name] = f"{n}x {card}, {threads} vCPU, {gib}GB RAM"
            if name.startswith("n"):  # Azure's `NC64as_T4_v3` is also written NC64asT4v3
                found[name.replace("_", "")] = found[name]
    for name, threads, gib in (row.split() for row in _CLOUD_SERVERS.split(", ")):
        unit = f"Altra, {threads} cores" if name.startswith("cax") else f"EPYC Milan, {threads} vCPU"
        found[name] = f"{unit}, {gib}GB RAM, no GPU"
    return found


_INSTANCES = _named()


def _machine(name: str) -> str | None:
    """Return the machine of a product's name, in shorthand; None if no such product is known."""
    if m := _AMAZONS.fullmatch(name):
        series = (m[2] + m[3]).lower()
        threads = 2 if m[4] else 4 * int(m[5] or 1)
        cpu = _AMAZONS_CPUS.get(m[1].lower() + series) or _AMAZONS_CPUS.get(series)
        unit = "cores" if series in _ONE_THREAD else "vCPU"
        memory = f"{threads * _GIB_A_THREAD[m[1].lower()]}GB RAM, no GPU"
        return ", ".join(filter(None, (cpu, f"{threads} {unit}", memory)))
    if m := _GOOGLES.fullmatch(name):
        series, kind = m[1].lower(), m[2].lower()
        gib = int(int(m[3]) * _OTHER_GIB.get((series, kind), _GIB_BY_KIND[kind]))
        return f"{_GOOGLES_CPUS[series]}, {m[3]} vCPU, {gib}GB RAM, no GPU"
    numbered = _NUMBERED.fullmatch(name)
    return _INSTANCES.get((numbered[1] if numbered else name).lower())


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
    rf"(?<![\w./])(\d{{1,4}}(?:\.\d)?)\s?{_GB}\s(?:out\s)?of\s(?:the\s|its\s|my\s)?(\d{{1,4}}(?:\.\d)?)\s?{_GB}\s"
    r"(?:of\s)?(?:system\s|host\s)?(?:ram|memory)\b(?!\s(?:is\s|are\s)?(?:used|free|in\suse|available|occupied|taken|full|left|remaining))",
    re.I,
)
_USES = re.compile(r"\b(?:us(?:e|es|ed|ing)|tak(?:es?|ing|en)|consum(?:es?|ing))\s(?:(?:up|about|only)\s)?$", re.I)
_LONGEST_USE = 20  # characters that `_USES` may take
_BY_THREAD = re.compile(r"(?<!\S)--mem-per-(?:cpu|gpu)[=\s]\S{1,20}", re.I)
# Colab's panel says how much is in use: `System RAM 1.2 / 12.7 GB`.
_IN_USE = re.compile(r"\b((?:system|gpu)\sram|disk)\s?:?\s?\d{1,3}(?:\.\d)?\s/\s(\d{1,4}(?:\.\d)?\s?GB)\b", re.I)


def without_instances(text: str) -> tuple[str, list[str]]:
    """Return the text without the names of rented machines, and each of these in shorthand."""
    machines = dict.fromkeys(found for m in _NAME.finditer(text) if (found := _machine(m[1])))
    return _NAME.sub(lambda m: "" if _machine(m[1]) else m[0], text) if machines else text, list(machines)


# What a container or job asks for, by the options of Docker and Slurm and the fields of Kubernetes.
_ASKED_FOR = tuple(
    (re.compile(pattern, re.I | re.M), right)
    for pattern, right in (
        (r"^[ \t]*#SBATCH\b|\bdocker\s+run\b(?=[^\n]*--)", ""),
        (r"(?<!\S)--cpus(?:-per-task)?[=\s](\d{1,3})(?:\.0)?\b", r", \1 vCPU, "),
        (r"(?<!\S)--mem(?:ory)?[=\s](\d{1,4})\s?g(?:i?b)?\b", r", \1GB RAM, "),
        (r"(?<!\S)--(?:gres=gpu|gpus(?:-per-node)?=)[:=]?([a-z][\w-]{1,20}):(\d{1,2})\b", r", \2x \1, "),
        (r"(?<!\S)(?:--gpus[=\s]|--gres=gpu:)(?:all|1)\b", ""),
        (r"(?<!\S)(?:--gpus[=\s]|--gres=gpu:)(\d{1,2})\b", r"\1 GPUs"),
        (r"\b(?:nvidia|amd)\.com/gpu\"?\s?[:=]\s?\"?1\"?(?!\d)", ""),
        (r"\b(?:nvidia|amd)\.com/gpu\"?\s?[:=]\s?\"?(\d{1,2})\b\"?", r"\1 GPUs"),
        (r"\blimits:?\s+cpu\s(\d{1,3})\b", r", \1 vCPU"),
        (
            r"((?:limits|requests):[ \t]*\n(?:[ \t]+[^\s:][^\n]{0,60}\n){0,3}?)"
            r"[ \t]+cpus?:[ \t]?[\"']?(\d{1,3})[\"']?[ \t]*$",
            r"\1\2 vCPU",
        ),
        (r"^[ \t]*(?:resources|limits|requests):[ \t]*$", ""),
    )
)


# What notebooks of a service have besides a card, where nobody says (research.google.com/colaboratory/faq,
# kaggle.com/docs/notebooks): service, card, GiB of one of two sizes, machine.
_SERVICES = (
    ("colab", "T4", None, "2 vCPU, 12.7GB RAM"),
    ("colab", "V100", 16, "2 vCPU, 12.7GB RAM"),
    ("colab", "L4", None, "12 vCPU, 53GB RAM"),
    ("colab", "A100", 40, "12 vCPU, 83.5GB RAM"),
    ("kaggle", "T4", None, "4 vCPU, 29GB RAM"),
    ("kaggle", "P100", 16, "4 vCPU, 29GB RAM"),
)


def service_of(text: str, said: Found) -> tuple[str, float | None] | None:
    """Return what a service gives with the card that a text names, in shorthand, and that card's GiB; else None.

    None, too, where the text says how much RAM there is, or that it is a larger machine.
    """
    if said.ram is not None or len(said.gpus) != 1 or re.search(r"\bhigh[\s-]ram\b", text, re.I):
        return None
    card = said.gpus[0]
    for service, name, gib, machine in _SERVICES:
        is_card = re.search(rf"\b{name}$", card.name, re.I) and card.vram_gib in (None, gib)
        if is_card and re.search(rf"\b{service}\b", text, re.I):
            return machine, gib
    return None


def without_hosts(text: str) -> tuple[str, list[str]]:
    """Return the text with only the part of a machine that is rented, and notes on what was taken as the host's.

    A size is one of two, as in `32/64 GB`, unless threads are stated in the same way. `16/32 cpu` may be cores and
    threads, unless a size is stated in the same way. Raises InvalidHardware for RAM by the thread.
    """
    if m := _BY_THREAD.search(text):
        raise unreadable(m[0], "how much is it in all? Write `--mem=64G`")
    notes: list[str] = []

    def rented(m: re.Match[str], part: str, whole: str, unit: str) -> str:
        if float(part) > float(whole) or _USES.search(m.string[max(0, m.start() - _LONGEST_USE) : m.start()]):
            return m[0]
        if part != whole:
            shared = "" if unit.startswith("GB") else ", whose memory channels it shares"
            notes.append(f"{m[0]}: {part} are taken as this machine's, {whole} as the host's{shared}")
        return f"{part} {unit}"

    def cpus(m: re.Match[str]) -> str:
        if m[2] and int(m[2]) == 2 * int(m[1]) and not _PART_OF_RAM.search(m.string):
            return m[0]
        unit = "cores" if (m[5] or "").lower().startswith("core") else "vCPU"
        return rented(m, m[1], m[2] or m[4], unit)

    for pattern, right in _ASKED_FOR:
        text = pattern.sub(right, text)
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
    if not machine.gpus:
        if said.gpus:
            names = " + ".join(gpu.name for gpu in said.gpus)
            raise unreadable(names, "what is rented under this name has no GPU: leave out one of them")
        return _with(said, machine)
    card = machine.gpus[0]
    if said.gpus and not (len(said.gpus) == 1 and _is_in(said.gpus[0], card)):
        names = " + ".join(gpu.name for gpu in said.gpus)
        raise unreadable(names, f"what is rented under this name has {card.count}x {card.name}: leave out one of them")
    return _with(said, machine)


def _with(said: Found, machine: Found) -> Found:
    return msgspec.structs.replace(
        said,
        gpus=machine.gpus,
        no_gpu=machine.no_gpu,
        cpu=said.cpu or machine.cpu,
        ram=merged(Ram, [ram for ram in (said.ram, machine.ram) if ram]),
        notes="; ".join(filter(None, (said.notes, machine.notes))) or None,
    )


def _is_in(gpu: Gpu, card: Gpu) -> bool:
    """Return whether a name may mean the card: `8x A100` and `A100` the A100-SXM4-40GB, of which there are eight."""
    numbers = re.findall(r"[a-z]*\d+[a-z]*", gpu.name.lower())
    return gpu.count in (1, card.count) and all(number in card.name.lower() for number in numbers)
