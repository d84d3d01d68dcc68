"""docs/hosts.md says what is so: every key of the policy with its default, a unit that can be read, known commands."""

from __future__ import annotations

import argparse
import configparser
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import msgspec
import pytest

from service.cli import host
from workers.agent.policy import AskerPolicy, DownloadPolicy, EnginePolicy, ModelPolicy, Policy, decode_policy

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "hosts.md").read_text()
SECTIONS = {"engines": EnginePolicy, "models": ModelPolicy, "downloads": DownloadPolicy, "askers": AskerPolicy}
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
        elif stated == '["*"]':
            assert value == ("*",)
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


def _agent_words(text: str) -> argparse.Namespace:
    """What `advisor host run …` of a unit says, as the command reads it."""
    words = re.search(r"advisor[\"', ]+(host[\"', ]+run\b[^\n&\]]*)", text)
    assert words
    return _parser().parse_args(shlex.split(re.sub(r"[\",]", " ", words[1])))


def test_the_units_for_podman_and_slurm_start_the_agent_with_its_own_options() -> None:
    folder = ROOT / "deploy" / "host"
    image, job = (folder / "Containerfile").read_text(), (folder / "advisor-host.sbatch").read_text()
    inside = _agent_words(image)
    assert _agent_words(job).policy.endswith("policy.toml")
    read = configparser.ConfigParser(interpolation=None, strict=False)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    unit = (folder / "advisor-host.container").read_text()
    read.read_string(unit)
    assert set(read.sections()) == {"Unit", "Container", "Service", "Install"}
    assert f":{inside.state_dir}\n" in unit
    assert f":{inside.policy}:ro\n" in unit
    user = re.search(r"useradd --uid (\d+)", image)
    assert user
    assert read["Container"]["UserNS"] == f"keep-id:uid={user[1]},gid={user[1]}"
    assert read["Service"]["RestartPreventExitStatus"] == str(host.CANNOT_WORK)
    assert "--require-hashes -r requirements-agent.txt" in image


def _job_of_slurm(home: Path, agent: str) -> subprocess.Popen[bytes]:
    """Slurm's job as it runs, once an agent in its place has started."""
    program = home / "advisor" / "bin" / "advisor"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/bash\ntrap 'kill %1; exit 143' TERM\nsleep 60 &\necho started\n{agent}\n")
    program.chmod(0o755)
    job = ["bash", str(ROOT / "deploy" / "host" / "advisor-host.sbatch")]
    running = subprocess.Popen(job, env={**os.environ, "HOME": str(home)}, stdout=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdout.readline() == b"started\n"
    return running


def test_slurms_job_has_succeeded_where_slurm_ends_it(tmp_path: Path) -> None:
    """Slurm 22.05 called a job FAILED whose agent had ended in order, with the 143 of its signal."""
    with _job_of_slurm(tmp_path, "wait") as running:
        running.terminate()
        assert running.wait(30) == 0


def test_slurms_job_fails_as_the_agent_does(tmp_path: Path) -> None:
    with _job_of_slurm(tmp_path, "kill %1; exit 78") as running:
        assert running.wait(30) == 78


def _locked(name: str) -> dict[str, str]:
    """Version of each package in a lock file; one without a hash is none."""
    text = (ROOT / name).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE))


def test_the_agent_is_installed_from_hashes_alone_and_what_builds_it_too() -> None:
    assert "pip install --require-hashes -r requirements-agent.txt\n" in PAGE
    assert "pip install --no-deps --no-build-isolation .\n" in PAGE
    locked, project = _locked("requirements-agent.txt"), tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert len(locked) == (ROOT / "requirements-agent.txt").read_text().count("==")
    wanted = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["agent"]]
    wanted += project["build-system"]["requires"]
    assert {re.split(r"[<>=\[;]", one)[0] for one in wanted} <= locked.keys()
    tested = _locked("requirements-dev.txt")
    assert {name: tested[name] for name in locked if name in tested} == {
        name: version for name, version in locked.items() if name in tested
    }


def test_commands_in_the_text_exist() -> None:
    for verb in re.findall(r"`advisor host (\w+)", PAGE):
        with pytest.raises(SystemExit) as caught:
            _parser().parse_args(["host", verb, "--help"])
        assert caught.value.code == 0
