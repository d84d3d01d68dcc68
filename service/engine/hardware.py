"""Hardware: GPUs, CPU, RAM and the links between them, as a user states them and as the engine uses them.

`Hardware` is the API's shape (what a user may leave out is None). `Rig` is what the rest of the engine computes with:
every GPU on its own, fastest first, every fact filled in from the catalogue or assumed, with the assumptions listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import msgspec

from service.engine.calibration import Calibration, shipped
from service.engine.units import MIB

_RESERVE, _RESERVE_WITH_DISPLAY = 512 * MIB, 1024 * MIB
# In `notes` of a text that names a CPU and no GPU; the second behind the name of that CPU's own GPU.
NO_GPU_NAMED = "no GPU was named"
OWN_GPU_USED = "of the processor: used, as no other GPU was named"


Backend: TypeAlias = Literal["cuda", "rocm", "sycl", "metal", "vulkan"]


class Gpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One or more GPUs of one name. `vram_gib` and `free_gib` in GiB a card, `bandwidth_gbs` in GB/s (10^9).

    `pci_order`: numbers in nvidia-smi; `device_order`: those in the engine's own list (CUDA0, CUDA1, ...), one a card.
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
    device_order: list[int] | None = None
    display: bool | None = None


class Cpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The processor. `physical_cores` and `numa_nodes` (those with cores) are the sums over all sockets."""

    model: str | None = None
    sockets: int | None = None
    physical_cores: int | None = None
    numa_nodes: int | None = None


class Ram(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """System memory. `total_gb` counts as memory is sold (2^30 bytes); `channels`: those filled, over all sockets."""

    total_gb: float | None = None
    free_gb: float | None = None
    type: str | None = None
    channels: int | None = None
    mts: int | None = None
    measured_bandwidth_gbs: float | None = None


class Hardware(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine as described by its user. An empty `gpus` list means: no GPU.

    `backend`: that of the engine's build, which drives the GPUs; None: that of their maker, or Vulkan where
    Intel's take less time with it; for AMD's that share the RAM Vulkan, or ROCm where that takes less time.
    """

    gpus: list[Gpu]
    cpu: Cpu | None = None
    ram: Ram | None = None
    os: str | None = None
    notes: str | None = None
    backend: Backend | None = None


def os_family(text: str) -> str:
    """Return `macos`, `wsl`, `windows` or `linux` (all others) for a system's name, with or without its version."""
    lower = text.strip().lower()
    if "wsl" in lower:
        return "wsl"
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
    `device`: its number in the engine's list, None when it was not given.
    `unified`: the card has no memory of its own (Apple, integrated GPUs). `usual_limit`: the bytes of the shared memory
    that the system lets the card have, None where the user states them; `total` is what it has after `raised_by`, if
    that says something. `kept_by_system`: bytes of `total` that no program gets. `copy_measured`: `pcie_gbs` is
    measured. `tdp_w`: the power that it may take in watts, 0 where it is not known.
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
    device: int | None = None
    display: bool = False
    nvlink: bool = False
    p2p: bool = False
    unified: bool = False
    usual_limit: int | None = None
    raised_by: str = ""
    kept_by_system: int = 0
    bandwidth_known: bool = True
    copy_measured: bool = False
    tdp_w: float = 0.0

    @property
    def one_pool(self) -> bool:
        """Whether card and CPU share all of the memory: not where an AMD or Intel user states a part as VRAM."""
        return self.unified and (self.usual_limit is not None or self.backend in ("metal", "cuda"))

    @property
    def reserve(self) -> int:
        """Bytes to keep free where nobody says otherwise: 512 MiB, 1,024 on a card that drives a display, or what of
        `kept_by_system` counts as free.
        """
        kept = self.kept_by_system - (self.total - self.free)
        return max(_RESERVE_WITH_DISPLAY if self.display else _RESERVE, kept)


def dropped_by_cuda(cards: Iterable[Card]) -> str:
    """Return which of some cards CUDA no longer supports, in a clause; empty for none (CUDA 12.0's release notes)."""
    names = dict.fromkeys(card.name for card in cards if card.generation == "kepler")
    return f"CUDA 12 does not support the {' and '.join(names)}" if names else ""


class Rig(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with every fact filled in. `cards` in the order of the engine's list, where it
    was given, else fastest first (CUDA's default order). `ram_bytes` in bytes.

    `usable_ram`: bytes of it that a model may take (catalogue/budget.py).
    `physical_cores`: of hybrid CPUs the performance cores, which are both engines' default number of threads.
    `efficient_cores`: the others of an x86 CPU, on which only a command with more threads runs.
    `cpu_bandwidth_gbs`: read bandwidth of all sockets together. `ghz`: all-core clock. `isa`: sse | avx | avx2 |
    avx512 | vnni | neon | apple. `order_known`: the cards' PCI order came from a paste.
    `fitted`: the calibration by which speeds are predicted; None: the one that comes with the engine.
    `numa_nodes`: those with cores, None where nobody said: then one a socket.
    `unused`: the machine's cards, where the engine that this is for can use none of them, so that `cards` is empty.
    `build_named`: a command that names no device is read for the same machine with another back end: name them.
    `projectors`: the bytes that a projector takes of the first card used (or of RAM, without one), by engine.
    """

    cards: tuple[Card, ...]
    cpu_model: str | None
    cpu_generation: str
    sockets: int
    physical_cores: int
    ghz: float
    isa: str
    ram_bytes: int
    usable_ram: int
    cpu_bandwidth_gbs: float
    bandwidth_measured: bool
    os: str
    order_known: bool
    assumed: tuple[Assumption, ...] = ()
    fitted: Calibration | None = None
    unused: tuple[Card, ...] = ()
    projectors: tuple[tuple[str, int], ...] = ()
    efficient_cores: int = 0
    numa_nodes: int | None = None
    build_named: bool = False

    @property
    def nodes_a_socket(self) -> int:
        """NUMA nodes of a socket, of which the first ones are the first socket's; 0: all sockets together are one."""
        nodes = self.numa_nodes or self.sockets
        if nodes == 1 < self.sockets:
            return 0
        return nodes // self.sockets if nodes % self.sockets == 0 else 1

    def reserves(self, cards: Sequence[int], stated_mib: int | Sequence[int] | None) -> tuple[int, ...]:
        """Return the bytes to keep free on some cards; stated: one number for all, or one a card of the rig."""
        if stated_mib is None:
            return tuple(self.cards[card].reserve for card in cards)
        return tuple((stated_mib if isinstance(stated_mib, int) else stated_mib[card]) * MIB for card in cards)

    @property
    def one_pool(self) -> bool:
        """Whether all cards may have all of the RAM, so that nothing is gained by moving weights to it."""
        return bool(self.cards) and all(card.one_pool for card in self.cards)

    @property
    def devices_known(self) -> bool:
        """Whether the order of the engine's devices was given, by number or by its own list."""
        return bool(self.cards) and all(card.device is not None for card in self.cards)

    @property
    def calibration(self) -> Calibration:
        """How fast such parts are in practice."""
        return self.fitted or shipped()

    @property
    def windows(self) -> bool:
        """Whether the machine runs Windows."""
        return self.os.lower().startswith("win")
