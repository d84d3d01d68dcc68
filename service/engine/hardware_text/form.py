"""Writes a machine in one form: as shorthand that parses back, and the canonical form that is hashed."""

from __future__ import annotations

import hashlib
import re

import msgspec

from service.engine.catalogue.names import cpu_row, gpu_meant, gpu_rows, size_in
from service.engine.hardware import Cpu, Gpu, Hardware, Ram, os_family
from service.engine.hardware_text.details import write_details


def to_shorthand(hardware: Hardware) -> str:
    """Return a line that `parse_hardware` reads back to the same canonical form, except for the notes."""
    if (mac := _mac(hardware)) is not None:
        return mac
    gpus = " + ".join(_gpu(gpu) for gpu in hardware.gpus) or "no GPU"
    cpu = _cpu(hardware.cpu) if hardware.cpu is not None else ""
    ram = _ram(hardware.ram) if hardware.ram is not None else ""
    backend = f"{hardware.backend} backend" if hardware.backend else ""
    return ", ".join(piece for piece in (gpus, cpu, ram, _os(hardware.os), backend) if piece)


def _mac(hardware: Hardware) -> str | None:
    """Return `Apple M3 Ultra 512GB` if that describes the whole machine, else None."""
    if len(hardware.gpus) != 1 or hardware.ram is None or hardware.ram.total_gb is None:
        return None
    name, total = hardware.gpus[0].name, hardware.ram.total_gb
    says = Hardware(gpus=[Gpu(name=name)], cpu=Cpu(model=name), ram=Ram(total_gb=total), os="macos")
    is_chip = re.fullmatch(r"Apple M[1-9](?: Pro| Max| Ultra)?", name) is not None
    return f"{name} {total:.9g}GB" if is_chip and canonical(hardware) == canonical(says) else None


def canonical(hardware: Hardware) -> Hardware:
    """Return the machine in canonical form: catalogue names, identical GPUs merged and sorted, no empty parts."""
    joined: dict[Gpu, Gpu] = {}
    for gpu in map(_canonical_gpu, hardware.gpus):
        alike = msgspec.structs.replace(gpu, count=1, uuids=None, pci_order=None, device_order=None)
        joined[alike] = _join(joined[alike], gpu) if alike in joined else gpu
    cpu = _canonical_cpu(hardware.cpu) if hardware.cpu is not None else None
    ram = _canonical_ram(hardware.ram) if hardware.ram is not None else None
    return Hardware(
        gpus=sorted(map(_in_order, joined.values()), key=msgspec.json.encode),
        cpu=None if cpu == Cpu() else cpu,
        ram=None if ram == Ram() else ram,
        os=_os(hardware.os) or None,
        notes=" ".join((hardware.notes or "").split()) or None,
        backend=hardware.backend,
    )


def hardware_hash(hardware: Hardware) -> str:
    """Return the SHA-256 (hex) of the canonical form's JSON without the notes."""
    machine = msgspec.structs.replace(canonical(hardware), notes=None)
    form = msgspec.to_builtins(machine)
    later = [(form, "backend"), *((gpu, "device_order") for gpu in form["gpus"])]
    if cpu := form["cpu"]:
        cpu["numa_nodes"] = None if cpu["numa_nodes"] == (cpu["sockets"] or 1) else cpu["numa_nodes"]  # one a socket
        later.append((cpu, "numa_nodes"))
    for part, field in later:
        if part[field] is None:  # hashes stored before the field existed must stay the same
            del part[field]
    return hashlib.sha256(msgspec.json.encode(form, order="sorted")).hexdigest()


def rig_key(hardware: Hardware) -> str:
    """Return the SHA-256 (hex) of what identifies a rig, leaving out what changes from day to day."""
    machine = canonical(hardware)
    gpus = [
        msgspec.structs.replace(gpu, free_gib=None, uuids=None, pci_order=None, device_order=None, display=None)
        for gpu in machine.gpus
    ]
    ram = machine.ram and msgspec.structs.replace(machine.ram, free_gb=None, measured_bandwidth_gbs=None)
    cpu = machine.cpu and msgspec.structs.replace(machine.cpu, numa_nodes=None)  # a setting of the firmware
    lasting = msgspec.structs.replace(machine, gpus=gpus, cpu=cpu, ram=ram, os=None, notes=None)
    return hardware_hash(lasting)


def _gpu(gpu: Gpu) -> str:
    count = f"{gpu.count}x " if gpu.count != 1 else ""
    if _plain(gpu.name):
        return f"{count}{gpu_rows(gpu.name, gpu.vram_gib)[0].name}{write_details(gpu)}"
    quoted = '"' + gpu.name.replace('"', "'") + '"'
    return f"{count}gpu {quoted}{write_details(gpu)}"[:2000]


def _plain(name: str) -> bool:
    """Return whether shorthand reads a name back without quotes: one from the catalogue, without sizes and brackets."""
    rows, reading = gpu_meant(name)
    return (
        bool(rows)
        and not reading
        and len({row.name for row in rows}) == 1
        and not re.search(r"\d\s?GB|Apple|80[56]0S|[()+,;\[\]]", rows[0].name)
    )


def _cpu(cpu: Cpu) -> str:
    row = cpu_row(cpu.model) if cpu.model else None
    name = row.name if row else (cpu.model or "").replace('"', "'").strip()
    facts = [f"{cpu.sockets} socket{'s' if cpu.sockets > 1 else ''}"] if cpu.sockets else []
    facts += [f"{cpu.physical_cores} cores"] if cpu.physical_cores else []
    each = "" if cpu.sockets else " per socket"  # two nodes are else read as two sockets
    nodes = cpu.numa_nodes
    facts += [f"{nodes} NUMA node{'s' if nodes > 1 else ''}{each}"] if nodes else []
    if row is not None and not facts and not gpu_rows(name) and not re.search(r"[(),;]", name):
        return name
    return " ".join([f'cpu "{name}"' if name else "cpu", *facts]) if name or facts else ""


def _ram(ram: Ram) -> str:
    parts = [f"{ram.total_gb:.9g}GB"] if ram.total_gb is not None else []
    parts += [f"{ram.free_gb:.9g}GB free"] if ram.free_gb is not None else []
    kind = (ram.type or "").upper()
    parts += [kind] if kind else []
    parts += [f"{ram.mts} MT/s"] if ram.mts is not None else []
    parts += [f"{ram.channels} channels"] if ram.channels is not None else []
    parts += [f"{ram.measured_bandwidth_gbs:.9g} GB/s"] if ram.measured_bandwidth_gbs is not None else []
    return " ".join(["ram", *parts]) if parts else ""


def _os(name: str | None) -> str:
    return os_family(name) if name and name.strip() else ""


def _canonical_gpu(gpu: Gpu) -> Gpu:
    rows, reading = gpu_meant(gpu.name, gpu.vram_gib)
    same = len({row.name for row in rows}) == 1 and not reading  # the answer quotes a remark
    size = size_in(gpu.name) if same and len({row.vram_gib for row in rows}) > 1 else None
    return msgspec.structs.replace(
        gpu,
        name=rows[0].name if same else re.sub(r"\s+", " ", gpu.name.replace('"', "'")).strip(),
        pcie=re.sub(r"[\s;\[\]]+", " ", gpu.pcie).strip().lower() or None if gpu.pcie else None,
        vram_gib=_rounded(size if gpu.vram_gib is None else gpu.vram_gib),
        free_gib=_rounded(gpu.free_gib),
        bandwidth_gbs=_rounded(gpu.bandwidth_gbs),
        measured_copy_gbs=_rounded(gpu.measured_copy_gbs),
        uuids=gpu.uuids or None,
        pci_order=gpu.pci_order or None,
        device_order=gpu.device_order or None,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _join(a: Gpu, b: Gpu) -> Gpu:
    uuids = [*a.uuids, *b.uuids] if a.uuids and b.uuids else None
    order = [*a.pci_order, *b.pci_order] if a.pci_order and b.pci_order else None
    devices = [*a.device_order, *b.device_order] if a.device_order and b.device_order else None
    return msgspec.structs.replace(a, count=a.count + b.count, uuids=uuids, pci_order=order, device_order=devices)


def _in_order(gpu: Gpu) -> Gpu:
    """Sort an entry's cards by number, else by UUID: the order in which they were named has no meaning.

    Lists of unequal length belong to no cards, and are refused once the machine is checked.
    """
    gpu = msgspec.structs.replace(gpu, device_order=sorted(gpu.device_order) if gpu.device_order else None)
    if gpu.uuids and gpu.pci_order and len(gpu.uuids) == len(gpu.pci_order):
        pairs = sorted(zip(gpu.pci_order, gpu.uuids, strict=True))
        return msgspec.structs.replace(gpu, pci_order=[n for n, _ in pairs], uuids=[uuid for _, uuid in pairs])
    uuids = sorted(gpu.uuids) if gpu.uuids else None
    return msgspec.structs.replace(gpu, uuids=uuids, pci_order=sorted(gpu.pci_order) if gpu.pci_order else None)


def _canonical_cpu(cpu: Cpu) -> Cpu:
    row = cpu_row(cpu.model) if cpu.model else None
    model = row.name if row else re.sub(r"\s+", " ", (cpu.model or "").replace('"', "'")).strip() or None
    return msgspec.structs.replace(cpu, model=model)


def _canonical_ram(ram: Ram) -> Ram:
    kind = re.sub(r"\s+", "", ram.type or "").upper() or None
    return msgspec.structs.replace(ram, type=kind)
