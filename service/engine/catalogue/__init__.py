"""The catalogue of GPUs and CPUs, and how a described machine gets the facts that its description leaves out.

`resolve` is the way in. Where nothing states the order of the cards, they are in the order in which CUDA lists them by
default, fastest first. CUDA does not publish how it ranks them; here it is by FP16 throughput, then by compute
capability, bandwidth and PCI order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from service.engine.calibration import Calibration
from service.engine.catalogue.cards import cards_of, rows_of, with_sold_gpus
from service.engine.catalogue.host import Host, host_of
from service.engine.catalogue.limits import check
from service.engine.config import Device, Engine
from service.engine.engines import engine_spec
from service.engine.errors import InvalidHardware
from service.engine.hardware import (
    NO_GPU_NAMED,
    OWN_GPU_USED,
    Assumption,
    Backend,
    Card,
    Hardware,
    Rig,
    dropped_by_cuda,
    os_family,
)
from service.engine.units import GIB

_MATTERS = (
    "gpus", "ram.total_gb", "cpu", "backend", "vram_gib", "ram.channels", "ram.mts", "bandwidth_gbs", "pcie", "cpu.ghz",
)  # fmt: skip
_SHOWN = 200  # characters of the notes in an answer
# What a note of the reader says of how it read the text, and any other: why, and what it matters to.
_READING = re.compile(r"\btaken (?:for|as)\b|\bcounted\b")
_READ_SO = ("how the text was read", "everything, if that is not what you meant; if so, write it out")
_KEPT = ("kept as a note, used for no figure", "nothing, unless it contradicts an assumption")
_DEVICE = {"cuda": "CUDA{}", "rocm": "ROCm{}", "sycl": "SYCL{}", "vulkan": "Vulkan{}"}
_ROCM_KNOWS = ("rdna3.5",)  # of AMD's GPUs that share the RAM: gfx1150 and gfx1151 (ROCm 7.2, system requirements)
# AMD's cards that run with ROCm only where it was built for them (gfx1010 to gfx1012, gfx900), by generation, and how
# that is called: AMD's system requirements for ROCm 7.2 have none of them, its rocBLAS since 6.4.0 comes without their
# files (ROCm/legacy-rocm-build issue 4625), and llama.cpp wrote nonsense on one (issue 11575). RDNA 2 runs, if need be
# as gfx1030 (commands/building.py); gfx906 is common with older or patched ROCm.
_BEYOND_ROCM = {"rdna1": "RDNA 1", "vega": "the first Vega (gfx900)"}
_VENDOR = {"cuda": "NVIDIA", "rocm": "AMD", "sycl": "Intel", "metal": "Apple"}
_OWN_BUILD = {"NVIDIA": "CUDA", "AMD": "ROCm", "Intel": "SYCL"}
_MUCH_SMALLER = 1 / 3  # of the largest card's memory: smaller cards that need another back end are not worth it


def resolve(hardware: Hardware, fitted: Calibration | None = None) -> Rig:
    """Return the machine with every fact known.

    A fact is what the user stated, else what the catalogue says, else an assumption, which is listed in `assumed`.
    Cards of several makers are taken to run a Vulkan build. `fitted` is the calibration that the rig carries. Raises
    UnknownHardware (with the nearest names in `choices`) for a name that the catalogue lacks, and InvalidHardware for a
    value that no machine has; both carry the path of the field.
    """
    return rigs_of(hardware, fitted)[-1]


def rigs_of(hardware: Hardware, fitted: Calibration | None = None) -> tuple[Rig, ...]:
    """Return the machine as each build of an engine would see it: one rig if all cards are NVIDIA's or Apple's.

    With cards of several makers, there is one rig for each maker's cards, and last one with all cards under Vulkan. So
    it is where a maker's own back end supports only some of the cards, and Vulkan drives the others. If the cards are
    AMD GPUs that share the RAM, there is one with ROCm, unless ROCm does not support them, and last one with Vulkan.
    AMD's cards have both under Windows, whose drivers bring Vulkan, but not the libraries that a ROCm build needs.
    Intel's cards have one with Vulkan, in which Alchemist runs mixtures of experts several times as fast (llama.cpp
    issue 19918), and last one with SYCL. With an ARM processor, Vulkan drives the cards of both makers. A card that is
    best left to the display is in none.
    Raises as `resolve` does.
    """
    host, found, assumed = _found(hardware)
    cards = found
    if hardware.backend is not None:
        cards = tuple(_driven(card, hardware.backend) for card in cards)
    elif host.cpu.isa == "neon":  # there is no ROCm and no oneAPI for ARM (both makers' system requirements)
        cards = tuple(replace(card, backend="vulkan") if card.backend in ("rocm", "sycl") else card for card in cards)
    else:
        cards = tuple(replace(card, backend="vulkan") if card.generation in _BEYOND_ROCM else card for card in cards)
    left = _left_to_display(hardware, cards)
    cards, found = (tuple(card for i, card in enumerate(some) if i not in left) for some in (cards, found))
    notes = (*assumed, *left.values(), *_noted(hardware))
    makes: dict[str, list[Card]] = {}
    for card in cards:
        makes.setdefault(card.backend, []).append(card)
    with_vulkan = [replace(card, backend="vulkan") for card in cards]
    if len(makes) > 1:
        together = _only_with_vulkan(found, makes.get("vulkan", ()))
        return _named(_rig(host, some, (*notes, together), fitted) for some in (*makes.values(), with_vulkan))
    own = cards if host.cpu.isa == "neon" else found
    ways: list[Sequence[Card]] = [cards]
    if hardware.backend is None and makes.keys() == {"sycl"}:
        ways = [with_vulkan, cards]
    if hardware.backend is None and cards and all(map(_shares_with_amd, cards)):
        ways = [*(ways if all(card.generation in _ROCM_KNOWS for card in cards) else []), with_vulkan]
    elif _lacks_rocm(hardware) and makes.keys() == {"rocm"}:
        ways = [*ways, with_vulkan]
    return _named(_rig(host, some, (*notes, *_own_backend(hardware, own, some)), fitted) for some in ways)


def _named(rigs: Iterable[Rig]) -> tuple[Rig, ...]:
    """Return the rigs, all but the last of them, which a command without devices is read for, with `build_named`."""
    *others, last = rigs
    return (*(replace(rig, build_named=True) for rig in others), last)


def is_one_machine(rigs: Sequence[Rig]) -> bool:
    """Return whether the rigs are the same cards under different back ends, of which only one will be built."""
    return len({tuple(card.name for card in rig.cards) for rig in rigs}) == 1 < len(rigs)


def _only_with_vulkan(cards: Sequence[Card], unsupported: Sequence[Card]) -> Assumption:
    """Return why all cards work together only with Vulkan: several vendors, or one whose own build knows only some."""
    vendors = {_VENDOR.get(card.backend, "NVIDIA" if card.generation == "kepler" else "AMD") for card in cards}
    value, why = "Vulkan for all, or only one vendor's cards", "cards of several vendors work"
    if len(vendors) == 1:
        names = ", ".join(
            dict.fromkeys(re.sub(r"^(?:AMD|NVIDIA) (?:Radeon |GeForce )?", "", c.name) for c in unsupported)
        )
        value = "Vulkan for all, or only some of the cards"
        why = f"{_OWN_BUILD[vendors.pop()]} does not support the {names}, so that all cards work"
    why += " together only in a Vulkan build"
    return Assumption("hardware.gpus.backend", value, why, "which cards a config uses (see its reasons)")


def _left_to_display(hardware: Hardware, cards: Sequence[Card]) -> dict[int, Assumption]:
    """Return the cards that are best left to the display, by their index, each with why.

    Beside a card that its maker's back end drives, these are the small ones that only Vulkan drives (RTX 4090 + GT
    710), and those of another back end that have no memory free: with them, the large card would run a Vulkan build.
    """
    if hardware.backend is not None or not cards:
        return {}
    entries = [i for i, gpu in enumerate(hardware.gpus) for _ in range(gpu.count)]
    largest = max(cards, key=lambda card: (card.backend != "vulkan", card.total))
    others = [i for i, card in enumerate(cards) if card.backend != largest.backend and not card.unified]
    small = [i for i in others if cards[i].backend == "vulkan"]
    if sum(cards[i].total for i in small) >= _MUCH_SMALLER * largest.total:
        small = []
    own = _OWN_BUILD.get(_VENDOR.get(largest.backend, ""), "the other cards' build")
    found = {}
    for i in others:
        if i in small or cards[i].free == 0:
            why = (
                f"{own} does not support it, and a Vulkan build for its {cards[i].total / GIB:.3g} GiB is not worth it"
            )
            found[i] = Assumption(f"hardware.gpus[{entries[i]}].use", "only the display", why, "which cards are used")
    return found


def _lacks_rocm(hardware: Hardware) -> bool:
    """Whether a machine is not known to have what llama.cpp's own ROCm build needs, and is sure to have Vulkan.

    Its archive for Windows brings the HIP runtime, but neither hipBLAS nor rocBLAS. Without them it lists no card, says
    nothing and computes on the CPU (llama.cpp issues 26964 and 26996, pull 26973).
    """
    return hardware.backend is None and os_family(hardware.os or "") == "windows"


def _shares_with_amd(card: Card) -> bool:
    return card.unified and card.backend == "rocm" and card.generation.startswith("rdna")


def _found(hardware: Hardware) -> tuple[Host, tuple[Card, ...], tuple[Assumption, ...]]:
    """Return the host, the cards in the order in which they are stated, and what was assumed of the cards."""
    check(hardware)
    hardware = with_sold_gpus(hardware)
    rows = [rows_of(gpu, f"hardware.gpus[{i}]") for i, gpu in enumerate(hardware.gpus)]
    unified = next((found[0] for found in rows if found and found[0].unified), None)
    host = host_of(hardware, unified, [found[0].name if found else "" for found in rows])
    return host, *cards_of(hardware, host)


def _rig(host: Host, cards: Sequence[Card], assumed: Sequence[Assumption], fitted: Calibration | None) -> Rig:
    return Rig(
        cards=tuple(cards[i] for i in _in_order(cards)),
        cpu_model=host.model,
        cpu_generation=host.cpu.generation,
        sockets=host.sockets,
        physical_cores=host.cores,
        efficient_cores=host.efficient_cores,
        numa_nodes=host.numa_nodes,
        ghz=host.ghz,
        isa=host.cpu.isa,
        ram_bytes=host.ram_bytes,
        usable_ram=host.usable_ram,
        cpu_bandwidth_gbs=host.bandwidth_gbs,
        bandwidth_measured=host.measured,
        os=host.os,
        order_known=bool(cards) and all(card.pci_index is not None for card in cards),
        assumed=tuple(sorted((*assumed, *host.assumed), key=_weight)),
        fitted=fitted,
    )


def _driven(card: Card, backend: Backend) -> Card:
    """Return a card as the stated back end drives it. Raises InvalidHardware if that back end cannot."""
    if backend != card.backend and (backend != "vulkan" or card.backend == "metal"):
        able = card.backend if card.backend in ("metal", "vulkan") else f"{card.backend} or vulkan"
        raise InvalidHardware(f"{backend} does not drive the {card.name}: {able} does", field="hardware.backend")
    return replace(card, backend=backend)


def _own_backend(hardware: Hardware, own: Sequence[Card], driven: Sequence[Card]) -> Iterator[Assumption]:
    """Yield which back end was assumed, if none was stated and the choice matters: AMD's and Intel's cards, and those
    of NVIDIA that CUDA has dropped.
    """
    makers, names = {card.backend for card in own}, {card.backend for card in driven}
    dropped = dropped_by_cuda(own)
    if hardware.backend is None and dropped and makers == {"vulkan"}:
        why = f"{dropped}; builds with CUDA 11 are not described here"
        yield Assumption("hardware.backend", "vulkan", why, "speed, and the build of the engine")
    if hardware.backend is not None or len(makers) != 1 or not makers <= {"rocm", "sycl"}:
        return
    why = "no back end was given: the vendor's own; state vulkan for a Vulkan build"
    beyond_rocm = [name for generation, name in _BEYOND_ROCM.items() if generation in {card.generation for card in own}]
    if makers == {"sycl"} and names != makers:
        why = "no back end was given: Vulkan is predicted to be clearly faster here; state sycl for a SYCL build"
    elif names != makers and beyond_rocm:
        named = " and ".join(beyond_rocm)
        why = f"no back end was given: ROCm does not support {named}; state rocm if yours was built for it"
    elif names != makers:
        why = "no back end was given: Vulkan packages run on this GPU as they are; state rocm for a ROCm build"
    elif all(map(_shares_with_amd, own)) or (_lacks_rocm(hardware) and makers == {"rocm"}):
        why = "no back end was given: ROCm is clearly faster for prompts like these; state vulkan for a Vulkan build"
    yield Assumption("hardware.backend", names.pop(), why, "speed, and the build of the engine")


def card_order(hardware: Hardware) -> tuple[int, ...]:
    """Return the place of each card of `resolve(hardware)` among the stated GPUs, counting every card by itself."""
    cards = _found(hardware)[1]
    left = _left_to_display(hardware, cards)
    return tuple(i for i in _in_order(cards) if i not in left)


def _in_order(cards: Sequence[Card]) -> tuple[int, ...]:
    """Return the cards' indices in the order of the engine's list: the order stated, else fastest first."""
    given = [card.device for card in cards]
    if all(number is not None for number in given) and len({card.backend for card in cards}) == 1:
        return tuple(sorted(range(len(cards)), key=lambda i: cards[i].device or 0))
    return tuple(sorted(range(len(cards)), key=lambda i: _slowness(cards[i])))


def cards_named(rig: Rig, names: Iterable[str | None]) -> list[int | None]:
    """Return for each name the first card of that name that is still free, as its index; None if none is left."""
    free, found = dict(enumerate(rig.cards)), list[int | None]()
    for name in names:
        found.append(next((i for i, card in free.items() if card.name == name), None))
        if found[-1] is not None:
            del free[found[-1]]
    return found


def engine_devices(rig: Rig, engine: Engine, cards: Sequence[int]) -> tuple[Device, ...]:
    """Return the devices that `engine` lists if it sees only `cards` (indices into the rig's), in that order."""
    return tuple(
        Device(
            engine_spec(engine).metal_device if card.backend == "metal" else _DEVICE[card.backend].format(n),
            i,
            card.free,
            card.total,
        )
        for n, (i, card) in enumerate((i, rig.cards[i]) for i in cards)
    )


def _noted(hardware: Hardware) -> Iterator[Assumption]:
    pieces = [piece for piece in (hardware.notes or "").split("; ") if piece.strip()]
    for piece in list(pieces):
        name, used, _ = piece.partition(f" {OWN_GPU_USED}")
        if used or (piece == NO_GPU_NAMED and not hardware.gpus):
            yield Assumption("hardware.gpus", name if used else "none", used.strip() or piece, "everything")
            pieces.remove(piece)
    readings = [piece for piece in pieces if _READING.search(piece)]
    kept = [piece for piece in pieces if piece not in readings]
    for said, why, matters in ((readings, *_READ_SO), (kept, *_KEPT)):
        if said:
            text = "; ".join(said)
            yield Assumption("hardware.notes", text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…", why, matters)


def _weight(assumption: Assumption) -> int:
    """Return how much an assumption matters: its place in _MATTERS, or else that of `vram_gib`; 0 matters most."""
    part = assumption.field.rpartition("]")[2].removeprefix("hardware").lstrip(".")
    return _MATTERS.index(part) if part in _MATTERS else _MATTERS.index("vram_gib")


def _slowness(card: Card) -> tuple[float, float, float, int]:
    pci = card.pci_index if card.pci_index is not None else 0
    return (-card.fp16_tflops, -(card.compute_capability or 0), -card.bandwidth_gbs, pci)
