"""What all commands share: help, and what is said where an extra is not installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from service.cli import COMMANDS, main


def run_without(modules: Sequence[str], *words: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys\nfor name in {list(modules)!r}: sys.modules[name] = None\nfrom service.cli import main\n"
    code += f"sys.exit(main({list(words)!r}))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert {command.verb for command in COMMANDS} <= {line.strip().partition(" ")[0] for line in shown.splitlines()}


def test_help_and_hardware_need_the_base_alone() -> None:
    extras = ("httpx", "huggingface_hub", "sqlalchemy", "litestar", "redis", "rq", "nacl", "psutil", "pynvml")
    assert run_without(extras, "--help").returncode == 0
    assert run_without(extras, "hardware", "RTX 3090, 128GB", "--json").returncode == 0


def test_a_command_whose_extra_is_missing_names_it() -> None:
    ended = run_without(("httpx",), "advise", "no/such", "-H", "RTX 3090, 128GB")
    assert ended.returncode == 1
    assert ended.stderr == (
        "advisor: `advisor advise` needs httpx, which is not installed: in a checkout, pip install '.[server]'\n"
    )
