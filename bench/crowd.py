"""A made-up crowd for benchmarks of the database: results as thousands of people would send them, from a seed.

Models, variants and rigs are as uneven as in life (the k-th most common thing is a k-th as common as the first). Speeds
are bandwidth over bytes with noise; nothing here is a measurement.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import msgspec

from service.engine.catalogue import resolve
from service.engine.config import Engine
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.measured.identity import ModelIdentity, RigIdentity, rig_identity
from service.engine.measured.rows import MeasuredRow
from service.store.results.results import StoredResult, filed_under, rows_key_of

NEWEST = datetime(2026, 11, 21, tzinfo=UTC)
_DAYS = 700
_FAMILIES = (
    ("Qwen3", "qwen3", (0.6, 1.7, 4, 8, 14, 32)),
    ("Qwen3-MoE", "qwen3moe", (30, 80, 235, 480)),
    ("DeepSeek-R1", "deepseek2", (671,)),
    ("DeepSeek-V3", "deepseek2", (671,)),
    ("Kimi-K2", "deepseek2", (1026,)),
    ("GLM-4", "glm4moe", (9, 32, 109, 358)),
    ("gpt-oss", "gpt-oss", (20, 120)),
    ("Llama-3", "llama", (1, 3, 8, 70, 405)),
    ("gemma-3", "gemma3", (1, 4, 12, 27)),
    ("Mistral", "llama", (7, 24, 123)),
)
_FINETUNES = ("", "-Instruct", "-Coder", "-Thinking", "-abliterated")
_VARIANTS = {
    "Q4_K_M": 4.86, "IQ4_XS": 4.32, "Q8_0": 8.5, "Q4_K_S": 4.6, "IQ4_KS": 4.4, "Q6_K": 6.56, "Q5_K_M": 5.68,
    "Q3_K_M": 3.9, "IQ3_K": 3.5, "IQ2_K_R4": 2.6, "UD-Q2_K_XL": 2.7, "BF16": 16.0,
}  # fmt: skip
_CARDS = (
    "RTX 3090", "RTX 4090", "RTX 5090", "RTX 3060", "RTX 4060 Ti 16GB", "RTX A6000", "Tesla P40", "RTX 4080",
    "RTX PRO 6000 Blackwell", "RTX 3080", "RTX 4070 Ti", "RTX 2080 Ti",
)  # fmt: skip
_CPUS = (
    ("Ryzen 9 7950X", "DDR5", 2, 5600), ("Core i9-13900K", "DDR5", 2, 6000), ("EPYC 9355", "DDR5", 12, 6400),
    ("Ryzen 7 5800X3D", "DDR4", 2, 3600), ("Threadripper PRO 7965WX", "DDR5", 8, 5200), ("EPYC 7713", "DDR4", 8, 3200),
)  # fmt: skip
_T = TypeVar("_T")


class _Machine(NamedTuple):
    hardware: Hardware
    identity: RigIdentity
    bandwidth_gbs: float


class _Uneven:
    """Draws from a sequence, its k-th item a k-th as often as the first."""

    def __init__(self, things: Sequence[_T]) -> None:
        self.things = things
        self.weights = list(accumulate(1 / (k + 1) for k in range(len(things))))

    def draw(self, rng: random.Random) -> Any:
        return rng.choices(self.things, cum_weights=self.weights)[0]


def crowd(n_results: int, seed: int, n_machines: int = 2_000) -> Iterator[StoredResult]:
    """Yield results of many people, in no order of time: nine in ten of people, a few of agents, some doubted."""
    rng = random.Random(seed)
    models, machines, variants = (
        _Uneven(_models(rng)),
        _Uneven([_machine(rng) for _ in range(n_machines)]),
        _Uneven(list(_VARIANTS.items())),
    )
    for i in range(n_results):
        yield _result(rng, f"{seed}-{i:019d}"[:22], models.draw(rng), machines.draw(rng), variants.draw(rng))


def _models(rng: random.Random) -> list[ModelIdentity]:
    found = []
    for name, arch, sizes in _FAMILIES:
        for size in sizes:
            for finetune in _FINETUNES:
                shown = f"{name}-{size:g}B{finetune}"
                n_params = int(size * 1e9)
                active = n_params // 12 if arch in ("qwen3moe", "deepseek2", "glm4moe", "gpt-oss") else n_params
                found.append(
                    ModelIdentity(
                        name=shown, slug=shown.lower(), arch=arch, n_params=n_params, n_active=active, bpw=None
                    )
                )
    rng.shuffle(found)
    return found


def _machine(rng: random.Random) -> _Machine:
    cpu, kind, channels, mts = rng.choice(_CPUS)
    total = rng.choice((32, 64, 96, 128, 192, 256, 512))
    kinds = rng.choice((0, 1, 1, 1, 2))
    gpus = [Gpu(name=name, count=rng.choice((1, 1, 1, 2, 4))) for name in rng.sample(_CARDS, kinds)]
    ram = Ram(total_gb=total, type=kind, channels=channels, mts=mts)
    hardware = Hardware(gpus=gpus, cpu=Cpu(model=cpu), ram=ram)
    rig = resolve(hardware)
    bandwidth = max((card.bandwidth_gbs for card in rig.cards), default=rig.cpu_bandwidth_gbs)
    return _Machine(hardware, rig_identity(hardware, rig), bandwidth)


def _result(
    rng: random.Random, result_id: str, model: ModelIdentity, machine: _Machine, variant: tuple[str, float]
) -> StoredResult:
    filed = msgspec.structs.replace(model, bpw=variant[1])
    tg = 0.5 * machine.bandwidth_gbs / ((model.n_active or 1) * variant[1] / 8e9) * rng.lognormvariate(0, 0.2)
    rows = _rows(rng, min(tg, 500.0))
    engine: Engine = rng.choice(("ik_llama.cpp", "llama.cpp", "llama.cpp"))
    measured_at = NEWEST - timedelta(seconds=int(rng.random() ** 1.5 * _DAYS * 86_400))
    return StoredResult(
        id=result_id,
        origin="submitted",
        state=rng.choices(("shown", "quarantined", "hidden"), (96, 3, 1))[0],
        tier=rng.choices(("self-reported", "agent-run", "replicated"), (90, 9, 1))[0],
        engine=engine,
        build=f"b{rng.randint(4000, 7000)}",
        repo=f"somebody/{model.name}-GGUF",
        variant=variant[0],
        hardware=machine.hardware,
        rows=rows,
        rows_key=rows_key_of(model.slug, engine, rows),
        command=f"llama-sweep-bench -m {model.name}-{variant[0]}.gguf -c 32768 -ub 2048 -ngl 99 -ot exps=CPU -fa",
        measured_at=measured_at,
        created_at=measured_at + timedelta(minutes=rng.randint(1, 5000)),
        **filed_under(filed, machine.identity),
    )


def _rows(rng: random.Random, tg: float) -> list[MeasuredRow]:
    """Return a sweep in steps of 2,048 tokens, as deep as people go."""
    deepest = rng.choice((1, 3, 5, 9, 9, 17, 17))
    found = []
    for n_kv in range(0, deepest * 2048, 2048):
        speed = tg / (1 + n_kv / 60_000)
        found.append(
            MeasuredRow(
                n_kv=n_kv,
                n_prompt=2048,
                n_gen=512,
                pp_seconds=(round(2048 / (25 * speed), 6),),
                tg_seconds=(round(512 / speed, 6),),
            )
        )
    return found
