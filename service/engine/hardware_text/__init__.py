"""Reads a machine from what people paste: JSON, shorthand, output of tools, or any mixture.

Each recogniser reads one format and says which lines it took; what is left at the end is read as shorthand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from service.engine.catalogue.limits import check
from service.engine.decoding import wrong_value
from service.engine.errors import InvalidHardware
from service.engine.hardware import Hardware
from service.engine.hardware_text.cards import beside_laptops_cpu
from service.engine.hardware_text.cim import read_cim
from service.engine.hardware_text.foreign_json import keys_of
from service.engine.hardware_text.found import MAX_CHARS, Found, Recogniser, combine
from service.engine.hardware_text.linux import (
    read_cpuinfo,
    read_dmidecode,
    read_free,
    read_lscpu,
    read_meminfo,
    read_memory_limit,
    read_numactl,
)
from service.engine.hardware_text.llama import (
    read_cuda_init,
    read_list_devices,
    read_metal_init,
    read_vulkan_init,
)
from service.engine.hardware_text.nvidia import read_csv, read_list, read_table
from service.engine.hardware_text.opencl import read_clinfo
from service.engine.hardware_text.questions import ask_about_machines, ask_about_shared_memory, ask_about_version
from service.engine.hardware_text.rocm import read_rocm_smi, read_rocminfo
from service.engine.hardware_text.runtimes import (
    read_comfyui,
    read_device_query,
    read_loading,
    read_ollama,
    read_sycl,
    read_vulkaninfo,
    read_xpu_smi,
)
from service.engine.hardware_text.shorthand import read_shorthand
from service.engine.hardware_text.speccy import read_speccy
from service.engine.hardware_text.ssu import read_ssu
from service.engine.hardware_text.summaries import read_fetch, read_fetch_json, read_inxi, read_lshw, read_lspci
from service.engine.hardware_text.system_profiler import read_sysctl, read_system_profiler
from service.engine.hardware_text.windows_reports import (
    read_dxdiag,
    read_hwinfo,
    read_msinfo,
    read_systeminfo,
    read_task_manager,
)

# In order of trust, for when several describe the same part: the driver's list before an engine's.
_RECOGNISERS: tuple[Recogniser, ...] = (
    read_table,
    read_list,
    read_csv,
    read_rocm_smi,
    read_rocminfo,
    read_list_devices,
    read_cuda_init,
    read_vulkan_init,
    read_metal_init,
    read_sycl,
    read_xpu_smi,
    read_device_query,
    read_ollama,
    read_comfyui,
    read_loading,
    read_system_profiler,
    read_sysctl,
    read_ssu,  # before CIM, whose names it shares
    read_cim,
    read_memory_limit,  # before `free`, which shows the host's memory
    read_free,  # before lscpu, whose lines look alike
    read_lscpu,
    read_cpuinfo,
    read_meminfo,
    read_dmidecode,
    read_numactl,
    read_dxdiag,
    read_msinfo,
    read_systeminfo,
    read_hwinfo,
    read_speccy,
    read_task_manager,
    read_vulkaninfo,
    read_clinfo,
    read_lspci,
    read_lshw,
    read_fetch,
    read_fetch_json,
    read_inxi,
    read_shorthand,
)
_MAX_LINE = 1000
# `Oct 29 13:35:49 morty ollama[43973]: `, as journalctl puts it before each line of a service's log, in any language.
# So do programs: `[2024-11-06 23:40:42.576] `, `[1711291193] `, `2024-10-19 01:10:47,703 - root - INFO - `, and the
# kernel: `[    5.156554] `.
_JOURNAL = re.compile(
    r"^(?:\w{2,5}\.? \d{1,2} \d\d:\d\d:\d\d \S{1,60} [\w.@-]{1,60}\[\d{1,7}\]: "
    r"|[\w-]{2,40}[_-]\d{1,2} +\| |\[1[5-9]\d{8}\] |\[ {0,4}\d{1,7}\.\d{6}\] "
    r"|\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,]\d{1,6}\] "
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - \w{1,40} - [A-Z]{4,8} - )"
)
# The kernel of WSL, and the versions before and after it: `5.15.153.1-microsoft-standard-WSL2`
_WSL_KERNEL = re.compile(r"\b\d+\.\d+\.\d+[\w.]*-microsoft-standard", re.I)
# A prompt of Windows, or a program or library on a drive of it.
_WINDOWS_PATH = re.compile(r"^\s*(?:PS )?[A-Z]:\\[^\n<>|]{0,120}>|\b[A-Z]:\\[^\n:*?\"<>|]{1,200}\.(?:dll|exe)\b", re.M)
_MARKUP = re.compile(r"^> |\s*<br ?/?>$")  # of quoted text and ends of lines
_MOST_LINES = 4_000


_FORM = '`{"gpus": [{"name": "RTX 3090", "count": 2}], "cpu": {"model": …}, "ram": {"total_gb": …}}`'
_OWN = b"gpus"


def read_json(text: str) -> Hardware | None:
    """Return the hardware in a JSON text, None if it is not JSON of ours. Raises InvalidHardware."""
    data = text.strip().encode()
    if not data.startswith(b"{") or _OWN not in data:
        return None
    try:
        hardware = msgspec.json.decode(data, type=Hardware)
    except msgspec.ValidationError as error:
        if not keys_of(text) <= set(Hardware.__struct_fields__):
            return None  # another program's
        reason, path, choices = wrong_value(error, Hardware)
        field = f"hardware.{path}" if path else "hardware"
        raise InvalidHardware(f"{reason}; the form is {_FORM}", field=field, choices=choices) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidHardware(
            f"this begins like JSON but is not: {error}; the form is {_FORM}", field="hardware"
        ) from error
    check(hardware)
    return hardware


def parse_hardware(text: str, *, gpus_required: bool = True) -> Hardware:
    """Return the machine that `text` describes: what it states, with nothing assumed.

    If it mentions no GPU, that is an error when `gpus_required`; otherwise the machine has none. Raises
    InvalidHardware, which quotes what cannot be read and says how to write it; names missing from the catalogue are
    left to `resolve`. Takes at most 64 KiB, in linear time.
    """
    if len(text) > MAX_CHARS:
        raise InvalidHardware(f"{len(text)} characters are too many, at most {MAX_CHARS}", field="hardware")
    if (stated := read_json(text)) is not None:
        return stated
    lines = text.replace("\r", "\n").replace("\u00a0", " ").split("\n")
    stated_first = sorted(beside_laptops_cpu(_read(lines, _RECOGNISERS)), key=lambda f: f.tool != "")
    if _WSL_KERNEL.search(text):
        stated_first.insert(0, Found(tool="kernel", os="wsl2"))
    elif _WINDOWS_PATH.search(text):
        stated_first.append(Found(tool="path", os="windows"))
    hardware = combine(stated_first, gpus_required)
    ask_about_machines(hardware, text)
    ask_about_shared_memory(hardware, text)
    ask_about_version(hardware)
    check(hardware)
    return hardware


def tools_in(lines: Sequence[str]) -> Hardware | None:
    """Return the machine as tools and engines list it amid other output, such as a log; None if no GPU is listed.

    Nothing is read as shorthand, so prose names no hardware. Unreadable parts are left out.
    """
    kept = [line for line in lines if len(line) <= _MAX_LINE][-_MOST_LINES:]
    try:
        hardware = combine(_read(kept, _RECOGNISERS[:-1]), gpus_required=True)
        check(hardware)
    except InvalidHardware:
        return None
    return hardware if hardware.gpus else None


def _read(lines: Sequence[str], recognisers: Sequence[Recogniser]) -> list[Found]:
    lines = [_MARKUP.sub("", _JOURNAL.sub("", line.rstrip()[:_MAX_LINE])) for line in lines]
    found: list[Found] = []
    for recognise in recognisers:
        claim = recognise(lines)
        if claim is not None:
            found.append(claim.found)
            lines = ["" if i in claim.lines else line for i, line in enumerate(lines)]
    return found
