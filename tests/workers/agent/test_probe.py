"""What a host says of itself: what it has, and nothing that names it."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import msgspec
import psutil
import pytest

from service.engine.catalogue import resolve
from service.engine.gguf.write import header_bytes
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.wire.measuring.hosts import Probe
from tests.engine_replay import install
from tests.workers.agent.scripted_gpus import ScriptedGpus
from workers.agent import probe
from workers.agent.models import Hashes
from workers.agent.policy import EnginePolicy, ModelPolicy, Policy
from workers.agent.probe import describe, find_hardware

SECRET = "planted-secret-name"


def _nothing() -> Hardware:
    return Hardware(gpus=[])


def test_nothing_is_measured_where_it_would_take_memory_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = psutil.virtual_memory()._replace(available=1 << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    assert probe._read_bandwidth() is None


def test_a_machine_that_no_tool_describes_still_has_a_processor_and_memory() -> None:
    found = find_hardware((), _nothing, lambda: 50.0)
    assert found.gpus == []
    assert found.cpu is not None
    assert found.cpu.model
    assert found.cpu.physical_cores == psutil.cpu_count(logical=False)
    assert found.ram is not None
    assert found.ram.total_gb == pytest.approx(psutil.virtual_memory().total / 2**30, rel=0.01)
    assert found.ram.measured_bandwidth_gbs == 50
    assert resolve(found).cpu_bandwidth_gbs == 50


def test_cards_of_other_makers_are_one_entry_each_and_lose_what_tells_them_apart() -> None:
    seen = Hardware(
        gpus=[Gpu(name="AMD Radeon RX 7900 XTX", count=2, vram_gib=24, uuids=["GPU-1", "GPU-2"], free_gib=3)],
        cpu=Cpu(model="AMD Ryzen 9 7950X"),
        ram=Ram(total_gb=64, free_gb=3, channels=2, mts=6000),
        notes=SECRET,
    )
    found = find_hardware((), lambda: seen, lambda: None)
    assert found.gpus == [Gpu(name="AMD Radeon RX 7900 XTX", vram_gib=24)] * 2
    assert found.ram == Ram(total_gb=64, channels=2, mts=6000)
    assert found.notes is None
    machine = describe(Policy(), ScriptedGpus(count=0), Hashes(Path("nowhere")), hardware=found)
    assert [(card.index, card.backend, card.uuid) for card in machine.gpus] == [(0, "rocm", None), (1, "rocm", None)]


def test_cards_that_vulkan_alone_knows() -> None:
    summary = """
Devices:
========
GPU0:
	apiVersion         = 1.3.274
	vendorID           = 0x8086
	deviceType         = PHYSICAL_DEVICE_TYPE_DISCRETE_GPU
	deviceName         = Intel(R) Arc(tm) A770 Graphics (DG2)
	deviceUUID         = 8680a056-0800-0000-0300-000000000000
GPU1:
	deviceType         = PHYSICAL_DEVICE_TYPE_CPU
	deviceName         = llvmpipe (LLVM 17.0.6, 256 bits)
"""
    assert probe._by_vulkan(summary) == [Gpu(name="Intel(R) Arc(tm) A770 Graphics (DG2)")]


def test_nothing_that_names_the_machine_or_its_user_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_read_bandwidth", lambda: 50.0)
    home = tmp_path / "home" / SECRET
    install(home / "build" / "bin", "llama-bench", "ok")
    (home / "models").mkdir()
    (home / "models" / "a.gguf").write_bytes(header_bytes({"general.architecture": "llama"}, []))
    for name in ("HOME", "USER", "LOGNAME", "HOSTNAME", "XDG_CACHE_HOME", "ADVISOR_TOKEN"):
        monkeypatch.setenv(name, str(home) if name == "HOME" else SECRET)
    policy = Policy(
        engines=EnginePolicy(folders=("~/build/bin",)),
        models=ModelPolicy(folders=(str(home / "models"),)),
        pause_file=f"/{SECRET}/pause",
    )
    machine = describe(policy, ScriptedGpus(count=2), Hashes(tmp_path / "models.json"))
    sent = msgspec.json.encode(machine.probe)
    assert (len(machine.engines), len(machine.models), len(machine.gpus)) == (1, 1, 2)
    assert msgspec.json.decode(sent, type=Probe) == machine.probe
    named = [SECRET, str(home), str(tmp_path), "GPU-0", socket.gethostname(), *_addresses(), *_serials()]
    assert not [name for name in named if len(name) > 3 and name.encode() in sent]


def _addresses() -> list[str]:
    return [one.address for all_of in psutil.net_if_addrs().values() for one in all_of]


def _serials() -> list[str]:
    found = [
        Path("/etc/machine-id"),
        *Path("/sys/class/dmi/id").glob("*serial"),
        *Path("/sys/class/dmi/id").glob("*uuid"),
    ]
    return [text for path in found if path.exists() and (text := path.read_text(errors="replace").strip())]


def test_the_cards_of_nvidias_library_are_taken_before_those_of_tools() -> None:
    told = tuple(gpu for _, gpu in ScriptedGpus(count=2).cards())
    seen = Hardware(gpus=[Gpu(name="RTX 3090")], cpu=Cpu(model="AMD Ryzen 9 7950X"))
    found = find_hardware(told, lambda: seen, lambda: None)
    assert [gpu.name for gpu in found.gpus] == ["NVIDIA GeForce RTX 4090"] * 2
    assert [card.generation for card in resolve(found).cards] == ["ada"] * 2


def test_no_tool_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert probe._vulkaninfo() == ""
