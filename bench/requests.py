"""Seeded random requests for advice: models of true shapes, machines that people have, goals that they state."""

from __future__ import annotations

import random
from typing import NamedTuple

from service.engine.advise import VariantModel
from service.engine.catalogue.rows import known_gpus
from service.engine.config import CacheType
from service.engine.goal import Constraints, GoalRequest, Preset
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.planner.explaining.commands import Files
from tests.models import build, model_names

_MIXES = ("q2_k", "q3_k_m", "iq4_xs", "q4_k_m", "q5_k_m", "q8_0", "exps=iq4_ks,*=q8_0", "exps=iq2_ks,*=iq5_ks", "bf16")
_PRESETS: tuple[Preset, ...] = ("chat", "agent", "long", "batch", "fastest", "quality")
_CPUS = (
    ("Ryzen 9 7950X", 1, "DDR5", 2, 5600),
    ("Ryzen 7 5800X3D", 1, "DDR4", 2, 3600),
    ("EPYC 9355", 1, "DDR5", 12, 6400),
    ("EPYC 7713", 1, "DDR4", 8, 3200),
    ("Threadripper PRO 7965WX", 1, "DDR5", 8, 5200),
    ("Xeon Platinum 8480+", 2, "DDR5", 16, 4800),
    ("Core i9-13900K", 1, "DDR5", 2, 6000),
)
_COMMON_CARDS = (
    "RTX 5090",
    "RTX 4090",
    "RTX 3090",
    "RTX 4060 Ti 16GB",
    "RTX 3060",
    "RTX A6000",
    "RTX PRO 6000 Blackwell",
    "Tesla P40",
)


class Request(NamedTuple):
    """What `advise()` takes, and the name of the model."""

    model: str
    variants: list[VariantModel]
    hardware: Hardware
    goal: GoalRequest
    constraints: Constraints


def random_request(rng: random.Random) -> Request:
    """Return a request with one to three variants of one model."""
    model = rng.choice(model_names())
    mixes = rng.sample(_MIXES, rng.randint(1, 3))
    variants = [
        VariantModel(mix, Files(f"a/{model}", "0" * 40, (f"{model}-{i}.gguf",)), build(model, mix))
        for i, mix in enumerate(mixes)
    ]
    return Request(model, variants, random_hardware(rng), _goal(rng), _constraints(rng))


def random_hardware(rng: random.Random) -> Hardware:
    """Return a machine with no to eight GPUs of up to three kinds, some of them partly in use."""
    name, sockets, kind, channels, mts = rng.choice(_CPUS)
    ram = Ram(total_gb=rng.choice((32, 64, 96, 128, 192, 256, 384, 512, 768)), type=kind, channels=channels, mts=mts)
    return Hardware(gpus=_gpus(rng), cpu=Cpu(model=name, sockets=sockets), ram=ram)


def _gpus(rng: random.Random) -> list[Gpu]:
    n_cards, gpus = rng.choice((0, 1, 1, 1, 2, 2, 3, 4, 6, 8)), list[Gpu]()
    everything = [row.name for row in known_gpus() if row.backend == "cuda"]
    while n_cards:
        count = rng.randint(1, n_cards) if len(gpus) < 2 else n_cards
        name = rng.choice(_COMMON_CARDS if rng.random() < 0.8 else everything)
        used = rng.choice((None, None, rng.uniform(0.5, 1.0)))
        gpus.append(_gpu(name, count, used, rng.choice((None, None, "4.0 x16", "3.0 x4", "4.0 x8"))))
        n_cards -= count
    return gpus


def _gpu(name: str, count: int, used: float | None, pcie: str | None) -> Gpu:
    return Gpu(name=name, count=count, pcie=pcie, free_gib=None if used is None else round(used * 8, 2))


def _goal(rng: random.Random) -> GoalRequest:
    context = rng.choice((None, None, 4_096, 32_768, 100_000))
    return GoalRequest(preset=rng.choice(_PRESETS), context=context, depth=0 if context == 4_096 else None)


def _constraints(rng: random.Random) -> Constraints:
    choices: tuple[list[CacheType] | None, ...] = (None, None, None, ["q8_0"], ["f16", "q4_0"])
    kv_types = rng.choice(choices)
    return Constraints(kv_types=kv_types, reserve_mib=rng.choice((None, None, 0, 2_048)))
