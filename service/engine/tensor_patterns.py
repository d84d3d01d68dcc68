"""The `-ot` patterns that a host may be asked to run: a small part of ECMAScript's, none of which takes long to match.

std::regex goes back and tries again: `(a|a)(a|a)…` or `.*.*.*…` from a stranger would keep an engine busy for hours.
So nothing here repeats a group, and the ways in which a pattern can be tried on a name are counted beforehand.
"""

from __future__ import annotations

import re

from service.engine.overrides import MAX_PATTERN

MAX_NAME = 64  # GGML_MAX_NAME, ggml.h of both engines: no tensor's name is longer
# Three `.*`. The published patterns have up to 4,096; libstdc++ 12 gives up the worst at this bound after 1.3 s a name.
MAX_WAYS = 1 << 18
_MAX_DEPTH = 8
_MAX_COPIES = 16

_LITERAL = re.compile(r"[A-Za-z0-9_-]|\\[.dw-]|\.")
_CLASS = re.compile(r"\[\^?(?:[A-Za-z0-9_.]-[A-Za-z0-9_.](?!-)|[A-Za-z0-9_.|]|\\[.d])+\]")
_SPAN = re.compile(r"(.)-(.)")
_QUANTIFIER = re.compile(r"[*+?]\??|\{(\d{1,2})\}")


def is_tensor_pattern(text: str) -> bool:
    r"""Return whether `text` is a pattern of tensor names as `-ot` of a run may hold.

    Letters, digits, `_`, `-` (not first), `.`, `\.`, `\d`, `\w`, classes such as `[0-9]`, alternatives in parentheses
    (one may be empty), `^` before and `$` behind all; `*`, `+`, `{2}` behind a single character or class, `?` also
    behind a group.
    """
    if not 0 < len(text) <= MAX_PATTERN or text.startswith("-"):
        return False
    inside = text.removeprefix("^")
    try:
        ways, end = _alternatives(inside, 0, 0)
    except _Outside:
        return False
    return inside[end:] in ("", "$") and ways <= MAX_WAYS


class _Outside(Exception):
    """The text is not a pattern of the grammar."""


def _alternatives(text: str, i: int, depth: int) -> tuple[int, int]:
    """Return (in how many ways the alternatives at `i` can be tried on one name, where they end)."""
    ways, i = _sequence(text, i, depth)
    while text[i : i + 1] == "|":
        more, i = _sequence(text, i + 1, depth)
        ways += more
    return ways, i


def _sequence(text: str, i: int, depth: int) -> tuple[int, int]:
    ways = 1
    while i < len(text) and text[i] not in "|)$":
        more, i = _item(text, i, depth)
        ways = min(ways * more, MAX_WAYS + 1)
    return ways, i


def _item(text: str, i: int, depth: int) -> tuple[int, int]:
    if text[i] == "(":
        return _group(text, i, depth + 1)
    match = _CLASS.match(text, i) or _LITERAL.match(text, i)
    if match is None or any(low > high for low, high in _SPAN.findall(match[0]) if match[0][0] == "["):
        raise _Outside
    repeated = _QUANTIFIER.match(text, match.end())
    if repeated is None:
        return 1, match.end()
    if repeated[1] is not None and not 1 <= int(repeated[1]) <= _MAX_COPIES:
        raise _Outside
    return {"*": MAX_NAME, "+": MAX_NAME, "?": 2, "{": 1}[repeated[0][0]], repeated.end()


def _group(text: str, i: int, depth: int) -> tuple[int, int]:
    if depth > _MAX_DEPTH:
        raise _Outside
    ways, end = _alternatives(text, i + (3 if text.startswith("(?:", i) else 1), depth)
    if text[end : end + 1] != ")":
        raise _Outside
    return (ways + 1, end + 2) if text[end + 1 : end + 2] == "?" else (ways, end + 1)
