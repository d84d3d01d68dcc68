"""Make cases of llama-bench tables: `python -m bench.harvest FILE --id NAME --source TEXT --date DAY --gpu NAME …`.

Prints one case a line, in the form of tests/data/perf_2026.jsonl, for every model, back end and set of flags of the
Markdown tables in FILE. `--shape` and `--mix` name what tests/models.py builds (one pair for all tables of a file);
without them a case cannot be fitted, and says so.
The build is that of the `build:` line under the tables.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_COLUMNS = {
    "ngl": "-ngl", "n_cpu_moe": "-ncmoe", "n_batch": "-b", "type_k": "-ctk", "type_v": "-ctv", "sm": "-sm",
    "fa": "-fa", "mmap": "-mmp", "nopo": "-nopo", "ts": "-ts", "ot": "-ot", "dev": "-dev", "fmoe": "-fmoe",
    "rtr": "-rtr", "mla": "-mla", "amb": "-amb",
}  # fmt: skip
_OF_ENTRY = ("test", "t/s", "n_ubatch", "threads")  # what differs between the entries of one case
_TEST = re.compile(r"(pp|tg)(\d+)(?: @ d(\d+))?")
_SPEED = re.compile(r"([\d.]+)(?:\s*±\s*([\d.]+))?")


def tables(text: str) -> Iterator[dict[str, str]]:
    """Yield each row of every llama-bench table in a text, by the names of its columns."""
    head: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if "|" not in line:
            head = []
        elif "t/s" in cells and "test" in cells:
            head = cells
        elif head and len(cells) == len(head) and not set(line) <= set("|-: "):
            yield dict(zip(head, cells, strict=True))


def entry_of(row: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the test and speed of a row; None if it is neither pp nor tg, or has no speed."""
    test, speed = _TEST.fullmatch(row["test"]), _SPEED.fullmatch(row["t/s"])
    if test is None or speed is None:
        return None
    return {
        "test": test[1] + test[2],
        "n_depth": int(test[3] or 0),
        "n_ubatch": int(row["n_ubatch"]) if row.get("n_ubatch", "").isdigit() else None,
        "threads": int(row["threads"]) if row.get("threads", "").isdigit() else None,
        "t_s": float(speed[1]),
        "sd": float(speed[2]) if speed[2] else None,
    }


def cases(rows: Sequence[Mapping[str, str]], common: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a case for the rows of each model, back end and set of flags, with what is common to a file."""
    groups: dict[tuple[tuple[str, str], ...], list[dict[str, Any]]] = {}
    for row in rows:
        if (entry := entry_of(row)) is not None:
            groups.setdefault(tuple((k, v) for k, v in row.items() if k not in _OF_ENTRY), []).append(entry)
    for number, (key, entries) in enumerate(groups.items(), 1):
        of = dict(key)
        flags = " ".join(f"{flag} {of[name]}" for name, flag in _COLUMNS.items() if of.get(name))
        size = re.match(r"([\d.]+) GiB", of.get("size", ""))
        yield {
            **common,
            "id": f"{common['id']}-{number}",
            "backend": of.get("backend", "").split(",")[0] or None,
            "tool": "llama-bench",
            "command": f"llama-bench -m model.gguf {flags}",
            "model": {**common["model"], "printed": of.get("model"), "file_size_gib": size and float(size[1])},
            "rows": [],
            "bench": entries,
        }


def main() -> None:
    """Print the cases of a file, and say what they lack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    for name in ("id", "source", "date"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--engine", default="llama.cpp", choices=("llama.cpp", "ik_llama.cpp"))
    parser.add_argument("--gpu", action="append", default=[], help="name of a card; again for each")
    parser.add_argument("--cpu")
    parser.add_argument("--shape")
    parser.add_argument("--mix")
    parser.add_argument("--quality", default="medium", choices=("high", "medium"))
    asked = parser.parse_args()
    text = asked.file.read_text()
    build = re.search(r"^build: (\w+ \(\d+\))", text, re.M)
    gpus = [{"name": name, "count": asked.gpu.count(name), "pcie": None} for name in dict.fromkeys(asked.gpu)]
    common = {
        "id": asked.id, "source": asked.source, "date": asked.date, "engine": asked.engine, "quality": asked.quality,
        "build": build[1] if build else None, "notes": None, "ab_group": None, "ab_label": None, "inferred": [],
        "model": {"shape": asked.shape, "mix": asked.mix},
        "hardware": {"gpus": gpus, "cpu": {"model": asked.cpu} if asked.cpu else None, "ram": None, "os": None},
    }  # fmt: skip
    found = list(cases(list(tables(text)), common))
    for case in found:
        print(json.dumps(case, ensure_ascii=False))
    print(f"{len(found)} cases, {sum(len(case['bench']) for case in found)} speeds", file=sys.stderr)
    if not (asked.shape and asked.mix):
        print("no --shape and --mix: nothing of it can be fitted", file=sys.stderr)


if __name__ == "__main__":
    main()
