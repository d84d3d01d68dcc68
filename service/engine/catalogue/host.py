"""CPU, RAM and links of a machine: as stated, else from the catalogue, else what its platform usually has.

The bandwidth of the RAM is as measured, else 80 % of channels x MT/s x 8 bytes, but no more than the CPU's dies can
read. Both were fitted with the speed model on 184 published runs, where one-die desktops read 62 GB/s and four-die
Threadrippers 235, whatever their modules could do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from service.engine.catalogue.budget import WSL_SHARE, gpu_limit, usable_ram
from service.engine.catalogue.families import efficiency_cores, family_of
from service.engine.catalogue.names import cpu_row, nearest
from service.engine.catalogue.rows import CpuRow, GpuRow
from service.engine.hardware import Assumption, Cpu, Hardware, Ram, os_family
from service.engine.units import GIB

_OF_PEAK = 0.8
_ROUNDED = 0.01  # no measurement comes so near to the peak
_OF_FABRIC = 1.2  # nor so far beyond what the dies can read, which is fitted
_BYTES_A_CHANNEL = 8
# All-core clock by base clock, both in GHz: the line through the catalogue's CPUs that have both (least squares). The
# lower a base clock, the more of it is reserve: a Xeon 8480 of 2.0 GHz runs all cores at 3.0, a 7950X of 4.5 at 4.9.
ALL_CORE_AT_ZERO, ALL_CORE_PER_BASE = 1.5, 0.72
_MODULE_GB = 16
# RAM that is soldered next to each CPU of that generation: up to 480 GB by NVIDIA's data sheets of GH200, GB200 and
# Grace; few have 120 or 240.
_SOLDERED_GB = {"grace": 480}
# NVIDIA's data sheets of DGX Spark and the Jetson modules; Valve's of the Steam Deck.
_ONLY_SIZE_GB = {
    "NVIDIA GB10": 128, "Jetson AGX Thor": 128, "Jetson AGX Orin 64GB": 64, "Jetson Orin NX 16GB": 16,
    "Jetson Orin NX 8GB": 8, "Jetson Orin Nano 4GB": 4, "Jetson Xavier NX": 8,
    "Jetson AGX Orin 32GB": 32, "Jetson Orin Nano 8GB": 8, "Jetson Orin Nano Super 8GB": 8, "AMD Custom GPU 0405": 16,
}  # fmt: skip
# The processor of a GPU that is part of one (product pages of AMD and NVIDIA: the first and largest with it).
_CPU_OF = {
    "AMD Radeon 8060S": "AMD Ryzen AI Max+ 395",
    "AMD Custom GPU 0405": "AMD Custom APU 0405",
    "Jetson AGX Orin 64GB": "NVIDIA Tegra 12x Cortex-A78AE at 2.2 GHz",
    "Jetson AGX Orin 32GB": "NVIDIA Tegra 8x Cortex-A78AE at 2.2 GHz",
    "Jetson Orin NX 16GB": "NVIDIA Tegra 8x Cortex-A78AE at 2.0 GHz",
    "Jetson Orin NX 8GB": "NVIDIA Tegra 6x Cortex-A78AE at 2.0 GHz",
    "Jetson Orin Nano 4GB": "NVIDIA Tegra 6x Cortex-A78AE at 1.5 GHz",
    "Jetson Orin Nano 8GB": "NVIDIA Tegra 6x Cortex-A78AE at 1.5 GHz",
    "Jetson Orin Nano Super 8GB": "NVIDIA Tegra 6x Cortex-A78AE at 1.7 GHz",
}
_DESKTOP_LANES = 16

# What a platform has when the catalogue does not say: (MT/s, PCIe generation), by CPU generation.
_PLATFORMS = {
    "zen": (2666, 3.0),
    "zen+": (2933, 3.0),
    "zen2": (3200, 4.0),
    "zen3": (3200, 4.0),
    "zen4": (5200, 5.0),
    "zen5": (5600, 5.0),
    "haswell": (2133, 3.0),
    "broadwell": (2400, 3.0),
    "skylake": (2666, 3.0),
    "cascade lake": (2933, 3.0),
    "ice lake": (3200, 4.0),
    "sapphire rapids": (4800, 5.0),
}
_COMMON_PLATFORM = (3200, 4.0)
# MT/s of RAM of a kind that is not the platform's usual one (DDR4 on boards of the 12th to 14th Core generation).
_USUAL_MTS = {"DDR3": 1600, "DDR4": 3200, "DDR5": 5600, "LPDDR4X": 4267, "LPDDR5": 6400, "LPDDR5X": 7500}
_DDR5_FROM, _DDR4_FROM = 4000, 2133  # MT/s
_UNKNOWN_DESKTOP = CpuRow(
    name="", cores=8, sockets=1, all_core_ghz=3.5, isa="avx2", channels=2, generation="unknown", source=""
)
_UNKNOWN_SERVER = msgspec.structs.replace(_UNKNOWN_DESKTOP, cores=16, sockets=2, channels=8)
_SERVER_RAM_GB = 256
_SERVER_NAME = re.compile(r"\b(?:epyc|xeon|opteron|threadripper)\b", re.I)
_SERVER_GPUS = 4  # from here on a desktop's lanes do not suffice
_PCIE3_MTS = 2933  # DDR4 of at most this speed: no server platform with PCIe 4.0 has such a limit

# Cards that are sold only for servers, and the CPU that is assumed with them. Sources: NVIDIA's DGX A100 (EPYC
# 7742, Rome), DGX H100 and H200 (Xeon 8480C, Sapphire Rapids), DGX B200 (Xeon 8570, Emerald Rapids) and GH200
# (Grace); AWS's g5 (A10G: EPYC Rome), g6 and g6e (L4, L40S: EPYC Milan); Azure's ND A100 v4 (EPYC 7V12, Rome), ND
# H100 v5 and ND MI300X v5 (Xeon Sapphire Rapids). The MI250 was sold with EPYC Milan. Some clouds differ: AWS's p5
# pairs its H100 with EPYC Milan. Cards that people also put into desktops are left out: P40, P100, T4, V100, MI50 to
# MI100, RTX PRO 6000.
_USUAL_CPUS = (
    (re.compile(r"NVIDIA A(?:10G?|16|30|40|[18]00)\b"), "EPYC Rome"),
    (re.compile(r"NVIDIA L(?:4|20|40S?)\b"), "EPYC Milan"),
    (re.compile(r"NVIDIA H(?:20|[128]00)\b"), "Xeon Sapphire Rapids"),
    (re.compile(r"NVIDIA B[23]00\b"), "Xeon Emerald Rapids"),
    (re.compile(r"NVIDIA G[BH]200\b"), "NVIDIA Grace"),
    (re.compile(r"Instinct MI2[15]0X?\b"), "EPYC Milan"),
    (re.compile(r"Instinct MI3[025][05]X\b"), "Xeon Sapphire Rapids"),
)


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A machine without its GPUs.

    `lanes` are the PCIe lanes that its GPUs share, None if each has an x16 slot of its own. `stated_peak_gbs` is the
    peak bandwidth of RAM whose speed was stated, None if it was not stated or the channels are unknown. `measured` says
    whether `bandwidth_gbs` was. `under_windows`: Windows manages the cards' memory, as it does for WSL.
    """

    cpu: CpuRow
    model: str | None
    sockets: int
    cores: int
    numa_nodes: int | None
    efficient_cores: int
    ghz: float
    ram_bytes: int
    usable_ram: int
    bandwidth_gbs: float
    measured: bool
    stated_peak_gbs: float | None
    pcie: float
    lanes: int | None
    os: str
    under_windows: bool
    assumed: tuple[Assumption, ...]


def host_of(hardware: Hardware, unified: GpuRow | None, cards: Sequence[str]) -> Host:
    """Return the machine's CPU, RAM and links; a CPU that the catalogue lacks is guessed from its maker's numbering.

    `unified` is the GPU that uses the machine's RAM as its own memory, None if there is none. `cards` are the GPUs'
    names, by which a CPU that was not named is guessed where they are sold for servers only.
    """
    assumed: list[Assumption] = []
    cpu, ram = hardware.cpu or Cpu(), hardware.ram or Ram()
    n_gpus = sum(gpu.count for gpu in hardware.gpus)
    row = _cpu(cpu, ram, cards, n_gpus, unified, assumed)
    sockets = cpu.sockets or 1
    cores = _cores(cpu, row, sockets)
    mts, pcie = _PLATFORMS.get(row.generation, _COMMON_PLATFORM)
    mts, other_mts = row.mts or mts, _mts_of_kind(row, ram, row.mts or mts)
    peak = _stated_peak_gbs(row, ram, sockets, ram.mts or other_mts)
    if ram.measured_bandwidth_gbs and _is_theory(ram.measured_bandwidth_gbs, peak, row, sockets):
        why = f"{ram.measured_bandwidth_gbs:g} GB/s is what such modules reach in theory: taken as not measured"
        ram = msgspec.structs.replace(ram, measured_bandwidth_gbs=None)
        theirs = f"{_bandwidth(row, ram, sockets, mts, unified, []):.0f}"
        assumed.append(Assumption("hardware.ram.measured_bandwidth_gbs", theirs, why, "the speed of everything in RAM"))
    lent = max((gpu.vram_gib or 0 for gpu in hardware.gpus), default=0) if unified else 0
    total = ram.total_gb or _total_gb(row, sockets, unified, lent, assumed)
    if os_family(hardware.os or "") == "wsl" and ram.free_gb is None:
        total *= WSL_SHARE
        why = "WSL gives Linux half of it by default: if .wslconfig says more, paste `free -m` from WSL"
        assumed.append(Assumption("hardware.ram.free_gb", f"{total:g}", why, "which models fit at all"))
    system, model = _os(hardware.os, unified), row.name or cpu.model
    usable = usable_ram(int(total * GIB), hardware.os or system, model, sockets, reported=ram.free_gb is not None)
    if unified is not None and unified.backend == "metal":  # what macOS recommends is there to be used
        usable = max(usable, gpu_limit(unified, int(total * GIB), usable, system).usual)
    return Host(
        cpu=row,
        model=model,
        sockets=sockets,
        cores=cores,
        numa_nodes=cpu.numa_nodes,
        efficient_cores=_efficient(cpu, row, cores, sockets),
        ghz=_ghz(row, assumed),
        ram_bytes=int(total * GIB),
        usable_ram=usable,
        bandwidth_gbs=ram.measured_bandwidth_gbs or _bandwidth(row, ram, sockets, other_mts or mts, unified, assumed),
        measured=ram.measured_bandwidth_gbs is not None,
        stated_peak_gbs=peak,
        pcie=row.pcie or pcie,
        lanes=_DESKTOP_LANES if row.channels == 2 else None,
        os=system,
        under_windows=os_family(hardware.os or "") in ("windows", "wsl"),
        assumed=tuple(assumed),
    )


def _is_theory(gbs: float, peak: float | None, row: CpuRow, sockets: int) -> bool:
    """Return whether a stated bandwidth is the modules' peak, or much more than the CPU's dies can read."""
    is_peak = peak is not None and abs(gbs / peak - 1) <= _ROUNDED
    return is_peak or (row.fabric_gbs is not None and gbs > _OF_FABRIC * row.fabric_gbs * sockets)


def _cpu(
    cpu: Cpu, ram: Ram, cards: Sequence[str], n_gpus: int, unified: GpuRow | None, assumed: list[Assumption]
) -> CpuRow:
    chip = unified.name.removesuffix(" GPU") if unified else ""  # `Apple M4 Max 32-core GPU`
    name = cpu.model or _CPU_OF.get(chip, chip) or None
    if unified is not None and not cpu.model and unified.name in _CPU_OF:
        why = f"not given: the one that has the {unified.name}"
        assumed.append(Assumption("hardware.cpu", str(name), why, "the speed of everything in RAM"))
    row = cpu_row(name) if name else None
    if row is not None:
        return row
    if cpu.model and (family := family_of(cpu.model)) is not None:
        cores = _cores(cpu, family, cpu.sockets or 1)
        memory = f", {family.channels}x DDR at {family.mts} MT/s" if ram.mts is None and ram.type is None else ""
        kind = f"{family.generation}, {cores} {'performance ' if family.performance_cores else ''}cores{memory}"
        if any(c.isdigit() for c in cpu.model):
            why = f"`{cpu.model}` is not in the catalogue: guessed from its name{_near(cpu.model)}"
        else:
            why = f"`{cpu.model}` names no model: taken as its family usually is"
        assumed.append(Assumption("hardware.cpu", kind, why, "the speed of everything in RAM, PCIe generation"))
        return family
    if not cpu.model and unified is None and (usual := _usual_cpu_with(cards)) is not None:
        _say_server(usual, cpu, ram, cards[0], assumed)
        return usual
    is_server = _is_server(cpu, ram, n_gpus)
    row = _UNKNOWN_SERVER if is_server else _UNKNOWN_DESKTOP
    if is_server and ram.mts is not None and ram.mts <= _PCIE3_MTS:
        row = msgspec.structs.replace(row, pcie=3.0)
    cores = cpu.physical_cores or row.cores
    kind = f"{'server' if is_server else 'desktop'} CPU, {cores} core{'' if cores == 1 else 's'}, AVX2"
    why = f"`{cpu.model}` is not in the catalogue{_near(cpu.model)}" if cpu.model else "not given"
    assumed.append(Assumption("hardware.cpu", kind, why, "the speed of everything in RAM, PCIe generation"))
    return row


def _usual_cpu_with(cards: Sequence[str]) -> CpuRow | None:
    """Return the CPU, without a name, of servers with such cards; None if any of them may be in a desktop.

    `cards` are the catalogue's names. Of several kinds, the first decides.
    """
    found = [next((cpu for pattern, cpu in _USUAL_CPUS if pattern.search(name)), None) for name in cards]
    row = family_of(found[0]) if found and None not in found and found[0] else None
    return None if row is None else msgspec.structs.replace(row, name="")


def _say_server(row: CpuRow, cpu: Cpu, ram: Ram, card: str, assumed: list[Assumption]) -> None:
    """Say which CPU is taken for that of a server with such a card.

    Of a rented part of a machine, nobody states the share of the memory channels.
    """
    speed = f" at {row.mts} MT/s" if ram.mts is None and ram.type is None else ""
    kind = f"server CPU, {row.generation}, {cpu.physical_cores or row.cores} cores"
    memory = "" if ram.channels else f", all {row.channels} channels of a socket{speed}"
    why = f"not given: servers with the {card} usually have one; what share of it a rented part gets is unknown"
    assumed.append(Assumption("hardware.cpu", kind + memory, why, "the speed of everything in RAM, PCIe generation"))


def _near(name: str) -> str:
    """Return the nearest names of the catalogue in parentheses, for somebody who misspelt one; "" if none is near."""
    choices = nearest(name, cpu=True, n=2)
    return f" (nearest: {', '.join(choices)})" if choices else ""


def _is_server(cpu: Cpu, ram: Ram, n_gpus: int) -> bool:
    """Return whether it is a server, by its CPU's name or by more sockets, RAM, channels or GPUs than desktops have."""
    if _SERVER_NAME.search(cpu.model or "") or (cpu.sockets or 1) > 1 or n_gpus >= _SERVER_GPUS:
        return True
    return (ram.total_gb or 0) >= _SERVER_RAM_GB or (ram.channels or 0) > 2


def _cores(cpu: Cpu, row: CpuRow, sockets: int) -> int:
    """Return the cores that the engines run threads on; of a hybrid CPU these are its performance cores.

    Both engines do this by default (common/common.cpp: `cpu_get_num_math` leaves out Atom cores; of Apple's it counts
    `hw.perflevel0`).
    """
    stated = cpu.physical_cores or row.cores * sockets
    return min(stated, row.performance_cores * sockets) if row.performance_cores else stated


def _efficient(cpu: Cpu, row: CpuRow, cores: int, sockets: int) -> int:
    """Return the efficiency cores of a hybrid x86 CPU. Those of ARM differ too much from each other (an RK3588 has
    Cortex-A55), and no run with threads on them is published."""
    if row.isa in ("neon", "apple"):
        return 0
    if row.performance_cores is None:
        return 0 if cpu.physical_cores or cpu_row(row.name) else efficiency_cores(row.name)
    return max(row.cores * sockets, cpu.physical_cores or 0) - cores


def _total_gb(row: CpuRow, sockets: int, unified: GpuRow | None, lent: float, assumed: list[Assumption]) -> float:
    """The usual RAM of such a machine in GB, doubled until it is more than what its GPU has of it (`lent`)."""
    only = _ONLY_SIZE_GB.get(unified.name if unified else row.name)
    if only is not None:
        return float(only)
    soldered = _SOLDERED_GB.get(row.generation)
    total = float((soldered or _MODULE_GB * (row.channels or 2)) * sockets)
    why = "not given: usual for this CPU" if soldered else f"not given: one {_MODULE_GB} GB module per channel"
    if total <= lent:
        total, why = total * 2 ** (int(lent // total).bit_length()), f"not given: more than the GPU's {lent:g} GB of it"
    assumed.append(Assumption("hardware.ram.total_gb", f"{total:g}", why, "which models fit at all"))
    return total


def _ghz(row: CpuRow, assumed: list[Assumption]) -> float:
    if row.all_core_ghz:
        return row.all_core_ghz
    if row.base_ghz:
        value = round(ALL_CORE_AT_ZERO + ALL_CORE_PER_BASE * row.base_ghz, 1)
        why = f"usual for a base clock of {row.base_ghz:g} GHz"
    else:
        value, why = 3.5, "the all-core clock of this CPU is unknown"
    assumed.append(Assumption("hardware.cpu.ghz", f"{value:g}", why, "prompt processing on the CPU"))
    return value


def _bandwidth(
    row: CpuRow, ram: Ram, sockets: int, usual_mts: int, unified: GpuRow | None, assumed: list[Assumption]
) -> float:
    if unified is not None and row.channels is None and unified.bandwidth_gbs:
        return unified.bandwidth_gbs * _OF_PEAK
    channels = _channels(row, ram, sockets, assumed)
    mts = ram.mts or usual_mts
    if ram.mts is None:
        why = f"not given: usual for {ram.type or 'this platform'}"
        assumed.append(Assumption("hardware.ram.mts", str(mts), why, "the speed of everything in RAM"))
    peak = channels * mts * _BYTES_A_CHANNEL / 1000
    return min(_OF_PEAK * peak, row.fabric_gbs * sockets if row.fabric_gbs else peak)


def _mts_of_kind(row: CpuRow, ram: Ram, usual: int) -> int | None:
    """Return the usual rate of RAM of the stated kind if the platform usually has another kind, else None."""
    kind = (ram.type or "").upper()
    platforms = row.memory or ("DDR5" if usual >= _DDR5_FROM else "DDR4" if usual >= _DDR4_FROM else "DDR3")
    return None if _same_kind(kind, platforms) else _USUAL_MTS.get(kind)


def _same_kind(kind: str, other: str) -> bool:
    """Return whether two kinds are of one generation, both soldered or both in slots; some rows say only `LPDDR`."""
    return other == "LPDDR" or kind.rstrip("XL") == other.rstrip("XL")


def _stated_peak_gbs(row: CpuRow, ram: Ram, sockets: int, mts: int | None) -> float | None:
    if mts is None or row.channels is None:
        return None
    most = row.channels * sockets
    return min(ram.channels or most, most) * mts * _BYTES_A_CHANNEL / 1000


def _channels(row: CpuRow, ram: Ram, sockets: int, assumed: list[Assumption]) -> int:
    most = (row.channels or 2) * sockets
    matters = "the speed of everything in RAM"
    if ram.channels is None:
        why = "not given: as many as the platform has"
        assumed.append(Assumption("hardware.ram.channels", str(most), why, matters))
        return most
    if ram.channels > most:
        why = f"{ram.channels} are more than the platform has: read as modules, two per channel"
        assumed.append(Assumption("hardware.ram.channels", str(most), why, matters))
        return most
    return ram.channels


def _os(stated: str | None, unified: GpuRow | None) -> str:
    if stated:
        return os_family(stated).replace("wsl", "linux")  # its kernel is one
    return "macos" if unified is not None and unified.backend == "metal" else "linux"
