"""What a log teaches: nothing where recorded runs are as computed, else the first part that differs."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from service.engine.catalogue import resolve
from service.engine.check.learning import Difference, Lesson, Reported, lesson_of, warning_text
from service.engine.commands.parse import parse
from service.engine.config import ENGINES, Engine
from service.engine.hardware import Gpu, Hardware, Ram
from service.engine.logs.read import read_log
from service.engine.rules.case import Case, case_of
from service.engine.units import MIB
from tests.memory_rig import PROGRAMS, RigRow, rig_rows
from tests.models import build
from tests.rigs import MACBOOK_64

LINES = {"weights": "model buffer", "kv": "KV buffer", "compute": "compute buffer", "output": "output buffer"}
QWEN = build("Qwen3-30B-A3B", "q4_K_M")


def case_for(
    command: str, engine: Engine, hardware: Hardware, model: str = "Qwen3-30B-A3B", mix: str = "q4_K_M"
) -> Case:
    parsed = parse(command, engine)
    return case_of(parsed, build(model, mix), resolve(hardware), command, "cuda")


def of_rig(row: RigRow) -> Case:
    """A recorded run on the cards that it had."""
    gpus = [Gpu(name="RTX 4090", vram_gib=(free + 600) / 1024, free_gib=free / 1024) for free in row.free_mib]
    command = f"{PROGRAMS[row.tool]} -m m.gguf {shlex.join(row.args)}"
    return case_for(command, row.engine, Hardware(gpus=gpus, ram=Ram(total_gb=2048)), row.model, row.mix)


def printed(row: RigRow) -> str:
    """What the engine prints of it: hundredths of a MiB, host buffers under their names."""
    lines = [
        f"x: {'CUDA_Host' if name == 'Host' else name} {LINES[part]} size = {n / MIB:.2f} MiB"
        for name, parts in row.measured.items()
        for part, n in parts.items()
        if part in LINES and n
    ]
    return "\n".join([*lines, f"x: graph splits = {row.graph_splits}"])


@pytest.mark.parametrize("every", [40, pytest.param(1, marks=(pytest.mark.full, pytest.mark.timeout(600)))])
@pytest.mark.parametrize("engine", ENGINES)
def test_no_recorded_run_raises_a_false_alarm(engine: Engine, every: int) -> None:
    rows = list(rig_rows(engine))[::every]
    said = {row.id: lesson_of(of_rig(row), read_log(printed(row))) for row in rows}
    assert {name: one.difference for name, one in said.items() if one and one.difference} == {}
    assert sum(one is not None for one in said.values()) >= len(rows) / 2


def log_of(case: Case, change: Callable[[str, str, float], float] = lambda device, part, mib: mib) -> str:
    """A log as computed, but for what `change` makes of (device, part, MiB)."""
    return "\n".join(
        f"x: {row.device} {LINES[part]} size = {change(row.device, part, getattr(row, f'{part}_mib')):.2f} MiB"
        for row in case.table
        for part in LINES
        if getattr(row, f"{part}_mib")
    )


def test_of_several_parts_that_differ_the_first_is_told_for_the_rest_follows_from_it() -> None:
    case = case_for("llama-server -m m.gguf -ngl 99 -c 8192 -fa on", "llama.cpp", Hardware(gpus=[Gpu(name="RTX 5090")]))

    def moved(device: str, part: str, mib: float) -> float:
        return mib - 50.0 if (device, part) in (("CUDA0", "kv"), ("CUDA0", "compute"), ("CPU", "compute")) else mib

    lesson = lesson_of(case, read_log(log_of(case, moved)))
    assert lesson is not None
    assert lesson.agrees == ("card weights",)
    kv = case.table[0].kv_mib
    assert lesson.difference == Difference(part="kv", place="card", way="below", measured=kv - 50.0, expected=kv)


def test_a_log_of_another_split_of_the_graph_is_told_last() -> None:
    case = case_for("llama-server -m m.gguf -ngl 99 -c 8192 -fa on", "llama.cpp", Hardware(gpus=[Gpu(name="RTX 5090")]))
    splits = case.memory.graph_splits
    lesson = lesson_of(case, read_log(f"{log_of(case)}\nx: graph splits = {splits + 2}"))
    assert lesson is not None
    assert lesson.difference is not None
    assert (lesson.difference.part, lesson.difference.measured) == ("graph_splits", splits + 2)
    assert "card compute" in lesson.agrees
    one = Reported(
        subject=lesson.subject, part="graph_splits", place="card", way="above", rigs=3, agreeing=1, low=2, high=4
    )
    assert warning_text(one).endswith(
        "qwen3moe: 3 rigs cut the graph into 2 to 4 more parts than computed (1 agree): speed and memory may be off"
    )


def test_on_a_card_that_shares_the_ram_the_range_of_a_mapped_file_is_no_difference() -> None:
    case = case_for("llama-server -m m.gguf -ngl 99 -c 8192 -fa on", "llama.cpp", MACBOOK_64)
    name = case.devices[0].name
    text = log_of(case).replace(f"{name} model buffer size = ", f"{name}_Mapped model buffer size = 9")
    lesson = lesson_of(case, read_log(text))
    assert lesson is not None
    assert (lesson.difference, lesson.subject.backend) == (None, "MTL")
    assert lesson.agrees[0] == "card kv"


@pytest.mark.parametrize(
    "command",
    [
        "llama-server -m m.gguf -ngl 99 -c 8192 -fa on --no-such-flag",
        "llama-server -m m.gguf -c 8192 -fa on",  # -fit places it by what is free
        "llama-server -m m.gguf -ngl 99 -c 8192 -fa on --mmproj p.gguf",
        "llama-server -m m.gguf -ngl 99 -c 8192 -fa on -md draft.gguf",
        "llama-bench -m m.gguf -ngl 99 -ub 512,1024",
    ],
)
def test_a_command_that_the_prediction_is_not_quite_of_says_nothing(command: str) -> None:
    case = case_for(command, "llama.cpp", Hardware(gpus=[Gpu(name="RTX 5090")], ram=Ram(total_gb=64)))
    assert lesson_of(case, read_log(log_of(case))) is None


def larger(by: float, device: str, part: str, mib: float) -> float:
    return mib + by if part == "compute" else mib


def test_a_difference_of_less_than_a_mebibyte_is_none() -> None:
    case = case_for("llama-server -m m.gguf -ngl 99 -c 8192 -fa on", "llama.cpp", Hardware(gpus=[Gpu(name="RTX 5090")]))
    off = [read_log(log_of(case, partial(larger, by))) for by in (0.9, 1.1)]
    lessons = [lesson_of(case, log) for log in off]
    assert [isinstance(one, Lesson) and one.difference is not None for one in lessons] == [False, True]


def test_a_run_that_went_on_without_pipelining_for_less_was_free_than_stated_is_no_difference() -> None:
    command = "llama-server -m m.gguf -ngl 99 -c 32768 -fa on -np 1"
    two = Hardware(gpus=[Gpu(name="RTX 5090", count=2)], ram=Ram(total_gb=64))
    case = case_for(command, "llama.cpp", two)
    build = msgspec.structs.replace(case.parsed.build, max_copies=1)
    other = msgspec.structs.replace(case, parsed=msgspec.structs.replace(case.parsed, build=build))
    assert case.table[0].compute_mib - other.table[0].compute_mib > 50
    lesson = lesson_of(case, read_log(log_of(other)))
    assert lesson is not None
    assert lesson.difference is None
    tight = case_for(command, "llama.cpp", Hardware(gpus=[Gpu(name="RTX 5090", count=2, free_gib=10.5)], ram=two.ram))
    assert tight.gives_up_pipeline
    assert lesson_of(tight, read_log(log_of(case))) is None
