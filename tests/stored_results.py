"""Results as the database keeps them, made from a few words: of named models, rigs and speeds."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine

from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.measured.rows import MeasuredRow
from service.store.results import results
from service.store.results.results import StoredResult, rows_key_of

A_DAY = datetime(2026, 11, 1, 12, tzinfo=UTC)
TWO_3090 = Hardware(
    gpus=[Gpu(name="NVIDIA GeForce RTX 3090", count=2)],
    cpu=Cpu(model="AMD Ryzen 9 7950X"),
    ram=Ram(total_gb=128, type="DDR5", channels=2, mts=5600),
)


def row(n_kv: int = 0, tg: float | None = 20.0, pp: float | None = 500.0) -> MeasuredRow:
    """Return a row of a sweep with these speeds."""
    return MeasuredRow(
        n_kv=n_kv,
        n_prompt=512 if pp else 0,
        n_gen=128 if tg else 0,
        pp_seconds=(512 / pp,) if pp else (),
        tg_seconds=(128 / tg,) if tg else (),
    )


def a_result(rows: Sequence[MeasuredRow] = (), **values: Any) -> StoredResult:
    """Return a self-reported result of Qwen3-30B-A3B on two RTX 3090; `values` say what is otherwise."""
    measured = list(rows) if rows or "failure" in values else [row()]
    slug, engine = values.get("model_slug", "qwen3-30b-a3b"), values.get("engine", "ik_llama.cpp")
    filed: dict[str, Any] = {
        "id": secrets.token_urlsafe(16),
        "origin": "submitted",
        "tier": "self-reported",
        "engine": engine,
        "build": "8337e4cd3",
        "repo": "unsloth/Qwen3-30B-A3B-GGUF",
        "variant": "Q4_K_M",
        "model_name": "Qwen3-30B-A3B",
        "model_slug": slug,
        "arch": "qwen3moe",
        "n_params": 30_532_122_624,
        "n_active": 3_345_000_000,
        "bpw": 4.86,
        "hardware": TWO_3090,
        "gpus": "2x RTX 3090",
        "rig_slug": "2x-rtx-3090",
        "vram_mib": 49_152,
        "cpu": "Ryzen 9 7950X",
        "ram_gib": 128,
        "measured_at": A_DAY,
        "created_at": A_DAY,
    }
    return StoredResult(**{**filed, "rows": measured, "rows_key": rows_key_of(slug, engine, measured), **values})


def keep(engine: Engine, *several: StoredResult, log: str = "") -> None:
    """Store results, each in a transaction of its own."""
    for one in several:
        with engine.connect().execution_options(sqlite_begin="IMMEDIATE") as connection, connection.begin():
            results.insert_in(connection, one, log)
