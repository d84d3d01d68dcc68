"""A release is one command: what it writes, what it refuses, and a dry run of all of it."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from scripts.release import Impossible, dated, release

ROOT = Path(__file__).parents[2]
TODAY = date(2026, 11, 22)


def test_unreleased_changes_get_a_version_and_a_day() -> None:
    text = "# Changelog\n\n## Unreleased\n\n### Added\n- A.\n\n## 0.1.0 (2026-01-01)\n- B.\n"
    assert dated(text, "0.2.0", TODAY) == (
        "# Changelog\n\n## Unreleased\n\n## 0.2.0 (2026-11-22)\n\n### Added\n- A.\n\n## 0.1.0 (2026-01-01)\n- B.\n"
    )


@pytest.mark.parametrize("text", ["# Changelog\n", "## Unreleased\n\n## 0.1.0 (2026-01-01)\n- B.\n"])
def test_nothing_to_release_is_said(text: str) -> None:
    with pytest.raises(Impossible, match="nothing under Unreleased"):
        dated(text, "0.2.0", TODAY)


@pytest.mark.parametrize("version", ["0.0.9", "0.1.0", "next", "0.2"])
def test_a_version_comes_after_the_last(version: str, tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "__init__.py").write_text('__version__ = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("## Unreleased\n- A.\n")
    with pytest.raises(Impossible, match="does not come after"):
        release(tmp_path, version, TODAY)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_dry_run_makes_commit_tag_wheel_and_sdist_and_changes_nothing() -> None:
    def state() -> str:
        words = ["git", "-C", str(ROOT), "for-each-ref", "--format=%(refname) %(objectname)", "refs/tags"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    before = state()
    words = [sys.executable, "-m", "scripts.release", "99.0.0", "--dry-run"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for line in ("commit: Release 99.0.0", "CHANGELOG.md", "openapi.json", "offload_advisor-99.0.0-py3-none-any.whl"):
        assert line in done.stdout
    assert "dry run: nothing was changed" in done.stdout
    assert state() == before
