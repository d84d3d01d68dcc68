"""Lines of text for reading: cleaned of untrusted characters, wrapped, and escaped for Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

WIDTH = 100
MORE = "detail=full"  # how everything is asked for over HTTP
_LONG_WORD = 25  # characters, beyond which a word is cut


def clean(text: str) -> str:
    """Return `text` without control, direction and zero-width characters."""
    if text.replace("\n", "").isprintable():  # the common case
        return text
    return "".join(c for c in text if c == "\n" or c.isprintable())


def plainly(error: Exception) -> str:
    """Return the first line of what an error says, without the system's `[Errno 111]`."""
    said = next(iter(clean(str(error)).splitlines()), "")
    return re.sub(r"^\[Errno -?\d+\] ", "", said) or type(error).__name__


def quoted(text: str) -> str:
    """Return untrusted text for Markdown, in which nothing is markup or mentions anybody."""
    safe = clean(text).replace("`", "'").replace("@", "@\u2060")
    return "".join("\\" + c if c in "*_[]<>#|~" else c for c in safe)


def block(lines: list[str], language: str = "") -> str:
    """Return a Markdown code block that its lines cannot leave."""
    body = "\n".join(clean(line).replace("```", "'''") for line in lines)
    return f"```{language}\n{body}\n```"


def as_text(lines: Iterable[str]) -> str:
    """Return lines as plain text, with the first, a sentence, wrapped. No lines give no text."""
    found = list(lines)
    shown = [*wrapped(found[0]), *found[1:]] if found else []
    return "".join(f"{clean(line)}\n" for line in shown)


def as_markdown(lines: Iterable[str]) -> str:
    """Return lines as Markdown: the first, a sentence, in bold, and the rest in one block of text."""
    head, *rest = lines
    return f"**{quoted(head)}**\n\n{block(rest)}\n"


def wrapped(text: str) -> list[str]:
    """Return the text in lines of at most WIDTH columns; a number stays with the `%` after it."""
    lines = textwrap.wrap(text.replace(" %", "\0%"), WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines] or [""]


def cut(text: str) -> str:
    """Return the text, cut after as many words as fit one line."""
    if len(text) <= WIDTH:
        return text
    short = text[: WIDTH - 1]
    words = short.rpartition(" ")[0] if not text[WIDTH - 1].isspace() else short
    return f"{words if len(words) > WIDTH - _LONG_WORD else short}…"
