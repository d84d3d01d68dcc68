"""Serves the Markdown pages of docs/ as `/docs/NAME`, long ones in parts, with a search over them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

_PACKAGED, _CHECKOUT = Path(__file__).parent / "guides", Path(__file__).parents[3] / "docs"
_LONG = 45_000  # characters of Markdown from which on a page is shown section by section
_COMMENT = re.compile(r"^[ \t]*<!--.*?-->[ \t]*\n", re.MULTILINE | re.DOTALL)
_OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./[\w./-]+\)")
_FENCE = re.compile(r"^\s*```")
_MARKS = re.compile(r"[`*|]|\[([^\]]*)\]\([^)]*\)")
_PASTED = ("sh", "python", "json", "yaml", "ini", "toml")  # languages of blocks to copy; others show output
_MOST_FOUND, _SNIPPET = 30, 160


class Section(NamedTuple):
    """A heading, its anchor, the part of the page it belongs to, and the Markdown below it."""

    anchor: str
    level: int
    heading: str
    part: str
    text: str


class Guide(NamedTuple):
    """One file of docs/: its name without `.md`, its title, and its sections in order. The first is the page's top."""

    name: str
    title: str
    sections: Sequence[Section]

    def address(self, anchor: str = "") -> str:
        """Return the address of a heading; for an unknown anchor, of the page's top."""
        found = next((one for one in self.sections if one.anchor == anchor), self.sections[0])
        page = f"/docs/{self.name}" + (f"/{found.part}" if found.part else "")
        return page + (f"#{anchor}" if anchor and found.anchor == anchor and anchor != found.part else "")


class SearchHit(NamedTuple):
    """One section found by a search: its address, its page's title, its heading, and a line of it."""

    address: str
    title: str
    heading: str
    snippet: str


@cache
def guides() -> dict[str, Guide]:
    """Return all pages of the documentation by name; empty if the installation has none."""
    folder = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
    return {path.stem: _guide(path.stem, path.read_text("utf-8")) for path in sorted(folder.glob("*.md"))}


@cache
def picture(name: str) -> bytes | None:
    """Return a page's picture, None if there is none of this name."""
    folder = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
    return (folder / name).read_bytes() if name in {path.name for path in folder.glob("*.svg")} else None


def parts(guide: Guide) -> list[Section]:
    """Return the sections with a page of their own; none for a page that is shown whole."""
    return [one for one in guide.sections if one.part and one.part == one.anchor]


def on_page(guide: Guide, part: str) -> list[Section]:
    """Return the sections of a page, or of one part of it."""
    return [one for one in guide.sections if one.part == part]


@cache
def html_of(name: str, part: str) -> Markup:
    """Return a page, or one part of it, as HTML."""
    shown = on_page(guides()[name], part)
    top = shown[0].level - 1  # a part starts with its section's heading
    text = "\n".join(f"{'#' * (one.level - top)} {one.heading}\n\n{one.text}" for one in shown)
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    reader.add_render_rule("fence", _fence)
    reader.add_render_rule("table_open", _table)
    reader.add_render_rule("table_close", lambda *_: "</table></div>\n")
    tokens = reader.parse(text)
    _finish(tokens, shown)
    return Markup(reader.renderer.render(tokens, reader.options, {}))  # noqa: S704 (made from escaped Markdown)


def search(query: str) -> list[SearchHit]:
    """Return the sections that contain every word of the query, best first; words in headings count most."""
    words = query.lower().split()[:8]
    if not words:
        return []
    found = []
    for guide in guides().values():
        for one in guide.sections:
            heading, body = f"{guide.title} {one.heading}".lower(), one.text.lower()
            if all(word in heading or word in body for word in words):
                score = sum(20 * (word in heading) + min(body.count(word), 10) for word in words)
                score += 20 * (query.lower() in heading) + 10 * (query.lower() in body)
                found.append((-score, guide.name, SearchHit(guide.address(one.anchor), guide.title, one.heading, "")))
    best = [one for _, _, one in sorted(found, key=lambda entry: entry[:2])[:_MOST_FOUND]]
    return [one._replace(snippet=_snippet(one, words)) for one in best]


def _guide(name: str, text: str) -> Guide:
    text = _OUTSIDE.sub(r"\1", _COMMENT.sub("", text))
    title, sections = name, []
    seen: dict[str, int] = {}
    part = ""
    for level, heading, body in _split(text):
        anchor = slug(heading)
        seen[anchor] = seen.get(anchor, 0) + 1
        anchor += f"-{seen[anchor] - 1}" if seen[anchor] > 1 else ""
        title = heading if level == 1 else title
        part = anchor if level == 2 and len(text) > _LONG else part
        sections.append(Section(anchor, level, heading, part, body))
    return Guide(name, title, sections)


def _split(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (level, heading, text below it) for each heading outside of code blocks."""
    level, heading, in_code = 1, "", False
    lines: list[str] = []
    for line in text.split("\n"):
        in_code ^= bool(_FENCE.match(line))
        mark = None if in_code else re.match(r"(#{1,4}) (.+)", line)
        if mark:
            if heading:
                yield level, heading, "\n".join(lines)
            level, heading, lines = len(mark[1]), mark[2].strip(), []
        else:
            lines.append(line)
    yield level, heading, "\n".join(lines)


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", _MARKS.sub(r"\1", heading).lower()).replace(" ", "-")


def _finish(tokens: Sequence[Token], shown: Sequence[Section]) -> None:
    """Give headings their anchors, and turn links between files into links between pages."""
    anchors = iter(one.anchor for one in shown)
    for index, token in enumerate(tokens):
        if token.type == "th_open" and not tokens[index + 1].content:
            token.tag = tokens[index + 2].tag = "td"  # a corner of a table is no heading
        if token.type == "heading_open":
            token.attrSet("id", next(anchors, ""))
        token.attrs.pop("style", None)  # set for aligned columns; pages have no inline styles
        for inner, text in zip_longest(token.children or (), (token.children or ())[1:]):
            if inner.type == "link_open":
                href = str(inner.attrGet("href"))
                if text and text.content == href:  # a file's name says nothing to readers of pages
                    text.content = guides()[href[:-3]].title if href[:-3] in guides() else href
                inner.attrSet("href", _address(href))
            elif inner.type == "image":
                inner.attrSet("src", f"/docs/{inner.attrGet('src')}")


def _address(href: str) -> str:
    file, _, anchor = href.partition("#")
    guide = guides().get(file.removesuffix(".md")) if file.endswith(".md") else None
    return guide.address(anchor) if guide else href


def _fence(_: object, tokens: Sequence[Token], index: int, *__: object) -> str:
    box = "copy" if tokens[index].info in _PASTED else "shown"
    return f'<div class="{box}"><pre tabindex="0"><code>{escape(tokens[index].content)}</code></pre></div>\n'


def _table(_: object, tokens: Sequence[Token], index: int, *__: object) -> str:
    head = next((t.content for t in tokens[index:] if t.type == "inline" and t.content), "Table")
    name = escape(_MARKS.sub(r"\1", head))
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{name}"><table>'


def _snippet(one: SearchHit, words: Sequence[str]) -> str:
    """Return the first line of the section that contains one of the words, without markup."""
    path, _, anchor = one.address.partition("#")
    name, _, part = path.removeprefix("/docs/").partition("/")
    section = next(s for s in guides()[name].sections if s.anchor == (anchor or part) or not (anchor or part))
    lines = [_MARKS.sub(r"\1", line).strip() for line in section.text.split("\n") if line.strip(" -|`")]
    line = next((line for line in lines if any(word in line.lower() for word in words)), lines[0] if lines else "")
    return line if len(line) <= _SNIPPET else line[: _SNIPPET - 1] + "…"
