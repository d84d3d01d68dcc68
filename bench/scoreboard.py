"""Predicted against published speed of one device: Llama 7B and 8B on CUDA, Metal, ROCm, SYCL and Vulkan.

Two lines of three are in the fit, every third is held out.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from bench.runs import Setup, Test, of_backend
from service.engine.builds import BuildAsked, resolve_build
from service.engine.catalogue import engine_devices, resolve
from service.engine.config import Flags, Placement
from service.engine.errors import AdvisorError
from service.engine.estimate import Estimate
from service.engine.hardware import Gpu, Hardware, Ram, Rig
from service.engine.model import Model
from service.engine.run.placement import place
from service.engine.run.resolved import resolve_run
from service.engine.speed.predict import predict_speed
from tests.models import build

_DATA = Path(__file__).parent.parent / "tests" / "data"
BACKENDS = ("CUDA", "Metal", "ROCm", "SYCL", "Vulkan")
# Lines that are of several cards, or of cards and speeds that their notes doubt.
_NO_LINES = {
    "8x AMD Instinct MI300X 192GB (all visible, -sm layer)",
    "AMD Instinct MI300X 192GB",
    "NVIDIA CMP 90HX (unlocked)",
}
_MODELS = {
    "llama 7B Q4_0": ("Llama-2-7B", "q4_0"),
    "llama 7B Q8_0": ("Llama-2-7B", "q8_0"),
    "llama 8B Q4_0": ("Llama-3.1-8B", "q4_0"),
    "llama3.1 8B Q4_K_M": ("Llama-3.1-8B", "q4_k_m"),
}
_HOLD_OUT = 3
_IN_RUNS = "kyuz0/"  # its lines are runs of perf_2026.jsonl too
# Lines of authors of runs, by a word of their source: what predicts his runs is fitted without them.
_AUTHORS = {"randomfoo2": "lhl"} | {name: name for name in ("lhl", "1337hero", "0cc4m", "daniandtheweb")}
_KEYS = {"PP": "pp512", "TG": "tg128"}
GROUP = "scoreboard"
_BUILDS = {"gpu_scoreboard": "2024-11-02", "gpu_scoreboard_2026": "2026-03-01"}  # of lines that name no number
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
        """Return the logarithm of predicted over observed speed."""
        return math.log(self.predicted.expected / self.observed)

    @property
    def inside(self) -> bool:
        """Return whether the interval contains the published speed."""
        return self.predicted.low <= self.observed <= self.predicted.high


def lines() -> list[Line]:
    """Return the lines whose card and model are known, PP and TG apart."""
    return [line for number, row in enumerate(_known_rows()) for line in _lines_of(row, _is_held_out(number))]


def _is_held_out(number: int) -> bool:
    return number % _HOLD_OUT == _HOLD_OUT - 1


@cache
def _known_rows() -> tuple[dict[str, Any], ...]:
    """Rows whose model has a known shape and whose card is in the catalogue; `of`: the file's name."""
    found = []
    for name in _BUILDS:
        for line in (_DATA / f"{name}.jsonl").read_text().splitlines():
            row = json.loads(line) | {"of": name}
            if row["model"] in _MODELS and row["backend"] in BACKENDS and not _is_unfit(row):
                found.append(row)
    return tuple(found)


def _is_unfit(row: dict[str, Any]) -> bool:
    if "one measurement, not two" in (row["notes"] or "") or row["gpu"] in _NO_LINES:
        return True
    try:
        _config(row)
    except AdvisorError:
        return True
    return False


@cache
def _names() -> dict[str, str | None]:
    found: dict[str, str | None] = json.loads((_DATA / "hardware_names.json").read_text())["gpus"]
    return found


def _config(row: dict[str, Any]) -> tuple[Rig, Model, Flags, Placement]:
    name = _names().get(row["gpu"]) or row["gpu"]
    os = "macos" if row["backend"] == "Metal" else "linux"
    rig = of_backend(resolve(Hardware(gpus=[Gpu(name=name)], ram=Ram(total_gb=64), os=os)), row["backend"])
    model = build(*_MODELS[row["model"]])
    flash = row["fa"] in (1, True)
    flags = Flags(n_gpu_layers=99, n_ubatch=_PROMPT, n_ctx=1024, flash_attn="on" if flash else "off")
    return rig, model, flags, place("llama.cpp", model, flags, [1 << 40])  # published runs held it whole


def _built(row: dict[str, Any]) -> str:
    number = re.search(r"\bb?(\d{4,5}) \(\w", row["notes"] or "")
    day = resolve_build("llama.cpp", BuildAsked(number=int(number[1]))).date if number else None
    return day or _BUILDS[row["of"]]


def _lines_of(row: dict[str, Any], held_out: bool) -> Iterator[Line]:
    rig, model, flags, placement = _config(row)
    devices = engine_devices(rig, "llama.cpp", (0,))
    for phase, depth in (("PP", 0), ("TG", _TOKENS // 2)):
        key = _KEYS[phase]
        if row[key] is not None:
            run = resolve_run("llama.cpp", model, flags, rig, devices, _built(row), placement=placement)
            speed = predict_speed(run, depth)
            yield Line(row["gpu"], row["backend"], phase, row[key], speed.pp if phase == "PP" else speed.tg, held_out)


def fitted_tests() -> Iterator[Test]:
    """Yield the published speeds that the fit takes in: all but the lines that are held out."""
    yield from (test for held_out, test in all_tests() if not held_out)


def all_tests() -> Iterator[tuple[bool, Test]]:
    """Yield every published speed that is not a run of another file too, and whether it is held out of the fit."""
    for number, row in enumerate(_known_rows()):
        if not row["source"].startswith(_IN_RUNS):
            rig, model, flags, placement = _config(row)
            author = next((name for word, name in _AUTHORS.items() if word in row["source"]), GROUP)
            name = f"{author}-{row['gpu']}-{row['backend']}-{number}"
            case = {"id": name, "quality": row["quality"], "source": row["source"]}
            devices = engine_devices(rig, "llama.cpp", (0,))
            setup = Setup(case, GROUP, "llama.cpp", model, flags, rig, devices, _built(row))
            for phase, n in (("TG", _TOKENS), ("PP", _PROMPT)):
                if row[_KEYS[phase]] is not None:
                    yield _is_held_out(number), Test(setup, phase, n, 0, row[_KEYS[phase]], flags, placement)


def report(found: Sequence[Line]) -> Iterator[str]:
    """Yield a row for each backend and phase, of the fitted and the held-out lines, then every line."""
    yield "One device, published (gpu_scoreboard*.jsonl); fitted: lines in the fit, held out: never seen by it."
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
