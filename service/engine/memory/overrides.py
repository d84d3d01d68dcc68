"""`-ot` patterns: ECMAScript regular expressions of strangers, matched against tensor names within a time limit.

The engines search with C++ std::regex (ECMAScript grammar of libstdc++), case sensitive, first matching rule wins.
A pattern is translated so that no part of it can match a line break; one search over all names, a line each, then
answers for the whole model, and one time limit holds for all of it.
"""

from __future__ import annotations

import regex

from service.engine.config import CPU, Override
from service.engine.errors import InvalidFlags
from service.engine.model import Model

MAX_RULES = 64
MAX_PATTERN = 512
TIME_LIMIT_SECONDS = 0.05  # CPU time of one rule over all names of a model
_MAX_REPEAT = 1_000

_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": r" \t\r\f\v"}
_NEGATED = {"D": r"[^0-9\n]", "W": r"[^0-9A-Za-z_\n]", "S": r"[^\s]"}
_CONTROL = {"n": "(?!)", "t": r"\t", "r": r"\r", "f": r"\f", "v": r"\v", "0": r"\x00"}
_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "digit": "0-9", "lower": "a-z", "upper": "A-Z", "xdigit": "0-9A-Fa-f",
    "space": r" \t\r\f\v", "blank": r" \t", "w": "0-9A-Za-z_", "d": "0-9", "s": r" \t\r\f\v",
}  # fmt: skip
_REPEAT = regex.compile(r"[*+?]|\{(\d{1,4})(?:(,)(\d{1,4})?)?\}")


def device_index(name: str, n_devices: int) -> int:
    """Return the index that an engine's device name means, `n_devices` for the CPU.

    Raises InvalidFlags for a name that is no default buffer of a device (`CUDA_Host`), or of one that is not there.
    """
    if name == CPU:
        return n_devices
    match = regex.fullmatch(r"[A-Za-z]+(\d{1,3})", name)
    index = int(match[1]) if match else 0 if name == "Metal" else -1
    if not 0 <= index < n_devices:
        there = f"the GPUs are numbered 0 to {n_devices - 1}" if n_devices else "there is no GPU"
        raise InvalidFlags(f"-ot names the device {name[:64]!r}, but {there}", field="overrides", choices=(CPU,))
    return index


def overridden(model: Model, rules: tuple[Override, ...], n_devices: int) -> dict[str, int]:
    """Return the device of every tensor name that a rule matches; the first matching rule wins.

    Raises InvalidFlags for too many rules, a pattern that std::regex refuses, or one that takes too long.
    """
    if len(rules) > MAX_RULES:
        raise InvalidFlags(f"{len(rules)} -ot rules: {MAX_RULES} are read at most", field="overrides")
    found: dict[str, int] = {}
    for rule in reversed(rules):
        found |= dict.fromkeys(matching_names(model, rule.pattern), device_index(rule.device, n_devices))
    return found


def matching_names(model: Model, pattern: str) -> tuple[str, ...]:
    """Return the tensor names that contain a match of `pattern`, in file order. Raises InvalidFlags as above."""
    known: dict[str, tuple[str, ...]] = model.__dict__.setdefault("_matching_names", {})
    found = known.get(pattern)
    if found is None:
        if len(known) >= 1024:
            known.clear()
        found = known[pattern] = _search(pattern, [t.name for t in model.tensors])
    return found


def _search(pattern: str, names: list[str]) -> tuple[str, ...]:
    try:
        line = regex.compile(rf"^(?=[^\n]*?(?:{translate(pattern)}))([^\n]*)$", regex.MULTILINE | regex.VERSION0)
        text = "\n".join(name.replace("\n", " ") for name in names)
        found = line.findall(text, timeout=TIME_LIMIT_SECONDS)
    except TimeoutError:
        raise InvalidFlags(f"the pattern {pattern[:80]!r} takes too long to match", field="overrides") from None
    except regex.error as wrong:
        raise InvalidFlags(
            f"the pattern {pattern[:80]!r} is no regular expression: {wrong}", field="overrides"
        ) from None
    matched = {groups[-1] if isinstance(groups, tuple) else groups for groups in found}
    return tuple(name for name in names if name.replace("\n", " ") in matched)


def translate(pattern: str) -> str:
    """Return an ECMAScript pattern in the `regex` module's grammar. Raises InvalidFlags for what std::regex refuses."""
    if len(pattern) > MAX_PATTERN:
        raise InvalidFlags(f"an -ot pattern of {len(pattern)} characters: {MAX_PATTERN} at most", field="overrides")
    return _Translator(pattern).translate()


class _Translator:
    """One pass over the pattern: every construct is known, or refused."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.position, self.out = pattern, 0, list[str]()
        self.n_groups, self.repeatable = 0, False

    def refuse(self, why: str) -> InvalidFlags:
        return InvalidFlags(f"the engines refuse the pattern {self.pattern[:80]!r}: {why}", field="overrides")

    def translate(self) -> str:
        while self.position < len(self.pattern):
            char = self.pattern[self.position]
            if char in "*+?{":
                self.repeat()
            elif char == "[":
                self.atom(self.bracket())
            elif char == "\\":
                self.escape()
            elif char == "(":
                self.group()
            else:
                self.position += 1
                self.plain(char)
        return "".join(self.out)

    def atom(self, text: str) -> None:
        self.out.append(text)
        self.repeatable = True

    def plain(self, char: str) -> None:
        if char in "^$|":
            self.out.append(char)
            self.repeatable = False
        elif char in ".)":
            self.atom(r"[^\n\r]" if char == "." else char)
        else:
            self.atom(_literal(char))

    def repeat(self) -> None:
        match = _REPEAT.match(self.pattern, self.position)
        if match is None or not self.repeatable:
            raise self.refuse(f"a repetition of nothing at character {self.position + 1}")
        if any(count and int(count) > _MAX_REPEAT for count in (match[1], match[3])):
            raise self.refuse(f"more than {_MAX_REPEAT} repetitions")
        self.position = match.end()
        lazy = self.pattern.startswith("?", self.position)
        self.position += lazy
        self.out.append(match[0] + "?" * lazy)
        self.repeatable = False

    def group(self) -> None:
        self.position += 1
        self.repeatable = False
        for opening in ("?:", "?=", "?!"):
            if self.pattern.startswith(opening, self.position):
                self.position += 2
                self.out.append("(" + opening)
                return
        if self.pattern.startswith("?", self.position):
            raise self.refuse("only (?:, (?= and (?! are known in ECMAScript")
        self.n_groups += 1
        self.out.append("(")

    def escape(self) -> None:
        char = self.pattern[self.position + 1 : self.position + 2]
        if not char:
            raise self.refuse("it ends in a backslash")
        self.position += 2
        if char in "bB":
            self.out.append("\\" + char)
            self.repeatable = False
        elif char.isdecimal() and char != "0":
            if int(char) > self.n_groups:
                raise self.refuse(f"there is no group {char}")
            self.atom(f"(?:\\{char})")
        else:
            self.atom(f"[{_CLASSES[char]}]" if char in _CLASSES else self.special(char))

    def special(self, char: str) -> str:
        if char in "xuc":
            return _literal(self.code_point(char))
        return _NEGATED.get(char) or _CONTROL.get(char) or _literal(char)

    def code_point(self, kind: str) -> str:
        length = {"x": 2, "u": 4, "c": 1}[kind]
        digits = self.pattern[self.position : self.position + length]
        self.position += length
        if kind == "c" and digits.isascii() and digits.isalpha():
            return chr(ord(digits) % 32)
        if kind == "c" or len(digits) < length or not regex.fullmatch("[0-9A-Fa-f]+", digits):
            raise self.refuse(f"\\{kind} without its digits")
        return chr(int(digits, 16))

    def bracket(self) -> str:
        """Translate a character class; a negated one never matches a line break."""
        self.position += 1
        negated = self.pattern.startswith("^", self.position)
        self.position += negated
        parts: list[str] = []
        while not self.pattern.startswith("]", self.position):
            if self.position >= len(self.pattern):
                raise self.refuse("a [ without its ]")
            parts.append(self.class_member())
        self.position += 1
        if not parts:
            return r"[^\n]" if negated else "(?!)"
        return f"[^{''.join(parts)}\\n]" if negated else f"[{''.join(parts)}]"

    def class_member(self) -> str:
        named = regex.compile(r"\[:(\w{1,16}):\]").match(self.pattern, self.position)
        if named:
            self.position = named.end()
            if named[1] not in _POSIX:
                raise self.refuse(f"there is no character class {named[1]}")
            return _POSIX[named[1]]
        if self.pattern.startswith(("[:", "[.", "[="), self.position):
            raise self.refuse("a named class is written [[:digit:]]")
        first = self.class_character()
        is_range = self.pattern.startswith("-", self.position) and not self.pattern.startswith("-]", self.position)
        if len(first) > 1 or not is_range:
            return first if len(first) > 1 else _literal(first)
        self.position += 1
        last = self.class_character()
        if len(last) > 1 or last < first:
            raise self.refuse(f"the range {first}-{last} is empty")
        return f"{_literal(first)}-{_literal(last)}"

    def class_character(self) -> str:
        """Return one character, or the ranges of a class escape such as \\d."""
        char = self.pattern[self.position : self.position + 1]
        self.position += 1
        if char != "\\":
            if not char:
                raise self.refuse("a [ without its ]")
            return char
        escaped = self.pattern[self.position : self.position + 1]
        self.position += 1
        if escaped in _CLASSES:
            return _CLASSES[escaped]
        if escaped in _NEGATED or not escaped:
            raise self.refuse(f"\\{escaped} inside [] is not read here: write it outside")
        if escaped in _CONTROL:  # a line break is in no tensor name: it stands for a character that is not either
            return {"t": "\t", "r": "\r", "f": "\f", "v": "\v"}.get(escaped, "\x00")
        return self.code_point(escaped) if escaped in "xuc" else escaped


def _literal(char: str) -> str:
    """Return a character that means itself, inside a class and outside."""
    return char if (char.isascii() and char.isalnum()) or char == "_" else f"\\U{ord(char):08x}"
