"""macOS: system_profiler SPHardwareDataType SPDisplaysDataType, and sysctl."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.engine.catalogue.names import gpu_rows
from service.engine.hardware import Cpu, Gpu, Ram
from service.engine.hardware_text.found import TO_GB, Claim, Found

_PAIR = re.compile(r"^\s*([A-Z][A-Za-z0-9 ()/-]{1,50}?):(?:\s+(\S.{0,150}))?$")
_OURS = ("Chip", "Processor Name", "Chipset Model", "Model Identifier", "Model Name")
_CORES = re.compile(r"^(\d{1,3})\b")
_SIZE = re.compile(r"^(\d{1,5}(?:\.\d)?) (GB|MB|TB)$")
_SYSCTL = re.compile(r"^\s*(?:machdep\.cpu\.|hw\.|sysctl |\$ sysctl ).{0,200}$")
_CHIP = re.compile(r"^\s*(?:machdep\.cpu\.brand_string: )?(Apple M\d(?: Pro| Max| Ultra)?)\s*$")
_BYTES = re.compile(r"^\s*(?:hw\.memsize: )?(\d{10,13})\s*$")


def read_sysctl(lines: Sequence[str]) -> Claim | None:
    """Return chip and memory from `sysctl machdep.cpu.brand_string hw.memsize`, with the names or without (`-n`)."""
    chips = {i: m[1] for i, line in enumerate(lines) if (m := _CHIP.match(line))}
    sizes = {i: int(m[1]) for i, line in enumerate(lines) if (m := _BYTES.match(line))}
    if len(set(chips.values())) != 1 or len(set(sizes.values())) != 1:
        return None
    chip, size = next(iter(chips.values())), next(iter(sizes.values()))
    found = Found(
        tool="sysctl", gpus=(Gpu(name=chip),), cpu=Cpu(model=chip), ram=Ram(total_gb=size / 2**30), os="macos"
    )
    return Claim(found, frozenset((*chips, *sizes, *(i for i, line in enumerate(lines) if _SYSCTL.match(line)))))


def read_system_profiler(lines: Sequence[str]) -> Claim | None:
    """Return chip, cores and memory of a Mac, and the cards of an Intel one."""
    pairs = {i: (m[1], (m[2] or "").strip()) for i, line in enumerate(lines) if (m := _PAIR.match(line))}
    keys = {key for key, _ in pairs.values()}
    if not ({"Chip", "Chipset Model"} & keys) and not {"Model Identifier", "Memory"} <= keys:
        return None
    ours = [i for i, (key, _) in pairs.items() if key in (*_OURS, "Memory", "Total Number of Cores", "VRAM (Total)")]
    taken = frozenset(i for i in range(min(ours), len(lines)) if i in pairs) | _headings(lines)
    return Claim(_found([pairs[i] for i in sorted(pairs)]), taken)


def _headings(lines: Sequence[str]) -> set[int]:
    titles = ("Hardware:", "Hardware Overview:", "Graphics/Displays:", "Displays:")
    return {i for i, line in enumerate(lines) if line.strip() in titles}


def _found(pairs: Sequence[tuple[str, str]]) -> Found:
    first: dict[str, str] = {}
    for key, value in pairs:
        first.setdefault(key, value)
    chip, processor = first.get("Chip") or first.get("Chipset Model", ""), first.get("Processor Name")
    cores = _CORES.match(first.get("Total Number of Cores", ""))
    size = _SIZE.match(first.get("Memory", ""))
    is_apple = chip.startswith("Apple M")
    gpus = (Gpu(name=_with_cores(chip, pairs)),) if is_apple else _intel_mac_gpus(pairs)
    return Found(
        tool="system_profiler",
        gpus=gpus,
        cpu=Cpu(
            model=chip if is_apple else processor, physical_cores=int(cores[1]) if cores and _has_cpu(first) else None
        ),
        ram=Ram(total_gb=float(size[1]) * TO_GB[size[2]]) if size else None,
        os="macos",
    )


def _with_cores(chip: str, pairs: Sequence[tuple[str, str]]) -> str:
    """Return a chip's GPU, with the number of its cores if it is sold with more."""
    display = next((i for i, (key, _) in enumerate(pairs) if key == "Chipset Model"), len(pairs))
    counts = (v for i, (k, v) in enumerate(pairs) if k == "GPU Cores" or (k == "Total Number of Cores" and i > display))
    cores = _CORES.match(next(counts, ""))
    name = f"{chip} {cores[1]}-core GPU" if cores else chip
    return name if gpu_rows(name) and gpu_rows(name)[0].name == name else chip


def _has_cpu(first: dict[str, str]) -> bool:
    """Return whether a CPU is described: SPDisplaysDataType alone counts only the GPU's cores."""
    return "Chip" in first or "Processor Name" in first


def _intel_mac_gpus(pairs: Sequence[tuple[str, str]]) -> tuple[Gpu, ...]:
    gpus: list[Gpu] = []
    name = ""
    for key, value in pairs:
        if key == "Chipset Model":
            name = value
        elif key.startswith("VRAM (Total") and name and (size := _SIZE.match(value)):
            gpus.append(Gpu(name=name, vram_gib=float(size[1]) * TO_GB[size[2]]))
            name = ""
    return tuple(gpus)
