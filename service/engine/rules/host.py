"""The CPU's side: threads, and the order of devices."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.rules.case import Case
from service.engine.rules.found import Found, info, warning


def threads(case: Case) -> Iterator[Found]:
    """More threads than cores, or an odd number of them, where the CPU does work for every token."""
    n, cores = case.flags.threads, case.rig.physical_cores
    weights_in_ram = case.memory.devices[-1].weights > case.model.n_bytes // 20
    if n is None or not weights_in_ram:
        return
    source = "ik_llama.cpp discussion 223 (63 threads 1.7 to 1.9 t/s, 64 threads 3.6 to 4.1)"
    if n > cores:
        message = f"-t {n} is more than the {cores} physical cores: generation does not gain from SMT"
        yield warning("too-many-threads", message, f"-t {cores}; -tb may be larger", "ik_llama.cpp discussion 223")
    elif n % 2 and n > 1:
        yield info("odd-threads", f"-t {n} is odd: such counts were found much slower", f"-t {n - 1}", source)


def device_order_unknown(case: Case) -> Iterator[Found]:
    """Numbers of unlike cards mean nothing while their order is not known."""
    names = {card.name for card in case.rig.cards}
    pci = case.parsed.env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" and not case.rig.order_known
    if len(names) > 1 and pci:
        order = ", ".join(f"{d.name} = {case.rig.cards[d.gpu].name}" for d in case.devices)
        yield info(
            "device-order-unknown",
            f"CUDA_DEVICE_ORDER=PCI_BUS_ID, but the PCI order of these cards was not given; taken: {order}",
            "paste `nvidia-smi -L` as hardware",
            "CUDA programming guide, environment variables",
        )
