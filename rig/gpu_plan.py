"""What a GPU day measures, the most valuable first, and how long it should take.

Values come from what the models here assume without a real card to tell (docs/memory.md, "Beyond the printed buffers";
docs/speed-parameters.md): what a driver takes beside the printed buffers, prompts by type and micro-batch, from where
copying experts pays, what a hop between cards costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import msgspec

from rig.gpu_models import can_fill
from service.engine.config import Engine
from service.engine.engines import engine_spec
from service.engine.ggml_types import type_named
from service.engine.gguf.write import data_bytes
from service.engine.run_flags import RunFlags
from tests.models import build_header

Kind = Literal["build", "memory", "speed"]
_DENSE, _EXPERTS = "Qwen3-8B", "Qwen3-30B-A3B"
_TYPES = ("q4_0", "q4_K", "q8_0", "q6_K", "iq4_xs", "iq3_xxs", "iq4_k", "iq4_ks")
_MORE_TYPES = ("q5_K", "q3_K", "iq2_xxs", "mxfp4", "iq5_k", "iq3_k", "iq2_ks", "iq4_kt", "q5_0", "q2_K", "iq3_s")
_BATCHES = (2048, 512, 128, 4096, 1024, 256, 64, 32)  # in the order in which they are measured
_SPLITS = ("layer", "graph", "tensor")  # row: the CUDA back ends have no split buffers any more
_READ, _WRITE = 1.5e9, 0.6e9  # bytes a second of a usual rented machine's drive, from and to
NOTHING: Mapping[str, object] = MappingProxyType({})
_START = 4.0  # seconds until a program has its context


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What decides the plan. `cards`: bytes of each card; `threads`: physical cores; `engines`: those to measure.

    `small`: models of one layer also where there are cards.
    """

    cards: tuple[int, ...]
    threads: int
    engines: tuple[Engine, ...]
    small: bool = False

    @property
    def layers(self) -> tuple[int, int]:
        """Layers of the dense model and of the one with experts: on a card some 2 GB at four bits, else one."""
        return (1, 1) if self.small or not self.cards else (14, 6)


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement. `about`: what it tells; `cards`: in the order that CUDA0, CUDA1 … mean; `seconds`: of measuring.

    `n_prompt`, `n_gen`, `depths`: as in a run's document; a memory step sends a prompt of so many tokens.
    """

    id: str
    about: str
    kind: Kind
    engine: Engine
    model: str = ""
    mix: str = ""
    flags: RunFlags = RunFlags(n_ctx=512)
    cards: tuple[int, ...] = ()
    n_prompt: int = 512
    n_gen: int = 32
    depths: tuple[int, ...] = (0,)
    seconds: int = 10


def plan(machine: Machine) -> list[Step]:
    """Return all steps for a machine, the most valuable first; those of both engines alternate."""
    parts = (
        _memory, _types_on_card, _experts_in_ram, _splits, _batches_on_card, _caches_on_card, _more_types_on_card,
        _experts_on_card, _types_on_cpu, _threads, _batches_on_cpu, _experts_on_cpu,
    )  # fmt: skip
    steps = [step for part in parts for step in part(machine)]
    built = {
        engine: Step(id=f"build {engine}", about="build", kind="build", engine=engine) for engine in machine.engines
    }
    found: list[Step] = []
    for step in steps:
        if step.engine in built:
            found.append(built.pop(step.engine))
        found.append(step)
    return found


def mix_of(kind: str) -> str:
    """Return the mix by which a type is measured: the embedding is not multiplied with, and is always of one type."""
    return f"token_embd=q8_0,*={kind}"


def estimate(step: Step, machine: Machine, written: bool) -> float:
    """Return the seconds that a step should take; `written`: its model, or what it builds, is there."""
    if step.kind == "build":
        if written:
            return 2.0
        cores = max(machine.threads, 1)
        return (4800.0 if machine.cards else 2400.0) / cores + 30
    n_bytes = data_bytes(build_header(step.model, step.mix).tensors)
    making = 0.0 if written else n_bytes / _WRITE
    measuring = 6.0 if step.kind == "memory" else 0.6 * step.seconds
    return making + _START + n_bytes / _READ + measuring


def _model(machine: Machine, experts: bool = False) -> str:
    return f"{_EXPERTS if experts else _DENSE}@{machine.layers[experts]}"


def _step(
    machine: Machine, about: str, engine: Engine, kind: str, cards: Sequence[int], *, experts: bool = False,
    batch: int = 512, what: Kind = "speed", depths: tuple[int, ...] = (0,), note: str = "",
    flags: Mapping[str, object] = NOTHING,
) -> Step:  # fmt: skip
    context = max(depths) + 2 * batch + 256
    where = {"n_gpu_layers": 999 if cards else 0, "mmap": False, **flags}
    known = msgspec.convert(
        {"n_ctx": context, "n_ubatch": batch, "n_batch": max(batch, 2048), **where}, RunFlags, strict=False
    )
    on = f"{len(cards)} cards" if len(cards) > 1 else "card" if cards else "CPU"
    words = [about, engine, kind, on, f"ub{batch}", *([note] if note else [])]
    return Step(
        id=" ".join(words), about=about, kind=what, engine=engine, model=_model(machine, experts), mix=mix_of(kind),
        flags=known, cards=tuple(cards), n_prompt=batch, depths=depths,
        n_gen=32 if cards else 16, seconds=12 if machine.cards else 20,
    )  # fmt: skip


def _loads(engine: Engine, kind: str) -> bool:
    return engine_spec(engine).types.loads(type_named(kind)) and can_fill(type_named(kind).name)


def _memory(machine: Machine) -> Iterator[Step]:
    """Context, pool and paddings: what a card has given beyond the printed buffers, idle and after a prompt."""
    sets = [(0,), tuple(range(len(machine.cards)))] if len(machine.cards) > 1 else [(0,)] if machine.cards else [()]
    for cards in sets:
        for batch in (512, 2048):
            for engine in machine.engines:
                yield _step(machine, "memory", engine, "q4_0", cards, batch=batch, what="memory")
    cards = sets[0]
    for engine in machine.engines:
        cache = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
        yield _step(machine, "memory", engine, "q4_0", cards, what="memory", note="cache q8_0", flags=cache)
        yield _step(machine, "memory", engine, "q4_0", cards, experts=True, what="memory", note="experts")
        if cards:
            yield _step(
                machine, "memory", engine, "q4_0", cards, experts=True, batch=2048, what="memory",
                note="experts in RAM", flags={"cpu_moe": True},
            )  # fmt: skip


def _types_on_card(machine: Machine) -> Iterator[Step]:
    return _of_types(machine, _TYPES if machine.cards else (), (0,), 512)


def _more_types_on_card(machine: Machine) -> Iterator[Step]:
    return _of_types(machine, _MORE_TYPES if machine.cards else (), (0,), 512)


def _types_on_cpu(machine: Machine) -> Iterator[Step]:
    return _of_types(machine, _TYPES[: 3 if machine.cards else None], (), 128, flags={"threads": machine.threads})


def _of_types(
    machine: Machine, kinds: Sequence[str], cards: Sequence[int], batch: int, flags: Mapping[str, object] = NOTHING
) -> Iterator[Step]:
    """Prompts and tokens by type of the weights."""
    for kind in kinds:
        for engine in machine.engines:
            if _loads(engine, kind):
                yield _step(machine, "types", engine, kind, cards, batch=batch, flags=flags)


def _experts_in_ram(machine: Machine) -> Iterator[Step]:
    """Copies on and off around the batch from which they pay; without page-locked RAM at one batch."""
    for batch in _BATCHES if machine.cards else ():
        for copies in (True, False):
            for engine in machine.engines:
                note = "experts in RAM" + ("" if copies else ", no copies")
                yield _step(
                    machine, "copies", engine, "q4_0", (0,), experts=True, batch=batch, note=note, 
                    flags={"cpu_moe": True, "op_offload": copies},
                )  # fmt: skip
    for engine in machine.engines if machine.cards else ():
        yield _step(
            machine, "copies", engine, "q4_0", (0,), experts=True, batch=2048, note="experts in RAM, mapped",
            flags={"cpu_moe": True, "mmap": True},
        )  # fmt: skip


def _splits(machine: Machine) -> Iterator[Step]:
    """The same model on one card, and split over two and all: what a hop, and a reduction, costs."""
    n = len(machine.cards)
    for count in sorted({2, 3, n} & set(range(2, n + 1))):
        for mode in _SPLITS:
            for engine in machine.engines:
                if mode == "layer" or mode in engine_spec(engine).memory.split_modes:
                    yield _step(
                        machine, "splits", engine, "q4_0", range(count), note=f"-sm {mode}", flags={"split_mode": mode}
                    )


def _batches_on_card(machine: Machine) -> Iterator[Step]:
    for kind in ("q4_0", "q8_0", "iq4_k") if machine.cards else ():
        for batch in (2048, 128, 1024, 32, 4096):
            for engine in machine.engines:
                if _loads(engine, kind):
                    yield _step(machine, "batches", engine, kind, (0,), batch=batch)


def _caches_on_card(machine: Machine) -> Iterator[Step]:
    for kind in ("f16", "q8_0", "q4_0") if machine.cards else ():
        for engine in machine.engines:
            cache = {"cache_type_k": kind, "cache_type_v": kind}
            yield _step(machine, "caches", engine, "q4_0", (0,), depths=(0, 16_384), note=f"cache {kind}", flags=cache)


def _experts_on_card(machine: Machine) -> Iterator[Step]:
    for kind in ("q4_0", "q4_K", "q8_0", "iq4_k", "mxfp4") if machine.cards else ():
        for engine in machine.engines:
            if _loads(engine, kind):
                yield _step(machine, "experts", engine, kind, (0,), experts=True, batch=2048, note="experts")


def _threads(machine: Machine) -> Iterator[Step]:
    for threads in sorted({1, 2, 4, 8, 16, 32, machine.threads // 2} & set(range(1, machine.threads)), reverse=True):
        for engine in machine.engines:
            yield _step(
                machine, "threads", engine, "q4_0", (), batch=128, note=f"-t {threads}", flags={"threads": threads}
            )


def _batches_on_cpu(machine: Machine) -> Iterator[Step]:
    for batch in (32, 512):
        for engine in machine.engines:
            yield _step(machine, "batches", engine, "q4_0", (), batch=batch, flags={"threads": machine.threads})


def _experts_on_cpu(machine: Machine) -> Iterator[Step]:
    for engine in machine.engines:
        yield _step(
            machine,
            "experts",
            engine,
            "q4_0",
            (),
            experts=True,
            batch=128,
            note="experts",
            flags={"threads": machine.threads},
        )
