"""Detects this machine's hardware: runs the tools it has, and parses their output like anybody's paste."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from service.engine.hardware import Hardware
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.found import MAX_CHARS

_TIMEOUT_SECONDS = 20
_NVIDIA = (
    "nvidia-smi",
    "--query-gpu=index,name,uuid,memory.total,memory.used,pcie.link.gen.max,pcie.link.width.max,display_active",
    "--format=csv",
)
_ROCM = ("rocm-smi", "--showproductname", "--showmeminfo", "vram", "--csv")
_POWERSHELL = ("powershell", "-NoProfile", "-NonInteractive", "-Command")
_CIM = (
    "Get-CimInstance Win32_VideoController | Select-Object Name, AdapterRAM | Format-List; "
    "Get-CimInstance Win32_Processor | Select-Object Name, NumberOfCores | Format-List; "
    "Get-CimInstance Win32_PhysicalMemory | Select-Object BankLabel, DeviceLocator, Capacity, Speed, "
    "ConfiguredClockSpeed, SMBIOSMemoryType | Format-List"
)
_COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "Linux": (_NVIDIA, _ROCM, ("lscpu",), ("dmidecode", "-t", "17")),
    "Darwin": (("system_profiler", "SPHardwareDataType", "SPDisplaysDataType"),),
    "Windows": (_NVIDIA, (*_POWERSHELL, _CIM)),
}
_FILES = {"Linux": (Path("/proc/meminfo"),)}
# Everybody may read what systemd-udevd recorded of the memory modules at boot (rules.d/70-memory.rules, since systemd
# 248); dmidecode needs root for the same.
_UDEV = Path("/run/udev/data/+dmi:id")
_OF_MODULE = re.compile(
    r"^E:MEMORY_DEVICE_(\d{1,4})_(SIZE|TYPE|SPEED_MTS|CONFIGURED_SPEED_MTS|LOCATOR|BANK_LOCATOR)=([^\n]{1,100})$", re.M
)

_NEEDLESS = (
    "Array Handle", "Error Information", "Total Width", "Data Width", "Form Factor", "Set:", "Type Detail",
    "Manufacturer", "Serial Number", "Asset Tag", "Part Number", "Rank", "Minimum", "Maximum", "Configured Voltage",
    "Memory Technology", "Memory Operating", "Firmware", "Module ", "Memory Subsystem", "Non-Volatile", "Volatile",
    "Cache Size", "Logical", "Flags:", "Vulnerabilit", "PMIC", "RCD",
)  # fmt: skip

Run = Callable[[Sequence[str]], str]


def detect(system: str | None = None, run: Run | None = None, read: Callable[[Path], str] | None = None) -> Hardware:
    """Return this machine as its own tools describe it; what they do not tell is None, and no GPU listed means none.

    `run` returns a command's output (empty when there is no such program), `read` a file's text. Raises InvalidHardware
    if a tool's output cannot be parsed.
    """
    system = system or platform.system()
    outputs = [(run or _run)(command) for command in _COMMANDS.get(system, ())]
    outputs += [(read or _read)(path) for path in _FILES.get(system, ())]
    if system == "Linux" and not any("Memory Device" in output for output in outputs):
        outputs.append(_modules((read or _read)(_UDEV)))
    text = "\n\n".join(_shorter(output) for output in outputs if output.strip())
    hardware = parse_hardware(text[:MAX_CHARS], gpus_required=False)
    names = {"Darwin": "macos", "Windows": "windows"}
    return msgspec.structs.replace(hardware, os=names.get(system, "linux"))


def _modules(properties: str) -> str:
    """Return udev's record of the modules in dmidecode's format, which we can already parse; its sizes are in bytes."""
    modules: dict[str, dict[str, str]] = {}
    for number, name, value in _OF_MODULE.findall(properties):
        modules.setdefault(number, {})[name] = value
    return "\n\n".join(_module(fields) for fields in modules.values() if fields.get("SIZE", "").isdecimal())


def _module(fields: Mapping[str, str]) -> str:
    speeds = {"Speed": "SPEED_MTS", "Configured Memory Speed": "CONFIGURED_SPEED_MTS"}
    words = {"Locator": "LOCATOR", "Bank Locator": "BANK_LOCATOR", "Type": "TYPE"}
    lines = [f"Size: {int(fields['SIZE']) >> 20} MB"]
    lines += [f"{word}: {fields[name]}" for word, name in words.items() if name in fields]
    lines += [f"{word}: {fields[name]} MT/s" for word, name in speeds.items() if name in fields]
    return "Memory Device\n" + "\n".join(f"\t{line}" for line in lines)


def _shorter(output: str) -> str:
    """Drop lines that we do not use: with 48 modules, serial numbers and voltages alone fill 64 KiB."""
    return "\n".join(line for line in output.splitlines() if not line.strip().startswith(_NEEDLESS))


def _run(command: Sequence[str]) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            env=environment,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
