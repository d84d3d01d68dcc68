"""The environment of a command, as far as an engine reads it, and which sockets numactl and `--numa` bind it to.

Sources: ik_llama.cpp ggml-cuda.cu (ggml_cuda_host_malloc, ggml_backend_cuda_register_host_buffer), src/llama-load-
tensors.cpp:5309; llama.cpp ggml-cuda/ggml-cuda.cu (getenv), src/llama-kv-cache.cpp, common/arg.cpp:787; the CUDA
programming guide, "CUDA environment variables". A variable counts if it is set at all, unless its value is a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from service.engine.config import Engine
from service.engine.engines import engine_spec
from service.engine.engines.commands import Effect
from service.engine.hardware import Rig

_OF_ALL: dict[str, Effect] = {  # of the runtime, and of what both engines took from ggml
    "CUDA_VISIBLE_DEVICES": "devices",
    "CUDA_DEVICE_ORDER": "devices",
    "HIP_VISIBLE_DEVICES": "devices",
    "ROCR_VISIBLE_DEVICES": "devices",
    "GGML_VK_VISIBLE_DEVICES": "devices",
    "GGML_CUDA_NO_PINNED": "copies",
    "GGML_CUDA_REGISTER_HOST": "copies",
}
_LEAST_BATCH = "GGML_OP_OFFLOAD_MIN_BATCH"
_READ_ELSEWHERE = ("GGML_CUDA_", "GGML_VK_", "GGML_SCHED_")
Binding: TypeAlias = Literal["unset", "interleave", "distribute", "isolate", "bound"]
_BOUND = re.compile(r"(?:^|\s)(?:-N|--cpunodebind|-m|--membind|-p|--preferred)[ =]?\d+(?:\s|$)")
BIND = ("numactl", "-N", "0", "-m", "0")
INTERLEAVE = ("numactl", "--interleave=all")


def prefix_of(numa: str | None) -> tuple[str, ...]:
    """Return the words before a command with this `--numa`: numactl's, which bind memory as well as threads."""
    return {"distribute": INTERLEAVE, "numactl": BIND}.get(numa or "", ())


def binding_of(prefix: Sequence[str], numa: str | None) -> Binding:
    """Return the binding that results from the words before a program and its `--numa`."""
    words = " ".join(prefix)
    if "numactl" in words:
        if re.search(r"(?:-i|--interleave)\b", words):
            return "interleave"
        if _BOUND.search(words):
            return "bound"
    return "distribute" if numa == "distribute" else "isolate" if numa == "isolate" else "unset"


def one_socket(rig: Rig) -> Rig:
    """Return the share of a machine that is left to a command bound to one of its sockets."""
    n = rig.sockets
    return msgspec.structs.replace(
        rig, sockets=1, physical_cores=max(rig.physical_cores // n, 1), cpu_bandwidth_gbs=rig.cpu_bandwidth_gbs / n
    )


class Variable(msgspec.Struct, frozen=True):
    """A variable that the engine reads. `effect`: what the figures take from it; none: they are without it."""

    name: str
    value: str
    effect: Effect


class Environment(msgspec.Struct, frozen=True):
    """What a command's environment changes.

    `least_batch`: tokens of a batch from which weights in RAM are copied to a GPU (None: the engine's own 32). `pins`:
    RAM may be page-locked. `registers`: mapped files are page-locked as well. `binding`: of threads and memory to
    sockets, None: as written with `--numa`. `variables`: those that the engine reads, in the order of the command.
    """

    least_batch: int | None = None
    pins: bool = True
    registers: bool = False
    binding: Binding | None = None
    variables: tuple[Variable, ...] = ()

    @property
    def ignored(self) -> tuple[str, ...]:
        """Names of variables that the engine reads and the figures are without."""
        return tuple(one.name for one in self.variables if one.effect == "none")


PLAIN = Environment()
"""An environment in which nothing is set."""


def environment_of(engine: Engine, env: Mapping[str, str], binding: Binding | None = None) -> Environment:
    """Return what `env` changes for a program of `engine`."""
    variables = tuple(_read(engine, env))
    names = {one.name for one in variables}
    least = env.get(_LEAST_BATCH, "") if _LEAST_BATCH in names else ""
    return Environment(
        least_batch=int(least) if least.isascii() and least.isdigit() and len(least) < 10 else None,
        pins="GGML_CUDA_NO_PINNED" not in names,
        registers="GGML_CUDA_REGISTER_HOST" in names,
        binding=binding,
        variables=variables,
    )


def _read(engine: Engine, env: Mapping[str, str]) -> Iterator[Variable]:
    commands = engine_spec(engine).commands
    known = {**_OF_ALL, **commands.variables}
    for name, value in env.items():
        if commands.option_variables and name.startswith(commands.option_variables):
            yield Variable(name, value, "option")
        elif effect := known.get(name, "none" if name.startswith(_READ_ELSEWHERE) else None):
            yield Variable(name, value, effect)
