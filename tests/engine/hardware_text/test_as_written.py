"""Hardware as people write it (tests/data/hardware_as_written.jsonl): read right, or asked about; never misread."""

from __future__ import annotations

import json
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from service.engine.catalogue import resolve
from service.engine.catalogue.names import cpu_key
from service.engine.errors import AdvisorError
from service.engine.hardware import Hardware
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.form import canonical, to_shorthand
from tests.engine.hardware_text.mutations import mutated

CORPUS = Path(__file__).parent.parent.parent / "data" / "hardware_as_written.jsonl"
CASES = [json.loads(line) for line in CORPUS.read_text().splitlines()]


def read(text: str) -> dict[str, Any]:
    """What a text comes to, in the words of the corpus; `asks` where it is refused."""
    try:
        hardware = parse_hardware(text)
        rig = resolve(hardware)
    except AdvisorError as error:
        return {"asks": str(error)}
    counts: dict[str, int] = {}
    for card in rig.cards:
        counts[card.name] = counts.get(card.name, 0) + 1
    unified = bool(rig.cards) and rig.cards[0].unified
    stated = hardware.ram.total_gb if hardware.ram else None
    return {
        "gpus": sorted(f"{n}x {name}" if n > 1 else name for name, n in counts.items()),
        "vram_gib": round(rig.cards[0].total / 2**30) if rig.cards else None,
        "display": any(card.display for card in rig.cards),
        "cpu": rig.cpu_model,
        "generation": rig.cpu_generation,
        "cores": rig.physical_cores,
        "ram_gb": stated or (rig.ram_bytes / 2**30 if unified else None),
    }


def verdict(case: dict[str, Any], text: str | None = None) -> tuple[Literal["right", "asked", "wrong"], str]:
    """How `text` (that of the case, or another of the same meaning) is read, and what was found in its place."""
    found = read(text or case["text"])
    if "asks" in case:
        asked = "asks" in found and (case["asks"] in found["asks"] or text is not None)
        return ("right", "") if asked else ("wrong", f"not asked about: {found}")
    if "asks" in found:
        return "asked", found["asks"]
    meant = {key: value for key, value in case.items() if key not in ("text", "source")}
    meant["gpus"] = sorted(meant["gpus"])
    wrong = {key: (found[key], value) for key, value in meant.items() if _said(found[key]) != _said(value)}
    return ("wrong", f"(found, meant): {wrong}") if wrong else ("right", "")


def _said(value: Any) -> Any:
    return cpu_key(value) if isinstance(value, str) else value


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.full)])
def test_hardware_is_read_as_it_is_meant_or_asked_about(every: int) -> None:
    assert len(CASES) >= 400
    assert all(case["source"] for case in CASES)
    verdicts = {case["text"]: verdict(case) for case in CASES[::every]}
    n = {kind: sum(v[0] == kind for v in verdicts.values()) for kind in ("right", "asked", "wrong")}
    print(f"\n{len(verdicts)} texts: {n['right']} right, {n['asked']} asked about needlessly, {n['wrong']} wrong")
    assert not {text: found for text, (kind, found) in verdicts.items() if kind == "wrong"}
    assert n["asked"] <= 0.05 * len(verdicts)


def _misread(n: int, seconds: float) -> tuple[int, dict[str, str]]:
    """How many ways of writing the descriptions were read in at most so many seconds, and those that were misread."""
    draw, ends, tried = random.Random(7), time.monotonic() + seconds, 0
    wrong: dict[str, str] = {}
    while tried < n and time.monotonic() < ends:
        case = draw.choice(CASES)
        text = mutated(case["text"], draw)
        kind, found = verdict(case, text)
        tried += 1
        if kind == "wrong":
            wrong[text] = f"{case['text']!r}: {found}"
    return tried, wrong


def _figures(hardware: Hardware) -> dict[str, Any]:
    """All of a rig that a figure may hang on; cards without the places they have in their order."""
    rig = msgspec.to_builtins(resolve(hardware))
    cards = [{k: v for k, v in card.items() if k not in ("gpu", "device")} for card in rig.pop("cards")]
    return {"cards": sorted(map(json.dumps, cards)), **{k: v for k, v in rig.items() if k not in ("assumed", "fitted")}}


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.full)])
def test_the_canonical_form_and_the_shorthand_keep_every_figure_of_a_rig(every: int) -> None:
    lost: list[tuple[str, str]] = []
    for case in [c for c in CASES if "asks" not in c][::every]:
        with suppress(AdvisorError):
            hardware = parse_hardware(case["text"])
            whole = _figures(hardware)
            for form in (canonical(hardware), parse_hardware(to_shorthand(hardware))):
                now = _figures(form)
                lost += [(case["text"], key) for key in whole if whole[key] != now[key]]
    assert not lost


def test_other_ways_to_write_the_same_mean_the_same_or_are_asked_about() -> None:
    tried, wrong = _misread(150, 20)
    assert tried > 20
    assert not wrong


@pytest.mark.full
def test_of_all_ways_that_fit_a_minute_one_in_a_thousand_is_misread_at_most() -> None:
    tried, wrong = _misread(100_000, 60)
    print(f"\n{tried} ways to write {len(CASES)} descriptions, {len(wrong)} misread")
    assert len(wrong) <= tried / 1000, wrong
