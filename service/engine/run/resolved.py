"""The resolved run: one command as its engine runs it, from which memory, speed and rules take what they need."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from service.engine.builds import Build, resolve_build
from service.engine.config import Device, Engine, Flags, Placement
from service.engine.engines import engine_spec
from service.engine.hardware import Rig
from service.engine.model import Model
from service.engine.run.binding import Binding, binding_of, prefix_of
from service.engine.run.copies import copies_of
from service.engine.run.environment import PLAIN, Environment
from service.engine.run.mapping import mmap_off, pins_host
from service.engine.run.weights import UsedWeight, WeightRules, used_weights, weight_rules


class ResolvedRun(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """A model under flags on some devices of a rig, by an engine of a build, in an environment.

    `flags` are those that hold. `placement`: where every tensor and cache is. `devices` are those of `placement`, in
    its order. What follows from these is worked out when it is asked for, and once.
    """

    engine: Engine
    model: Model
    flags: Flags
    placement: Placement
    rig: Rig
    devices: tuple[Device, ...]
    build: Build
    environment: Environment = PLAIN

    @cached_property
    def treatment(self) -> WeightRules:
        """How the engine treats weights: what it fuses, interleaves, copies and page-locks."""
        rules, cpu = self.build.rules.memory, self.placement.n_devices
        copies = copies_of(self.engine, self.model, self.flags, cpu, rules, self.environment)
        return weight_rules(self.engine, self.flags, cpu, rules, copies)

    @cached_property
    def weights(self) -> list[UsedWeight]:
        """Every weight: its type after loading, where it lies, what computes with it, and what crosses."""
        return used_weights(self.treatment, self.model, self.placement.tensors)

    @cached_property
    def pins_host(self) -> bool:
        """Whether an override to the CPU page-locks all weights in RAM, and turns mmap off."""
        rules = self.build.rules.memory
        return pins_host(self.engine, self.flags, len(self.devices), rules, self.environment)

    @property
    def mmap_off(self) -> str | None:
        """What turns mmap off, as it is written; None where the file stays mapped."""
        return mmap_off(self.engine, self.flags, self.pins_host)

    @property
    def binding(self) -> Binding:
        """How threads and memory are bound to the sockets."""
        given = self.environment.binding
        return given if given is not None else binding_of(prefix_of(self.flags.numa), self.flags.numa)

    @property
    def mla(self) -> int:
        """How latent attention is cached: the `-mla` that holds, 0 for heads."""
        return engine_spec(self.engine).memory.latent_mode(self.model, self.flags, self.build.rules.memory)


def resolve(
    engine: Engine, model: Model, flags: Flags, placement: Placement, rig: Rig, devices: Sequence[Device],
    build: Build | str | None = None, environment: Environment = PLAIN,
) -> ResolvedRun:  # fmt: skip
    """Return the run of flags under a placement that is known. `build`: its date (YYYY-MM-DD) will do; None: today's.

    Raises InvalidInput for a date before all that is known.
    """
    return ResolvedRun(
        engine=engine,
        model=model,
        flags=flags,
        placement=placement,
        rig=rig,
        devices=tuple(devices),
        build=build if isinstance(build, Build) else resolve_build(engine, build),
        environment=environment,
    )
