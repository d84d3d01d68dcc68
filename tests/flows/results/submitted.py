"""A benchmark of a repo of the local Hub, as people paste it."""

from __future__ import annotations

from typing import Any

from service.wire.results.submissions import Submission

REPO = "Qwen/Qwen3-0.6B-GGUF"
RIG = "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"
COMMAND = f"./llama-sweep-bench -m /models/{REPO}/Qwen3-0.6B-Q8_0.gguf -c 4096 -ngl 99 -fa on"
HEAD = "|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |\n"
LISTED = "  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes"


def sweep(pp: float = 9_000.0, tg: float = 250.0, depths: tuple[int, ...] = (0, 512, 1024)) -> str:
    """Return a table of llama-sweep-bench, slower with depth."""
    rows = []
    for i, n_kv in enumerate(depths):
        t, u = 512 / pp * (1 + 0.02 * i), 128 / tg * (1 + 0.02 * i)
        t, u = round(t, 3), round(u, 3)
        rows.append(f"|   512 |    128 | {n_kv:6d} | {t:8.3f} | {512 / t:8.2f} | {u:8.3f} | {128 / u:8.2f} |\n")
    return HEAD + "|---|\n" + "".join(rows)


def submission(**changes: Any) -> Submission:
    """Return a whole submission."""
    stated: dict[str, Any] = {"text": f"$ {COMMAND}\n\n{sweep()}", "hardware": RIG}
    return Submission(**(stated | changes))
