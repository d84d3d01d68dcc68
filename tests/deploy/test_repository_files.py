"""The files that a hosting site reads: its CI workflow and its issue forms follow the site's own schemas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[0-9]*.yml"))
FILES = {
    "vendor.github-workflows": [ROOT / ".github" / "workflows" / "ci.yml"],
    "vendor.github-issue-forms": FORMS,
    "vendor.github-issue-config": [ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"],
}


@pytest.mark.full
@pytest.mark.parametrize("schema", FILES)
def test_the_files_follow_the_sites_schema(schema: str) -> None:
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, FILES[schema])]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_report_of_a_wrong_prediction_asks_for_what_it_takes_to_repeat_it() -> None:
    text = FORMS[0].read_text()
    for identifier in ("command", "log", "build", "hardware", "advisor"):
        assert f"id: {identifier}" in text


def test_the_workflow_runs_the_script_that_contributors_run() -> None:
    assert "bash .ci/run" in FILES["vendor.github-workflows"][0].read_text()
