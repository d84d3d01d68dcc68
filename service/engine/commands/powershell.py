"""Commands pasted from PowerShell, rewritten for bash: its variables, arrays, quotes and continued lines.

about_Variables, about_Arrays, about_Splatting, about_Quoting_Rules: names have no case, a comma makes an array, and
`@name` or `$name` gives a program the words of one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from service.engine.errors import InvalidFlags

_TEXT = r"""'(?:[^'\n]|'')*+'|"[^"\n]*\""""
_ENV = re.compile(rf"^\s*\$env:([A-Za-z_]\w*)\s*=\s*({_TEXT}|[^\s;]+)\s*;?\s*", re.I | re.M)
_SET = re.compile(
    r"(?:^|;)[ \t]*\$([A-Za-z_]\w*)[ \t]*(\+?)=[ \t]*"
    rf"(@\((?:{_TEXT}|[^()'\"])*+\)|(?:{_TEXT}|[^\n;#'\"])++)[ \t]*(?:$|(?=;)|#.*$)",
    re.M,
)
_WORD = re.compile(r"""'((?:[^'\n]|'')*+)'|"([^"\n]*)"|([^\s,'"]+)""")
_REMARK = re.compile(r"""(?:^|(?<=[\s,]))#[^'"\n]*$""", re.M)
_NAME = re.compile(r"(?<!`)(?:\$\(\s*\$(\w+)\s*\)|\$\{(\w+)\}|(?:\$|(?<!\w)@)(\w+)(?![\w:]))")
_QUOTED = re.compile(r"""'((?:[^']|'')*+)'|"([^"]*)\"""")
_BACKTICK = re.compile(r"`[ \t]*\n")


_MOST, _MOST_IN_ALL = 16_384, 1 << 20  # characters of a variable's value, and of all uses together


def is_powershell(text: str) -> bool:
    """Whether a text has what only PowerShell understands: `$env:`, a backtick at a line's end, `$a = 1`."""
    one = text.replace("\r\n", "\n")
    return "$env:" in one.lower() or _BACKTICK.search(one) is not None or _SET.search(one) is not None


def from_powershell(text: str) -> str:
    """Return the text as a command for bash, with the values of the variables that it sets."""
    values: dict[str, list[str]] = {}

    def taken(found: re.Match[str]) -> str:
        words = _words(found[3], values)
        if words is None:
            return found[0]
        name = found[1].lower()
        values[name] = [*(values.get(name, []) if found[2] else []), *words]
        if len(words) + sum(map(len, values[name])) > _MOST:
            raise InvalidFlags("the variables expand to more than a command can have", field="command")
        return ""

    text = _SET.sub(taken, text.replace("\r\n", "\n"))
    env = [(name, (_words(value, values) or [""])[0]) for name, value in _ENV.findall(text)]
    rest = _BACKTICK.sub(" \\\n", _ENV.sub("", text)).strip("; \t\r\n").removeprefix("&").strip()
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in env), _filled(rest, values)])


def _words(text: str, values: Mapping[str, list[str]]) -> list[str] | None:
    """The words of a value: of an array all, else one; None for an expression, which only PowerShell can evaluate."""
    text = text.strip()
    is_array = text.startswith("@(")
    inner = _REMARK.sub("", text[2:-1]) if is_array else text
    _check(inner, values)
    words: list[str] = []
    for single, double, bare in _WORD.findall(inner):
        name = _NAME.fullmatch(bare)
        known = values.get(_named(name)) if name else None
        words += known if known is not None else [single.replace("''", "'") or _inside(double or bare, values)]
    between = _WORD.sub("", inner)
    return words if is_array or between.count(",") == len(_WORD.findall(inner)) - 1 else None


def _check(text: str, values: Mapping[str, list[str]]) -> None:
    """Raise InvalidFlags for a text that would expand without end."""
    longest = max((sum(len(word) + 1 for word in words) for words in values.values()), default=0)
    if longest * (text.count("$") + text.count("@")) > _MOST_IN_ALL:
        raise InvalidFlags("the variables expand to more than a command can have", field="command")


def _named(found: re.Match[str]) -> str:
    return (found[1] or found[2] or found[3]).lower()


def _inside(text: str, values: Mapping[str, list[str]]) -> str:
    return _NAME.sub(lambda found: " ".join(values.get(_named(found), [found[0]])), text)


def _filled(text: str, values: Mapping[str, list[str]]) -> str:
    """Return a text with the values of its variables, quoted for bash where they stand outside quotes."""

    def bare(part: str) -> str:
        return _NAME.sub(lambda found: shlex.join(values[_named(found)]) if _named(found) in values else found[0], part)

    _check(text, values)
    filled, at = "", 0
    for quoted in _QUOTED.finditer(text):
        filled += bare(text[at : quoted.start()])
        single = quoted[1] is not None
        filled += shlex.quote(quoted[1].replace("''", "'")) if single else f'"{_inside(quoted[2], values)}"'
        at = quoted.end()
    return filled + bare(text[at:])
