"""The fenced blocks and inline commands of the pages, and what a comment directly before a block says of it.

CONTRIBUTING.md has the conventions. A comment is `<!-- not run: REASON -->`, `<!-- ends with: STATUS -->`,
`<!-- json: STRUCT -->`, `<!-- output -->` (all that the block before printed) or `<!-- output: WORD, WORD -->` (the
paragraphs that hold one of the words).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md")) + sorted((ROOT / "openapi").glob("*.md"))
LANGUAGES = {"sh", "python", "json", "toml", "yaml", "ini", "text"}
COMMENTS = {"not run", "ends with", "json", "output"}
WRITTEN_ELSEWHERE = {"conversation": "tests.bots.conversation"}  # between `<!-- NAME: begin -->` and `end`, by module

_FENCE = re.compile(r"^(?P<indent>[ >]*)(?P<ticks>```+|~~~+)(?P<info>.*)$")
_COMMENT = re.compile(r"^\s*<!-- ([\w ]+?)(?:: (.*?))? -->$")
_REGION = re.compile(r"^<!-- (\w+): (begin|end) -->$")
_INLINE = re.compile(r"(?<!`)`(?:\w+=\S+\s)*(?:\.venv/bin/)?((?:advisor|curl|python\s-m)\s[^`]+)`")


@dataclass(frozen=True)
class Block:
    """One fenced block: its page, the line of its fence (from 1), language, text without indent, and its comments."""

    page: Path
    line: int
    language: str
    text: str
    comments: dict[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def words(self) -> list[str]:
        """The words of `<!-- output: … -->`; none where all of an output is shown."""
        return [word.strip() for word in self.comments.get("output", "").split(",") if word.strip()]


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in order, without those that a generator writes."""
    return list(_blocks(page, _own_lines(page.read_text().split("\n"))))


def inline_commands(page: Path) -> list[str]:
    """Return the `advisor …`, `curl …` and `python -m …` that stand in a page's sentences, each in one line."""
    lines = _own_lines(page.read_text().split("\n"))
    for block in _blocks(page, lines):
        lines[block.line : block.line + block.text.count("\n")] = [""] * block.text.count("\n")
    return [" ".join(text.split()) for text in _INLINE.findall("\n".join(lines))]


def _own_lines(lines: list[str]) -> list[str]:
    """Blank the lines that a generator writes: `WRITTEN_ELSEWHERE` has a test for each."""
    kept, within = [], ""
    for line in lines:
        mark = _REGION.match(line)
        if mark and mark[1] in WRITTEN_ELSEWHERE:
            within = mark[1] if mark[2] == "begin" else ""
        kept.append("" if within else line)
    return kept


def _blocks(page: Path, lines: list[str]) -> Iterator[Block]:
    at = 0
    while at < len(lines):
        opening = _FENCE.match(lines[at])
        if opening is None:
            at += 1
            continue
        closing = opening["indent"] + opening["ticks"]
        body = list(takewhile(lambda line: line.rstrip() != closing, lines[at + 1 :]))  # noqa: B023 - used at once
        text = textwrap.dedent("".join(f"{line}\n" for line in body))
        language = (opening["info"].split() or [""])[0]
        yield Block(page, at + 1, language, text, _comments(lines, at))
        at += len(body) + 2


def _comments(lines: list[str], fence: int) -> dict[str, str]:
    """Return the comments that stand directly before a fence."""
    above = takewhile(bool, (_COMMENT.match(line) for line in reversed(lines[:fence])))
    return {found[1]: found[2] or "" for found in above if found}
