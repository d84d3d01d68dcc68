"""What a binding of threads and memory to sockets does to the speed of what lies in RAM."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from service.engine.calibration import Coefficients
from service.engine.config import Device, Flags
from service.engine.hardware import Rig
from service.engine.run.binding import Binding, one_socket
from service.engine.speed.interval import Trust
from service.engine.speed.machine import CpuRate, Machine, machine_of

# Times of reading RAM. `distribute` and `isolate` against one bound socket: ik_llama.cpp discussion 396 (40, 27 and
# 10 t/s). `interleave` against the calibration's two sockets: its published runs (discussion 491, pull request 762)
# are 4 % slower than predicted, of which reading RAM is half.
_TIMES: dict[Binding, float] = {
    "unset": 1.0, "interleave": 1.09, "bound": 1.0, "distribute": 40 / 27, "isolate": 40 / 10,
}  # fmt: skip
# What widens the 80 % interval of the class besides: of each of these one machine was published.
_LESS_KNOWN: dict[Binding, float] = {"distribute": 1.6, "isolate": 2.0}


def bound_rig(rig: Rig, binding: Binding) -> Rig:
    """Return the part of a machine that a command with this binding reads from."""
    return one_socket(rig) if rig.sockets > 1 and binding not in ("unset", "interleave") else rig


def bound_machine(rig: Rig, devices: Sequence[Device], flags: Flags, p: Coefficients, binding: Binding) -> Machine:
    """Return the rates of `bound_rig` and some of its GPUs, with RAM as fast as this binding of `rig` leaves it."""
    machine, times = machine_of(bound_rig(rig, binding), devices, flags, p), _TIMES[binding] if rig.sockets > 1 else 1.0
    return msgspec.structs.replace(
        machine, token_cpu=_slower(machine.token_cpu, times), batch_cpu=_slower(machine.batch_cpu, times)
    )


def widened(trusted: Trust, rig: Rig, binding: Binding) -> Trust:
    """Return the interval of a speed, wider where little is published of the binding."""
    more = math.log(_LESS_KNOWN.get(binding, 1.0)) if rig.sockets > 1 else 0.0
    return Trust(math.exp(math.hypot(math.log(trusted.factor), more)), trusted.basis)


def _slower(cpu: CpuRate, times: float) -> CpuRate:
    return msgspec.structs.replace(cpu, read=cpu.read * times, read_batch=cpu.read_batch * times)
