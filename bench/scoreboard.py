"""Predicted against published speed of one device: Apple, AMD and Intel, whose factors come from these lines.

Every third line of a backend was held out of the fit: a factor is the one at which the median error of the others is 0.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from service.engine.catalogue import engine_devices, resolve
from service.engine.config import Flags
from service.engine.estimate import Estimate
from service.engine.hardware import Gpu, Hardware, Ram
from service.engine.memory import place
from service.engine.speed import predict_speed
from tests.models import build

_DATA = Path(__file__).parent.parent / "tests" / "data"
BACKENDS = {"Metal": "metal", "ROCm": "rocm", "SYCL": "sycl"}
_MODELS = {
    "llama 7B Q4_0": ("Llama-2-7B", "q4_0"),
    "llama 8B Q4_0": ("Llama-3.1-8B", "q4_0"),
    "llama3.1 8B Q4_K_M": ("Llama-3.1-8B", "q4_k_m"),
}
_HOLD_OUT = 3
_PROMPT, _TOKENS = 512, 128


class Line(msgspec.Struct, frozen=True):
    """One published speed, in tokens a second, and the predicted one."""

    gpu: str
    backend: str
    phase: str
    observed: float
    predicted: Estimate
    held_out: bool

    @property
    def error(self) -> float:
        """Logarithm of predicted over observed."""
        return math.log(self.predicted.expected / self.observed)

    @property
    def inside(self) -> bool:
        """Whether the interval holds the published speed."""
        return self.predicted.low <= self.observed <= self.predicted.high


def lines(backends: Sequence[str] = tuple(BACKENDS)) -> list[Line]:
    """Return the lines of these backends whose model has a known shape, PP and TG apart."""
    names = json.loads((_DATA / "hardware_names.json").read_text())["gpus"]
    rows = [json.loads(row) for row in (_DATA / "gpu_scoreboard.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "one measurement, not two" not in (row["notes"] or "")]
    return [
        line
        for backend in backends
        for number, row in enumerate(r for r in rows if r["backend"] == backend and r["model"] in _MODELS)
        for line in _lines_of(row, names[row["gpu"]], number % _HOLD_OUT == _HOLD_OUT - 1)
    ]


def _lines_of(row: dict[str, Any], name: str, held_out: bool) -> Iterator[Line]:
    os = "macos" if row["backend"] == "Metal" else "linux"
    rig = resolve(Hardware(gpus=[Gpu(name=name)], ram=Ram(total_gb=64), os=os))
    devices = engine_devices(rig, "llama.cpp", (0,))
    model = build(*_MODELS[row["model"]])
    flags = Flags(n_gpu_layers=99, n_ubatch=_PROMPT, n_ctx=1024, flash_attn="on" if row["fa"] == 1 else "off")
    placement = place("llama.cpp", model, flags, [1 << 40])  # published runs held it whole
    for phase, key, depth in (("PP", "pp512", 0), ("TG", "tg128", _TOKENS // 2)):
        if row[key] is not None:
            speed = predict_speed("llama.cpp", model, flags, placement, rig, devices, depth)
            yield Line(row["gpu"], row["backend"], phase, row[key], speed.pp if phase == "PP" else speed.tg, held_out)


def report(found: Sequence[Line]) -> Iterator[str]:
    """Yield a row for each backend and phase, of the fitted and the held-out lines, then every line."""
    yield "One device, published (gpu_scoreboard.jsonl); fitted: every factor's own lines, held out: never seen by it."
    yield "| backend | phase | lines | bias | median error | inside |"
    yield "|---|---|---|---|---|---|"
    for backend in dict.fromkeys(line.backend for line in found):
        for phase in ("PP", "TG"):
            for held_out in (False, True):
                chosen = [x for x in found if (x.backend, x.phase, x.held_out) == (backend, phase, held_out)]
                if chosen:
                    yield f"| {backend}, {'held out' if held_out else 'fitted'} | {phase} | {_summary(chosen)} |"
    yield ""
    for line in found:
        mark = "" if line.inside else "  outside"
        yield f"  {line.phase} {line.predicted.expected:7.1f} for {line.observed:7.1f} t/s  {line.gpu}{mark}"


def _summary(chosen: Sequence[Line]) -> str:
    bias = math.exp(statistics.median(line.error for line in chosen)) - 1
    median = math.exp(statistics.median(abs(line.error) for line in chosen)) - 1
    inside = sum(line.inside for line in chosen)
    return f"{len(chosen)} | {bias * 100:+.0f} % | {median * 100:.0f} % | {inside} of {len(chosen)}"
