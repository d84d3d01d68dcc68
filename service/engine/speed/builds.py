"""How fast older builds were: what changed the speed of the same work; each engine knows its own (`engines/`).

What older builds did otherwise, and so had other work, is in their rules (service/engine/builds.py). A build of no
known date is today's.
"""

from __future__ import annotations

from functools import lru_cache

from service.engine.config import Engine
from service.engine.engines import engine_spec
from service.engine.engines.speed import SpeedChange


@lru_cache(maxsize=256)
def changes_after(engine: Engine, build_date: str | None) -> frozenset[SpeedChange]:
    """Return the changes that a build of `build_date` (YYYY-MM-DD) does not have yet; none without a date."""
    if build_date is None:
        return frozenset()
    return frozenset(m.change for m in engine_spec(engine).speed.milestones if build_date < m.date)
