"""Words of a command line as bash makes them, and the way back: quoting, folding.

Read leniently, for commands are pasted from chats: line continuations, prompts of a shell, Windows paths, a missing
backslash at a line's end. What would need a shell to be known (variables in numbers, `$(…)`) is an error that names it.
"""

from __future__ import annotations

import re
import shlex

from service.engine.errors import InvalidFlags

MAX_COMMAND = 65_536

_WINDOWS = re.compile(r"(?:^|[\s'\"])[A-Za-z]:\\|\.exe\b")
_PRODUCT = re.compile(r"\s*\d{1,9}(?:\s*[*+]\s*\d{1,9})*\s*")
_REDIRECT = re.compile(r"\d?(?:>>?|<)&?\S*|&>\S*")
_OPTION = re.compile(r"--?[A-Za-z]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SEPARATORS = ("&&", "||", "|", ";", "&")


class _Reader:
    """Splits one text into words; `commands` are lists of words, cut at pipes, `;` and `&&`."""

    def __init__(self, text: str) -> None:
        self.text, self.i = text, 0
        self.windows = _WINDOWS.search(text) is not None
        self.word: str | None = None
        self.depth = 0  # of parentheses, which a remark has
        self.commands: list[list[str]] = [[]]

    def read(self) -> list[list[str]]:
        while self.i < len(self.text):
            self._step(self.text[self.i])
        self._end_word()
        return [command for command in self.commands if command]

    def _step(self, char: str) -> None:
        separator = next((s for s in _SEPARATORS if self.text.startswith(s, self.i) and self.depth <= 0), None)
        if char.isspace():
            self._end_word()
            self.i += 1
        elif char == "#" and self.word is None:
            self._skip_line()
        elif separator and (self.word is None or (separator == ";" and self.text[self.i + 1 : self.i + 2].isspace())):
            self._end_word()
            self.commands.append([])
            self.i += len(separator)
        elif char == "'":
            self._single_quoted()
        elif char == '"':
            self._double_quoted()
        elif char == "\\":
            self._backslash()
        elif self.text.startswith(("$(", "`"), self.i):
            self._add(self._substitution())
        else:
            self.depth += {"(": 1, ")": -1}.get(char, 0)
            self._add(char)
            self.i += 1

    def _add(self, text: str) -> None:
        self.word = (self.word or "") + text

    def _end_word(self) -> None:
        if self.word is not None:
            self.commands[-1].append(self.word)
        self.word = None

    def _skip_line(self) -> None:
        end = self.text.find("\n", self.i)
        self.i = len(self.text) if end < 0 else end

    def _backslash(self) -> None:
        rest = re.match(r"\\[ \t\r]*(?=\n|#|$)", self.text[self.i : self.i + 64])
        if rest:  # a continued line, with the blanks or the comment that a paste leaves after the backslash
            self._end_word()
            self.i += rest.end()
        elif self.windows:
            self._add("\\")
            self.i += 1
        else:
            self._add(self.text[self.i + 1 : self.i + 2])
            self.i += 2

    def _single_quoted(self) -> None:
        end = self.text.find("'", self.i + 1)
        if end >= 0:
            self._add(self.text[self.i + 1 : end])
            self.i = end + 1
        elif self.word:  # an apostrophe in a remark
            self._add("'")
            self.i += 1
        else:
            raise InvalidFlags(f"a quote is not closed: {self.text[self.i : self.i + 40]}", field="command")

    def _double_quoted(self) -> None:
        start, self.i = self.i, self.i + 1
        self._add("")
        while self.i < len(self.text) and self.text[self.i] != '"':
            if self.text[self.i] == "\\" and self.text[self.i + 1 : self.i + 2] in ('"', "$", "`", "\\", "\n"):
                self._add(self.text[self.i + 1].replace("\n", ""))
                self.i += 2
            elif self.text.startswith(("$((", "`"), self.i):
                self._add(self._substitution())
            else:
                self._add(self.text[self.i])
                self.i += 1
        if self.i >= len(self.text):
            raise InvalidFlags(f"a quote is not closed: {self.text[start : start + 40]}", field="command")
        self.i += 1

    def _substitution(self) -> str:
        """Evaluate `$((…))` of numbers, `*` and `+`; anything else only a shell knows."""
        if self.text[self.i] == "`":
            end = self.text.find("`", self.i + 1)
            if end < 0:  # a stray backtick of Markdown
                self.i += 1
                return ""
        else:
            end = self._closing()
        piece = self.text[self.i : end + 1]
        if not (piece.startswith("$((") and piece.endswith("))") and _PRODUCT.fullmatch(piece[3:-2])):
            raise InvalidFlags(f"only a shell knows what {piece[:80]} is: write the value", field="command")
        self.i = end + 1
        factors = (term.split("*") for term in piece[3:-2].split("+"))
        return str(sum(_product(term) for term in factors))

    def _closing(self) -> int:
        depth = 0
        for j in range(self.i + 1, len(self.text)):
            depth += {"(": 1, ")": -1}.get(self.text[j], 0)
            if depth == 0:
                return j
        raise InvalidFlags(f"a parenthesis is not closed: {self.text[self.i : self.i + 40]}", field="command")


def _product(factors: list[str]) -> int:
    result = 1
    for factor in factors:
        result *= int(factor)
    return result


def split_commands(text: str) -> list[list[str]]:
    """Return the words of each command in `text`, redirections left out.

    Raises InvalidFlags for a text over 64 KiB, an unclosed quote, and a substitution that only a shell can make.
    """
    if len(text) > MAX_COMMAND:
        raise InvalidFlags(f"a command of {len(text)} characters: at most {MAX_COMMAND} are read", field="command")
    text = _CONTROL.sub(" ", text).strip(" \n\t*")
    return [words for command in _Reader(text).read() if (words := _without_redirections(command))]


def _without_redirections(words: list[str]) -> list[str]:
    """Drop `2>&1`, `> file`, and the `>` that a shell's second prompt leaves before a line."""
    kept: list[str] = []
    skip = False
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if skip:
            skip = False
        elif _REDIRECT.fullmatch(word):
            skip = word.endswith((">", "<")) and not _OPTION.match(following)
        else:
            kept.append(word)
    return kept


def quote(word: str) -> str:
    """Return `word` quoted for bash; a leading `~/` stays outside the quotes, where bash expands it."""
    if word.startswith("~/"):
        return "~/" + (shlex.quote(word[2:]) if len(word) > 2 else "")
    return shlex.quote(word)


def fold(command: str, width: int = 100) -> str:
    """Return a rendered command on several lines, broken before options, each but the last ending in a backslash.

    bash, and `parse`, read the same words as in one line. A line is longer than `width` only if one option is.
    """
    groups: list[str] = []
    for word in _raw_words(command):
        if groups and not _OPTION.match(word):
            groups[-1] += " " + word
        else:
            groups.append(word)
    lines = groups[:1]
    for group in groups[1:]:
        if len(lines) > 1 and len(lines[-1]) + len(group) + 5 <= width:
            lines[-1] += " " + group
        else:
            lines.append(group)
    return " \\\n  ".join(lines)


def _raw_words(command: str) -> list[str]:
    """Split at blanks outside quotes, keeping the quotes."""
    return [m[0] for m in re.finditer(r"(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|[^\s'\"\\])+", command)]
