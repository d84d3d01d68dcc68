"""The last line of `.ci/run`: how many tests passed and failed in all steps."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = (
    "cmake", "g++", "chromium", "npm", "curl", "promtool", "jq", "shellcheck", "haproxy", "apt-get", "sudo", "python3",
)  # fmt: skip


def ran(folder: Path, make: str) -> tuple[int, list[str]]:
    """Run `.ci/run` in a folder with a `make` of our own, where no test passes when it is run once more; return its
    exit status and what it printed."""
    python = folder / ".venv" / "bin" / "python"
    for room in (folder / ".ci", python.parent):
        room.mkdir(parents=True)
    python.symlink_to("/bin/false")
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    for name in NEEDED:
        (folder / name).symlink_to("/bin/true")
    (folder / "make").write_text(f"#!/bin/sh\n{make}\n")
    (folder / "make").chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    done = subprocess.run(
        [folder / ".ci" / "run"], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("make", "code", "line"),
    [
        ('[ "$1" = setup ] || echo "10 0" >"$TEST_COUNTS/$1"', 0, "40 passed, 0 failed"),
        ('[ "$1" = setup ] || echo "10 2" >"$TEST_COUNTS/$1"; [ "$1" != test ]', 1, "20 passed, 4 failed"),
        ('[ "$1" != check ]', 1, "0 passed, 1 failed"),
    ],
    ids=["all pass", "tests fail", "a step without tests fails"],
)
def test_the_last_line_counts_all_steps_that_ran(tmp_path: Path, make: str, code: int, line: str) -> None:
    found, lines = ran(tmp_path, make)
    assert (found, lines[-1]) == (code, line)


def test_a_check_that_is_not_pytest_counts_as_one(tmp_path: Path) -> None:
    for command, code in (("true", 0), ("false", 1)):
        done = subprocess.run(
            [ROOT / "scripts/count", command], env={**os.environ, "TEST_COUNTS": str(tmp_path)}, check=False
        )
        assert done.returncode == code
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == ["0 1\n", "1 0\n"]
