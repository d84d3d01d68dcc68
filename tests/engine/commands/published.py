"""Commands that people published with their measurements: tests/data/published_commands.jsonl."""

from __future__ import annotations

from pathlib import Path

import msgspec

from service.engine.config import Engine

# Not the whole command was published: what stands in its place cannot be read.
UNREADABLE = {
    "pr529-ubergarm-3": "the layers of -ot are a remark",
    "pr529-ubergarm-4": "the layers of -ot are a remark",
    "pr698-ikawrakow-1": "-ub is a remark",
    "pr698-ikawrakow-2": "-ub is a remark",
    "pr698-ikawrakow-3": "-ub is a remark",
    "pr698-ikawrakow-4": "-ub is a remark",
}


class Published(msgspec.Struct):
    """One distinct command, and the ids of the results that were made with it."""

    ids: list[str]
    engine: Engine
    tool: str
    command: str


def published() -> list[Published]:
    """Return all published commands."""
    lines = (Path(__file__).parents[2] / "data" / "published_commands.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Published) for line in lines]
