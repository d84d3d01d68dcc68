"""Named machines and hand-made placements, so that speed is tested without the catalogue and the engines' splits."""

from __future__ import annotations

from collections.abc import Collection

from service.engine.config import Device, Flags, Override, Placement
from service.engine.hardware import Card, Rig
from service.engine.model import Model
from service.engine.tensor_names import role_of
from service.engine.units import GIB

EXPERTS_IN_RAM = (Override("exps", "CPU"),)


def card(
    name: str,
    generation: str,
    vram: int,
    bandwidth: float,
    tops: float,
    link: float,
    backend: str = "cuda",
    unified: bool = False,
) -> Card:
    return Card(
        name=name,
        backend=backend,
        total=vram * GIB,
        free=vram * GIB,
        bandwidth_gbs=bandwidth,
        fp16_tflops=tops / 2,
        int8_tops=tops,
        compute_capability=8.6 if backend == "cuda" else None,
        generation=generation,
        pcie_gbs=link,
        unified=unified,
    )


RTX_3090 = card("RTX 3090", "ampere", 24, 936, 284, 31.5)
RTX_4090 = card("RTX 4090", "ada", 24, 1008, 661, 31.5)
RTX_5090 = card("RTX 5090", "blackwell", 32, 1792, 838, 63.0)
RTX_A6000 = card("RTX A6000", "ampere", 48, 768, 309, 31.5)
P40 = card("Tesla P40", "pascal", 24, 347, 47, 15.75)
MI50 = card("Instinct MI50", "gcn", 32, 1024, 53, 31.5, backend="rocm")
M2_ULTRA = card("M2 Ultra", "apple", 192, 800, 54, 0.0, backend="metal", unified=True)


def rig(*cards: Card, **facts: object) -> Rig:
    known: dict[str, object] = {
        "cpu_model": "AMD Ryzen Threadripper PRO 7965WX",
        "cpu_generation": "zen4",
        "sockets": 1,
        "physical_cores": 24,
        "ghz": 4.6,
        "isa": "vnni",
        "ram_bytes": 512 * GIB,
        "usable_ram": 495 * GIB,
        "cpu_bandwidth_gbs": 225.0,
        "bandwidth_measured": True,
        "os": "Linux",
        "order_known": False,
    }
    return Rig(cards=cards, **(known | facts))  # type: ignore[arg-type]


THREADRIPPER_A6000 = rig(RTX_A6000)
EPYC_5090 = rig(RTX_5090, cpu_generation="zen5", physical_cores=32, ghz=3.8, cpu_bandwidth_gbs=500.0)
THREADRIPPER = rig()
DESKTOP_9950X = rig(cpu_generation="zen5", physical_cores=16, ghz=5.0, cpu_bandwidth_gbs=85.0)
DUAL_SKYLAKE = rig(
    cpu_generation="skylake", isa="avx512", sockets=2, physical_cores=40, ghz=2.4, cpu_bandwidth_gbs=205.0
)


def devices(of: Rig) -> tuple[Device, ...]:
    return tuple(Device(f"CUDA{i}", i, c.free, c.total) for i, c in enumerate(of.cards))


def spread(
    model: Model, n_devices: int = 1, experts_on_gpu: Collection[int] = (), layers_on_gpu: int | None = None
) -> Placement:
    """Layers in equal shares over the devices, routed experts in RAM but for those of `experts_on_gpu`.

    `layers_on_gpu`: only that many of the last layers are on GPUs, whole.
    """
    count = model.n_layer - model.n_layer_nextn
    on_gpu = count if layers_on_gpu is None else layers_on_gpu
    owners = [n_devices] * (count - on_gpu) + [i * n_devices // max(on_gpu, 1) for i in range(on_gpu)]
    head = n_devices - 1 if on_gpu == count else n_devices
    tensors = {"output.weight": head} if model.tied else {}
    for layer, rows in enumerate(model.by_layer[:count]):
        for tensor in rows:
            away = role_of(tensor.name) == "expert" and layer not in experts_on_gpu
            tensors[tensor.name] = n_devices if away else owners[layer]
    tensors |= {t.name: head for t in model.tensors if t.name.startswith("output")}
    return Placement(n_devices, tensors, tuple(owners), tuple(owners), head)


def all_on_gpu(model: Model, n_devices: int = 1) -> Placement:
    return spread(model, n_devices, experts_on_gpu=range(model.n_layer))


def all_in_ram(model: Model, n_devices: int = 0) -> Placement:
    return spread(model, n_devices, layers_on_gpu=0)


def hybrid_flags(n_ubatch: int = 4096, **changes: object) -> Flags:
    return Flags(n_batch=n_ubatch, n_ubatch=n_ubatch, overrides=EXPERTS_IN_RAM, mmap=False, **changes)  # type: ignore[arg-type]
