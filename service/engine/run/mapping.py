"""Whether the engine maps the model's file, and whether it page-locks the weights that stay in RAM.

Source: ik_llama.cpp src/llama-load-tensors.cpp:5309 (overrides to the CPU), llama-model-loader.cpp:662.
"""

from __future__ import annotations

from service.engine.builds.rules import MemoryRules
from service.engine.config import CPU, Engine, Flags
from service.engine.engines import engine_spec
from service.engine.run.environment import Environment


def pins_host(engine: Engine, flags: Flags, n_devices: int, rules: MemoryRules, environment: Environment) -> bool:
    """Return whether an override to the CPU makes the engine page-lock all weights in RAM, with mmap off."""
    to_cpu = flags.cpu_moe or flags.n_cpu_moe or any(rule.device == CPU for rule in flags.overrides)
    pins = engine_spec(engine).offload.pins_overridden and rules.pins_overridden and environment.pins
    return bool(to_cpu and pins and n_devices and flags.n_gpu_layers > 0)


def mmap_off(engine: Engine, flags: Flags, pinned: bool) -> str | None:
    """Return what turns mmap off, as it is written; None where the file stays mapped. `pinned`: `pins_host`."""
    if flags.mmap is False:
        return "--no-mmap"
    if engine_spec(engine).memory.repacks_at_load and flags.runtime_repack:
        return "-rtr"
    return "an override to the CPU (pinned memory)" if pinned else None
