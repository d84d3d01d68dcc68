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
_NODES = r"[ =]?(\d{1,3}(?:[,-]\d{1,3}){0,63})(?=\s|$)"
_BOUND = re.compile(rf"(?:^|\s)(?:-N|--cpunodebind|-m|--membind|-p|--preferred){_NODES}")
_MEMORY = re.compile(rf"(?:^|\s)(?:-m|--membind){_NODES}")
INTERLEAVE = ("numactl", "--interleave=all")


def prefix_of(numa: str | None, nodes_a_socket: int = 1) -> tuple[str, ...]:
    """Return the words before a command with this `--numa`: numactl's, which bind memory as well as threads.

    They name all NUMA nodes of the first socket: numactl's `-m` takes no memory from any other, and the system ends a
    program that needs more.
    """
    first = f"0-{nodes_a_socket - 1}" if nodes_a_socket > 1 else "0"
    bind = ("numactl", "-N", first, "-m", first)
    return {"distribute": INTERLEAVE, "numactl": bind}.get(numa or "", ())


def binding_of(prefix: Sequence[str], numa: str | None, nodes_a_socket: int = 1) -> Binding:
    """Return the binding that results from the words before a program and its `--numa`."""
    words = " ".join(prefix)
    if "numactl" in words:
        if re.search(r"(?:-i|--interleave)\b", words):
            return "interleave"
        if any(_n_nodes(bound) <= max(nodes_a_socket, 1) for bound in _BOUND.findall(words)):
            return "bound"
    return "distribute" if numa == "distribute" else "isolate" if numa == "isolate" else "unset"


def within_ram(rig: Rig, limit: int | None) -> Rig:
    """Return the machine with at most so many bytes of RAM for a command; GPUs that share it may take more."""
    if limit is None or limit >= rig.ram_bytes or any(card.unified for card in rig.cards):
        return rig
    return msgspec.structs.replace(rig, ram_bytes=limit, usable_ram=min(rig.usable_ram, limit))


def bound_ram(prefix: Sequence[str], rig: Rig) -> int | None:
    """Return the bytes of the NUMA nodes whose memory alone the words before a program let it use; None: all nodes.

    Source: numactl(8), --membind: memory of other nodes is not used, however little there is on these.
    """
    words, nodes = " ".join(prefix), rig.nodes_a_socket * rig.sockets
    bound = _MEMORY.search(words) if "numactl" in words else None
    named = _n_nodes(bound[1]) if bound else 0
    return rig.ram_bytes * named // nodes if 0 < named < nodes else None


def _n_nodes(listed: str) -> int:
    """Return how many nodes a list such as `0-3,6` has: none in `3-0`, which numactl refuses."""
    ends = [part.split("-") for part in listed.split(",")]
    return len({node for part in ends for node in range(int(part[0]), int(part[-1]) + 1)})


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
