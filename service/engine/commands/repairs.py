"""What a shell would make of a pasted text that is read here as it is meant: the differences, in words.

Commands are read leniently (`shell.py`), for pages and chats change them on the way. Somebody who pastes the same text
into a terminal runs another command: where it ends early, with options that no program knows, and so on.
"""

from __future__ import annotations

import re

_REMARK = re.compile(r"\\[ \t]+#[^\n]*|\\[ \t]*\r?\n[ \t]*#[^\n]*")
_BLANKS = re.compile(r"\\[ \t]+(?=\r?\n[ \t]*-)")
_ENDED = re.compile(r"[^\s\\`^(][ \t]*\r?\n[ \t]*(--?[A-Za-z][\w-]*)")
_DASH = re.compile(r"(?<!\S)[–—−]{1,2}[A-Za-z][\w-]*")
_QUOTE = re.compile(r"(?<=[\s=])[“”„‟‘’‚‛]\S{0,40}")
_SHOWN = 60


def repairs(text: str) -> tuple[str, ...]:
    """Return what bash would read otherwise in `text` than it is meant; nothing for a text that it reads as meant."""
    said = []
    if remark := _REMARK.search(text):
        shown = " ".join(remark[0].strip("\\ \t\r\n").split())[:_SHOWN]
        said.append(f"bash ends the command at the remark `{shown}`: take it out, with its line")
    elif _BLANKS.search(text):
        said.append("blanks stand behind a backslash, and bash ends the command there: take them out")
    elif (ended := _ENDED.search(text)) and "(" not in text[: ended.start()]:
        said.append(f"bash ends the command before the line of {ended[1]}: the line above it needs a backslash")
    if dash := _DASH.search(text):
        said.append(f"`{dash[0][:_SHOWN]}` has the dash of a printed page, with which no option begins: type it")
    if quote := _QUOTE.search(text):
        said.append(f"`{quote[0][:_SHOWN]}` has the quote of a printed page, which bash takes for a letter: type it")
    return tuple(said)
