"""What is proposed for a command that does not fit."""

from __future__ import annotations

from itertools import pairwise

import pytest

from service.engine.catalogue import resolve
from service.engine.check.report import CheckReport
from service.engine.check.run import check
from service.engine.hardware_text import parse_hardware
from service.engine.rules.companion_headers import NO_COMPANIONS, CompanionHeaders
from tests.models import build

WITH_8B = CompanionHeaders(draft=build("Qwen3-8B", "q4_K_M"))


def checked(options: str, model: str, hardware: str, beside: CompanionHeaders = NO_COMPANIONS) -> CheckReport:
    rig = resolve(parse_hardware(hardware))
    command = f"llama-server -m m.gguf -fa on {options}"
    return check(command, "llama.cpp", build(model, "q4_K_M"), rig, companion_headers=beside)


def fix(report: CheckReport) -> str:
    (found,) = {one.fix for one in report.findings if one.rule == "does-not-fit"}
    return found or ""


@pytest.mark.parametrize(
    ("options", "model", "hardware", "step", "beside"),
    [
        ("-ngl 99 -c 40000 -ctk q8_0 -ctv q8_0", "Qwen3-32B", "RTX 3090, 64GB DDR5", 1_024, NO_COMPANIONS),
        ("-ngl 99 -c 60000 -ctk q8_0 -ctv q8_0 -np 4", "Qwen3-32B", "RTX 3090, 64GB DDR5", 4_096, NO_COMPANIONS),
        ("-ngl 99 -c 65536 -ctk q8_0 -ctv q8_0 -md d.gguf", "Qwen3-32B", "RTX 5090, 64GB DDR5", 1_024, WITH_8B),
    ],
)
def test_a_smaller_context_is_the_largest_that_keeps_the_reserve(
    options: str, model: str, hardware: str, step: int, beside: CompanionHeaders
) -> None:
    report = checked(options, model, hardware, beside)
    context = int(fix(report).removeprefix("-c "))
    assert context % step == 0
    written = options.split()
    now = next(value for option, value in pairwise(written) if option == "-c")
    for tokens, keeps in ((context, True), (context + step, False)):
        (card, _) = checked(options.replace(f"-c {now}", f"-c {tokens}"), model, hardware, beside).memory.devices
        assert (card.fits and card.free_mib >= 512) is keeps


def test_a_context_beyond_training_is_cut_to_it_where_that_fits() -> None:
    assert fix(checked("-ngl 99 -c 1048576 -np 1", "Qwen3-8B", "RTX 5090, 64GB DDR5")) == "-c 40960"


def test_where_no_change_keeps_the_reserve_one_that_fits_says_how_little_it_leaves() -> None:
    rig = resolve(parse_hardware("RTX 3090, 64GB DDR5"))
    command = "llama-server -m m.gguf -fa on -ngl 99 -c 40000 -ctk q8_0 -ctv q8_0"
    report = check(command, "llama.cpp", build("Qwen3-32B", "q4_K_M"), rig, reserve_mib=24_000)
    (found,) = [one for one in report.findings if one.rule == "does-not-fit"]
    assert fix(report) == "-c 38912"
    assert (found.gain or "").startswith("fits with only ")
