"""Renders an answer as a Discord message: an embed, a row of buttons, and a file if the embed cannot hold all of it.

Limits: discord-api-docs c98d64b, resources/message (embed limits), components/reference (buttons), resources/webhook.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from service.bots.answer import Answer, Button, Code, Part, button_id
from service.wire.plain_text import block, clean, quoted

EPHEMERAL = 1 << 6
MAX_TITLE, MAX_DESCRIPTION, MAX_BUTTONS, MAX_LABEL, MAX_URL = 256, 4096, 5, 80, 512
_ROOM = 160  # of the description, reserved for the line that says what was left out
_MAX_FILE = 1 << 20
_ROW, _BUTTON, _SECONDARY, _LINK = 1, 2, 2, 5


class Message(NamedTuple):
    """A message to send: its JSON, and the text of an attached file."""

    body: dict[str, Any]
    file: str | None = None


def render(answer: Answer) -> Message:
    """Return the message. It mentions nobody, and shows a code block whole or not at all."""
    title = escaped(answer.title)
    parts: list[Part] = list(answer.parts)
    if len(title) > MAX_TITLE:
        parts, title = [answer.title, *parts], escaped(f"{answer.title[:60]} …")
    description, whole = _description(parts, MAX_DESCRIPTION - _ROOM)
    file = clean(answer.full)[:_MAX_FILE] if answer.full and (answer.attach or not whole) else None
    if not whole:
        where = "in the file" if file else "behind the link" if answer.link else "in the command-line tool's output"
        description += f"\n\n*Part of it is too long for a message: all of it is {where}.*"
    body: dict[str, Any] = {
        "content": "",
        "embeds": [{"title": title, **({"description": description} if description else {})}],
        "components": _rows(answer),
        "attachments": [{"id": "0", "filename": "answer.txt"}] if file else [],
        "allowed_mentions": {"parse": []},
    }
    return Message(body, file)


def escaped(text: str) -> str:
    """Return the text, escaped so that Discord finds no markup and no mention in it."""
    return quoted(text.replace("\\", "\\\\"))


def _description(parts: Sequence[Part], room: int) -> tuple[str, bool]:
    """Return as many parts as fit into `room` characters, and whether that is all of them."""
    shown, whole = list[str](), True
    for part in parts:
        text = block(part.text.split("\n"), part.language) if isinstance(part, Code) else escaped(part)
        left = room - sum(len(one) + 2 for one in shown)
        if len(text) <= left:
            shown.append(text)
        else:
            whole = False
            if isinstance(part, str) and left > 40:
                shown.append(escaped(part[: left // 2 - 1]) + "…")
    return "\n\n".join(shown), whole


def _rows(answer: Answer) -> list[dict[str, Any]]:
    link = [Button("Permalink", url=answer.link)] if answer.link and len(answer.link) <= MAX_URL else []
    buttons = [*answer.buttons[: MAX_BUTTONS - len(link)], *link]
    return [{"type": _ROW, "components": [_button(button) for button in buttons]}] if buttons else []


def _button(button: Button) -> dict[str, Any]:
    shown = {"type": _BUTTON, "label": clean(button.label)[:MAX_LABEL]}
    if button.ask is None:
        return {**shown, "style": _LINK, "url": button.url}
    return {**shown, "style": _SECONDARY, "custom_id": button_id(button.ask)}
