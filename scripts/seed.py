"""Write `service/data/published.jsonl`: published benchmark runs (tests/data/perf.jsonl) as results.

`python scripts/seed.py` writes it, `--check` says whether it is as it would be written. Models are rebuilt from the
shape and mix that each run names, for the counts of weights; bits per weight are those of the published file size.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from service.engine.hardware import Hardware
from service.engine.measured.identity import ModelIdentity, model_identity, model_name, model_slug
from service.engine.measured.rows import MeasuredRow, merged
from service.engine.reduction import reduced
from service.engine.units import GIB
from service.flows.results.imports import PublishedResult
from service.wire.results.results import Published
from tests.models import build

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "tests" / "data" / "perf.jsonl"
NAMES = ROOT / "tests" / "data" / "hardware_names.json"
WRITTEN = ROOT / "service" / "data" / "published.jsonl"
_SOURCE = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+) (?P<kind>discussion|pull|issue) #(?P<number>\d+), (?P<by>[^,]+), ")
_PATHS = {"discussion": "discussions", "pull": "pull", "issue": "issues"}
_BUILD = re.compile(r"\b(?:build|commit) ((?:[0-9a-f]{7,10}(?: \(\d{4}\))?|\d{4}))(?![\w-])")
_PHASE = re.compile(r"(pp|tg) ?(?:(\d+)|\(sweep row\))")
_SWEEP_TOKENS = {"pp": 1024, "tg": 256}  # of the rows that a pull request states without sizes, at -ub 1024
_INFERRED_GPU = re.compile(r"NVIDIA RTX 6000 \(published 'RTX 6000'")
_TAKEN_FOR = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"


def written() -> bytes:
    """Return the file as it should be."""
    cases = map(json.loads, SOURCE.read_text().splitlines())
    return b"".join(msgspec.json.encode(published(case)) + b"\n" for case in cases)


def published(case: dict[str, Any]) -> PublishedResult:
    """Return a published run as a result."""
    source = _matched(_SOURCE, case["source"])
    build_named = _BUILD.search(case["notes"] or "")
    inferred = [case["inferred"]] if isinstance(case["inferred"], str) else case["inferred"] or []
    url = f"https://github.com/{source['repo']}/{_PATHS[source['kind']]}/{source['number']}"
    return PublishedResult(
        id=case["id"],
        published=Published(by=source["by"], url=url, date=case["date"]),
        engine=case["engine"],
        build=build_named[1] if build_named else None,
        variant=re.sub(r"\s*\(.*\)$", "", case["model"]["quant"]),
        model=_identity(case["model"]),
        hardware=_hardware(case["hardware"]),
        rows=tuple(merged([*_sweep(case), *_tests(case["bench"])])),
        command=reduced(case["command"]) if case["command"] else None,
        remarks=f"not stated by its author: {'; '.join(inferred)}"[:2000] if inferred else None,
    )


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.match(text)
    if found is None:
        raise ValueError(f"{text!r} is not as {pattern.pattern!r} has it")
    return found


def _identity(model: dict[str, Any]) -> ModelIdentity:
    known = build(model["shape"], model["mix"])
    name = model_name(re.sub(r"\s*\(.*\)$", "", model["published"]))
    found = model_identity(name, known)
    bpw = round(model["size_gib"] * GIB * 8 / known.n_elements, 3)
    return msgspec.structs.replace(found, name=name, slug=model_slug(name, known.n_elements), bpw=bpw)


def _hardware(stated: dict[str, Any]) -> Hardware:
    names = json.loads(NAMES.read_text())
    gpus = [
        {**gpu, "name": _TAKEN_FOR if _INFERRED_GPU.match(gpu["name"]) else names["gpus"][gpu["name"]]}
        for gpu in stated["gpus"] or []
    ]
    cpu = dict(stated["cpu"] or {})
    cpu["model"] = names["cpus"].get(cpu["model"], cpu["model"]) if cpu.get("model") else None
    return msgspec.convert({**stated, "gpus": gpus, "cpu": cpu, "notes": None}, Hardware)


def _sweep(case: dict[str, Any]) -> Iterator[MeasuredRow]:
    """Return the rows of a sweep, using the printed speeds, which have more digits than the printed times."""
    for n_prompt, n_gen, n_kv, _, pp, _, tg in case["rows"]:
        if case["tool"] == "llama-batched-bench":
            yield MeasuredRow(n_kv=0, n_prompt=n_prompt, pp_seconds=(round(n_prompt / pp, 9),))
            yield MeasuredRow(n_kv=n_prompt, n_gen=n_gen, tg_seconds=(round(n_gen / tg, 9),))
        else:
            times = {"pp_seconds": (round(n_prompt / pp, 9),), "tg_seconds": (round(n_gen / tg, 9),)}
            yield MeasuredRow(n_kv=n_kv, n_prompt=n_prompt, n_gen=n_gen, **times)


def _tests(bench: list[dict[str, Any]]) -> Iterator[MeasuredRow]:
    for test in bench:
        stated = _matched(_PHASE, test["test"])
        phase = stated[1]
        n = int(stated[2]) if stated[2] else _SWEEP_TOKENS[phase]
        seconds = (round(n / test["t_s"], 9),)
        if phase == "pp":
            yield MeasuredRow(n_kv=test["n_depth"], n_prompt=n, pp_seconds=seconds)
        else:
            yield MeasuredRow(n_kv=test["n_depth"], n_gen=n, tg_seconds=seconds)


def main() -> int:
    """Write the file, or with `--check` return 1 if it differs."""
    if "--check" in sys.argv[1:]:
        return int(WRITTEN.read_bytes() != written())
    WRITTEN.write_bytes(written())
    print(f"{WRITTEN.relative_to(ROOT)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
