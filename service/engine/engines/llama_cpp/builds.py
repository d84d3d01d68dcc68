"""The builds of llama.cpp: numbers by date as conda-forge packaged them, options of its server by pull request."""

from __future__ import annotations

import msgspec

from service.engine.builds.history import History, Recorded
from service.engine.builds.rules import BuildRules
from service.engine.engines.tables import table_of


def read_history() -> History:
    """Return what is known of its builds; no commit is."""
    recorded = msgspec.json.decode(table_of(__package__, "history.json"), type=Recorded)
    return History(
        today=recorded.today,
        changes=recorded.changes,
        numbers=tuple(sorted(recorded.numbers)),
        commits={},
        options={"llama-server": recorded.options, "llama-bench": recorded.bench_options},
        defaults=BuildRules(flash_attn="auto", fit=True, auto_slots=4),
    )
