"""Which device owns a layer in llama.cpp: layer counts, by the free memory of each device.

Source: llama.cpp src/llama-model.cpp:1589-1625. The output head is the last of n_layer + 1 slots, so `-ngl 1` offloads
only the head.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.config import Flags
from service.engine.memory.float32 import f32, split_shares
from service.engine.model import Model


def split_layers(model: Model, flags: Flags, free: Sequence[int], *, head_first: bool = True) -> list[int]:
    """Return the device of each block and, last, of the output head; `len(free)` is the CPU.

    `head_first` False: as llama.cpp before pull 18148, and ik_llama.cpp before pull 1476, the head moves last.
    """
    cpu, n_slots = len(free), model.n_layer + 1
    active = min(max(flags.n_gpu_layers, 0), n_slots) if free else 0
    start = n_slots - active if head_first else max(model.n_layer - active, 0)
    if not active:
        return [cpu] * n_slots
    shares = split_shares(flags.tensor_split, free)
    devices = [cpu] * start
    for i in range(n_slots - start):
        position = f32(i / active)
        devices.append(next((d for d, share in enumerate(shares) if share > position), cpu - 1))
    return devices if head_first or active == n_slots else [*devices[:-1], cpu]
