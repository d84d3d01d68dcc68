"""Whatever is pasted: an answer or InvalidInput, in time; and shorthand says what the description says."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.catalogue import resolve
from service.engine.catalogue.names import gpu_rows
from service.engine.catalogue.rows import known_cpus, known_gpus
from service.engine.errors import InvalidHardware, InvalidInput
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.form import canonical, hardware_hash, to_shorthand
from tests.sampling import examples

PASTES = sorted((Path(__file__).parents[2] / "data" / "pastes").glob("*.txt"))
LINES = sorted({line for path in PASTES for line in path.read_text().splitlines()})
WORDS = [
    "2x",
    "RTX 3090",
    "EPYC 9355",
    "512GB",
    "DDR5-4800",
    "x8",
    "+",
    ",",
    "[",
    "]",
    '"',
    "no GPU",
    "pcie 4.0 x8",
    "|",
]
SECONDS = 4.0  # of the CPU

fragments = st.lists(st.sampled_from(LINES) | st.sampled_from(WORDS) | st.text(max_size=30), max_size=40)


def answer(text: str) -> Hardware | None:
    """What is read, or None for InvalidInput; anything else raises. Fails when it takes too long."""
    start = time.process_time()
    machine = None
    with contextlib.suppress(InvalidInput):
        machine = parse_hardware(text)
        resolve(machine)
    assert time.process_time() - start < SECONDS
    return machine


@given(st.text(max_size=2000))
def test_any_text_is_read_or_refused(text: str) -> None:
    answer(text)


@given(fragments, st.sampled_from(["\n", " ", ", "]))
@examples(150)
def test_any_mixture_of_real_lines_is_read_or_refused(pieces: list[str], joint: str) -> None:
    answer(joint.join(pieces))


@given(st.binary(max_size=500))
def test_any_json_is_read_or_refused(data: bytes) -> None:
    answer('{"gpus": ' + data.decode(errors="replace") + "}")


@pytest.mark.parametrize(
    "piece",
    [
        "1x ",
        "9" * 50,
        "a" * 100 + " ",
        "|   0  ",
        "GPU 0: ",
        "RTX 3090 + ",
        "[",
        '"',
        "(",
        "Name : x\n",
        "---- ",
        "x8/",
        "\tChannel A: 1\n",
        "Device 0: a, ",
        "4.0 x8 ",
        "12GB ",
        " - ",
        "Mem: 1 ",
        "{",
        '{"a":',
        "Handle 0x1, DMI type 1\n",
    ],
)
def test_64_kib_of_anything_take_bounded_time(piece: str) -> None:
    answer((piece * (65536 // len(piece) + 1))[:65536])
    answer((piece * (65536 // len(piece) + 1))[:32768] + "\n" + "RTX 3090, 64GB")


def test_more_than_64_kib_are_refused() -> None:
    with pytest.raises(InvalidHardware, match="65537 characters"):
        parse_hardware(" " * 65537)


def test_deeply_nested_json_is_refused() -> None:
    with pytest.raises(InvalidHardware):
        parse_hardware('{"gpus": ' + "[" * 60_000)


words = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=40)
names = st.sampled_from([row.name for row in known_gpus()]) | words.filter(str.strip)
amounts = st.floats(min_value=1, max_value=500).map(lambda x: round(x, 2))
switch = st.none() | st.booleans()


@st.composite
def gpus(draw: st.DrawFn) -> Gpu:
    name = draw(names)
    shared = any(row.unified for row in gpu_rows(name))  # which a machine has one of
    count = 1 if shared else draw(st.integers(min_value=1, max_value=4))
    vram = draw(st.none() | amounts)
    uuids = [f"GPU-{n:08x}" for n in range(count)]
    return Gpu(
        name=name,
        count=count,
        pcie=draw(st.none() | st.sampled_from(["4.0 x16", "5.0 x8/x8", "4.0 x4 (chipset)", "x16 (3.0 platform)"])),
        vram_gib=vram,
        free_gib=draw(st.none() | st.just(vram)),
        bandwidth_gbs=draw(st.none() | amounts),
        measured_copy_gbs=draw(st.none() | amounts),
        nvlink=draw(switch),
        p2p=draw(switch),
        display=draw(switch),
        uuids=draw(st.none() | st.just(uuids)),
        pci_order=draw(st.none() | st.just(list(range(count)))),
    )


def in_one_machine(entries: list[Gpu]) -> bool:
    """A GPU that shares the RAM is the only kind of its machine."""
    return len({e.name for e in entries}) < 2 or not any(row.unified for e in entries for row in gpu_rows(e.name))


def numbered(entries: list[Gpu]) -> list[Gpu]:
    """No two cards have one number or UUID."""
    return [
        msgspec.structs.replace(
            gpu,
            uuids=gpu.uuids and [f"GPU-{8 * i + n:08x}" for n in range(gpu.count)],
            pci_order=gpu.pci_order and [8 * i + n for n in range(gpu.count)],
        )
        for i, gpu in enumerate(entries)
    ]


machines = st.builds(
    Hardware,
    gpus=st.lists(gpus(), max_size=4).filter(in_one_machine).map(numbered),
    cpu=st.none()
    | st.builds(
        Cpu,
        model=st.none() | st.sampled_from([row.name for row in known_cpus()]) | words.filter(str.strip),
        sockets=st.none() | st.integers(min_value=1, max_value=8),
        physical_cores=st.none() | st.integers(min_value=1, max_value=512),
    ),
    ram=st.none()
    | st.builds(
        Ram,
        total_gb=st.none() | st.floats(min_value=1, max_value=8192).map(lambda x: round(x, 2)),
        free_gb=st.none() | st.just(1.0),
        type=st.none() | st.sampled_from(["DDR4", "DDR5", "LPDDR5X"]),
        channels=st.none() | st.integers(min_value=1, max_value=24),
        mts=st.none() | st.integers(min_value=1600, max_value=9600),
        measured_bandwidth_gbs=st.none() | amounts,
    ),
    os=st.none() | st.sampled_from(["linux", "windows", "macos"]),
)


@pytest.mark.full
@given(machines)
@examples(300)
def test_shorthand_says_all_that_the_description_says(machine: Hardware) -> None:
    line = to_shorthand(machine)
    read = msgspec.structs.replace(parse_hardware(line), notes=None)  # may say that a CPU's own GPU is not counted
    assert canonical(read) == canonical(machine)


def test_a_unit_makes_a_rate_and_the_x_of_lpddr_is_no_count() -> None:
    assert parse_hardware("no GPU, 64GB DDR4 5700 MT/s").ram == Ram(total_gb=64, type="DDR4", mts=5700)
    assert parse_hardware("no GPU, 64GB LPDDR5X 8 channels").ram == Ram(total_gb=64, type="LPDDR5X", channels=8)
    with pytest.raises(InvalidHardware, match="5090"):
        parse_hardware("64GB DDR5 5090")


@given(machines)
def test_the_canonical_form_is_one_and_so_is_its_hash(machine: Hardware) -> None:
    once = canonical(machine)
    assert canonical(once) == once
    shuffled = msgspec.structs.replace(machine, gpus=machine.gpus[::-1], notes="moved the cards")
    assert hardware_hash(shuffled) == hardware_hash(machine)
    assert len(hardware_hash(machine)) == 64


def test_names_in_any_spelling_hash_alike() -> None:
    a, b = "2x5090, epyc 9355", "RTX 5090, NVIDIA GeForce RTX 5090, AMD EPYC 9355 32-Core Processor"
    assert hardware_hash(parse_hardware(a)) == hardware_hash(parse_hardware(b))
    assert hardware_hash(parse_hardware(a)) != hardware_hash(parse_hardware(a + ", 64GB"))
