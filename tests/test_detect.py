"""What this machine's own tools say is read like a paste; a machine without tools is read too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from service.detect import detect
from service.engine.hardware import Cpu, Gpu, Hardware, Ram

PASTES = Path(__file__).parent / "data" / "pastes"


def paste(name: str) -> str:
    return (PASTES / f"{name}.txt").read_text()


def machine(**outputs: str) -> Hardware:
    def run(command: Sequence[str]) -> str:
        return outputs.get(command[0].replace("-", "_"), "")

    return detect(outputs.get("system", "Linux"), run, lambda path: outputs.get(path.name, ""))


def test_a_linux_machine_is_read_from_four_tools() -> None:
    found = machine(
        nvidia_smi=paste("nvidia_smi_csv"),
        lscpu=paste("lscpu_epyc"),
        dmidecode=paste("dmidecode_server"),
        meminfo=paste("meminfo_recorded"),
    )
    assert [gpu.free_gib for gpu in found.gpus] == [22.991, 23.97]
    assert found.cpu == Cpu(model="AMD EPYC 9115 16-Core Processor", sockets=2, physical_cores=32)
    assert found.ram == Ram(total_gb=23.54, free_gb=21.07, type="DDR4", channels=16, mts=2933)
    assert found.os == "linux"


def test_a_machine_whose_tools_list_no_gpu_has_none() -> None:
    found = machine(lscpu=paste("lscpu_recorded"), meminfo=paste("meminfo_recorded"))
    assert found.gpus == []
    assert found.cpu is not None
    assert machine() == Hardware(gpus=[], os="linux")


def test_a_windows_machine_takes_memory_from_nvidia_smi_not_from_the_adapter() -> None:
    found = machine(system="Windows", nvidia_smi=paste("nvidia_smi_csv"), powershell=paste("cim_lists"))
    assert [gpu.name for gpu in found.gpus] == ["NVIDIA GeForce RTX 4090"] * 2
    assert (found.os, found.ram) == ("windows", Ram(total_gb=96, type="DDR5", channels=2, mts=5200))


def test_a_mac() -> None:
    found = machine(system="Darwin", system_profiler=paste("system_profiler"))
    assert found.gpus == [Gpu(name="Apple M4 Max")]
    assert found.os == "macos"


def test_this_very_machine_is_read() -> None:
    found = detect()
    assert found.os is not None
    assert found.cpu is None or (found.cpu.physical_cores or 1) >= 1
