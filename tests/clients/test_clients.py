"""Other people's tools on what we publish: a linter, generated clients, types of Discord, models of Slack, promtool.

`npm ci` in this folder fetches those of npm; `make test-full` does it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.models.blocks import Block

from service.bots.discord.commands import commands, form
from service.bots.discord.render import render as render_for_discord
from service.bots.slack.render import render as render_for_slack
from service.bots.vocabulary import VERBS
from tests.local_hub import LocalHub
from tests.recorded.test_platforms import ANSWERS
from tests.web.stack import running_service

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "openapi" / "openapi.json"
MODULES = HERE / "node_modules"
REPO = "Qwen/Qwen3-0.6B-GGUF"
pytestmark = pytest.mark.full


def run(*command: str, cwd: Path = HERE) -> str:
    """Return what a command prints; it must succeed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def tool(name: str) -> str:
    path = MODULES / ".bin" / name
    assert path.exists(), f"{name} is needed: npm ci --prefix tests/clients"
    return str(path)


def test_a_strict_linter_finds_nothing_in_the_openapi_document() -> None:
    run(tool("spectral"), "lint", "--ruleset", "spectral.json", "--fail-severity", "hint", str(DOCUMENT))


def _project(folder: Path) -> Path:
    """Return a TypeScript project with the generated types, and what we send Discord as values of Discord's types."""
    (folder / "node_modules").symlink_to(MODULES)
    (folder / "package.json").write_text('{"type": "module"}')
    for name in ("use.ts", "tsconfig.json"):
        shutil.copy(HERE / name, folder / name)
    run(tool("openapi-typescript"), str(DOCUMENT), "-o", str(folder / "api.d.ts"))
    bodies = [render_for_discord(answer).body for answer in ANSWERS.values()]
    forms = [{"type": 9, "data": form(verb.name, {})} for verb in VERBS if verb.form]
    typed = {
        "RESTPutAPIApplicationCommandsJSONBody": [commands([]), commands([], in_guild=True)],
        "RESTPatchAPIWebhookWithTokenMessageJSONBody": bodies,
        "RESTPostAPIWebhookWithTokenJSONBody": bodies,
        "RESTPostAPIChannelMessageJSONBody": bodies,
        "APIModalInteractionResponse": forms,
        "APIInteractionResponseDeferredChannelMessageWithSource": [{"type": 5, "data": {"flags": 64}}, {"type": 5}],
    }
    lines = [f'import type {{ {", ".join(typed)} }} from "discord-api-types/v10";']
    lines += [f"export const of{name}: {name}[] = {json.dumps(values)};" for name, values in typed.items()]
    (folder / "platforms.ts").write_text("\n".join(lines) + "\n")
    return folder


def test_a_generated_typescript_client_compiles_strictly_and_runs_and_so_does_what_we_send_discord(
    tmp_path: Path,
) -> None:
    project = _project(tmp_path)
    run(tool("tsc"), "--project", ".", cwd=project)
    with LocalHub() as hub, running_service(tmp_path / "state", hub.endpoint) as service:
        said = json.loads(run("node", "out/use.js", str(service.base_url).rstrip("/"), REPO, cwd=project))
    assert said["status"] in (200, 202)
    assert said["event"] == "ready"
    assert (said["problem"], said["parsed"]) == (422, 200)


def test_a_generated_python_client_passes_mypy_and_runs(tmp_path: Path) -> None:
    config = tmp_path / "client.yaml"  # as docs/clients.md has it
    config.write_text(
        "literal_enums: true\ncontent_type_overrides: {application/gzip: application/octet-stream}\npost_hooks: []\n"
    )
    generator = str(Path(sys.executable).parent / "openapi-python-client")
    where = ["--path", str(DOCUMENT), "--config", str(config), "--output-path", str(tmp_path / "client")]
    run(generator, "generate", *where, "--meta", "none", "--fail-on-warning")
    (tmp_path / "asks.py").write_text(  # no token, where one is optional
        "from client import Client\nfrom client.api.advice import request_advice\n"
        "from client.models import AdviceRequest\n"
        "request_advice.sync(client=Client(base_url=''), body=AdviceRequest(repo='a/b', hardware='RTX 3090'))\n"
    )
    run(sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "client", "asks.py", cwd=tmp_path)
    program = (
        "import sys; from client import Client;"
        "from client.models import AdviceRequest, CompactAdvice, CreatedAdvice, HardwareQuestion, ParsedHardware;"
        "from client.api.advice import request_advice; from client.api.hardware import parse_hardware;"
        "client, asked = Client(base_url=sys.argv[1]), HardwareQuestion(text='RTX 3090, 64GB');"
        "found = parse_hardware.sync(client=client, body=asked);"
        "assert isinstance(found, ParsedHardware), found; print('understood');"
        "body = AdviceRequest(repo=sys.argv[2], hardware='RTX 3090, 64GB');"
        "whole, card = (request_advice.sync(client=client, body=body, detail=one) for one in ('short', 'card'));"
        "assert isinstance(whole, CreatedAdvice) and isinstance(card, CompactAdvice), (whole, card)"
    )
    with LocalHub() as hub, running_service(tmp_path / "state", hub.endpoint) as service:
        assert "understood" in run(sys.executable, "-c", program, str(service.base_url), REPO, cwd=tmp_path)


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_messages_are_valid_by_slacks_own_models(answer: Any) -> None:
    message = render_for_slack(answer)
    blocks = Block.parse_all(message["blocks"])
    assert len(blocks) == len(message["blocks"])
    for block, sent in zip(blocks, message["blocks"], strict=True):
        block.validate_json()
        assert block.to_dict() == sent


def test_promtool_finds_nothing_in_the_metrics(tmp_path: Path) -> None:
    with LocalHub() as hub, running_service(tmp_path / "state", hub.endpoint) as service:
        text = service.get("/metrics").text
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
