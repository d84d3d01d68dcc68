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
    assert found.cpu == Cpu(model="AMD EPYC 9115 16-Core Processor", sockets=2, physical_cores=32, numa_nodes=2)
    assert found.ram == Ram(total_gb=23.54, free_gb=21.07, type="DDR4", channels=16, mts=2933)
    assert found.os == "linux"


def udev(*modules: dict[str, object]) -> dict[str, str]:
    lines = ["I:123456", "E:MEMORY_ARRAY_LOCATION=System Board Or Motherboard", "E:MEMORY_ARRAY_NUM_DEVICES=4"]
    lines += [
        f"E:MEMORY_DEVICE_{i}_{name}={value}" for i, module in enumerate(modules) for name, value in module.items()
    ]
    return {"+dmi:id": "\n".join([*lines, "G:systemd", ""])}


FILLED = {"SIZE": 16 << 30, "TYPE": "DDR4", "SPEED_MTS": 3600, "SERIAL_NUMBER": "A1B2C3", "CONFIGURED_SPEED_MTS": 3000}
EMPTY = {"PRESENT": 0, "TYPE": "Unknown", "SPEED_MTS": 3000}


def test_modules_are_known_without_root_where_udev_wrote_them_down() -> None:
    slots = [
        slot | {"LOCATOR": f"DIMM {i}", "BANK_LOCATOR": f"P0 CHANNEL {letter}"}
        for i, (slot, letter) in enumerate(zip((EMPTY, FILLED, EMPTY, FILLED), "AABB", strict=True))
    ]
    found = machine(lscpu=paste("lscpu_recorded"), meminfo=paste("meminfo_recorded"), **udev(*slots))
    assert found.ram == Ram(total_gb=23.54, free_gb=21.07, type="DDR4", channels=2, mts=3000)
    assert "A1B2C3" not in repr(found)


def test_dmidecode_is_taken_before_udev() -> None:
    found = machine(dmidecode=paste("dmidecode_server"), **udev(FILLED))
    assert found.ram is not None
    assert (found.ram.channels, found.ram.mts) == (16, 2933)


def test_an_odd_udev_file_says_nothing_of_modules() -> None:
    for odd in ({"SIZE": "many"}, {"TYPE": "DDR5"}, {"SIZE": "-1"}):
        assert machine(**udev(dict(odd))).ram is None


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
