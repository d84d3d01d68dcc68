"""A MkDocs hook: files outside docs/ are not part of the site, so links to them become plain text."""

from __future__ import annotations

import re

_BESIDE = re.compile(r"\[([^\]]*)\]\(\.\./([\w./-]+)\)")


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return a page with each `[text](../FILE)` replaced by its text, followed by FILE unless the text contains it."""
    return _BESIDE.sub(lambda found: found[1] if found[2] in found[1] else f"{found[1]} (`{found[2]}`)", markdown)
