"""The builds of ik_llama.cpp: `builds.json` is read from its repository (`scripts/write_builds.py`)."""

from __future__ import annotations

import msgspec

from service.engine.builds.history import History, Recorded
from service.engine.builds.rules import BuildRules
from service.engine.engines.tables import table_of


class _Repository(msgspec.Struct, frozen=True):
    """`builds`: by day, `NUMBER:COMMIT` of the main line and `COMMIT` of other branches. `options`: by program."""

    builds: dict[str, str]
    options: dict[str, dict[str, str]]


def read_history() -> History:
    """Return what is known of its builds."""
    recorded = msgspec.json.decode(table_of(__package__, "history.json"), type=Recorded)
    repository = msgspec.json.decode(table_of(__package__, "builds.json"), type=_Repository)
    words = [(word, date) for date, line in repository.builds.items() for word in line.split()]
    return History(
        today=recorded.today,
        changes=recorded.changes,
        numbers=tuple(sorted((int(word.partition(":")[0]), date) for word, date in words if ":" in word)),
        commits={word.rpartition(":")[2]: date for word, date in words},
        options=repository.options,
        defaults=BuildRules(),
    )
