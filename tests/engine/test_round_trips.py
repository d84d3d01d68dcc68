"""Advices of the panel (tests/data/judgment.jsonl) in each file format: read back as the run that was advised.

All ranked configs are tried, on the panel's rigs. `check` of the file's command and of the advised one must say the
same of every device to the byte; llama.cpp's own router reads the presets, compose files keep Compose's schema.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, get_args

import httpx
import msgspec
import pytest
from jsonschema import Draft7Validator

from bench.judgment import QUESTIONS, answer, variants_of
from service.engine.advice import AdvisedConfig
from service.engine.check.run import check
from service.engine.commands.config_files import config_file, launch_of
from service.engine.commands.parse import parse
from service.engine.commands.read_files import only_command
from service.engine.commands.render import Launch, bash
from service.engine.config import FileFormat
from service.engine.errors import InvalidFlags
from service.engine.hardware_text import parse_hardware
from service.engine.run.devices import rig_of_command
from service.engine.side_by_side import served

pytestmark = pytest.mark.full
DATA = Path(__file__).parents[1] / "data"
SCHEMAS: dict[FileFormat, Any] = {
    "llama-swap": json.loads((DATA / "llama_swap" / "config-schema.json").read_text()),
    "compose": json.loads((DATA / "compose" / "compose-spec.json").read_text()),
}
PANEL = {question["id"]: question for question in map(json.loads, QUESTIONS.read_text().splitlines())}


@cache
def advised(question: str) -> list[AdvisedConfig]:
    return answer(PANEL[question])


def of_machine(command: str, config: AdvisedConfig, question: str) -> Any:
    """What a command is on a rig of the panel: the memory of every device, part by part, and its flags."""
    asked = PANEL[question]
    model = next(one.model for one in variants_of(asked["repo"]) if one.name == config.variant)
    parsed = parse(command, config.engine)
    report = check(command, config.engine, model, rig_of_command(parse_hardware(asked["hardware"]), parsed))
    return report.memory.devices, parsed.flags


def on_a_mac(config: AdvisedConfig) -> bool:
    return any(device.device.startswith("MTL") for device in config.devices)


def files(config: AdvisedConfig) -> Iterator[tuple[FileFormat, str]]:
    """Yield the config in each format that can hold it: llama-swap holds all, compose and systemd all but a Mac's."""
    for form in get_args(FileFormat):
        try:
            yield form, config_file(form, [served("m", config)])
        except InvalidFlags:
            if form not in ("preset", "env") and not (form != "llama-swap" and on_a_mac(config)):
                raise


@pytest.mark.parametrize("question", PANEL)
def test_each_format_is_read_back_as_the_advised_run(question: str) -> None:
    seen = set()
    for config in advised(question):
        started = launch_of(config.commands.server)
        expected, unbound = (
            of_machine(bash(Launch(started.env, prefix, started.program, started.arguments)), config, question)
            for prefix in (started.prefix, ())
        )
        ours = parse(config.commands.server, config.engine)
        for form, text in files(config):
            found = only_command(text)
            parsed = parse(found.command, config.engine)
            assert (parsed.env.items() >= ours.env.items(), parsed.unknown) == (True, ()), (form, text)
            bound = form != "compose"  # whose image has no numactl
            assert of_machine(found.command, config, question) == (expected if bound else unbound), (form, text)
            if form in SCHEMAS:
                Draft7Validator(SCHEMAS[form]).validate(msgspec.yaml.decode(text))
            seen.add(form)
    mac = all(map(on_a_mac, advised(question)))
    assert seen >= ({"llama-swap", "preset"} if mac else {"llama-swap", "compose", "systemd"})


def test_the_router_itself_starts_what_was_advised(tmp_path: Path) -> None:
    several = {
        f"{question}-{config.rank}": config
        for question in PANEL
        for config in advised(question)
        if config.engine == "llama.cpp"
        and not parse(config.commands.server).env
        and "numactl" not in config.commands.server
    }
    assert len(several) >= 10
    preset = tmp_path / "models.ini"
    preset.write_text(config_file("preset", [served(name, config) for name, config in several.items()]))
    started = dict(router_models(preset))
    for name, config in several.items():
        short = started[name].replace("--cache-ram", "-cram")  # the router writes an option's longest name
        parsed, ours = parse(short, "llama.cpp"), parse(config.commands.server, "llama.cpp")
        assert (parsed.flags, parsed.model_path, parsed.unknown) == (ours.flags, ours.model_path, ()), name


def router_models(preset: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each model that llama.cpp's router has, and the command by which it would start it."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "offload-advisor" / "llama.cpp-0.3.36"
    program = Path(os.environ.get("ENGINE_CACHE", default)) / "build" / "bin" / "llama-server"
    assert program.exists(), "no engine is built: run scripts/build_engine.sh"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = preset.with_suffix(".log")
    with (
        log.open("w") as said,
        subprocess.Popen(
            [program, "--models-preset", preset, "--port", str(port)], stdout=said, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            for _ in range(600):
                assert process.poll() is None, log.read_text()
                with suppress(httpx.TransportError):
                    reply = httpx.get(f"http://127.0.0.1:{port}/models", trust_env=False)
                    if reply.is_success:  # 503 while it starts
                        break
                time.sleep(0.1)
            for one in reply.json()["data"]:
                words = one["status"]["args"]
                yield one["id"], shlex.join(words)
        finally:
            process.terminate()
            process.wait(30)
