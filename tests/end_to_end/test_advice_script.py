"""examples/advice.sh against a service with a host: the part that needs an account. docs/clients.md runs the rest."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.stack import REPO, running, start_machines
from tests.end_to_end.test_validation import replayed
from tests.local_hub import LocalHub

SCRIPT = Path(__file__).parent.parent.parent / "examples" / "advice.sh"


def test_it_has_twenty_lines() -> None:
    assert len(SCRIPT.read_text().splitlines()) == 20


@pytest.mark.full
def test_with_a_token_the_advice_is_measured_and_no_list_of_processes_shows_the_token(
    tmp_path: Path, hub: LocalHub, models: Path
) -> None:
    with running(tmp_path, hub) as stack:
        start_machines(stack, replayed(tmp_path / "bin"), models, 1)
        hardware = json.dumps(stack.call("GET", "/v1/hosts")[0]["hardware"])
        environment = {**os.environ, "ADVISOR_SERVICE": stack.url, "ADVISOR_TOKEN": stack.token}
        words = ["sh", "-x", str(SCRIPT), REPO, hardware]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=110, check=False)
        assert done.returncode == 0, done.stderr
        validation = json.loads(done.stdout.strip().splitlines()[-1])
        assert stack.call("GET", f"/v1/validations/{validation['id']}")["runs"]
    started = [line for line in done.stderr.splitlines() if stack.token in line and line.startswith("+ curl")]
    assert started == []


@pytest.mark.full
def test_shellcheck_finds_nothing_in_scripts() -> None:
    assert shutil.which("shellcheck"), "shellcheck is needed: apt-get install shellcheck"
    root = SCRIPT.parent.parent
    scripts = [SCRIPT, *sorted((root / "scripts").glob("*.sh")), root / ".ci" / "run"]
    done = subprocess.run(["shellcheck", *map(str, scripts)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
