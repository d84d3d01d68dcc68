"""Seeded random problems: short models that can be solved exactly, and models as they are published."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from bench.placing.written import written
from bench.requests import random_hardware
from service.engine.catalogue import engine_devices, resolve
from service.engine.config import Device, Engine, Flags
from service.engine.errors import InvalidHardware
from service.engine.goal import Constraints, GoalRequest, Preset, resolve_goal
from service.engine.hardware import Rig
from service.engine.model import Model
from service.engine.planner.blocks import blocks_of
from service.engine.planner.candidates import base_flags
from service.engine.planner.fit import Problem, slack
from service.engine.planner.search import limits_of
from service.engine.planner.support import architectures
from service.engine.units import GIB
from tests.models import build, build_short, model_names

_ENGINES: tuple[Engine, ...] = ("ik_llama.cpp", "llama.cpp")
_PRESETS: tuple[Preset, ...] = ("chat", "agent", "long", "batch")
_MICRO_BATCHES = (512, 512, 1024, 2048, 2048, 4096)
# No next-token layers (they take no part), no caches shared between layers.
_SHORT = (
    "Qwen3-235B-A22B", "Qwen3-30B-A3B", "gpt-oss-120b", "gpt-oss-20b", "DeepSeek-V2-Lite", "DeepSeek-R1-0528",
    "Mixtral-8x22B", "Ling-flash-2.0", "dots.llm1", "MiniMax-M2", "Qwen3-32B", "Llama-3.3-70B", "Llama-3.1-8B",
    "Qwen2.5-72B", "Mistral-Large-123B", "Hunyuan-A13B",
)  # fmt: skip
_MIXES = ("q4_k_m", "q3_k_m", "q2_k", "iq4_xs", "q5_k_m", "q8_0", "exps=iq2_xxs,*=q6_K")
_UNEVEN = ("q3_K", "q4_K", "q5_K", "q6_K", "iq4_xs")
_LARGE_MIXES = ("q4_k_m", "q3_k_m", "q2_k", "iq4_xs", "q5_k_m", "q8_0", "ffn_down_exps=q3_K,exps=iq2_xxs,*=q6_K")
_RANDOM_RESERVES = (0, 256, 512, 512, 512, 2048)


class Asked(NamedTuple):
    """A problem with the flags that are given, and how to name it."""

    name: str
    problem: Problem
    flags: Flags


def short_problem(
    seed: int, n_layers: Sequence[int] = range(4, 13), n_cards: Sequence[int] = (1, 1, 2, 2, 3, 3)
) -> Asked:
    """Return a problem of 4 to 12 blocks, two of five with uneven types, on 1 to 3 cards of any make.

    The cards have room for what cannot move, at least, and for a random share of the pieces.
    """
    rng = random.Random(seed)
    name, n_layer, engine = rng.choice(_SHORT), rng.choice(n_layers), rng.choice(_ENGINES)
    mix = rng.choice(_MIXES) if rng.random() < 0.6 else _uneven_mix(rng, n_layer)
    model = build_short(name, mix, n_layer)
    rig = _rig(rng, n_cards)
    problem, flags = _asked(rng, engine, model, rig)
    flags = replace(flags, n_ubatch=rng.choice(_MICRO_BATCHES[:5]))
    problem = replace(problem, devices=_tight(rng, problem, flags))
    cards = " + ".join(f"{rig.cards[d.gpu].name} {d.free / GIB:.1f}" for d in problem.devices)
    return Asked(f"short {seed}: {name} {mix} {n_layer} blocks, {engine}, {cards} GiB", problem, flags)


def real_problem(seed: int) -> Asked:
    """Return a published model on 1 to 8 cards that do not hold all of it, in any order, with memory in use."""
    rng = random.Random(seed)
    while True:
        name, mix, engine = rng.choice(model_names()), rng.choice(_LARGE_MIXES), rng.choice(_ENGINES)
        model, rig = build(name, mix), _rig(rng, range(1, 9))
        knows = architectures()[model.architecture]
        on_cards = sum(card.free for card in rig.cards)
        loads = knows.ik if engine == "ik_llama.cpp" else knows.mainline
        if loads and 0.05 < on_cards / model.n_bytes < 1.2 and model.n_bytes < on_cards + rig.ram_bytes * 0.9:
            break
    problem, flags = _asked(rng, engine, model, rig)
    problem = replace(problem, devices=_in_use(rng, problem.devices))
    cards = " + ".join(f"{rig.cards[d.gpu].name} {d.free / GIB:.0f}" for d in problem.devices)
    return Asked(f"real {seed}: {name} {mix}, {engine}, {problem.goal.preset}, {cards} GiB", problem, flags)


def _uneven_mix(rng: random.Random, n_layer: int) -> str:
    """A mix of which some blocks have another type for their experts, or for the down of them."""
    odd = [
        f"blk.{i}.ffn_{rng.choice(('', 'down'))}={rng.choice(_UNEVEN)}" for i in range(n_layer) if rng.random() < 0.4
    ]
    return ",".join([*odd, f"ffn_down={rng.choice(_UNEVEN)}", f"ffn_={rng.choice(_UNEVEN)}", "*=q6_K"])


def _rig(rng: random.Random, counts: Sequence[int]) -> Rig:
    wanted = rng.choice(counts)
    while True:
        hardware = random_hardware(rng)
        with suppress(InvalidHardware):  # more memory free than a small card has
            rig = resolve(hardware)
            if len(rig.cards) >= wanted:
                return replace(rig, cards=tuple(rng.sample(rig.cards, wanted)))


def _asked(rng: random.Random, engine: Engine, model: Model, rig: Rig) -> tuple[Problem, Flags]:
    cards = tuple(range(len(rig.cards)))
    limits = limits_of(rig, Constraints(reserve_mib=rng.choice(_RANDOM_RESERVES)), cards)
    goal = resolve_goal(GoalRequest(preset=rng.choice(_PRESETS)), model.n_ctx_train)
    problem = Problem(engine, model, engine_devices(rig, engine, cards), limits, rig, goal)
    kv_type = "f16" if model.mla or rng.random() < 0.7 else "q8_0"
    flags = base_flags(engine, model, rig, goal, "FFN in RAM", rng.choice(_MICRO_BATCHES), kv_type)
    return problem, flags


def _in_use(rng: random.Random, devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Most cards are free, some have up to 3 GiB in use."""
    return tuple(
        replace(d, free=d.free - int(rng.choice((0, 0, rng.uniform(0, 3))) * GIB)) if d.free > 8 * GIB else d
        for d in devices
    )


def _tight(rng: random.Random, problem: Problem, flags: Flags) -> tuple[Device, ...]:
    """Cards with what cannot move, as runs of random lengths need it, and room for a random share of the pieces."""
    blocks, n_cards = blocks_of(problem.engine, problem.model), len(problem.devices)
    n_slots, host = problem.model.n_layer + 1, n_cards
    starts = (0, *sorted(rng.randint(0, n_slots) for _ in range(n_cards - 1)), n_slots)
    away = written(problem, flags, starts, [(host,) * len(block.pieces) for block in blocks])
    left = slack(problem, problem.memory(away or flags))
    movable = sum(block.movable_bytes for block in blocks)
    return tuple(
        replace(d, free=max(d.free - left[i], 0) + int(rng.uniform(0.02, 1.2) * movable / n_cards))
        for i, d in enumerate(problem.devices)
    )
