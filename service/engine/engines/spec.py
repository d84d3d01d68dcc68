"""The interface of an engine. Each engine's folder implements it; other code knows an engine by nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from re import Pattern
from typing import TYPE_CHECKING

import msgspec

from service.engine.config import Engine, Flags, Tool
from service.engine.engines.commands import EngineCommands
from service.engine.engines.memory import EngineMemory
from service.engine.engines.speed import EngineSpeed
from service.engine.engines.tables import Architectures
from service.engine.model import Model

if TYPE_CHECKING:
    from service.engine.builds import History
    from service.engine.ggml_types import GgmlType


class FitAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A command that is placed. `n_ctx` 0: not given. `free`: bytes on each card.

    `placed`: the command places the model itself. `streams`: caches of their own (no `-kvu`). `used`: returns the bytes
    that flags take on each card.
    """

    model: Model
    flags: Flags
    n_ctx: int
    free: Sequence[int]
    placed: bool
    streams: int
    used: Callable[[Flags], list[int]]


@dataclass(frozen=True, kw_only=True)
class TypeSupport:
    """What an engine does with tensors of a type, by the type table.

    `loads`: it reads files with such tensors. `gpu_kernels`: its CUDA build multiplies by them
    (ggml_backend_cuda_device_supports_op). `quantised_products`: by integer kernels (MMQ), on quantised activations;
    else weights are dequantised and multiplied by cuBLAS.
    """

    loads: Callable[[GgmlType], bool]
    gpu_kernels: Callable[[GgmlType], bool]
    quantised_products: Callable[[GgmlType], bool]


@dataclass(frozen=True, kw_only=True)
class OffloadPolicy:
    """From how many tokens on weights in RAM are copied to a card for a batch: `least`, for experts perhaps more.

    `by_experts`: experts only if the batch hits each of them `least` times (unless the build's rules say otherwise).
    `switched_off`: what leaves experts to the CPU, for batches of less than `{tokens}`. `pins_overridden`: weights in
    RAM are pinned, and mmap is off, once a tensor is overridden to the CPU. `has_options`: `-op`, `-cuda` and `-ooae`
    decide, else the environment (GGML_OP_OFFLOAD_MIN_BATCH).
    """

    least: int
    by_experts: bool
    switched_off: str
    pins_overridden: bool
    has_options: bool

    def expert_tokens(self, n_expert: int, n_used: int) -> int:
        """Return the tokens from which today's builds copy experts."""
        if not (self.by_experts and n_expert):
            return self.least
        return -(-self.least * n_expert // max(n_used, 1))


@dataclass(frozen=True, kw_only=True)
class LogFormat:
    """How an engine's log is recognised and read. `lines`: how some of its lines begin.

    `sizes_at`: the option with which its server prints the sizes of buffers, None where it always does.
    `signal_at_unknown_type`: the signal by which it ends, without a word, at a tensor type that it does not know.
    """

    lines: Pattern[str]
    sizes_at: str | None = None
    signal_at_unknown_type: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class EngineSpec:
    """An engine. `repository`: where its source is. `programs`: what serves and what measures.

    `history`: its builds. `architectures`: those that it knows. `backends`: of cards that it offloads to;
    `neglected_backends`: others that it has code for, which its README calls not functional and people have run.
    `tested_capability`: that of the oldest NVIDIA cards on which its authors test it.
    `lacking_isas`: of CPUs (`Rig.isa`) that it has no kernels for.
    `metal_device`: what it calls a Mac's GPU. `fit_places`: `-fit` is on by default, and places the model where the
    command does not; `fit`: the flags that it then loads the model with, None where the engine stops instead.
    `forked`: the day of its last merge of the engine that it is a fork of, whose options it had until then.
    `projectors`: the kinds that it loads; None: all that are known here.
    `refuses_gaps`: it loads no file whose tensors are not stored one after the other in the order of their table.
    """

    name: Engine
    repository: str
    programs: Mapping[Tool, str]
    history: History
    architectures: Architectures
    types: TypeSupport
    offload: OffloadPolicy
    commands: EngineCommands
    memory: EngineMemory
    speed: EngineSpeed
    logs: LogFormat
    backends: frozenset[str]
    metal_device: str
    neglected_backends: frozenset[str] = frozenset()
    tested_capability: float = 0.0
    lacking_isas: frozenset[str] = frozenset()
    forked: str | None = None
    fit_places: bool = False
    refuses_gaps: bool = False
    projectors: frozenset[str] | None = None
    fit: Callable[[FitAsked], Flags | None] | None = None
