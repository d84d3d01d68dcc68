"""How many NUMA nodes a machine has: `numactl -H` as posted (llama.cpp pull request 1556), lscpu, and words."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.hardware import Cpu, Hardware
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.form import canonical, hardware_hash, rig_key, to_shorthand

NUMACTL = """$numactl  -H
available: 2 nodes (0-1)
node 0 cpus: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47
node 0 size: 128792 MB
node 0 free: 126491 MB
node 1 cpus: 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
node 1 size: 129010 MB
node 1 free: 126895 MB
node distances:
node   0   1
  0:  10  21
  1:  21  10
"""
LSCPU = """Architecture:            x86_64
CPU(s):                  256
  Model name:            AMD EPYC 7702 64-Core Processor
    Thread(s) per core:  2
    Core(s) per socket:  64
    Socket(s):           2
NUMA:
  NUMA node(s):          8
  NUMA node0 CPU(s):     0-15,128-143
  NUMA node1 CPU(s):     16-31,144-159
  NUMA node2 CPU(s):     32-47,160-175
  NUMA node3 CPU(s):     48-63,176-191
  NUMA node4 CPU(s):     64-79,192-207
  NUMA node5 CPU(s):     80-95,208-223
  NUMA node6 CPU(s):     96-111,224-239
  NUMA node7 CPU(s):     112-127,240-255
"""
GRACE = """Architecture:                       aarch64
CPU(s):                             72
Vendor ID:                          ARM
Model name:                         Neoverse-V2
Thread(s) per core:                 1
Core(s) per socket:                 72
Socket(s):                          1
NUMA node(s):                       2
NUMA node0 CPU(s):                  0-71
NUMA node1 CPU(s):
"""


def cpu_of(text: str) -> Cpu:
    cpu = parse_hardware(text).cpu
    assert cpu is not None
    return cpu


def test_numactl_says_how_many_nodes_there_are_and_how_much_ram() -> None:
    machine = parse_hardware(f"dual E5-2698B v3, no GPU\n{NUMACTL}")
    assert machine.ram is not None
    assert machine.ram.total_gb == pytest.approx(251.76, abs=0.01)
    assert (machine.cpu and machine.cpu.sockets, machine.cpu and machine.cpu.numa_nodes) == (2, 2)
    assert machine.notes is None


def test_free_says_how_much_a_container_has_of_the_ram_that_numactl_lists() -> None:
    free = "               total        used        free      shared  buff/cache   available\n"
    free += "Mem:              64           2          60           0           1          61\n"
    machine = parse_hardware(f"dual E5-2698B v3, no GPU\n{NUMACTL}{free}")
    assert machine.ram is not None
    assert machine.ram.total_gb == 64


def test_a_core_list_that_a_terminal_broke_is_read_on() -> None:
    broken = NUMACTL.replace(" 26 27 28", "\n26 27 28")
    assert cpu_of(f"dual E5-2698B v3, no GPU\n{broken}").numa_nodes == 2


def test_lscpu_says_how_many_nodes_have_cores() -> None:
    assert cpu_of(f"no GPU\n{LSCPU}") == Cpu(
        model="AMD EPYC 7702 64-Core Processor", sockets=2, physical_cores=128, numa_nodes=8
    )
    assert resolve(parse_hardware(f"no GPU\n{LSCPU}")).nodes_a_socket == 4
    assert cpu_of(f"no GPU\n{GRACE}").numa_nodes is None  # the second is the GPU's memory


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("dual EPYC 7702 NPS4, 512GB, no GPU", 8),
        ("dual EPYC 7702, NPS = 2, 512GB, no GPU", 4),
        ("2x EPYC 9654 (NPS0), 768GB, no GPU", 1),
        ("EPYC 7763 x2, 4 NUMA nodes per socket, 512GB, no GPU", 8),
        ("2x Xeon 6980P with SNC3, 1536GB, 3090", 6),
        ("dual Xeon 8480+, SNC-4, 512GB, no GPU", 8),
        ("2x E5-2697 v4, 4 NUMA nodes, 256GB, P40", 4),
        ("dual Xeon 8480+ (SNC off), 512GB, no GPU", None),
        ("dual Xeon 8480+, SNC 0, 512GB, no GPU", None),
        ("dual EPYC 7702, 512GB, no GPU", None),
    ],
)
def test_words_say_how_many_nodes_all_sockets_have(text: str, nodes: int | None) -> None:
    assert cpu_of(text).numa_nodes == nodes


@pytest.mark.parametrize(
    "cpu",
    [
        Cpu(model="EPYC 7742", sockets=2, numa_nodes=8),
        Cpu(model="EPYC 7742", sockets=2, physical_cores=128, numa_nodes=1),
        Cpu(model="EPYC 7742", sockets=1, numa_nodes=4),
        Cpu(model="EPYC 7742", numa_nodes=2),
    ],
)
def test_nodes_are_written_as_they_are_read(cpu: Cpu) -> None:
    machine = Hardware(gpus=[], cpu=cpu)
    assert canonical(parse_hardware(to_shorthand(machine))) == canonical(machine)


def test_one_node_a_socket_is_the_machine_that_was_described_without_them() -> None:
    plain, stated, divided = (
        Hardware(gpus=[], cpu=Cpu(model="EPYC 7742", sockets=2, numa_nodes=nodes)) for nodes in (None, 2, 8)
    )
    assert hardware_hash(plain) == hardware_hash(stated) != hardware_hash(divided)
    assert rig_key(plain) == rig_key(divided)
