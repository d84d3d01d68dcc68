"""Write what can be read from a clone of ik_llama.cpp: its builds by date, and when each option came and went.

    python scripts/write_builds.py CLONE [COMMIT]

A build's number is what its `--version` prints: its number of commits. Options are the words that the argument parsers
compare with (common/common.cpp for the server and its kin, examples/llama-bench/llama-bench.cpp).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).parent.parent / "service/engine/engines/ik_llama_cpp/builds.json"
SINCE = "2024-06-01"
PARSERS = {"llama-server": "common/common.cpp", "llama-bench": "examples/llama-bench/llama-bench.cpp"}
OPTION = re.compile(r'arg == "(--?[A-Za-z][\w-]*)"')


def git(clone: str, *words: str) -> str:
    return subprocess.run(["git", "-C", clone, *words], capture_output=True, text=True, check=True).stdout


def builds(clone: str, commit: str) -> dict[str, str]:
    """Return `NUMBER:COMMIT …` of the main line by date, and behind them `COMMIT …` of all branches.

    The main line was rewritten in 2025: the commits that people posted before are those of branches.
    """
    log = git(clone, "log", "--first-parent", "--reverse", "--format=%h %cs", f"--since={SINCE}", commit)
    found: dict[str, list[str]] = {}
    known, latest = set(), ""
    for name, date in (line.split() for line in log.splitlines()):
        latest = max(latest, date)
        known.add(name)
        number = git(clone, "rev-list", "--count", name).strip()
        found.setdefault(latest, []).append(f"{number}:{name[:9]}")
    everything = git(clone, "log", "--all", "--format=%h %cs", f"--since={SINCE}")
    for name, date in (line.split() for line in everything.splitlines()):
        if name not in known and date <= latest:
            found.setdefault(date, []).append(name[:8])
    return {date: " ".join(names) for date, names in sorted(found.items())}


def lifetimes(clone: str, commit: str, path: str) -> dict[str, str]:
    """Return `BORN` or `BORN GONE` (repeated) of the options that came or went since; the others were always there."""
    log = git(clone, "log", "--first-parent", "--reverse", "--format=%h %cs", f"--since={SINCE}", commit, "--", path)
    found: dict[str, list[str]] = {}
    before: set[str] | None = None
    for line in log.splitlines():
        name, date = line.split()
        there = set(OPTION.findall(git(clone, "show", f"{name}:{path}")))
        for option in there ^ before if before is not None else ():
            found.setdefault(option, [] if option in there else [SINCE]).append(date)
        before = there
    return {option: " ".join(dates) for option, dates in sorted(found.items())}


def main() -> int:
    clone, commit = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "HEAD"
    found = {
        "builds": builds(clone, commit),
        "options": {program: lifetimes(clone, commit, path) for program, path in PARSERS.items()},
    }
    TARGET.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
