"""Hold small files of many architectures against predictions: python -m rig.architectures RIG FOLDER [ARGUMENT …].

RIG: the folder that rig.build printed. FOLDER: GGUF files, for llama.cpp those that its own test-llama-archs saves, one
of each architecture. Each is loaded on two cards with the arguments. Printed of each: exact (all buffers, splits and
nodes), placed (weights and caches), differs, or not loaded, and what differs. Ends with 1 if a file is not placed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rig.measure import Run, differences, predicted, run_engine
from service.engine.errors import AdvisorError
from service.engine.gguf.parser import MAX_HEADER_BYTES, parse_header
from service.engine.model import build_model

CARDS = (8000, 8000)
_PLACED = ("weights", "kv")


def hold(rig: Mapping[str, Any], path: Path, arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return how near the prediction for a file is, and where it differs."""
    run = Run(path.stem, "", "server", CARDS, tuple(arguments))
    printed = run_engine(rig, run, path)
    if printed.failed is not None:
        return "not loaded", printed.failed.splitlines()[:1]
    try:
        with path.open("rb") as file:
            model = build_model(parse_header(file.read(MAX_HEADER_BYTES), path.stat().st_size))
        measured = predicted(rig["engine"], run, model)
    except AdvisorError as e:
        return "differs", [str(e)]
    wrong = differences({"args": run.args, "measured": measured}, printed)
    if not wrong:
        return "exact", wrong
    misplaced = [one for one in wrong if any(f" {part}_bytes:" in one for part in _PLACED)]
    return ("differs", misplaced) if misplaced else ("placed", wrong)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rig", type=Path)
    parser.add_argument("folder", type=Path)
    asked, words = parser.parse_known_args(arguments)
    rig = json.loads((asked.rig / "rig.json").read_text())
    found = Counter[str]()
    for path in sorted(asked.folder.glob("*.gguf")):
        state, wrong = hold(rig, path, words)
        found[state] += 1
        print(f"{path.stem}: {state}{': ' if wrong else ''}{'; '.join(wrong)}", flush=True)
    print(", ".join(f"{n} {state}" for state, n in found.most_common()))
    return min(found["differs"], 1)


if __name__ == "__main__":
    sys.exit(main())
