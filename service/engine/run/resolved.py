"""The resolved run: one command as its engine runs it, which predictions of memory and speed and the rules read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from service.engine.builds import Build, MemoryRules, resolve_build
from service.engine.config import CPU, Allocator, Device, Engine, Flags, Placement, Tool
from service.engine.engines import engine_spec
from service.engine.hardware import Rig
from service.engine.model import Model
from service.engine.run.copies import copies_of
from service.engine.run.environment import PLAIN, Binding, Environment, binding_of, prefix_of
from service.engine.run.placement import place
from service.engine.run.settings import micro_batch, padded_context
from service.engine.run.weights import UsedWeight, WeightRules, loaded, used_weights, weight_rules

if TYPE_CHECKING:  # the room of graphs reads runs
    from service.engine.memory.spec import GraphSpec


class ResolvedRun(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """A model run with some flags on devices of a rig, by a program of an engine's build, in an environment.

    `flags` are those in effect. `placement`: where every tensor and cache is. `devices` are those of `placement`, in
    its order. `allocator` "cuda" is a real context on real cards; "lab" the rig that the lab data was measured on:
    devices without CUDA's paddings and kernels, for llama.cpp what llama-fit-params reports. What follows from these is
    worked out when it is asked for, and once.
    """

    engine: Engine
    model: Model
    flags: Flags
    tool: Tool
    placement: Placement
    rig: Rig
    devices: tuple[Device, ...]
    build: Build
    environment: Environment
    allocator: Allocator

    @property
    def free(self) -> list[int]:
        """Bytes free on each GPU."""
        return [device.free for device in self.devices]

    @cached_property
    def rules(self) -> MemoryRules:
        """How the build places a model and lays it out in memory."""
        return self.build.rules.memory

    @property
    def older(self) -> bool:
        """Whether these rules are not those of today's build."""
        return self.build.memory_rules is not None

    @property
    def n_ctx(self) -> int:
        """The rows of the whole cache."""
        return padded_context(self.engine, self.model, self.flags)

    @property
    def n_ubatch(self) -> int:
        """The tokens of the largest micro-batch that can run."""
        return micro_batch(self.engine, self.model, self.flags)

    @cached_property
    def loaded(self) -> tuple[Model, Placement]:
        """The model with the tensors and types that loading leaves, and where these are."""
        model, placement = engine_spec(self.engine).memory.loaded(self.model, self.flags, self.placement)
        return loaded(self.engine, model, self.flags, placement), placement

    @cached_property
    def graph_spec(self) -> GraphSpec:
        """What the graph of the worst-case batch depends on. Raises InvalidFlags for unknown cache types."""
        spec = engine_spec(self.engine).memory.graph_spec(self.loaded[0], self.flags, self.tool, rules=self.rules)
        return msgspec.structs.replace(spec, cpu_only=self.placement.n_devices == 0)

    @cached_property
    def treatment(self) -> WeightRules:
        """How the engine treats weights: what it fuses, interleaves, copies and page-locks."""
        cpu = self.placement.n_devices
        copies = copies_of(
            self.engine, self.model, self.flags, cpu, self.rules, self.environment, pins_host=self.pins_host
        )
        return weight_rules(self.engine, self.flags, cpu, self.rules, copies)

    @cached_property
    def weights(self) -> list[UsedWeight]:
        """Every weight: its type after loading, where it lies, what computes with it, and what crosses."""
        return used_weights(self.treatment, self.model, self.placement.tensors)

    @cached_property
    def pins_host(self) -> bool:
        """Whether an override to the CPU page-locks all weights in RAM, and turns mmap off.

        ik_llama.cpp src/llama-load-tensors.cpp:5309, llama-model-loader.cpp:662.
        """
        flags, n_devices = self.flags, self.placement.n_devices
        to_cpu = flags.cpu_moe or flags.n_cpu_moe or any(rule.device == CPU for rule in flags.overrides)
        can = engine_spec(self.engine).offload.pins_overridden and self.rules.pins_overridden and self.environment.pins
        return bool(to_cpu and can and n_devices and flags.n_gpu_layers > 0)

    @property
    def mmap_off(self) -> str | None:
        """What turns mmap off, as it is written; None where the file stays mapped."""
        if self.flags.mmap is False:
            return "--no-mmap"
        if engine_spec(self.engine).memory.repacks_at_load and self.flags.runtime_repack:
            return "-rtr"
        return "an override to the CPU (pinned memory)" if self.pins_host else None

    @property
    def binding(self) -> Binding:
        """How threads and memory are bound to the sockets."""
        given = self.environment.binding
        return given if given is not None else binding_of(prefix_of(self.flags.numa), self.flags.numa)

    @property
    def mla(self) -> int:
        """How latent attention is cached: the `-mla` that holds, 0 for heads."""
        return engine_spec(self.engine).memory.latent_mode(self.model, self.flags, self.rules)

    @property
    def may_pipeline(self) -> bool:
        """Whether several GPUs that hold the whole model work on several micro-batches at a time.

        Any rule that places tensors turns that off, even one that moves none (llama.cpp src/llama-context.cpp,
        `pipeline_parallel`).
        """
        flags = self.flags
        placed = flags.overrides or flags.cpu_moe or flags.n_cpu_moe or flags.no_kv_offload
        whole = flags.n_gpu_layers > self.model.n_layer and flags.split_mode == "layer"
        return self.rules.pipeline and whole and not placed

    def with_flags(self, flags: Flags) -> ResolvedRun:
        """Return the run of other flags, placed again. Raises InvalidFlags."""
        placement = place(self.engine, self.model, flags, self.free, self.rules)
        return msgspec.structs.replace(self, flags=flags, placement=placement)


def resolve_run(
    engine: Engine, model: Model, flags: Flags, rig: Rig, devices: Sequence[Device],
    build: Build | str | None = None, environment: Environment = PLAIN,
    *, tool: Tool = "server", allocator: Allocator = "cuda", placement: Placement | None = None,
) -> ResolvedRun:  # fmt: skip
    """Return the run of flags on devices of a rig.

    `build`: its date (YYYY-MM-DD) will do; None: today's. `placement`: one that is known; None: as the flags place the
    model. Raises InvalidFlags for a command that the engine would refuse, InvalidInput for a date before all that is
    known.
    """
    build = build if isinstance(build, Build) else resolve_build(engine, build)
    if placement is None:
        placement = place(engine, model, flags, [device.free for device in devices], build.rules.memory)
    return ResolvedRun(
        engine=engine,
        model=model,
        flags=flags,
        tool=tool,
        placement=placement,
        rig=rig,
        devices=tuple(devices),
        build=build,
        environment=environment,
        allocator=allocator,
    )
