"""Hardware: GPUs, CPU, RAM and the links between them, as a user states them and as the engine uses them.

`Hardware` is the API's shape (what a user may leave out is None). `Rig` is what the rest of the engine computes with:
every GPU on its own, fastest first, every fact filled in from the catalogue or assumed, with the assumptions listed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from service.engine.units import MIB

_RESERVE, _RESERVE_WITH_DISPLAY = 512 * MIB, 1024 * MIB
NO_GPU_NAMED = "no GPU was named: taken for a machine without"  # in `notes` of a text that names a CPU and no GPU


class Gpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One or more GPUs of one name. `vram_gib` and `free_gib` in GiB a card, `bandwidth_gbs` in GB/s (10^9).

    `measured_copy_gbs`: copies from page-locked RAM to the card, as `advisor hardware --measure` finds them.
    """

    name: str
    count: int = 1
    pcie: str | None = None
    vram_gib: float | None = None
    free_gib: float | None = None
    bandwidth_gbs: float | None = None
    measured_copy_gbs: float | None = None
    nvlink: bool | None = None
    p2p: bool | None = None
    uuids: list[str] | None = None
    pci_order: list[int] | None = None
    display: bool | None = None


class Cpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The processor. `physical_cores` is the sum over all sockets."""

    model: str | None = None
    sockets: int | None = None
    physical_cores: int | None = None


class Ram(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """System memory. `total_gb` counts as memory is sold (2^30 bytes); `channels`: those filled, over all sockets."""

    total_gb: float | None = None
    free_gb: float | None = None
    type: str | None = None
    channels: int | None = None
    mts: int | None = None
    measured_bandwidth_gbs: float | None = None


class Hardware(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine as described by its user. An empty `gpus` list means: no GPU."""

    gpus: list[Gpu]
    cpu: Cpu | None = None
    ram: Ram | None = None
    os: str | None = None
    notes: str | None = None


def os_family(text: str) -> str:
    """Return `macos`, `windows` or `linux` (all others) for the name of a system, with or without its version."""
    lower = text.strip().lower()
    if "mac" in lower or "darwin" in lower:
        return "macos"
    return "windows" if lower.startswith("win") else "linux"


class Assumption(msgspec.Struct, frozen=True):
    """A fact that the user did not state: its path, the value taken, why, and what it changes."""

    field: str
    value: str
    why: str
    matters: str


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU with every fact known. Bytes; GB/s; TFLOPS (fp16 tensor, dense) and TOPS (int8, dense).

    `backend`: cuda | rocm | sycl | metal | vulkan. `pci_index`: its number in `nvidia-smi`, None when unknown.
    `unified`: the card has no memory of its own (Apple, integrated GPUs). `copy_measured`: `pcie_gbs` is measured.
    """

    name: str
    backend: str
    total: int
    free: int
    bandwidth_gbs: float
    fp16_tflops: float
    int8_tops: float
    compute_capability: float | None
    generation: str
    pcie_gbs: float
    uuid: str | None = None
    pci_index: int | None = None
    display: bool = False
    nvlink: bool = False
    p2p: bool = False
    unified: bool = False
    bandwidth_known: bool = True
    copy_measured: bool = False

    @property
    def reserve(self) -> int:
        """Bytes to keep free where nobody says otherwise: 512 MiB, 1,024 on a card that drives a display."""
        return _RESERVE_WITH_DISPLAY if self.display else _RESERVE


class Rig(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with every fact filled in. `cards` fastest first (CUDA's default order). `ram_bytes` in bytes.

    `physical_cores`: of hybrid CPUs the performance cores, which are both engines' default number of threads.
    `cpu_bandwidth_gbs`: read bandwidth of all sockets together. `ghz`: all-core clock. `isa`: avx2 | avx512 | vnni |
    neon | apple. `order_known`: the cards' PCI order came from a paste.
    """

    cards: tuple[Card, ...]
    cpu_model: str | None
    cpu_generation: str
    sockets: int
    physical_cores: int
    ghz: float
    isa: str
    ram_bytes: int
    cpu_bandwidth_gbs: float
    bandwidth_measured: bool
    os: str
    order_known: bool
    assumed: tuple[Assumption, ...] = ()

    def reserves(self, cards: Sequence[int], stated_mib: int | Sequence[int] | None) -> tuple[int, ...]:
        """Return the bytes to keep free on some cards; stated: one number for all, or one a card of the rig."""
        if stated_mib is None:
            return tuple(self.cards[card].reserve for card in cards)
        return tuple((stated_mib if isinstance(stated_mib, int) else stated_mib[card]) * MIB for card in cards)

    @property
    def windows(self) -> bool:
        """Whether the machine runs Windows."""
        return self.os.lower().startswith("win")
