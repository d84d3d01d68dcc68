"""When, of which commit and on what machine a figure was measured: the first line of what is kept in bench/results/."""

from __future__ import annotations

import datetime
import os
import subprocess
from pathlib import Path


def stamp() -> str:
    """Return date, commit (with a plus where files differ from it) and the machine's kind."""
    commit = _git("rev-parse", "--short", "HEAD")
    changed = "+" if _git("status", "--porcelain", "--untracked-files=no") else ""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return f"{today}, commit {commit}{changed}, {os.cpu_count()} cores, no GPU used"


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=Path(__file__).parent, check=True, capture_output=True, text=True
    ).stdout.strip()
