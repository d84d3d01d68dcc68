"""The lab data: what builds of both engines really allocated for header-true models, as flags and figures."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from service.engine.catalogue import resolve
from service.engine.commands.parse import parse
from service.engine.config import Allocator, Engine, Flags
from service.engine.hardware import Gpu, Hardware, Ram
from service.engine.memory.figures import Memory
from service.engine.memory.least import least_memory
from service.engine.rules.case import Case, case_of
from service.engine.units import MIB
from tests.models import build

DATA = Path(__file__).parent / "data"
FILES: dict[Engine, Path] = {
    "ik_llama.cpp": DATA / "memory_lab_ik.jsonl",
    "llama.cpp": DATA / "memory_lab_llama_cpp.jsonl",
}
ARCHITECTURE_FILES: dict[Engine, Path] = {
    "ik_llama.cpp": DATA / "memory_arch_ik.jsonl",
    "llama.cpp": DATA / "memory_arch_llama_cpp.jsonl",
}
RIG_FILE = DATA / "memory_rig_ik.jsonl"
PARTS = ("weights", "kv", "compute", "output")

_LARGEST_3090 = 24_576  # MiB
_PROGRAMS: dict[Engine, str] = {"ik_llama.cpp": "llama-sweep-bench", "llama.cpp": "llama-fit-params"}


@dataclass(frozen=True)
class LabRow:
    """One measured run. `measured`: MiB by device and part; devices are CUDA0 and up, and CPU;
    None where the engine prints something else (of a mapped file, the range that it maps).

    `host_buffers`: how many printed figures, each rounded, a figure of the CPU may be the sum of.
    """

    id: str
    engine: Engine
    model: str
    mix: str
    free_mib: tuple[int, ...]
    args: tuple[str, ...]
    measured: dict[str, dict[str, float | None]]
    graph_splits: int | None
    graph_nodes: int | None
    allocator: Allocator = "lab"
    host_buffers: int = 1

    def predict(self) -> Memory:
        """Return what a check says about it, from the fields of the file alone."""
        return self._case().memory

    @cached_property
    def flags(self) -> Flags:
        """The flags of its command."""
        return self._case().flags

    def least(self) -> Memory:
        """Return what the same placement takes at least."""
        return least_memory(self._case().run)

    def _case(self) -> Case:
        """The check of its command, with its placement: some 200 kB, not kept."""
        card = "H200" if max(self.free_mib, default=0) > _LARGEST_3090 else "RTX 3090"
        gpus = [Gpu(name=card, free_gib=free / 1024) for free in self.free_mib]
        rig = resolve(Hardware(gpus=gpus, ram=Ram(total_gb=1024)))
        command = f"{_PROGRAMS[self.engine]} -m m.gguf {shlex.join(self.args)}"
        return case_of(parse(command, self.engine), build(self.model, self.mix), rig, command, self.allocator)

    def _value(self, option: str) -> str | None:
        """The word after an option of the command, which is not parsed: families are needed of every row."""
        return self.args[self.args.index(option) + 1] if option in self.args else None

    @property
    def family(self) -> str:
        """The kind of graph, by what decides its shape."""
        if self._value("-fa") == "off":
            return "no flash attention"
        if self.model.startswith(("Deep", "Kimi")):
            return "MLA" if self.engine == "llama.cpp" else f"MLA mode {self._value('-mla') or 3}"
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
            printed = self.row.host_buffers if self.device == "CPU" else 1
            return abs(self.predicted - self.measured) <= 0.0051 * printed
        return int(self.predicted + 1e-9) == self.measured


def lab_rows(engine: Engine) -> tuple[LabRow, ...]:
    """Return all measured runs of an engine."""
    return _rows(engine, FILES[engine])


def architecture_rows(engine: Engine) -> tuple[LabRow, ...]:
    """Return the measured runs of further architectures, some configurations of each."""
    return _rows(engine, ARCHITECTURE_FILES[engine])


def rig_rows() -> tuple[LabRow, ...]:
    """Return the runs of ik_llama.cpp built with CUDA: features that the lab's devices could not show."""
    return _rows("ik_llama.cpp", RIG_FILE)


@cache
def _rows(engine: Engine, path: Path) -> tuple[LabRow, ...]:
    return tuple(_row(engine, json.loads(line)) for line in path.read_text().splitlines())


def _row(engine: Engine, record: dict[str, Any]) -> LabRow:
    devices = {("CPU" if d == "Host" else d): _parts(v) for d, v in record["measured"]["devices"].items()}
    free = record["free_mib_per_gpu"]
    return LabRow(
        record["id"], engine, record["model"], record["mix"],
        tuple(free) if isinstance(free, list) else (free,) * record["gpus"], tuple(record["args"]), devices,
        record["measured"].get("graph_splits"), record["measured"].get("graph_nodes"),
        record.get("allocator", "lab"), record["measured"].get("host_buffers", 1),
    )  # fmt: skip


def _parts(device: dict[str, float | None]) -> dict[str, float | None]:
    return {part.removesuffix("_mib"): value for part, value in device.items()}


def compare(row: LabRow, memory: Memory) -> list[Compared]:
    """Return every measured figure next to the predicted one."""
    found = []
    for name, parts in row.measured.items():
        device = memory.devices[-1] if name == "CPU" else memory.devices[int(name.removeprefix("CUDA"))]
        for part in PARTS:
            predicted, measured = getattr(device, part) / MIB, parts.get(part, 0.0)
            if measured is not None and (part in parts or (predicted and part != "output")):
                found.append(Compared(row, name, part, predicted, measured))
    return found
