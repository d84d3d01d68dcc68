"""What Discord and Slack publish of themselves, held against what we send them and how we read their answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from service.bots.answer import Answer, Button, Code
from service.bots.discord.commands import commands, form
from service.bots.discord.render import render
from service.bots.sending import of_discord, of_slack
from service.bots.slack.manifest import manifest
from service.bots.vocabulary import VERBS
from service.wire.bots import Ask

HERE = Path(__file__).parent
DISCORD: dict[str, Any] = json.loads((HERE / "discord" / "openapi.json").read_text())
DISCORD_ERRORS: list[int] = json.loads((HERE / "discord" / "errors.json").read_text())["json_error_codes"]
SLACK: dict[str, Any] = json.loads((HERE / "slack" / "errors.json").read_text())
OTHER = Button("With the other engine", Ask(verb="advise", words={"of": "abc"}))
COMMAND = Code("llama-server -m a.gguf", "bash")
ANSWERS = {
    "full": Answer(
        title="Yes: Q4_K_M",
        parts=("A *paragraph*", COMMAND),
        link="https://advisor.example/x",
        buttons=(OTHER,),
        full="all of it",
        attach=True,
    ),
    "long": Answer(title="t" * 400, parts=("p" * 9_000, Code("c" * 5_000)), buttons=(Button("b" * 99, OTHER.ask),)),
    "bare": Answer(title="No."),
}


def valid(request: str, body: Any) -> None:
    """Hold a body to Discord's own schema of a request."""
    schema = {"allOf": [DISCORD["requests"][request]], "components": DISCORD["components"]}
    problems = [f"{list(one.path)}: {one.message[:200]}" for one in Draft202012Validator(schema).iter_errors(body)]
    assert problems == []


@pytest.mark.parametrize("in_guild", [False, True])
def test_the_commands_are_valid_by_discords_schema(in_guild: bool) -> None:
    valid("commands", commands([], in_guild=in_guild))


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_messages_are_valid_by_discords_schema(answer: Answer) -> None:
    body = render(answer).body
    for request in ("edit", "follow_up", "message"):
        valid(request, body)
    valid("callback", {"type": 4, "data": {**body, "flags": 64}})
    valid("direct", {"recipient_id": "80351110224678912"})


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS if verb.form])
def test_forms_are_valid_by_discords_schema_and_their_titles_whole(verb: str) -> None:
    asked = form(verb, {"rig": "RTX 3090"})
    valid("callback", {"type": 9, "data": asked})
    title = next(one.title for one in VERBS if one.name == verb)
    assert asked["title"] == title
    assert len(title) <= 45


def test_an_error_of_discord_is_never_taken_for_sent_and_only_the_race_is_waited_for() -> None:
    assert len(DISCORD_ERRORS) > 200
    for code in DISCORD_ERRORS:
        reply = httpx.Response(404 if code < 20_000 else 403, json={"code": code, "message": "…"})
        early, late = of_discord(reply, 3), of_discord(reply, 60)
        assert late.kind in ("gone", "refused"), code
        assert early.kind == ("later" if code in (10008, 10015) else late.kind), code
        assert late.code == str(code)


@pytest.mark.parametrize("with_bot", [True, False])
def test_the_manifest_is_valid_by_slacks_schema(with_bot: bool) -> None:
    schema = json.loads((HERE / "slack" / "manifest.schema.json").read_text())
    Draft7Validator(schema).validate(manifest("https://advisor.example", [], with_bot=with_bot))


@pytest.mark.parametrize("method", ["chat.postMessage", "chat.postEphemeral"])
def test_a_failure_of_slack_comes_with_status_200_and_is_never_taken_for_sent(method: str) -> None:
    assert of_slack(httpx.Response(200, json=SLACK["success"][method])).kind == "sent"
    meanings = {}
    for error in SLACK["errors"][method]:
        meanings[error] = of_slack(httpx.Response(200, json={"ok": False, "error": error}))
    assert "sent" not in {one.kind for one in meanings.values()}
    assert meanings["channel_not_found"].why == meanings["is_archived"].why == "not-invited"
    assert meanings["invalid_auth"].why == meanings["account_inactive"].why == "token"
    assert meanings["msg_too_long"].kind == "refused"
