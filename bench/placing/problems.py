"""Seeded random problems: published models on cards that do not hold all of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from bench.requests import random_hardware
from service.engine.catalogue import engine_devices, resolve
from service.engine.config import Device, Engine, Flags
from service.engine.engines import engine_spec
from service.engine.errors import InvalidHardware
from service.engine.goal import Constraints, GoalRequest, Preset, resolve_goal
from service.engine.hardware import Rig
from service.engine.model import Model
from service.engine.planner.pricing.candidate import base_flags
from service.engine.planner.pricing.fit import Problem, limits_of
from service.engine.units import GIB
from tests.models import build, model_names

_ENGINES: tuple[Engine, ...] = ("ik_llama.cpp", "llama.cpp")
_PRESETS: tuple[Preset, ...] = ("chat", "agent", "long", "batch")
_MICRO_BATCHES = (512, 512, 1024, 2048, 2048, 4096)
_MIXES = ("q4_k_m", "q3_k_m", "q2_k", "iq4_xs", "q5_k_m", "q8_0", "ffn_down_exps=q3_K,exps=iq2_xxs,*=q6_K")
_RANDOM_RESERVES = (0, 256, 512, 512, 512, 2048)


class Asked(NamedTuple):
    """A problem with the flags that are given, and how to name it."""

    name: str
    problem: Problem
    flags: Flags


def published_problem(seed: int) -> Asked:
    """Return a published model on 1 to 8 cards that do not hold all of it, in any order, with memory in use."""
    rng = random.Random(seed)
    while True:
        name, mix, engine = rng.choice(model_names()), rng.choice(_MIXES), rng.choice(_ENGINES)
        model, rig = build(name, mix), _rig(rng, range(1, 9))
        on_cards = sum(card.free for card in rig.cards)
        loads = model.architecture in engine_spec(engine).architectures.known
        if loads and 0.05 < on_cards / model.n_bytes < 1.2 and model.n_bytes < on_cards + rig.ram_bytes * 0.9:
            break
    problem, flags = _asked(rng, engine, model, rig)
    problem = replace(problem, devices=_in_use(rng, problem.devices))
    cards = " + ".join(f"{rig.cards[d.gpu].name} {d.free / GIB:.0f}" for d in problem.devices)
    return Asked(f"{seed}: {name} {mix}, {engine}, {problem.goal.preset}, {cards} GiB", problem, flags)


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
