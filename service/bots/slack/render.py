"""Renders an answer as a Slack message: blocks of plain text, which has no markup, and of code.

Limits: docs.slack.dev, Block Kit reference (header 150, section 3,000, button 75, 50 blocks, value 2,000).
"""

from __future__ import annotations

from typing import Any

from service.bots.answer import Answer, Button, Code, Part, button_id
from service.wire.plain_text import clean

MAX_HEADER, MAX_SECTION, MAX_BLOCKS, MAX_LABEL, MAX_URL = 150, 3_000, 50, 75, 3_000
OPEN = "open"  # the action of a link button: Slack reports the click, and there is nothing to do
_FENCES = 8


def render(answer: Answer) -> dict[str, Any]:
    """Return the message's `text` and `blocks`. It mentions nobody, and shows code whole or not at all."""
    found = [_block(part) for part in answer.parts]
    shown = [one for one in found if one is not None][: MAX_BLOCKS - 3]
    blocks = [_title(answer.title), *shown]
    if len(shown) < len(answer.parts):
        where = "all of it is behind the link." if answer.link else "`advisor` on the command line shows all of it."
        blocks.append(_plain(f"Part of it is too long for a message: {where}"))
    elements = _elements(answer)
    if elements:
        blocks.append({"type": "actions", "elements": elements})
    return {"text": escaped(answer.title)[:MAX_SECTION], "blocks": blocks}


def escaped(text: str) -> str:
    """Return the text, escaped so that Slack finds no mention and no link in `mrkdwn` (docs.slack.dev, formatting)."""
    safe = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return safe.replace("@", "@\u2060").replace("`", "'")


def _title(text: str) -> dict[str, Any]:
    shown = clean(text)
    if len(shown) <= MAX_HEADER:
        return {"type": "header", "text": {"type": "plain_text", "text": shown, "emoji": False}}
    return _plain(shown)


def _plain(text: str) -> dict[str, Any]:
    shown = clean(text)
    cut = shown if len(shown) <= MAX_SECTION else f"{shown[: MAX_SECTION - 1]}…"
    return {"type": "section", "text": {"type": "plain_text", "text": cut or " ", "emoji": False}}


def _block(part: Part) -> dict[str, Any] | None:
    if not isinstance(part, Code):
        return _plain(part)
    code = escaped_code(part.text)
    if len(code) + _FENCES > MAX_SECTION:
        return None
    return {"type": "section", "text": {"type": "mrkdwn", "text": f"```\n{code}\n```"}}


def escaped_code(text: str) -> str:
    """Return the text, escaped so that it cannot leave a `mrkdwn` code block and can be copied unchanged."""
    safe = clean(text).replace("```", "'''")
    return safe.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _elements(answer: Answer) -> list[dict[str, Any]]:
    link = [Button("Permalink", url=answer.link)] if answer.link and len(answer.link) <= MAX_URL else []
    return [_button(number, button) for number, button in enumerate([*answer.buttons, *link])]


def _button(number: int, button: Button) -> dict[str, Any]:
    shown = {"type": "button", "text": {"type": "plain_text", "text": clean(button.label)[:MAX_LABEL], "emoji": False}}
    if button.ask is None:
        return {**shown, "action_id": OPEN, "url": button.url}
    return {**shown, "action_id": f"ask-{number}", "value": button_id(button.ask)}
