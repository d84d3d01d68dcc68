"""docs/clients.md, with the shell script of examples/ in its place."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent
_SCRIPT = "examples/advice.sh"


def clients_markdown() -> str:
    """Return docs/clients.md with the script between its marks replaced."""
    begin, end = (f"<!-- {_SCRIPT}: {mark} -->\n" for mark in ("begin", "end"))
    before, rest = (ROOT / "docs" / "clients.md").read_text().split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}```text\n{(ROOT / _SCRIPT).read_text()}```\n{end}{after}"
