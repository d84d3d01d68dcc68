"""From GPUs as stated, where one entry may mean several cards, to one card each with every fact filled in."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from functools import cache

import msgspec

from service.engine.catalogue.budget import GpuLimit, gpu_limit, windows_keeps
from service.engine.catalogue.host import Host
from service.engine.catalogue.names import CORES, gpu_meant, gpu_rows, nearest, ram_named, size_in
from service.engine.catalogue.rows import GpuRow, known_gpus
from service.engine.errors import InvalidHardware, UnknownHardware
from service.engine.hardware import Assumption, Card, Gpu, Hardware, Ram
from service.engine.units import GIB, MIB

# GB/s a lane and direction, after encoding (PCI-SIG rates; the speed model uses the same).
_LANE_GBS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.97, 5: 3.94, 6: 7.56}
_LANES = (1, 2, 4, 8, 16)
# Links that are known by a word: four lanes of at most this generation. OCuLink: SFF-8611 at PCIe 4.0; Thunderbolt 3
# and 4 and USB4 carry at most 32 Gbit/s of PCIe, Thunderbolt 5 64 (Intel's technology briefs); an eGPU or an M.2 slot
# of which no more is said is one of these, taken for the slower.
_BY_WORD = {"oculink": 4, "thunderbolt": 3, "thunderbolt 5": 4, "m.2": 4, "egpu": 3}
_WIDTH_BY_WORD = 4
# A desktop CPU splits its lanes no further (Intel: 1x16, 2x8 or 1x8+2x4), and M.2 slots and chipset slots have four:
# five cards on a 7800X3D are at x8/x4/x4/x4/x4, seven at no less than x4 (Panchovix, llama.cpp pull 13435).
_NARROWEST = 4
_GENERATION = re.compile(r"(?<![\dx])([1-6])\.[0-9]|\b(?:gen|pcie)\s{0,2}([1-6])\b", re.I)
_WIDTH = re.compile(r"x\s?(\d{1,2})(?!\d)", re.I)
_MOST_DDR_GBS = 300  # of a GPU that shares RAM with its CPU; what is faster (MI300A) has HBM
# Generations whose server cards have GDDR5, where ECC takes one sixteenth of it and owners turn it off (nvidia-smi of a
# P40: 23,040 MiB with it, 24,576 without). A total of at most this share of the nominal size is one with ECC.
_ECC_TAKES_MEMORY = ("kepler", "maxwell", "pascal")
_WITH_ECC = 0.95
# What is free is at most the total; drivers differ by so much in what they call that.
_ROUNDED = 1.03
_WITH_OUTPUTS = re.compile(r"GeForce|RTX|TITAN|Quadro|Radeon|Arc\b|FirePro W|NVIDIA T\d")
# Desktop CPUs without graphics: Ryzen of sockets AM4 (but G) and AM5 with an F; Core with an F, and those of the X
# sockets (both makers' specifications).
_NO_GRAPHICS = re.compile(
    r"ryzen\s(?:(?:[3579]|pro)\s)*(?:[1235]\d00x?|[1-3]\d00af|[235]\d00xt|5\d00x3d|4[15]00|[789]\d00f)(?![\w-])"
    r"|\bi[3579][-\s]?\d{4,5}(?:k?f|xe?)(?![\w-])|\bultra\s\d\s\d{3}k?f(?![\w-])"
    r"|\bi7[-\s]?(?:3820|[34]930k|4820k|5[89][23]0k|68[05]0k|6900k)(?![\w-])",
    re.I,
)
# Cores of the GPU of Macs that are sold with so much memory, in GB, with the smaller GPU only (Apple's specifications)
_SOLD_WITH_CORES: dict[tuple[str, float | None], int] = {
    ("Apple M3 Max", 36): 30,
    ("Apple M3 Max", 96): 30,
    ("Apple M4 Max", 36): 32,
    ("Apple M5 Max", 36): 32,
}
_WITHOUT_DESKTOP = re.compile(r"server|proxmox|unraid|truenas|esxi", re.I)


def rows_of(gpu: Gpu, path: str) -> tuple[GpuRow, ...]:
    """Return the catalogue's rows for a GPU, the one meant first; none for a GPU that only its user describes.

    Raises UnknownHardware, with the nearest names, if the name is unknown and `vram_gib` is not given.
    """
    rows, _ = gpu_meant(gpu.name, gpu.vram_gib)
    if not rows and gpu.vram_gib is None:
        choices = nearest(gpu.name)
        near = f"; the nearest known are {', '.join(choices[:3])}" if choices else ""
        right = f'`gpu "{gpu.name}" [24 GiB; 900 GB/s]`, in JSON `vram_gib` and `bandwidth_gbs`'
        raise UnknownHardware(
            f"no GPU `{gpu.name}` in the catalogue{near}; to use it anyway, write its memory and bandwidth: {right}",
            field=f"{path}.name",
            choices=choices,
        )
    return rows


def with_sold_gpus(hardware: Hardware) -> Hardware:
    """Return the machine, a Mac that is named by its chip alone with the GPU that its memory is sold with."""
    return msgspec.structs.replace(hardware, gpus=[_as_sold(gpu, hardware.ram) for gpu in hardware.gpus])


def _as_sold(gpu: Gpu, ram: Ram | None) -> Gpu:
    rows = () if CORES.search(gpu.name) else gpu_rows(gpu.name)
    cores = _SOLD_WITH_CORES.get((rows[0].name, ram.total_gb)) if rows and ram else None
    return msgspec.structs.replace(gpu, name=f"{rows[0].name} {cores}-core GPU") if cores else gpu


def cards_of(hardware: Hardware, host: Host) -> tuple[tuple[Card, ...], tuple[Assumption, ...]]:
    """Return every GPU as a card of its own, in the order given, and what was assumed of them."""
    assumed: list[Assumption] = []
    gpus = _with_display(hardware, host, assumed)
    sharing = [gpu for gpu in gpus if not (_beside_lanes(gpu.pcie or _own_link(gpu)) or _is_in_cpu(gpu))]
    n_cards = sum(gpu.count for gpu in sharing)
    cards = [card for i, gpu in enumerate(gpus) for card in _cards(gpu, f"hardware.gpus[{i}]", host, n_cards, assumed)]
    return tuple(cards), tuple(assumed)


def _with_display(hardware: Hardware, host: Host, assumed: list[Assumption]) -> Sequence[Gpu]:
    """Return the GPUs. The only one of a desktop whose CPU has no graphics is taken to drive the display.

    Not so with Windows, where a card keeps as much free in any case.
    """
    gpus, system = hardware.gpus, hardware.os or ""
    if len(gpus) != 1 or gpus[0].count > 1 or gpus[0].display is not None or gpus[0].free_gib is not None:
        return gpus
    if not _NO_GRAPHICS.search(host.model or "") or host.under_windows or _WITHOUT_DESKTOP.search(system):
        return gpus
    if not any(_WITH_OUTPUTS.search(row.name) for row in rows_of(gpus[0], "hardware.gpus[0]")[:1]):
        return gpus
    why = f"it is the only GPU, and the {host.model} has no graphics"
    assumed.append(
        Assumption("hardware.gpus[0].display", "yes", why, "512 MiB of its memory, kept free for the desktop")
    )
    return [msgspec.structs.replace(gpus[0], display=True)]


def _cards(gpu: Gpu, path: str, host: Host, n_cards: int, assumed: list[Assumption]) -> list[Card]:
    rows, reading = rows_of(gpu, path), gpu_meant(gpu.name, gpu.vram_gib)[1]
    row = rows[0] if rows else _described(gpu, path, assumed)
    if reading:
        assumed.append(Assumption(f"{path}.name", row.name, reading, "everything about this card"))
    limit = _limit(gpu, row, path, host, assumed)
    total = limit.most if limit else _total(gpu, row, rows, path, assumed)
    if row.unified and total >= host.ram_bytes:  # such a limit is none: the system keeps its part
        total = host.usable_ram
    free = _free(gpu, row, total, path)
    bandwidth = gpu.bandwidth_gbs or _of_stated_ram(row, host) or row.bandwidth_gbs
    fp16, int8 = _rates(row, bandwidth or _common_bandwidth(), path, assumed)
    links = _links(gpu, row, path, host, n_cards, assumed)
    if bandwidth is None:
        why = "the memory bandwidth of this GPU is unknown: median of the catalogue"
        assumed.append(Assumption(f"{path}.bandwidth_gbs", f"{_common_bandwidth():g}", why, "generation speed"))
    return [
        Card(
            name=row.name,
            backend=row.backend,
            total=total,
            free=free,
            bandwidth_gbs=bandwidth or _common_bandwidth(),
            fp16_tflops=fp16,
            int8_tops=int8,
            tdp_w=row.tdp_w or 0.0,
            compute_capability=row.compute_capability,
            generation=row.generation,
            pcie_gbs=links[i],
            uuid=gpu.uuids[i] if gpu.uuids else None,
            pci_index=gpu.pci_order[i] if gpu.pci_order else None,
            device=gpu.device_order[i] if gpu.device_order else None,
            display=bool(gpu.display) and i == 0,
            nvlink=bool(gpu.nvlink),
            p2p=bool(gpu.p2p),
            unified=row.unified,
            usual_limit=limit.usual if limit else None,
            raised_by=limit.raised_by if limit else "",
            kept_by_system=windows_keeps(total) if host.under_windows and not row.unified else 0,
            bandwidth_known=bandwidth is not None,
            copy_measured=gpu.measured_copy_gbs is not None and not row.unified,
        )
        for i in range(gpu.count)
    ]


def _described(gpu: Gpu, path: str, assumed: list[Assumption]) -> GpuRow:
    name = gpu.name.lower()
    backend = "cuda"
    if any(word in name for word in ("radeon", "amd", "instinct", "gfx")):
        backend = "rocm"
    elif any(word in name for word in ("arc", "intel")):
        backend = "sycl"
    elif "apple" in name:
        backend = "metal"
    why = "this GPU is not in the catalogue"
    assumed.append(Assumption(f"{path}.backend", backend, why, "names of the devices in the command"))
    return GpuRow(name=gpu.name, vram_gib=gpu.vram_gib, generation="unknown", backend=backend, source="stated")


def _total(gpu: Gpu, row: GpuRow, rows: Sequence[GpuRow], path: str, assumed: list[Assumption]) -> int:
    stated = gpu.vram_gib or (None if row.unified else size_in(gpu.name))
    if gpu.vram_gib is None and stated in ram_named(row):
        stated = row.vram_gib
    if stated is not None:
        is_nominal = row.vram_gib is not None and abs(stated - row.vram_gib) < 1e-9
        return _usual_total(gpu, row, path, assumed) if is_nominal else int(stated * GIB)
    if len({r.vram_gib for r in rows}) > 1:
        sizes = " or ".join(dict.fromkeys(f"{r.vram_gib:g}" for r in rows))
        why = f"it is sold with {sizes} GiB, and no size was given"
        assumed.append(Assumption(f"{path}.vram_gib", f"{row.vram_gib:g}", why, "what fits on the GPU"))
    return _usual_total(gpu, row, path, assumed)


def _usual_total(gpu: Gpu, row: GpuRow, path: str, assumed: list[Assumption]) -> int:
    """Return the bytes that a card of this size has by its driver, which on old server cards are fewer with ECC."""
    nominal = int((row.vram_gib or 0) * GIB)
    if row.driver_mib is None:
        return nominal
    total = row.driver_mib * MIB
    if row.generation in _ECC_TAKES_MEMORY and total <= _WITH_ECC * nominal:
        if gpu.free_gib is None:
            why = f"ECC is on as delivered; turned off (`nvidia-smi -e 0`), the card has {row.vram_gib:g}"
            assumed.append(Assumption(f"{path}.free_gib", f"{total / GIB:.4g}", why, "what fits on the GPU"))
        elif gpu.vram_gib is not None or gpu.free_gib * GIB > total:  # as nvidia-smi prints them without ECC
            return nominal
    return total


def _free(gpu: Gpu, row: GpuRow, total: int, path: str) -> int:
    if gpu.free_gib is None:
        return total
    most = max(total / GIB, row.vram_gib or 0) * _ROUNDED
    if gpu.free_gib > most and not row.unified:
        raise InvalidHardware(
            f"{gpu.free_gib:g} GiB free cannot be right: {row.name} has {total / GIB:.1f} GiB", field=f"{path}.free_gib"
        )
    return min(int(gpu.free_gib * GIB), total)


def _limit(gpu: Gpu, row: GpuRow, path: str, host: Host, assumed: list[Assumption]) -> GpuLimit | None:
    """Return how much shared memory a GPU may use; None if it has its own, or if its user states how much."""
    if not row.unified or gpu.vram_gib:
        return None
    limit = gpu_limit(row, host.ram_bytes, host.usable_ram, host.os)
    why = f"the GPU uses the machine's memory: the system allows it {limit.usual / GIB:.1f} GiB"
    if limit.raised_by:
        why += f", and more after `{limit.raised_by}`"
    assumed.append(Assumption(f"{path}.vram_gib", f"{limit.most / GIB:.1f}", why, "what fits on the GPU"))
    return limit


def _rates(row: GpuRow, bandwidth: float, path: str, assumed: list[Assumption]) -> tuple[float, float]:
    fp16 = row.fp16_tflops
    if fp16 is None:
        fp16 = round(bandwidth * _fp16_a_bandwidth(row.backend), 1)
        why = "its throughput is unknown: taken in proportion to its memory bandwidth"
        assumed.append(Assumption(f"{path}.fp16_tflops", f"{fp16:g}", why, "prompt processing"))
    return fp16, row.int8_tops or fp16


def _of_stated_ram(row: GpuRow, host: Host) -> float | None:
    """Return the bandwidth, in GB/s, of the stated RAM if that is what the GPU reads, else None.

    It is what a GPU inside a CPU of AMD or Intel reads. Other GPUs that share memory come with it on their chip.
    """
    shares = row.unified and row.backend not in ("cuda", "metal") and (row.bandwidth_gbs or 0) <= _MOST_DDR_GBS
    return host.stated_peak_gbs if shares else None


def _links(gpu: Gpu, row: GpuRow, path: str, host: Host, n_cards: int, assumed: list[Assumption]) -> list[float]:
    """Return the GB/s from RAM to each card: measured, else of the stated link, else what card and host support."""
    if row.unified:
        return [gpu.bandwidth_gbs or row.bandwidth_gbs or host.bandwidth_gbs] * gpu.count
    if gpu.measured_copy_gbs is not None:
        return [gpu.measured_copy_gbs] * gpu.count
    own = _GENERATION.search(row.pcie or "")
    most = int(own[1]) if own else max(_LANE_GBS), int(m[1]) if (m := _WIDTH.search(row.pcie or "")) else 16
    generation, width = min(most[0], int(host.pcie)), most[1]
    if host.lanes and n_cards > 1 and not _beside_lanes(gpu.pcie):
        width = min(width, max(lanes for lanes in _LANES if lanes == _NARROWEST or lanes * n_cards <= host.lanes))
    if gpu.pcie is not None:
        if (by_word := _BY_WORD.get(gpu.pcie.strip().lower())) is not None:
            generation, width = min(generation, by_word), min(width, _WIDTH_BY_WORD)
            why = f"`{gpu.pcie.strip()}` carries no more, or less"
            assumed.append(
                Assumption(f"{path}.pcie", f"{generation}.0 x{width}", why, "prompt processing with weights in RAM")
            )
            return [_LANE_GBS[generation] * width] * gpu.count
        stated = _stated_links(gpu, gpu.pcie, generation, width, path)
        links = [(min(gen, most[0]), min(lanes, most[1])) for gen, lanes in stated]
        if links != stated:
            value = ", ".join(dict.fromkeys(f"{gen}.0 x{lanes}" for gen, lanes in links))
            why = f"`{gpu.pcie.strip()}` is the slot's: the card has PCIe {row.pcie}"
            assumed.append(Assumption(f"{path}.pcie", value, why, "prompt processing with weights in RAM"))
        return [_LANE_GBS[gen] * lanes for gen, lanes in links]
    cards = f"{n_cards} card{'s' if n_cards > 1 else ''}"
    why = f"not given: what the card and the platform support with {cards}"
    assumed.append(Assumption(f"{path}.pcie", f"{generation}.0 x{width}", why, "prompt processing with weights in RAM"))
    return [_LANE_GBS[generation] * width] * gpu.count


def _beside_lanes(link: str | None) -> bool:
    """Return whether a stated link takes none of the lanes that a desktop's cards share: chipset and M.2 have four."""
    widths = [int(w) for w in _WIDTH.findall(link or "")]
    return (link or "").strip().lower() in _BY_WORD or (bool(widths) and max(widths) <= _WIDTH_BY_WORD)


def _own_link(gpu: Gpu) -> str | None:
    """Return the link of the card's own connector; None if unknown. A GT 710 of one lane is no card for an x8 slot."""
    rows, _ = gpu_meant(gpu.name, gpu.vram_gib)
    return rows[0].pcie if rows else None


def _is_in_cpu(gpu: Gpu) -> bool:
    rows, _ = gpu_meant(gpu.name, gpu.vram_gib)
    return bool(rows) and rows[0].unified


def _stated_links(gpu: Gpu, stated: str, generation: int, width: int, path: str) -> list[tuple[int, int]]:
    """Return generation and lanes of each of these cards as stated; what is not stated as given."""
    widths = [int(w) for w in _WIDTH.findall(stated)]
    found = _GENERATION.search(stated)
    if (not widths and not found) or any(w not in _LANES for w in widths):
        raise InvalidHardware(f"`{stated}` is not a PCIe link: write `4.0 x16`, or `5.0 x8/x8`", field=f"{path}.pcie")
    if found:
        generation = int(found[1] or found[2])
    each = widths if len(widths) == gpu.count else (widths[:1] or [width]) * gpu.count
    return [(generation, w) for w in each]


@cache
def _common_bandwidth() -> float:
    return statistics.median(row.bandwidth_gbs for row in known_gpus() if row.bandwidth_gbs and not row.unified)


@cache
def _fp16_a_bandwidth(backend: str) -> float:
    """Return the median of FP16 TFLOPS per GB/s over the catalogue's cards of one back end."""
    ratios = [
        row.fp16_tflops / row.bandwidth_gbs
        for row in known_gpus()
        if row.backend == backend and row.fp16_tflops and row.bandwidth_gbs
    ]
    return statistics.median(ratios)
