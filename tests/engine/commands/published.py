"""Commands that people published with their measurements: tests/data/published_commands.jsonl."""

from __future__ import annotations

from pathlib import Path

import msgspec

from service.engine.config import Engine


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
