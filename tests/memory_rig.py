"""What a real context of either engine reserved on stand-in cards, as commands and bytes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from service.engine.commands.parse import parse
from service.engine.config import Engine
from service.engine.memory.figures import Memory
from service.engine.units import MIB
from tests.bare_runs import memory_on
from tests.models import build

_DATA = Path(__file__).parent / "data"
FILES: dict[Engine, Path] = {
    "llama.cpp": _DATA / "memory_rig_llama_cpp.jsonl",
    "ik_llama.cpp": _DATA / "memory_bytes_ik.jsonl",
}
PARTS = ("weights", "kv", "compute", "output", "derived")
PROGRAMS = {"server": "llama-server", "bench": "llama-bench", "sweep": "llama-sweep-bench"}


@dataclass(frozen=True)
class RigRow:
    """One measured run. `measured`: bytes by device and part; devices are CUDA0 and up, and Host."""

    id: str
    engine: Engine
    model: str
    mix: str
    tool: str
    free_mib: tuple[int, ...]
    args: tuple[str, ...]
    measured: dict[str, dict[str, int]]
    graph_splits: int
    graph_nodes: int

    def predict(self) -> Memory:
        """Return what the command's own flags say about it."""
        command = f"{PROGRAMS[self.tool]} -m m.gguf {shlex.join(self.args)}"
        parsed = parse(command, self.engine)
        free = [n * MIB for n in self.free_mib]
        return memory_on(self.engine, build(self.model, self.mix), parsed.flags, free, tool=parsed.tool)

    @property
    def kind(self) -> str:
        """What the run tries besides layers on cards."""
        asked = set(self.args)
        if asked & {"tensor", "graph"}:
            return "-sm tensor" if "tensor" in asked else "-sm graph"
        if "none" in asked and "-sm" in asked:
            return "-sm none"
        if "-ncffn" in asked:
            return "-ncffn"
        if asked & {"-ot", "-cmoe", "-ncmoe"}:
            return "overrides"
        if asked & {"-ctk"}:
            return "cache types"
        if "-mla" in asked:
            return "latent attention"
        return "several slots" if asked & {"-np"} and self.args[self.args.index("-np") + 1] != "1" else "plain"


class RigFigure(NamedTuple):
    """One figure, in bytes."""

    row: RigRow
    device: str
    part: str
    predicted: int
    measured: int


def rig_rows(engine: Engine) -> Iterator[RigRow]:
    """Yield all measured runs of an engine."""
    for line in FILES[engine].read_text().splitlines():
        record = json.loads(line)
        devices = {name: _parts(parts) for name, parts in record["measured"]["devices"].items()}
        yield RigRow(
            record["id"], engine, record["model"], record["mix"], record["tool"], tuple(record["free_mib"]),
            tuple(record["args"]), devices, record["measured"]["graph_splits"], record["measured"]["graph_nodes"],
        )  # fmt: skip


def _parts(device: dict[str, int]) -> dict[str, int]:
    return {part.removesuffix("_bytes"): value for part, value in device.items()}


def compare_bytes(row: RigRow, memory: Memory) -> list[RigFigure]:
    """Return every measured figure next to the predicted one."""
    found = []
    for name, parts in row.measured.items():
        device = memory.devices[-1] if name == "Host" else memory.devices[int(name.removeprefix("CUDA"))]
        found += [RigFigure(row, name, part, getattr(device, part), n) for part, n in parts.items()]
    return found
