"""Predicted against published speed of one device: Apple, AMD and Intel, whose factors come from these lines.

Every third line of a backend was held out of the fit: a factor is the one at which the median error of the others is 0.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.runs import Setup, Test
from service.engine.catalogue import engine_devices, resolve
from service.engine.config import Flags, Placement
from service.engine.estimate import Estimate
from service.engine.hardware import Gpu, Hardware, Ram, Rig
from service.engine.memory import place
from service.engine.model import Model
from service.engine.speed import predict_speed, work_of
from service.engine.speed.calibration import Calibration
from service.engine.speed.generation import token_seconds
from service.engine.speed.machine import machine_of
from service.engine.speed.prompt import batch_seconds
from tests.models import build

_DATA = Path(__file__).parent.parent / "tests" / "data"
BACKENDS = {"Metal": "metal", "ROCm": "rocm", "SYCL": "sycl"}
_MODELS = {
    "llama 7B Q4_0": ("Llama-2-7B", "q4_0"),
    "llama 8B Q4_0": ("Llama-3.1-8B", "q4_0"),
    "llama3.1 8B Q4_K_M": ("Llama-3.1-8B", "q4_k_m"),
}
_HOLD_OUT = 3
_ROUNDS = 8  # reading counts in both speeds, computing in one: both factors settle together
_KEYS = {"PP": "pp512", "TG": "tg128"}
GROUP = "scoreboard"
_BUILD = "2024-11-02"  # of most of the NVIDIA lines
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
    return [
        line
        for backend in backends
        for number, row in enumerate(r for r in _rows() if r["backend"] == backend and r["model"] in _MODELS)
        for line in _lines_of(row, number % _HOLD_OUT == _HOLD_OUT - 1)
    ]


def _rows() -> list[dict[str, Any]]:
    rows = [json.loads(row) for row in (_DATA / "gpu_scoreboard.jsonl").read_text().splitlines()]
    return [row for row in rows if "one measurement, not two" not in (row["notes"] or "")]


def _fitted(backend: str) -> list[dict[str, Any]]:
    rows = [row for row in _rows() if row["backend"] == backend and row["model"] in _MODELS]
    return [row for number, row in enumerate(rows) if number % _HOLD_OUT != _HOLD_OUT - 1]


def _config(row: dict[str, Any]) -> tuple[Rig, Model, Flags, Placement]:
    name = json.loads((_DATA / "hardware_names.json").read_text())["gpus"][row["gpu"]]
    os = "macos" if row["backend"] == "Metal" else "linux"
    rig = resolve(Hardware(gpus=[Gpu(name=name)], ram=Ram(total_gb=64), os=os))
    model = build(*_MODELS[row["model"]])
    flags = Flags(n_gpu_layers=99, n_ubatch=_PROMPT, n_ctx=1024, flash_attn="on" if row["fa"] == 1 else "off")
    return rig, model, flags, place("llama.cpp", model, flags, [1 << 40])  # published runs held it whole


def _error(row: dict[str, Any], phase: str, values: Mapping[str, float]) -> float:
    rig, model, flags, placement = _config(row)
    work = work_of("llama.cpp", model, flags, placement)
    machine = machine_of(rig, engine_devices(rig, "llama.cpp", (0,)), flags, values)
    if phase == "TG":
        seconds = sum(token_seconds(work, machine, values, _TOKENS // 2).values())
    else:
        seconds = sum(batch_seconds(work, machine, values, _PROMPT, 0).values()) / _PROMPT
    return -math.log(seconds * row[_KEYS[phase]])


def _lines_of(row: dict[str, Any], held_out: bool) -> Iterator[Line]:
    rig, model, flags, placement = _config(row)
    devices = engine_devices(rig, "llama.cpp", (0,))
    for phase, depth in (("PP", 0), ("TG", _TOKENS // 2)):
        key = _KEYS[phase]
        if row[key] is not None:
            speed = predict_speed("llama.cpp", model, flags, placement, rig, devices, depth)
            yield Line(row["gpu"], row["backend"], phase, row[key], speed.pp if phase == "PP" else speed.tg, held_out)


def cuda_tests() -> Iterator[Test]:
    """Yield published speeds of one NVIDIA card as tests for the fit: TG of all, PP of those with flash attention."""
    for row in _rows():
        if row["backend"] == "CUDA" and row["model"] in _MODELS:
            rig, model, flags, placement = _config(row)
            case = {"id": f"scoreboard-{row['gpu']}", "quality": row["quality"]}
            devices = engine_devices(rig, "llama.cpp", (0,))
            setup = Setup(case, GROUP, "llama.cpp", model, flags, rig, devices, _BUILD)
            for phase, key, n in (("TG", "tg128", _TOKENS), ("PP", "pp512", _PROMPT)):
                if row[key] is not None and (phase == "TG" or row["fa"]):
                    yield Test(setup, phase, n, 0, row[key], flags, placement)


def fitted_backends(known: Calibration) -> Calibration:
    """Return the calibration with each backend's two factors such that the median error of its fitted lines is 0."""
    values = {name: p.value for name, p in known.parameters.items()}
    for backend, name in BACKENDS.items():
        for key, phase in (("gpu_read", "TG"), ("gpu_compute", "PP")) * _ROUNDS:
            errors = [_error(row, phase, values) for row in _fitted(backend) if row[_KEYS[phase]] is not None]
            values[f"{key}.{name}"] *= math.exp(statistics.median(errors))
    parameters = {
        name: msgspec.structs.replace(p, value=float(f"{values[name]:.4g}")) for name, p in known.parameters.items()
    }
    return msgspec.structs.replace(known, parameters=parameters)


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
