"""Pastes made to be slow to read: time grows with their length, not with its square."""

from __future__ import annotations

import contextlib
import time

import pytest

from service.engine.errors import AdvisorError
from service.engine.hardware_text import parse_hardware
from service.engine.logs.read import read_log
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
