"""Which engine can load a variant at all: tensor types, architectures, backends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from service.engine.builds import today
from service.engine.config import Engine
from service.engine.engines import all_engines, engine_spec
from service.engine.ggml_types import type_named
from service.engine.hardware import Card, Rig, dropped_by_cuda
from service.engine.model import Model

_NAMES_SHOWN = 4


def unsupported(engine: Engine, model: Model, rig: Rig, date: str | None = None) -> str | None:
    """Return why `engine` cannot run `model` on `rig`, in a sentence, or None when it can.

    `date`: of its build, None for today's.
    """
    refused = unsupported_backend(engine, rig) or unsupported_cpu(engine, rig) or unsupported_model(engine, model, date)
    if refused is None and indexer_refused(engine, model):
        return f"{engine} does not know the indexer of {model.architecture}, and refuses files with it"
    return refused


def unsupported_model(engine: Engine, model: Model, date: str | None = None) -> str | None:
    """Return why `engine` cannot load `model` on any machine, in a sentence, or None when it can.

    `date`: of its build, None for today's.
    """
    return _architecture(engine, model, date) or _types(engine, model) or _layout(engine, model)


def indexer_refused(engine: Engine, model: Model) -> bool:
    """Return whether `engine` does not load the file for the indexer of sparse attention that it has."""
    refuses = engine_spec(engine).architectures.having("refuses_indexer")
    return model.architecture in refuses and any(".indexer." in t.name for t in model.tensors)


def unsupported_backend(engine: Engine, rig: Rig) -> str | None:
    """Return why `engine` is not for the cards of `rig`, in a sentence, or None when it is."""
    runs = engine_spec(engine).backends
    others = sorted({card.backend for card in rig.cards} - runs)
    if not others:
        return None
    there = next(one.name for one in all_engines() if one.backends > runs)
    how = " with Vulkan" if others == ["vulkan"] else ""
    why = ", and ".join(filter(None, (only_nvidia(engine), dropped_by_cuda(rig.cards))))
    return f"{why}; {there} runs these{how}"


def only_nvidia(engine: Engine) -> str:
    """Return which cards an engine is for that does not offload to those of every maker."""
    return f"{engine} offloads only to NVIDIA cards with CUDA"


def without_cards(engine: Engine, model: Model, rigs: Sequence[Rig]) -> Rig | None:
    """Return the machine without its cards if no engine runs `model` with them, but this one on the CPU; else None.

    With the processor's own GPU only, which reads the same memory as its cores, it is enough that this engine does not
    run it. `rigs`: the machine as each build sees it.
    """
    own = all(card.unified and card.backend != "metal" for card in rigs[-1].cards)
    tried = [engine] if own else [one.name for one in all_engines()]
    if any(unsupported(name, model, rig) is None for name in tried for rig in rigs):
        return None
    alone = replace(rigs[-1], cards=(), unused=rigs[-1].cards)
    return alone if unsupported(engine, model, alone) is None else None


def unsupported_cpu(engine: Engine, rig: Rig) -> str | None:
    """Return that `engine` has no kernels for the CPU of `rig`, in a sentence, or None when it has."""
    if rig.isa not in engine_spec(engine).lacking_isas:
        return None
    there = next(one.name for one in all_engines() if rig.isa not in one.lacking_isas)
    return f"{engine} needs a CPU with AVX2, which the {rig.cpu_model} lacks; {there} runs on it"


def untested_cards(engine: Engine, cards: Iterable[Card]) -> list[Card]:
    """Return the NVIDIA cards that are older than those on which the authors of `engine` test it."""
    tested = engine_spec(engine).tested_capability
    return [card for card in cards if (card.compute_capability or tested) < tested]


def _architecture(engine: Engine, model: Model, date: str | None) -> str | None:
    known, name = engine_spec(engine).architectures, model.architecture
    if name in known.newer:
        return f"{engine} knows the architecture {name!r} only since {known.newer[name]}, which is not described here"
    if name not in known.known:
        return f"{engine} does not know the architecture {name!r} (as of build {today(engine).label})"
    day = known.learned_after(name, date)
    return day and f"{engine} of {date} does not know the architecture {name!r}: builds from {day} or newer do"


def _types(engine: Engine, model: Model) -> str | None:
    refused = [name for name in model.types if not engine_spec(engine).types.loads(type_named(name))]
    if not refused:
        return None
    largest = [name.upper() for name in sorted(refused, key=lambda name: -model.types[name])]
    names = ", ".join(largest[:_NAMES_SHOWN]) + (
        f" and {len(largest) - _NAMES_SHOWN} more" if largest[_NAMES_SHOWN:] else ""
    )
    others = " and ".join(one.name for one in all_engines() if one.name != engine)
    return f"{engine} cannot load the tensor types {names}: only {others} can"


def _layout(engine: Engine, model: Model) -> str | None:
    if model.misplaced is None or not engine_spec(engine).refuses_gaps:
        return None
    return f"{engine} refuses the file: {model.misplaced}; its tensors are not stored one after the other"


def runs_on_gpu(engine: Engine, type_name: str) -> bool:
    """Return whether `engine` has GPU kernels for weights of this type (supports_op of both ggml-cuda.cu)."""
    return engine_spec(engine).types.gpu_kernels(type_named(type_name))
