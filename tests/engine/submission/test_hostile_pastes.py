"""Pastes made to be slow to read: time grows with their length, not with its square."""

from __future__ import annotations

import contextlib
import time

import pytest

from service.engine.errors import AdvisorError
from service.engine.hardware_text import parse_hardware
from service.engine.logs.read import read_log
from service.engine.logs.requests import read_requests, without_words
from service.engine.measured.summary import memory_of
from service.engine.reduction import reduced
from service.engine.submission.reading import read_paste

UNITS = ("`", "``", "``` ", " ", "a", "-", "\x1b]", "&", "|", '"', "(", "[", "{", "a@b:", "https://u:p@")
CHARACTERS = 1 << 14


@pytest.mark.parametrize("read", [read_paste, read_log, reduced, parse_hardware], ids=lambda read: read.__name__)
def test_a_long_run_of_anything_is_read_in_time(read) -> None:  # type: ignore[no-untyped-def]
    """A megabyte of backticks once held one process, and all who asked it, for hours."""
    slow = {}
    for unit in UNITS:
        began = time.process_time()
        for text in (unit * (CHARACTERS // len(unit)), "x" + unit * (CHARACTERS // len(unit)) + "!\x01"):
            with contextlib.suppress(AdvisorError):
                read(text)
        slow[unit] = time.process_time() - began
    assert {unit: seconds for unit, seconds in slow.items() if seconds > 0.7} == {}


@pytest.mark.parametrize("unit", ["|", "{", "' '", "/a/", "x", "\x0b", "a\x0c"])
def test_a_megabyte_of_one_thing_is_previewed_soon(unit: str) -> None:
    """What a preview does with a paste took half a second or, with a megabyte of line ends, four."""
    text = unit * ((1 << 20) // len(unit))
    began = time.process_time()
    for read in (read_paste, read_log, memory_of):
        with contextlib.suppress(AdvisorError):
            read(text)
    assert time.process_time() - began < 0.4


def test_nested_brackets_of_json_are_counted_one_by_one() -> None:
    row = '{"n_kv": 0, "pp": 512, "tg": 128, "t_pp": 1.0, "speed_pp": 512.0, "t_tg": 2.0, "speed_tg": 64.0'
    assert len(read_paste(f'[{row}, "x": [[1], [[]]]}}\n]\n').rows) == 1


def test_a_log_of_too_many_lines_is_refused_and_empty_ones_do_not_count() -> None:
    row = "load_tensors: CUDA0 model buffer size = 224.00 MiB"
    assert read_log("\n" * 100_000 + row).buffers
    with pytest.raises(AdvisorError, match="more than 65,536 lines"):
        read_log("a\n" * 65_536 + row)


@pytest.mark.parametrize(
    "text",
    [
        f"eval count: 1\neval duration: {'1' * 8_192}\neval rate: 1",
        "launch_slot_: " * 16_384,
    ],
    ids=["digits in a duration of Ollama", "beginnings of a server's line"],
)
def test_what_looks_like_a_request_without_end_is_read_in_time(text: str) -> None:
    """A duration of 64 KiB held a process for a minute and a half, a megabyte of beginnings for half a minute."""
    lines = f"prompt eval count: 1\nprompt eval duration: 1s\nprompt eval rate: 1\n{text}".splitlines()
    began = time.process_time()
    for read in (read_requests, without_words):
        read(lines)
    assert time.process_time() - began < 0.3
