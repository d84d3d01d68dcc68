"""Variables and arrays that a script sets itself, as bash expands them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.engine.errors import InvalidFlags

ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
_ARRAY = re.compile(r"([A-Za-z_]\w*)(\+?)=\(")
_NAMED = re.compile(r"\$(?:\{(\w+)(?:\[[@*]\])?(?::?-([^{}]*))?\}|([A-Za-z_]\w*))")
_OWN_ARGUMENTS = re.compile(r"\$[@*](?!\w)|\$\{[@*]\}")
_DECLARING = ("export", "declare", "local", "readonly", "typeset")
_MOST = 65_536  # characters


class Variables:
    """What the text read so far has set. `used`: the names that were expanded."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self._words: dict[str, list[str]] = {}
        self._expanded = 0

    def read(self, word: str) -> bool:
        """Take a word that only such words precede on its line. Return whether it is one: `export`, `A=1`."""
        assigned = ASSIGNED.fullmatch(word)
        if assigned:
            self._words[assigned[1]] = [assigned[2]]
        return assigned is not None or word in _DECLARING

    def at(self, text: str, start: int) -> tuple[list[str], int] | None:
        """Return the words that stand for what is expanded at a `$`, and where it ends; None where nothing is known.

        A script's own arguments are none. Raises InvalidFlags for a text that expands without end.
        """
        if own := _OWN_ARGUMENTS.match(text, start):
            return [], own.end()
        found = _NAMED.match(text, start)
        name = (found[1] or found[3]) if found else ""
        if found is None or (name not in self._words and found[2] is None):
            return None
        words = self._words.get(name, [found[2] or ""])
        self._expanded += sum(len(word) + 1 for word in words)
        if self._expanded > _MOST:
            raise InvalidFlags("the variables expand to more than a command can have", field="command")
        self.used.add(name)
        return words, found.end()

    def array_at(self, text: str, start: int) -> tuple[str, bool, str, int] | None:
        """Return the name of the array `NAME=( … )` at a place, whether words are added, those, and where it ends."""
        found = _ARRAY.match(text, start)
        if found is None:
            return None
        depth, end = 1, found.end()
        while end < len(text) and depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        return None if depth else (found[1], bool(found[2]), text[found.end() : end - 1], end)

    def set_array(self, name: str, words: Sequence[str], *, added: bool) -> None:
        """Keep the words of an array."""
        self._words[name] = [*(self._words.get(name, []) if added else []), *words]
