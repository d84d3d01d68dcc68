"""The lines of a paste as the program wrote them: what chats, terminals, editors and pages put around them is gone."""

from __future__ import annotations

import html
import re
from typing import NamedTuple

from service.engine.errors import InvalidInput

MAX_PASTE = 1 << 20
_MAX_LINES = 20_000

_ANSI = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)|[@-Z\\-_])")
_UNSEEN = re.compile(r"[\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\u00ad\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_BLANKS = re.compile(r"[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_PIPES = str.maketrans("│┃｜∣❘", "|||||")
_ENTITY = re.compile(r"&(?:gt|lt|amp|quot|apos|nbsp|vert|#39|#124|#x7[cC]);")
_QUOTED = re.compile(r"^[ \t]{0,8}(?:>{1,8}[ \t]?){1,8}")
_LOGGED = re.compile(  # by docker compose or kubectl, then by docker's --timestamps or journald
    r"^(?:[\w.-]{1,60}[-_]\d{1,3} {1,60}\|(?: |$)|\[pod/\S{1,200}\] )?"
    r"(?:(?:\w{2,5}\.? [ \d]?\d [\d:]{8}|\d{4}-\d\d-\d\dT[\d:.,]{8,18}(?:Z|[+-]\d\d:?\d\d))"
    r"(?: [\w.-]{1,64} [\w./-]{1,64}(?:\[\d{1,7}\])?:)?(?: |$))?"
)
_FENCE = re.compile(r"^[ \t]{0,8}(?:```+|~~~+)[ \t]{0,8}[\w+.-]{0,20}[ \t]{0,8}$")
_OPENED = re.compile(r"^[ \t]{0,8}```+(?:(?:bash|console|sh|shell|text|txt|md|json|log)\b)?[ \t]{0,8}")
_CLOSED = re.compile(r"[ \t]{0,8}(?<!`)`{3,20}[ \t]{0,8}$")  # from where a run begins only: else its square in time
_INLINE = re.compile(r"^[ \t]{0,8}`([^`]{1,8000})`[ \t]{0,8}$")


class Line(NamedTuple):
    """One line: its number in the paste, from 1, and what it says."""

    number: int
    text: str


def lines_of(text: str) -> list[Line]:
    """Return the lines of a paste without colours, unseen characters, fences, and what logs and quotes put before them.

    Other kinds of blanks become spaces, and other bars `|`. No character of a number, a word or an option is changed.
    Raises InvalidInput (field `text`) for a text of more than MAX_PASTE characters or with too many lines.
    """
    if len(text) > MAX_PASTE:
        raise InvalidInput(f"at most {MAX_PASTE:,} characters are read: cut it to one run", field="text")
    found = re.split(r"\r\n|\n|\r", text)
    if len(found) > _MAX_LINES:
        raise InvalidInput(f"at most {_MAX_LINES:,} lines are read: cut it to one run", field="text")
    return [Line(number, _plain(line)) for number, line in enumerate(found, 1)]


def _plain(line: str) -> str:
    line = _ANSI.sub("", line)
    line = _ENTITY.sub(lambda match: html.unescape(match[0]), line)
    if not (line.isascii() and line.isprintable()):
        line = _BLANKS.sub(" ", _UNSEEN.sub("", line)).translate(_PIPES)
    line = _LOGGED.sub("", _QUOTED.sub("", line))
    if _FENCE.match(line):
        return ""
    if inline := _INLINE.match(line):
        return inline[1].strip()
    line = _OPENED.sub("", line)
    return (_CLOSED.sub("", line) if "```" in line else line).rstrip()


def wrong_line(number: int, why: str) -> InvalidInput:
    """Return the error for a line of a paste."""
    return InvalidInput(f"line {number}: {why}", field="text")
