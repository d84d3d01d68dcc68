"""docs/hosts.md says what is so: every key of the policy with its default, a unit that can be read, known commands."""

from __future__ import annotations

import argparse
import configparser
import re
import shlex
from pathlib import Path

import msgspec
import pytest

from service.cli import host
from workers.agent.policy import DownloadPolicy, EnginePolicy, ModelPolicy, Policy, decode_policy

PAGE = (Path(__file__).parents[1] / "docs" / "hosts.md").read_text()
SECTIONS = {"engines": EnginePolicy, "models": ModelPolicy, "downloads": DownloadPolicy}
WORDS = {"all": None, "always": (), "no limit": None, "none": ((), None), "all in the folders": ()}


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="advisor", exit_on_error=False)
    host.add_arguments(parser.add_subparsers().add_parser("host"))
    return parser


def test_the_table_has_every_key_of_the_policy_with_its_default() -> None:
    table = PAGE.partition("## The policy")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \|", table, re.MULTILINE)
    keys = [name for name in Policy.__struct_fields__ if name not in SECTIONS]
    keys += [f"{section}.{name}" for section, struct in SECTIONS.items() for name in struct.__struct_fields__]
    assert sorted(name for name, _ in rows) == sorted(keys)
    for name, stated in rows:
        value: object = Policy()
        for part in name.split("."):
            value = getattr(value, part)
        if stated in WORDS:
            meant = WORDS[stated]
            assert value == meant or (isinstance(meant, tuple) and value in meant), name
        elif " in the state folder" in stated:
            assert value is None
        else:
            assert value == msgspec.json.decode(stated), name


def test_the_policy_shown_can_be_read() -> None:
    (shown,) = _blocks("toml")
    assert decode_policy(shown.encode(), "shown").models.folders == ("/srv/models",)


def test_the_unit_can_be_read_and_starts_a_command_that_exists() -> None:
    (unit,) = _blocks("ini")
    read = configparser.ConfigParser(interpolation=None, strict=True)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(unit)
    service = read["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert program.endswith("/bin/advisor")
    parsed = _parser().parse_args(words)
    assert parsed.state_dir.startswith(service["ReadWritePaths"])
    assert int(service["TimeoutStopSec"]) > 20
    assert set(read.sections()) == {"Unit", "Service", "Install"}


def test_commands_in_the_text_exist() -> None:
    for verb in re.findall(r"`advisor host (\w+)", PAGE):
        with pytest.raises(SystemExit) as caught:
            _parser().parse_args(["host", verb, "--help"])
        assert caught.value.code == 0
