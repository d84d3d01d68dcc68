"""The questions of tests/data/judgment.jsonl: page, JSON, text, Markdown, Discord and Slack answer with one card."""

from __future__ import annotations

import json
import re
from html import unescape
from types import SimpleNamespace
from typing import Any, cast

import httpx
import msgspec
import pytest

from bench.judgment import QUESTIONS, variants_of
from service.bots.advising import advice_answer
from service.bots.answer import BotContext
from service.bots.discord.render import render as to_discord
from service.bots.slack.render import render as to_slack
from service.engine.advise import advise
from service.engine.goal import Constraints, GoalRequest
from service.engine.hardware_text import parse_hardware
from service.flows.advice.advise import read_advice
from service.wire.advice.advice import Advice, Card
from service.wire.advice.card import shell_of, speed_words
from tests.web.world import World

PANEL = [json.loads(line) for line in QUESTIONS.read_text().splitlines()]
_QUICK = ("49",)
CASES = [pytest.param(q, id=q["id"], marks=[] if q["id"] in _QUICK else [pytest.mark.full]) for q in PANEL]


def plain(text: str) -> str:
    """Return a form as the words that a reader sees: no tags, escapes, fences, folds or invisible characters."""
    words = unescape(re.sub(r"<[^<>]*>", " ", text))
    words = re.sub(r"[\u2060\u200b]", "", words).replace("\\\n", " ").replace("`\n", " ")
    return " ".join(re.sub(r"\\(?=[^a-zA-Z0-9\s])", "", words).split())


def texts(message: object) -> str:
    """Return all texts of a message."""
    if isinstance(message, dict):
        message = list(message.values())
    return " ".join(map(texts, message)) if isinstance(message, list) else str(message)


def essence(card: Card, shell: str) -> list[str]:
    """Return what no form may leave out or say otherwise: the sentence, why, the command, memory and speed."""
    speeds = [point for point in (card.now, card.full) if point]
    return [
        card.sentence,
        card.why,
        card.steps[-1].powershell if shell == "powershell" else card.steps[-1].posix,
        *(f"{device.total_mib / 1024:.1f}" for device in card.devices),
        *(speed_words(point, "").removeprefix(": ") for point in speeds),
    ]


@pytest.mark.parametrize("question", CASES)
def test_every_form_shows_the_same_card(client: httpx.Client, world: World, question: dict[str, Any]) -> None:
    _, _, preset = question["args"].partition("--goal ")
    hardware = parse_hardware(question["hardware"])
    body = advise(variants_of(question["repo"]), hardware, GoalRequest(preset=preset or "chat"), Constraints())
    world.put("panel", "ready", body=body)
    advice = msgspec.json.decode(client.get("/v1/advice/panel").content, type=Advice)
    card = advice.card
    assert card is not None
    shell = shell_of(hardware)
    bots = SimpleNamespace(
        context=SimpleNamespace(settings=SimpleNamespace(bot_verbs_off=())), address=lambda path: f"http://one{path}"
    )
    answer = advice_answer(cast(BotContext, bots), read_advice(world.context, "panel"))
    in_discord = to_discord(answer)
    forms = {
        "page": client.get(f"/advice/panel?shell={shell}").text,
        "text": client.get("/v1/advice/panel?format=text").text,
        "full text": client.get("/v1/advice/panel?format=text&detail=full").text,
        "Markdown": client.get("/v1/advice/panel?format=markdown").text,
        "Discord": f"{texts(in_discord.body)} {in_discord.file or ''}",
        "Slack": texts(to_slack(answer)),
    }
    for name, form in forms.items():
        shown = plain(form)
        missing = [part for part in essence(card, shell) if plain(part) not in shown and not _in_mib(part, card, shown)]
        assert missing == [], f"{name} of {question['id']}"
    assert len(forms["page"].encode()) < 100_000


def _in_mib(part: str, card: Card, shown: str) -> bool:
    """Whether a device's total is there in the table's MiB, as all forms but the page have it."""
    totals = {f"{d.total_mib / 1024:.1f}": f"{d.total_mib:,.0f}" for d in card.devices}
    return part in totals and totals[part] in shown
