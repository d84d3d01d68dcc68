"""Commands as strangers posted them: one that ran is no error, however it was pasted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.engine.catalogue import resolve
from service.engine.check.run import check
from service.engine.errors import InvalidFlags
from service.engine.hardware_text import parse_hardware
from tests.models import build

DATA = Path(__file__).parents[2] / "data" / "commands_as_posted.jsonl"
POSTED: list[dict[str, Any]] = [msgspec.json.decode(line) for line in DATA.read_bytes().splitlines()]
QUICK = {
    "oss-ncmoe-36",
    "27b-m2-ultra-serve",
    "27b-4xmi50-docker-bench",
    "gemma-preset",
    "oss20-ncmoe2-powershell",
    "gemma26-reasoning",
    "27b-two-cards-210k",
    "qwen32b-rpc",
    "35b-unified-memory-env",
}


@pytest.mark.parametrize(
    "posted", [pytest.param(row, id=row["id"], marks=[] if row["id"] in QUICK else pytest.mark.full) for row in POSTED]
)
def test_a_command_that_ran_is_no_error(posted: dict[str, Any]) -> None:
    model, rig = build(posted["shape"], posted["mix"]), resolve(parse_hardware(posted["rig"]))
    if posted.get("refused"):
        with pytest.raises(InvalidFlags, match=posted["refused"]):
            check(posted["command"], posted["engine"], model, rig, build=posted["date"])
        return
    report = check(posted["command"], posted["engine"], model, rig, build=posted["date"])
    errors = {found.rule for found in report.findings if found.severity == "error"}
    if posted["ran"]:
        assert errors == set(posted.get("errors", ()))
