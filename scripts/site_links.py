"""A hook of MkDocs: what lies outside docs/ is not part of the site, and links to it become its name."""

from __future__ import annotations

import re

_BESIDE = re.compile(r"\[([^\]]*)\]\(\.\./([\w./-]+)\)")


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return a page with `[text](../FILE)` as text, and FILE behind it where the text does not say it."""
    return _BESIDE.sub(lambda found: found[1] if found[2] in found[1] else f"{found[1]} (`{found[2]}`)", markdown)
