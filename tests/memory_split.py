"""What ik_llama.cpp printed with `-sm graph` on stand-in cards, as commands and MiB."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from service.engine.commands.parse import parse
from service.engine.memory.figures import Memory
from service.engine.memory.predict import predict_memory
from service.engine.run.resolved import ResolvedRun
from service.engine.units import MIB
from tests.bare_runs import run_on
from tests.models import build

FILE = Path(__file__).parent / "data" / "memory_split_ik.jsonl"


class SplitRow(msgspec.Struct, frozen=True):
    """One measured run. `weights_mib` and `kv_mib`: of all cards; `compute_mib`: each card's, and the host's."""

    id: int
    model: str
    mix: str
    free_mib: tuple[int, ...]
    args: tuple[str, ...]
    weights_mib: float
    card_weights_mib: tuple[float, ...]
    row_padding_mib: float
    kv_mib: float
    card_kv_mib: tuple[float, ...]
    compute_mib: tuple[float, ...]
    graph_nodes: int
    graph_splits: int

    def run(self) -> ResolvedRun:
        """Return the run of the command's own flags."""
        flags = parse(f"llama-sweep-bench -m m.gguf {shlex.join(self.args)}", "ik_llama.cpp").flags
        free = [n * MIB for n in self.free_mib]
        return run_on("ik_llama.cpp", build(self.model, self.mix), flags, free, tool="bench")

    def predict(self) -> Memory:
        """Return what is predicted of it."""
        return predict_memory(self.run())


def split_rows() -> list[SplitRow]:
    """Return all measured runs."""
    return [msgspec.json.decode(line, type=SplitRow) for line in FILE.read_bytes().splitlines()]


def exact_buffers(row: SplitRow, memory: Memory) -> list[bool]:
    """Return for each card, and the host, whether the compute buffer is the printed one."""
    return [round(d.compute / MIB, 2) == n for d, n in zip(memory.devices, row.compute_mib, strict=True)]


def equal_graph(row: SplitRow, memory: Memory) -> bool:
    """Return whether nodes and splits of the graph are those printed."""
    return (memory.graph_nodes, memory.graph_splits) == (row.graph_nodes, row.graph_splits)
