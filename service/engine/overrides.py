"""`-ot` patterns as the engines match them: std::regex (ECMAScript), searched in the tensor name, first rule wins.

Source: ik_llama.cpp src/llama-load-tensors.cpp:458-486, llama.cpp src/llama-model-loader.cpp:1234-1262; the value is
split at every comma and each piece at its first '=' (common.cpp:849, arg.cpp:252), so a pattern holds neither.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, TypeAlias

import regex

from service.engine.errors import InvalidFlags

MAX_PATTERN = 512
MAX_RULES = 256  # the longest published command has 165: a rule for each expert tensor that does not fit a GPU
SECONDS_A_RULE = 0.05
MAX_STATES = 100_000  # _GLIBCXX_REGEX_STATE_LIMIT: libstdc++ refuses what has more
_EASY_STATES = 2_000

_QUANTIFIERS = "*+?{"
_REPETITION = regex.compile(r"\{(\d{1,4})(?:,(\d{0,4}))?\}")
# A class, an escape, a group without one inside, or a character; how often at least, and at most.
_COUNTED = regex.compile(r"(\[[^\]]+\]|\\.|\([^()]*\)|[^\\\[\](){}*+?|^$])\{(\d),(\d?)\}")
_POSIX = ("alnum", "alpha", "blank", "digit", "graph", "lower", "print", "punct", "upper", "xdigit")
# Names are matched all at once, a line each: nothing may match a line's end.
_CLASS_ESCAPES = {
    "d": "[0-9]",
    "D": r"[^0-9\n]",
    "s": r"[ \t\v\f\r]",
    "S": r"[^ \t\n\v\f\r]",
    "w": "[A-Za-z0-9_]",
    "W": r"[^A-Za-z0-9_\n]",
}
_BRACKET_ESCAPES = {"d": "0-9", "s": r" \t\v\f\r", "w": "A-Za-z0-9_", "b": r"\x08"}
_CONTROL_ESCAPES = {"t": r"\t", "r": r"\r", "f": r"\f", "v": r"\v", "0": r"\x00"}


def is_easy(pattern: str) -> bool:
    """Return whether `regex` keeps its time limit on a pattern, whatever the names.

    It looks at the clock between the steps of its own loop only: neither while it compiles counted repetitions nor
    while it copies their states. Patterns with thousands of states, with a repetition inside a repetition, or with
    backreferences belong into a process that can be killed. Raises InvalidFlags for a pattern that std::regex refuses.
    """
    pieces = _pieces(pattern)
    backreference = any(piece.startswith("(?:\\") and piece[4:5].isdigit() for _, piece in pieces)
    return not backreference and not _repeats_repetition(pieces) and _states(pieces) <= _EASY_STATES


def without_commas(pattern: str) -> str:
    """Return the pattern with each `{1,2}` written out, as in `[0-9][0-9]?`: what the engines do not split."""

    def written_out(m: Any) -> str:
        rest = f"{m[1]}?" * (int(m[3]) - int(m[2])) if m[3] else f"{m[1]}*"
        return f"{m[1] * int(m[2])}{rest}"

    return str(_COUNTED.sub(written_out, pattern))


Match: TypeAlias = Callable[[str, Sequence[str]], Sequence[int]]
"""What finds a pattern in names, as `matching` does."""


def matching(pattern: str, names: Sequence[str]) -> list[int]:
    """Return the indices, ascending, of the names in which `pattern` is found. All names share 50 ms of processor time.

    As std::regex_search does. Raises InvalidFlags for a pattern that the engines would refuse (std::regex_error), that
    is too long, or that takes longer to match.
    """
    lines, starts = _lines(tuple(names))
    try:  # `regex` counts the time of all threads: in `list`, with `concurrent` off, no other one of Python's runs
        found = list(_compiled(pattern).finditer(lines, timeout=SECONDS_A_RULE, concurrent=False))
    except TimeoutError:
        raise _fail(pattern, "takes too long to match") from None
    return [bisect_right(starts, match.start()) - 1 for match in found]


@lru_cache(maxsize=64)
def _lines(names: tuple[str, ...]) -> tuple[str, list[int]]:
    """Names a line each, and where each line starts: those of a model are searched for many patterns."""
    lines = "".join(name.replace("\n", "\0") + "\n" for name in names)
    return lines, list(accumulate((len(name) + 1 for name in names), initial=0))


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN:
        raise InvalidFlags(f"-ot pattern of {len(pattern)} characters: at most {MAX_PATTERN} are read", field="-ot")
    try:
        return regex.compile(f"(?:{_translate(pattern)})[^\\n]*\\n", regex.ASCII | regex.MULTILINE | regex.V0)
    except (regex.error, OverflowError) as error:
        raise _fail(pattern, f"is not a valid regular expression: {error}") from None


def _translate(pattern: str) -> str:
    """Return the pattern in the syntax of `regex`: only what ECMAScript has is let through, with its meaning."""
    pieces = _pieces(pattern)
    if _states(pieces) > MAX_STATES:
        raise _fail(pattern, f"std::regex refuses it: more than {MAX_STATES:,} states, most of them by repetitions")
    return "".join(piece for _, piece in pieces)


def _states(pieces: Sequence[tuple[str, str]]) -> int:
    """Return about how many states std::regex makes: a repetition {n} copies what it repeats n times."""
    sizes, last = [0], 0
    for char, piece in pieces:
        if char == "(":
            sizes.append(2)
            continue
        if char == ")":
            last = sizes.pop()
            sizes[-1] += last
        elif char in _QUANTIFIERS:
            sizes[-1] += last * (_times(piece) - 1) + 1
            last *= _times(piece)
        else:
            sizes[-1] += 1
            last = 1
    return sizes[0]


def _times(piece: str) -> int:
    match = _REPETITION.match(piece)
    if match is None:
        return 1
    return max(1, int(match[1]) + 1 if match[2] == "" else int(match[2] or match[1]))


def _repeats_repetition(pieces: Sequence[tuple[str, str]]) -> bool:
    """Whether a group that holds a repetition is itself repeated."""
    inside, closed = [False], False
    for char, _ in pieces:
        if char == "(":
            inside.append(False)
        elif char == ")":
            closed = inside.pop()
            inside[-1] |= closed
        elif char in _QUANTIFIERS:
            if closed:
                return True
            inside[-1] = True
        closed = closed and char == ")"
    return False


def _pieces(pattern: str) -> list[tuple[str, str]]:
    """Return each element of the pattern: its first character, and what it is for `regex`."""
    out: list[tuple[str, str]] = []
    groups: list[str] = []
    i, repeatable = 0, False
    while i < len(pattern):
        char = pattern[i]
        if char in _QUANTIFIERS and not repeatable:
            raise _fail(pattern, f"there is nothing that {char!r} could repeat")
        if char == ")" and not groups:
            raise _fail(pattern, "')' without '('")
        piece, i = _TRANSLATORS.get(char, _plain)(pattern, i)
        out.append((char, piece))
        opened = groups.pop() if char == ")" else ""
        groups += [piece] if char == "(" else []
        repeatable = char not in "^$|(*+?{" and piece not in (r"\b", r"\B") and opened not in ("(?=", "(?!")
    if groups:
        raise _fail(pattern, "'(' without ')'")
    return out


def _plain(pattern: str, i: int) -> tuple[str, int]:
    char = pattern[i]
    return (char if char in "^$)|" else r"[^\n\r]" if char == "." else regex.escape(char)), i + 1


def _fail(pattern: str, what: str) -> InvalidFlags:
    return InvalidFlags(f"-ot pattern {pattern!r}: {what}", field="-ot")


def _escape(pattern: str, i: int) -> tuple[str, int]:
    """Translate the escape at `i`, outside a bracket; return it and the index after it."""
    char = pattern[i + 1 : i + 2]
    if not char:
        raise _fail(pattern, "ends in a backslash")
    if char in _CLASS_ESCAPES:
        return _CLASS_ESCAPES[char], i + 2
    if char in _CONTROL_ESCAPES:
        return _CONTROL_ESCAPES[char], i + 2
    if char == "n":
        return "(?!)", i + 2
    if char in "bB":
        return "\\" + char, i + 2
    if char.isdigit():
        end = i + 2
        while end < len(pattern) and pattern[end].isdigit():
            end += 1
        return f"(?:\\{pattern[i + 1 : end]})", end
    if char in "xu":
        return _code_point(pattern, i)
    if char.isalnum() or char == "_":
        raise _fail(pattern, f"\\{char} means nothing in std::regex")
    return regex.escape(char), i + 2


def _code_point(pattern: str, i: int) -> tuple[str, int]:
    width = 2 if pattern[i + 1] == "x" else 4
    digits = pattern[i + 2 : i + 2 + width]
    if len(digits) < width or any(d not in "0123456789abcdefABCDEF" for d in digits):
        raise _fail(pattern, f"\\{pattern[i + 1]} needs {width} hexadecimal digits")
    return f"\\u{int(digits, 16):04x}", i + 2 + width


def _group(pattern: str, i: int) -> tuple[str, int]:
    """Translate an opening parenthesis: plain, `(?:`, `(?=` and `(?!` exist; no lookbehind, names or inline flags."""
    if pattern[i + 1 : i + 2] != "?":
        return "(", i + 1
    opening = pattern[i : i + 3]
    if opening not in ("(?:", "(?=", "(?!"):
        raise _fail(pattern, f"{opening!r} does not exist in std::regex")
    return opening, i + 3


def _quantifier(pattern: str, i: int) -> tuple[str, int]:
    """Translate a repetition and its lazy mark. std::regex takes neither a possessive `a*+` nor `{,3}`."""
    match = _REPETITION.match(pattern, i)
    if match is None and pattern[i] == "{":
        raise _fail(pattern, "'{' must begin a repetition such as {2}")
    piece = match[0] if match else pattern[i]
    i += len(piece)
    if pattern[i : i + 1] == "?":
        piece, i = piece + "?", i + 1
    return piece, i


def _bracket(pattern: str, i: int) -> tuple[str, int]:
    """Translate a bracket expression; return it and the index after its `]`."""
    negated = pattern[i + 1 : i + 2] == "^"
    i += 2 if negated else 1
    if pattern[i : i + 1] == "]":  # ECMAScript: [] matches nothing, [^] anything
        return (r"[^\n]" if negated else "(?!)"), i + 1
    out: list[str] = []
    while i < len(pattern) and pattern[i] != "]":
        piece, i = _bracket_item(pattern, i, first=not out)
        out.append(piece)
    if i >= len(pattern):
        raise _fail(pattern, "'[' without ']'")
    return ("[^\\n" if negated else "[") + "".join(out) + "]", i + 1


def _bracket_item(pattern: str, i: int, first: bool) -> tuple[str, int]:
    char, after = pattern[i], pattern[i + 1 : i + 2]
    if char == "[" and after and after in ":.=":
        end = pattern.find(after + "]", i + 2)
        if after != ":" or pattern[i + 2 : max(end, 0)] not in _POSIX:
            raise _fail(pattern, "only classes such as [:digit:] are read inside brackets")
        return pattern[i : end + 2], end + 2
    if char == "\\" and after in _BRACKET_ESCAPES:
        return _BRACKET_ESCAPES[after], i + 2
    if char == "\\" and (after in ("D", "S", "W", "n") or after.isdigit()):
        raise _fail(pattern, f"\\{after} inside brackets is not read here")
    if char == "\\":
        return _escape(pattern, i)
    if char == "-" and (first or after == "]"):
        return r"\-", i + 1
    return (char if char == "-" else regex.escape(char)), i + 1


_TRANSLATORS = {"\\": _escape, "[": _bracket, "(": _group} | dict.fromkeys(_QUANTIFIERS, _quantifier)
