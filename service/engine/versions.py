"""What an answer was computed with: bumped or hashed, so that a cached advice is never older than its knowledge."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

from service.engine.advice import Versions
from service.engine.builds import today
from service.engine.config import ENGINES

ENGINE_MODEL = "71"  # raise it when memory, placement, planner or commands change what they answer
ENGINE_BUILDS: dict[str, str] = {engine: today(engine).label for engine in ENGINES}


def versions(fitted: str | None = None) -> Versions:
    """Return the versions of the engine model, the calibration and the catalogue (hashes of their data files).

    `fitted`: the version of the calibration that is predicted by; None: it is the one that comes with the engine.
    """
    return Versions(
        ENGINE_MODEL,
        fitted or _hash("calibration.json"),
        _hash("gpus.json", "cpus.json", "cpus_core.json", "cpus_xeon.json"),
        ENGINE_BUILDS,
    )


@cache
def _hash(*names: str) -> str:
    folder = resources.files("service.engine.data")
    digest = hashlib.sha256(b"".join(folder.joinpath(name).read_bytes() for name in names))
    return digest.hexdigest()[:12]
