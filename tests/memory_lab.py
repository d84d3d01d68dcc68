"""The lab data: what builds of both engines really allocated for header-true models, as flags and figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.engine.config import Engine, Flags, Override
from service.engine.memory import Memory, predict_memory
from service.engine.units import MIB
from tests.models import build

DATA = Path(__file__).parent / "data"
FILES: dict[Engine, Path] = {
    "ik_llama.cpp": DATA / "memory_lab_ik.jsonl",
    "llama.cpp": DATA / "memory_lab_llama_cpp.jsonl",
}
RIG_FREE = 25_276_502_016  # bytes free on each device of the rig; the file has it cut to whole MiB
PARTS = ("weights", "kv", "compute", "output")

_NUMBERS = {"-c": "n_ctx", "-ub": "n_ubatch", "-b": "n_batch", "-ngl": "n_gpu_layers", "-mla": "mla",
            "-amb": "attn_max_batch", "-ncmoe": "n_cpu_moe"}  # fmt: skip
_WORDS = {"-ctk": "cache_type_k", "-ctv": "cache_type_v", "-fa": "flash_attn"}


@dataclass(frozen=True)
class LabRow:
    """One measured run. `measured`: MiB by device and part; devices are CUDA0 and up, and CPU."""

    id: str
    engine: Engine
    model: str
    mix: str
    n_gpus: int
    flags: Flags
    measured: dict[str, dict[str, float]]
    graph_splits: int | None
    graph_nodes: int | None

    def predict(self) -> Memory:
        """Return what we say about it."""
        free = [RIG_FREE] * self.n_gpus
        return predict_memory(
            self.engine, build(self.model, self.mix), self.flags, free, allocator="lab", tool="bench"
        )  # fmt: skip

    @property
    def family(self) -> str:
        """The kind of graph, by what decides its shape."""
        if self.flags.flash_attn == "off":
            return "no flash attention"
        if self.model.startswith(("Deep", "Kimi")):
            return "MLA" if self.engine == "llama.cpp" else f"MLA mode {self.flags.mla or 3}"
        named = {"Qwen3-Next-80B-A3B": "hybrid", "Llama-4-Maverick": "llama4", "gpt-oss-120b": "gpt-oss",
                 "Gemma-3-27B": "gemma3"}  # fmt: skip
        experts = ("GLM-4.5-Air", "Qwen3-235B-A22B", "Qwen3-30B-A3B")
        return named.get(self.model, "GQA MoE" if self.model in experts else "GQA dense")


@dataclass(frozen=True)
class Compared:
    """One figure of one device, in MiB."""

    row: LabRow
    device: str
    part: str
    predicted: float
    measured: float

    @property
    def exact(self) -> bool:
        """ik prints hundredths of a MiB; llama-fit-params whole MiB, rounded down."""
        if self.row.engine == "ik_llama.cpp":
            return abs(self.predicted - self.measured) <= 0.0051
        return int(self.predicted + 1e-9) == self.measured


def lab_rows(engine: Engine) -> Iterator[LabRow]:
    """Yield all measured runs of an engine."""
    for line in FILES[engine].read_text().splitlines():
        record = json.loads(line)
        devices = {("CPU" if d == "Host" else d): _parts(v) for d, v in record["measured"]["devices"].items()}
        yield LabRow(
            record["id"], engine, record["model"], record["mix"], record["gpus"], flags_of(record["args"]), devices,
            record["measured"].get("graph_splits"), record["measured"].get("graph_nodes"),
        )  # fmt: skip


def _parts(device: dict[str, float]) -> dict[str, float]:
    return {part.removesuffix("_mib"): value for part, value in device.items()}


def flags_of(args: list[str]) -> Flags:
    """Return the flags of a lab command line."""
    values: dict[str, Any] = {}
    overrides: list[Override] = []
    words = iter(args)
    for name in words:
        if name in _NUMBERS:
            values[_NUMBERS[name]] = int(next(words))
        elif name in _WORDS:
            values[_WORDS[name]] = next(words)
        elif name == "-ts":
            values["tensor_split"] = tuple(float(share) for share in next(words).split(","))
        elif name == "-ot":
            overrides += [Override(*rule.split("=", 1)) for rule in next(words).split(",")]
        elif name == "-cmoe":
            values["cpu_moe"] = True
        elif name != "-nr":  # no repacking: changes no size
            raise ValueError(f"the lab data has a flag that is not read here: {name}")
    return Flags(overrides=tuple(overrides), **values)


def compare(row: LabRow, memory: Memory) -> list[Compared]:
    """Return every measured figure beside the predicted one."""
    found = []
    for name, parts in row.measured.items():
        device = memory.devices[-1] if name == "CPU" else memory.devices[int(name.removeprefix("CUDA"))]
        for part in PARTS:
            predicted = getattr(device, part) / MIB
            if part in parts or (predicted and part != "output"):
                found.append(Compared(row, name, part, predicted, parts.get(part, 0.0)))
    return found
