"""What a placement takes at least: stored bytes exactly, and a compute buffer that the replay never undercuts."""

from __future__ import annotations

from random import Random

import pytest

from service.engine.config import ENGINES, Engine, Flags, Override
from service.engine.memory.least import least_memory
from service.engine.memory.predict import predict_memory
from service.engine.units import MIB
from tests.bare_runs import run_on
from tests.corpus import for_each
from tests.memory_lab import LabRow, architecture_rows, lab_rows, rig_rows
from tests.models import build
from tests.sampling import models_on_engines

EVERY = 40


def measured() -> list[LabRow]:
    rows = [*rig_rows(), *(row for e in ENGINES for kept in (lab_rows(e), architecture_rows(e)) for row in kept)]
    return [row for row in rows[::EVERY] if row.flags.n_gpu_layers]


def random_flags(random: Random, n_layer: int) -> Flags:
    away = random.choice(
        ["exps", "ffn_down", "attn_q", r"blk\.[0-9]*[13579]\.ffn", rf"blk\.{random.randrange(n_layer)}\."]
    )
    return Flags(
        n_ctx=random.choice([4096, 32768]),
        n_ubatch=random.choice([16, 512, 2048]),
        flash_attn=random.choice(["on", "auto", "off"]),
        overrides=random.choice([(), (Override(away, "CPU"),)]),
        n_cpu_moe=random.choice([0, 0, n_layer // 2]),
        n_gpu_layers=random.choice([999, 999, n_layer // 2]),
    )


@pytest.mark.parametrize(("name", "engine"), models_on_engines(first=2))
def test_what_is_stored_is_exact_and_compute_is_never_above_the_replay(name: str, engine: Engine) -> None:
    random, model = Random(name), build(name, "q4_K_M")
    flags, free = random_flags(random, model.n_layer), [24 << 30] * random.randint(1, 4)
    run = run_on(engine, model, flags, free)
    memory, least = predict_memory(run), least_memory(run)

    stored = [[(d.weights, d.kv, d.derived) for d in one.devices] for one in (memory, least)]
    assert stored[0] == stored[1]
    for device, (bound, replayed) in enumerate(zip(least.devices, memory.devices, strict=True)):
        assert bound.compute <= replayed.compute
        assert least.total(device).expected <= memory.total(device).expected
        assert least.total(device).high <= memory.total(device).high


@for_each(measured, lambda row: f"{row.engine}-{row.id}")
def test_no_engine_reserved_less_than_the_bound(row: LabRow) -> None:
    printed = [row.measured.get(f"CUDA{i}", {}).get("compute") for i in range(len(row.free_mib))]

    for least, reserved in zip(row.least().devices, [*printed, row.measured["CPU"].get("compute")], strict=True):
        assert least.compute / MIB < (reserved or 0) + 1
