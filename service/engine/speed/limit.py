"""What limits the speed of a config, and what faster hardware would gain."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from service.engine.calibration import Part
from service.engine.run.resolved import ResolvedRun
from service.engine.speed.binding import bound_machine
from service.engine.speed.generation import token_seconds
from service.engine.speed.interval import Phase, share_of
from service.engine.speed.parts import Seconds
from service.engine.speed.prompt import batch_seconds
from service.engine.speed.sums import work_of

Resource: TypeAlias = Literal["GPU", "RAM and CPU", "link", "waiting"]
# Attention counts as work of the GPU: with a cache in RAM it is a small part of what the CPU does.
_PARTS: dict[Resource, tuple[Part, ...]] = {
    "GPU": ("weights on GPU", "attention"),
    "RAM and CPU": ("experts in RAM", "other weights in RAM"),
    "link": ("copies over PCIe",),
    "waiting": ("launch overhead", "synchronisation"),
}
_MORE_RAM = 4 / 3  # DDR5-6400 for 4800, DDR4-3200 for 2400


class Limit(msgspec.Struct, frozen=True):
    """The resource that takes most of the time, its share of it, and upper bounds of what improvements gain.

    `gains`: how many times faster the config would be if that resource were infinitely fast; `ram`: with RAM a third
    faster.
    """

    resource: Resource
    share: float
    gains: dict[Resource, float]
    ram: float


def limit_of(run: ResolvedRun, parts: Seconds, phase: Phase, n_kv: int) -> Limit:
    """Return what limits a time made of `parts`: of a token at depth `n_kv`, or of a micro-batch that starts there."""
    on_cpu = not run.placement.n_devices
    names = {**_PARTS, "RAM and CPU": (*_PARTS["RAM and CPU"], "attention"), "GPU": ()} if on_cpu else _PARTS
    shares = {resource: share_of(parts, of) for resource, of in names.items()}
    largest = max(shares, key=lambda resource: shares[resource])
    gains = {resource: 1 / max(1 - share, 0.01) for resource, share in shares.items()}
    return Limit(largest, shares[largest], gains, _with_faster_ram(run, parts, phase, n_kv))


def _with_faster_ram(run: ResolvedRun, parts: Seconds, phase: Phase, n_kv: int) -> float:
    faster = msgspec.structs.replace(run.rig, cpu_bandwidth_gbs=run.rig.cpu_bandwidth_gbs * _MORE_RAM)
    p, work = run.rig.calibration.coefficients, work_of(run)
    machine = bound_machine(faster, run.devices, run.flags, p, run.binding)
    then = (
        token_seconds(work, machine, p, n_kv) if phase == "tg" else batch_seconds(work, machine, p, work.n_ubatch, n_kv)
    )
    return sum(parts.values()) / sum(then.values())
