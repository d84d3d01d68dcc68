"""Measures what people do not know of their machine: how fast RAM is read, and how fast it is copied to each GPU.

Both take some seconds and need nothing but the C library and the GPU's own driver. RAM is read by `memchr`, which
looks for a byte that is not there: a plain stream of loads in every C library. Copies are `cuMemcpyHtoD` of the CUDA
driver (CUDA driver API reference, memory management) from page-locked memory, as the engines' own are.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any
from uuid import UUID

import msgspec

from service.engine.hardware import Gpu, Hardware, Ram

_PASSES = 7
_MOST_BYTES, _LEAST_BYTES = 8 << 30, 64 << 20  # far beyond any cache; no more than a tenth of what is free
_COPY_BYTES = 256 << 20
_GIGA = 1e9
_DRIVERS = {"win32": "nvcuda.dll"}


def measure(hardware: Hardware, say: Callable[[str], None] = lambda step: None) -> Hardware:
    """Return `hardware`, this machine's, with its RAM and links measured. `say` is called before each step.

    What cannot be measured here (no CUDA driver, a card that it does not list) stays unchanged.
    """
    ram = hardware.ram or Ram()
    say("reading RAM")
    rate = ram_read_gbs(hardware.cpu.physical_cores if hardware.cpu else None, ram.free_gb)
    measured = msgspec.structs.replace(ram, measured_bandwidth_gbs=round(rate, 1))
    say("copying to each GPU")
    return msgspec.structs.replace(hardware, ram=measured, gpus=_with_copy_rates(hardware.gpus, copy_gbs()))


def ram_read_gbs(n_threads: int | None, free_gb: float | None) -> float:
    """Return the GB/s that `n_threads` (None: one per CPU) read together, each from memory that it touched first."""
    n = min(n_threads or os.cpu_count() or 1, 256)
    total = min(_MOST_BYTES, int((free_gb or 4) * (1 << 30) / 10))
    size = max(total // n, _LEAST_BYTES // n)
    with ThreadPoolExecutor(n) as pool:
        buffers = list(pool.map(_touched, [size] * n))
        rates = [_pass(pool, buffers, size) for _ in range(_PASSES)]
    return median(rates) / _GIGA


def _touched(size: int) -> mmap.mmap:
    buffer = mmap.mmap(-1, size)
    ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(buffer)), 0, size)
    return buffer


def _pass(pool: ThreadPoolExecutor, buffers: list[mmap.mmap], size: int) -> float:
    started = time.perf_counter()
    list(pool.map(_read, buffers, [size] * len(buffers)))
    return size * len(buffers) / (time.perf_counter() - started)


def _read(buffer: mmap.mmap, size: int) -> None:
    library = ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)
    library.memchr(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(buffer))), 1, ctypes.c_size_t(size))


class _Failed(Exception):
    """A call of the driver did not return CUDA_SUCCESS."""


def copy_gbs(library: str | None = None) -> dict[str, float]:
    """Return GB/s from page-locked RAM to each GPU of the CUDA driver, by `GPU-…` UUID; empty without a driver.

    `library`: the driver's file, where it is not the system's.
    """
    try:
        driver = ctypes.CDLL(library or _DRIVERS.get(sys.platform, "libcuda.so.1"))
        _call(driver.cuInit, 0)
        count = ctypes.c_int()
        _call(driver.cuDeviceGetCount, ctypes.byref(count))
    except (OSError, AttributeError, _Failed):
        return {}
    found = {}
    for index in range(count.value):
        try:
            uuid, rate = _copy_to(driver, index)
        except (AttributeError, _Failed):
            continue
        found[uuid] = rate / _GIGA
    return found


def _call(function: Any, *arguments: Any) -> None:
    if function(*arguments) != 0:
        raise _Failed


def _copy_to(driver: Any, index: int) -> tuple[str, float]:
    device, context, uuid = ctypes.c_int(), ctypes.c_void_p(), (ctypes.c_ubyte * 16)()
    _call(driver.cuDeviceGet, ctypes.byref(device), index)
    _call(driver.cuDeviceGetUuid, uuid, device)
    _call(driver.cuDevicePrimaryCtxRetain, ctypes.byref(context), device)
    try:
        _call(driver.cuCtxSetCurrent, context)
        return f"GPU-{UUID(bytes=bytes(uuid))}", _copy_rate(driver)
    finally:
        driver.cuDevicePrimaryCtxRelease_v2(device)


def _copy_rate(driver: Any) -> float:
    """Return bytes per second of the median copy; the first one, which wakes the link up, is not counted."""
    host, target = ctypes.c_void_p(), ctypes.c_uint64()
    _call(driver.cuMemAllocHost_v2, ctypes.byref(host), ctypes.c_size_t(_COPY_BYTES))
    try:
        _call(driver.cuMemAlloc_v2, ctypes.byref(target), ctypes.c_size_t(_COPY_BYTES))
        try:
            return _COPY_BYTES / median([_seconds_of_copy(driver, host, target) for _ in range(_PASSES + 1)][1:])
        finally:
            driver.cuMemFree_v2(target)
    finally:
        driver.cuMemFreeHost(host)


def _seconds_of_copy(driver: Any, host: ctypes.c_void_p, target: ctypes.c_uint64) -> float:
    started = time.perf_counter()
    _call(driver.cuMemcpyHtoD_v2, target, host, ctypes.c_size_t(_COPY_BYTES))
    _call(driver.cuCtxSynchronize)
    return time.perf_counter() - started


def _with_copy_rates(gpus: list[Gpu], rates: dict[str, float]) -> list[Gpu]:
    """Return the GPUs with their rates; cards of one entry get the slowest one's, since a batch waits for it."""
    filled = []
    for gpu in gpus:
        own = [rates[uuid] for uuid in gpu.uuids or [] if uuid in rates]
        if not own and len(gpus) == 1 and len(rates) == gpu.count:
            own = list(rates.values())
        filled.append(msgspec.structs.replace(gpu, measured_copy_gbs=round(min(own), 1)) if own else gpu)
    return filled
