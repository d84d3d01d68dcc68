"""Which engine can load a variant at all: tensor types, architectures, backends."""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec

from service.engine.config import Engine
from service.engine.ggml_types import type_named
from service.engine.hardware import Rig
from service.engine.model import Model

_NAMES_SHOWN = 4


class Architecture(msgspec.Struct, frozen=True):
    """One row of architectures.json: which engine knows the name (src/llama-arch.cpp of both).

    `graph_split_ik`: ik_llama.cpp's `-sm graph` can split it (src/llama.cpp:3895-3930).
    """

    arch: str
    ik: bool
    mainline: bool
    graph_split_ik: bool


@cache
def architectures() -> dict[str, Architecture]:
    """Return the architectures that either engine knows, by name."""
    text = resources.files("service.engine.data").joinpath("architectures.json").read_bytes()
    return {row.arch: row for row in msgspec.json.decode(text, type=list[Architecture])}


def unsupported(engine: Engine, model: Model, rig: Rig) -> str | None:
    """Return why `engine` cannot run `model` on `rig`, in a sentence, or None when it can."""
    return _backend(engine, rig) or _architecture(engine, model) or _types(engine, model)


def _backend(engine: Engine, rig: Rig) -> str | None:
    others = sorted({card.backend for card in rig.cards} - {"cuda"})
    if engine == "llama.cpp" or not others:
        return None
    if others == ["vulkan"]:
        return "ik_llama.cpp offloads to NVIDIA cards only; llama.cpp runs cards of several makers with Vulkan"
    return f"ik_llama.cpp offloads to NVIDIA cards only, these are {others[0]} devices; llama.cpp runs them"


def _architecture(engine: Engine, model: Model) -> str | None:
    row = architectures().get(model.architecture)
    known = row is not None and (row.ik if engine == "ik_llama.cpp" else row.mainline)
    return None if known else f"{engine} does not know the architecture {model.architecture!r}"


def _types(engine: Engine, model: Model) -> str | None:
    refused = [name for name in model.types if not _loads(engine, name)]
    if not refused:
        return None
    largest = [name.upper() for name in sorted(refused, key=lambda name: -model.types[name])]
    names = ", ".join(largest[:_NAMES_SHOWN]) + (
        f" and {len(largest) - _NAMES_SHOWN} more" if largest[_NAMES_SHOWN:] else ""
    )
    other = "llama.cpp" if engine == "ik_llama.cpp" else "ik_llama.cpp"
    return f"{engine} cannot load the tensor types {names}: only {other} can"


def _loads(engine: Engine, name: str) -> bool:
    row = type_named(name)
    return row.ik if engine == "ik_llama.cpp" else row.mainline


def runs_on_gpu(engine: Engine, type_name: str) -> bool:
    """Return whether `engine` has GPU kernels for weights of this type (supports_op of both ggml-cuda.cu)."""
    row = type_named(type_name)
    return row.cuda_ik if engine == "ik_llama.cpp" else row.cuda_mainline
