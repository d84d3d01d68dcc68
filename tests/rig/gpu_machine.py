"""A machine for GPU days in tests: cards that are only told of, and engines that behave as recorded."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.units import MIB
from tests.engine_replay import install
from tests.models import write_gguf
from workers.agent.local import LocalGpu
from workers.agent.probe import GpuNow

CPU_ONLY = Hardware(
    gpus=[],
    cpu=Cpu(model="Ryzen 9 7950X", physical_cores=4),
    ram=Ram(total_gb=64, measured_bandwidth_gbs=60),
    os="linux",
)
# Answers as llama-server does once it has loaded; what it prints of its buffers, llama-server of 0c1e57098 printed on
# the rig (two cards, Qwen3-0.6B in q4_0).
_SERVER = '''#!{python} -IS
import http.server, sys
print("""load_tensors:   CPU_Mapped model buffer size =    83.46 MiB
load_tensors:        CUDA0 model buffer size =   126.69 MiB
llama_kv_cache:      CUDA0 KV buffer size =   240.00 MiB
sched_reserve:      CUDA0 compute buffer size =    48.04 MiB
sched_reserve:  CUDA_Host compute buffer size =    26.05 MiB
sched_reserve: graph: nodes = 986, splits = 3, input objects = 4, input tensors = 6""", flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()
    def log_message(self, *words):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
'''


_SMALL = "Qwen3-0.6B"


class ToldCards:
    """Cards of which each look says that 900 MiB are used, and 100 more at every further one."""

    def __init__(self, n: int) -> None:
        self.n, self.looks = n, 0

    def cards(self) -> tuple[tuple[LocalGpu, Gpu], ...]:
        """Return n RTX 3090."""
        told = Gpu(name="NVIDIA GeForce RTX 3090", vram_gib=24, pcie="4.0 x16")
        return tuple(
            (LocalGpu(index=i, backend="cuda", total=24 << 30, uuid=f"GPU-{i:08x}"), told) for i in range(self.n)
        )

    def now(self, indices: Sequence[int]) -> tuple[GpuNow, ...]:
        """Return what each card has in use."""
        self.looks += bool(indices)
        return tuple(GpuNow(index=i, total=24 << 30, used=(900 + 100 * self.looks) * MIB) for i in indices)


def install_engines(folder: Path, case: str = "ok") -> Path:
    """Put both engines' programs into a folder."""
    for program in ("llama-sweep-bench", "llama-bench"):
        install(folder, program, case, pp_tps=900.0, tg_tps=50.0)
    server = folder / "llama-server"
    server.write_text(_SERVER.replace("{python}", str(Path(sys.executable).resolve())))
    server.chmod(0o755)
    return folder


def settle(monkeypatch: pytest.MonkeyPatch, cards: ToldCards | None = None) -> None:
    """Have a GPU day find this machine, and write headers in place of models."""
    found = [gpu for _, gpu in cards.cards()] if cards else []
    if cards is not None:
        monkeypatch.setattr("rig.gpu_day.open_gpus", lambda: cards)
    monkeypatch.setattr("rig.gpu_day.copy_gbs", dict)
    monkeypatch.setattr("rig.gpu_memory._LOOK_SECONDS", 0.02)
    hardware = Hardware(gpus=found, cpu=CPU_ONLY.cpu, ram=CPU_ONLY.ram, os="linux")
    monkeypatch.setattr("rig.gpu_day.find_hardware", lambda nvidia, measure: hardware)
    monkeypatch.setattr("rig.gpu_day.write_model", header_only)
    for name, less in (("_TYPES", ("q4_0", "iq4_k")), ("_MORE_TYPES", ()), ("_BATCHES", (512,)), ("_DENSE", _SMALL)):
        monkeypatch.setattr(f"rig.gpu_plan.{name}", less)
    for part in ("_threads", "_batches_on_cpu"):
        monkeypatch.setattr(f"rig.gpu_plan.{part}", lambda machine: iter(()))


def header_only(folder: Path, model: str, mix: str) -> tuple[Path, str]:
    """As `write_model`, the data being a hole."""
    from rig.gpu_models import file_name

    folder.mkdir(parents=True, exist_ok=True)
    return write_gguf(folder / file_name(model, mix), model, mix)[0], "a" * 64
