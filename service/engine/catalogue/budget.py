"""What a machine can really give to a model: the RAM that nothing else takes, and a GPU's part of shared memory."""

from __future__ import annotations

import re
from typing import NamedTuple

from service.engine.catalogue.rows import GpuRow
from service.engine.hardware import os_family
from service.engine.units import GIB, MIB

_SHOWN = 0.975  # of the installed RAM: a Linux machine with 64 GiB shows 62.7 in `free`
_SERVER_CPU = re.compile(r"epyc|xeon|threadripper|altra|grace", re.I)
_BOARD_CPU = re.compile(r"raspberry|rockchip", re.I)  # its system without a desktop takes less than 1 GiB
# Of a Jetson's RAM a third, and no more than a desktop's: of an Orin Nano of 8 GB 5.2 GiB are left for models
# (ericxliu.me/posts/benchmarking-llms-on-jetson-orin-nano), of an AGX Orin of 64 GB 51.6 with a desktop (ollama issue
# 3406).
_JETSON_CPU, _JETSON_KEEPS = re.compile(r"tegra", re.I), 1 / 3
WSL_SHARE = 0.5  # of the RAM, where .wslconfig says nothing else (learn.microsoft.com/windows/wsl/wsl-config)
_WSL_KEEPS = 2  # GiB: nothing but the engine runs there
_DESKTOP_KEEPS, _WINDOWS_KEEPS, _SERVER_KEEPS, _BOARD_KEEPS = 8, 10, 4, 2
# macOS: gpt-oss-20b of 12.2 GB runs in 16 GB, of which 13 are in use then (mlx-lm issue 644, llama.vscode issue 105), a
# file of 106 GB in 128 GB (dotkam.com 2668).
_MAC_KEEPS, _MAC_LEAST, _LARGE_MAC_KEEPS = 0.22, 3, 0.04  # of the RAM, GiB at least, and of the RAM as from 200 GiB
_SMALL_GIVES = 0.6  # of the RAM at least: people run 4.5 GB on laptops of 8 GB

# Share of system memory that the GPU of a machine without VRAM may use. Metal's recommendedMaxWorkingSetSize is 2/3 up
# to 32 GiB and 3/4 above (llama.cpp logs: 10,922 MiB of 16 GiB, 49,152 MiB of 64 GiB); Linux gives AMD's integrated
# GPUs half (amdgpu's GTT default); CUDA sees all of it, and the system needs some: a DGX Spark of 128 GiB that is
# filled beyond 118 stalls before it reports that memory is short.
_METAL_SMALL, _METAL_LARGE, _METAL_LIMIT_GIB = 2 / 3, 3 / 4, 32
_SHARED = {"rocm": 0.5, "sycl": 0.5, "vulkan": 0.5, "cuda": 0.92}
_WORTH_RAISING = 1.05  # times the usual limit
_VGM_SHARE = 0.75  # AMD's driver for Windows gives a GPU that shares memory 96 of 128 GB at most
_PAGES_A_GIB = 262_144


# What Windows keeps of a card's own memory, with a desktop on it or not. Vulkan's budget on a 3080 Ti is its 12 GiB
# less 768 MiB (HilbertRaum pull 373). CUDA sees 22,994 MiB free on an RTX 4090, 23,306 on each of four 3090s
# (gpustack/llama-box issue 15), 15,225 on a 4060 Ti (ollama issue 11292), 11,053 on a 4070 SUPER (llama-cpp-python
# issue 1943), 11,013 on a 5070 (antirez/llama.cpp-deepseek-v4-flash issue 11), 10,121 on a 2080 Ti (ollama pull 10569):
# the total less this and the CUDA context, which is counted by itself.
_WINDOWS_PART, _WINDOWS_LEAST = 0.052, 768 * MIB


class GpuLimit(NamedTuple):
    """How many bytes a GPU may use of the memory that it shares with the CPU.

    `usual` is the limit as systems come; `most` is the limit after the setting `raised_by`, which is "" if nothing
    raises it.
    """

    usual: int
    most: int
    raised_by: str = ""


def usable_ram(ram_bytes: int, os: str, cpu: str | None, sockets: int, *, reported: bool) -> int:
    """Return the bytes of RAM that a model may take: what the system shows, less what else runs.

    Firmware and kernel keep some 2.5 %, except where the system `reported` the size itself; WSL and macOS show
    `ram_bytes` whole. What else runs takes 4 GiB on a server, 2 in WSL or on a small board, a third of a Jetson's RAM
    but at most 8, 10 with Windows, 3 to 8 on a Mac of up to 200 GiB, and 8 on any other machine. It never takes more
    than two fifths.
    """
    whole, keeps = ram_bytes if reported else int(ram_bytes * _SHOWN), float(_DESKTOP_KEEPS)
    if os_family(os) == "wsl":
        whole, keeps = ram_bytes, _WSL_KEEPS
    elif os_family(os) == "macos":
        small, large = (share * ram_bytes / GIB for share in (_MAC_KEEPS, _LARGE_MAC_KEEPS))
        whole, keeps = ram_bytes, min(max(small, _MAC_LEAST), max(large, _DESKTOP_KEEPS))
    elif os_family(os) == "windows":
        keeps = _WINDOWS_KEEPS
    elif sockets > 1 or _SERVER_CPU.search(cpu or ""):
        keeps = _SERVER_KEEPS
    elif _BOARD_CPU.search(cpu or ""):
        keeps = _BOARD_KEEPS
    elif _JETSON_CPU.search(cpu or ""):
        keeps = min(_JETSON_KEEPS * ram_bytes / GIB, keeps)
    return max(int(whole - keeps * GIB), int(ram_bytes * _SMALL_GIVES))


def windows_keeps(total: int) -> int:
    """Return the bytes of a card's own memory, of `total`, that Windows does not let a program have."""
    return min(max(int(_WINDOWS_PART * total), _WINDOWS_LEAST), total // 5)


def gpu_limit(row: GpuRow, ram_bytes: int, usable: int, os: str) -> GpuLimit:
    """Return what a GPU without memory of its own may use, and the setting that raises this limit, if there is one.

    On Linux that is `ttm.pages_limit`, in pages of 4 KiB, and nothing else is needed (measured on a Strix Halo of 128
    GB, noamsto/nix-amd-ai issue 42). On macOS it is `iogpu.wired_limit_mb`, which holds until the next start.
    """
    share = _SHARED.get(row.backend)
    if share is None:
        share = _METAL_SMALL if ram_bytes <= _METAL_LIMIT_GIB * GIB else _METAL_LARGE
    usual = int(ram_bytes * share)
    raised = usable if row.backend in ("metal", "rocm", "vulkan") else usual
    if os_family(os) == "windows":
        raised = min(raised, int(ram_bytes * _VGM_SHARE)) if row.backend != "metal" else usual
    step = GIB // 2 if row.backend == "metal" else GIB
    raised = raised // step * step
    if raised < usual * _WORTH_RAISING:
        return GpuLimit(usual, usual)
    return GpuLimit(usual, raised, _line(row.backend, raised, os))


def _line(backend: str, n_bytes: int, os: str) -> str:
    gib = n_bytes // GIB
    if backend == "metal":
        return f"sudo sysctl iogpu.wired_limit_mb={n_bytes // MIB}"
    if os_family(os) == "windows":
        return f"AMD Software, Variable Graphics Memory, {gib} GB"
    return f"kernel parameter ttm.pages_limit={gib * _PAGES_A_GIB}, restart"
