"""The shapes of a check's answer."""

from __future__ import annotations

from typing import Literal

import msgspec

from service.engine.advice import DeviceMemory, SpeedPoint
from service.engine.config import Engine
from service.engine.finding import Finding
from service.engine.hardware import Assumption
from service.engine.run.effective import EffectiveFlag


class CompanionMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a companion of the model takes of one device, in MiB; `kind`: draft, next-token layers, projector."""

    kind: str
    device: str
    weights_mib: float
    kv_mib: float
    compute_mib: float
    compute_low_mib: float
    compute_high_mib: float


class CheckedMemory(msgspec.Struct, frozen=True):
    """Memory of every device, the CPU last, and the parts that the engine cuts its graph into (0: not known).

    `companions`: what runs alongside the model; the devices' totals count it.
    """

    devices: list[DeviceMemory]
    graph_splits: int
    companions: list[CompanionMemory] = []


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One measured figure next to the computed one.

    `what`: pp, tg, weights, kv, compute, output, graph_splits, offloaded. Speeds in tokens a second at depth `n_kv`,
    buffers in MiB of `device`. `verdict`: where the measured figure lies.
    """

    what: str
    device: str | None
    n_kv: int | None
    measured: float
    expected: float
    low: float
    high: float
    verdict: Literal["below", "within", "above"]
    text: str


class FixedFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the corrected command takes and gives, with all its changes together: as a check of that line says.

    `speed`: at the depths of the check, as far as its context reaches.
    """

    fits: bool
    memory: CheckedMemory
    speed: list[SpeedPoint]


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a command. `build`: the build of the engine whose rules and defaults are taken.

    `fits`: every device does. `flags`: those that hold, and where each comes from. `compared` is empty where nothing
    measured was given. `fixed`: the line, for bash or Windows, or the file, with each fix that changes the command and
    betters it, and without an error; `fixed_figures`: its memory and speed, null where `fixed` is.
    """

    verdict: str
    engine: Engine
    build: str
    program: str
    fits: bool
    memory: CheckedMemory
    speed: list[SpeedPoint]
    findings: list[Finding]
    compared: list[Compared]
    assumed: list[Assumption]
    flags: list[EffectiveFlag] = []
    fixed: str | None = None
    fixed_figures: FixedFigures | None = None
