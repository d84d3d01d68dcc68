"""Virtual machines, whose sockets and cores are what their host's owner chose."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.hardware_text import parse_hardware

_LSCPU = """Architecture:             x86_64
CPU(s):                   16
Vendor ID:                AuthenticAMD
  Model name:             AMD EPYC-Rome Processor
    Thread(s) per core:   1
    Core(s) per socket:   {}
    Socket(s):            {}
Virtualization features:
  Hypervisor vendor:      KVM
  Virtualization type:    full
NUMA:
  NUMA node(s):           {}
"""


@pytest.mark.parametrize(
    ("cores", "sockets", "nodes", "taken"), [(1, 16, 1, 1), (8, 2, 1, 1), (8, 2, 2, 2), (1, 16, 2, 2), (16, 1, 1, 1)]
)
def test_sockets_of_a_virtual_machine_are_as_many_as_its_numa_nodes(
    cores: int, sockets: int, nodes: int, taken: int
) -> None:
    """QEMU before 6.2 gives a guest a socket for every core by default, as VMware does."""
    hardware = parse_hardware(_LSCPU.format(cores, sockets, nodes) + "RTX 3090, 64GB RAM")
    rig = resolve(hardware)
    assert (rig.sockets, rig.physical_cores) == (taken, 16)
    assert rig.cpu_bandwidth_gbs < 200 * taken
    assert ("virtual machine" in (hardware.notes or "")) == (taken != sockets)


def test_sockets_of_a_real_machine_whose_memory_is_one_node_stay() -> None:
    text = "\n".join(line for line in _LSCPU.format(8, 2, 1).split("\n") if "irtualization" not in line)
    text = text.replace("  Hypervisor vendor:      KVM\n", "")
    assert resolve(parse_hardware(text + "RTX 3090, 64GB RAM")).sockets == 2


def test_a_guests_cpuinfo_with_a_socket_for_every_core_has_one() -> None:
    one = "processor\t: {0}\nmodel name\t: AMD EPYC-Rome Processor\nphysical id\t: {0}\ncpu cores\t: 1\n\n"
    rig = resolve(parse_hardware("".join(one.format(n) for n in range(8)) + "RTX 3090, 64GB RAM"))
    assert (rig.sockets, rig.physical_cores) == (1, 8)


def test_cores_of_an_arm_server_are_counted_where_lscpu_names_clusters() -> None:
    text = (
        "Architecture:                aarch64\nCPU(s):                      4\nVendor ID:                   ARM\n"
        "  Model name:                Neoverse-N1\n    Thread(s) per core:      1\n    Core(s) per cluster:     4\n"
        "    Socket(s):               -\n    Cluster(s):              1\nNUMA node(s):                1\n"
        "24GB RAM, no GPU\n"
    )
    rig = resolve(parse_hardware(text))
    assert (rig.physical_cores, rig.isa, rig.cpu_generation) == (4, "neon", "neoverse n1")


_FREE = """$ free -h
               total        used        free      shared  buff/cache   available
Mem:           503Gi        96Gi       121Gi       1.2Gi       286Gi       402Gi
Swap:             0B          0B          0B
"""


@pytest.mark.parametrize("file", ["memory.max", "memory/memory.limit_in_bytes"])
def test_a_containers_limit_counts_instead_of_the_hosts_memory(file: str) -> None:
    hardware = parse_hardware(f"{_FREE}$ cat /sys/fs/cgroup/{file}\n68719476736\nRTX 4090")
    assert hardware.ram is not None
    assert (hardware.ram.total_gb, hardware.ram.free_gb) == (64, None)
    assert "64 GiB is what this container may use" in (hardware.notes or "")


@pytest.mark.parametrize("value", ["max", "9223372036854771712", "1099511627776"])
def test_a_container_without_a_limit_has_the_hosts_memory(value: str) -> None:
    hardware = parse_hardware(f"{_FREE}$ cat /sys/fs/cgroup/memory.max\n{value}\nRTX 4090")
    assert hardware.ram is not None
    assert (hardware.ram.total_gb, hardware.ram.free_gb) == (503, 402)


@pytest.mark.parametrize("text", ["A100 3g.20gb, 64GB RAM", "A100-PCIE-40GB MIG 3g.20gb, 64GB RAM"])
def test_a_slice_is_known_without_the_word_mig(text: str) -> None:
    assert 19 << 30 < resolve(parse_hardware(text)).cards[0].total < 20 << 30
