"""An engine built for a GPU day by `scripts/build_engine.sh`, with a look at how far it is, and an end to its time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from service.cli.inputs import cache_folder
from service.engine.config import Engine
from service.engine.engines import engine_spec

_SCRIPT = Path(__file__).parents[1] / "scripts" / "build_engine.sh"
_LOOK_SECONDS, _TELL_SECONDS = 0.5, 30.0


def is_built(engine: Engine, *, cuda: bool) -> bool:
    """Return whether the script's folder has the engine's benchmark program."""
    program = engine_spec(engine).programs["bench"]
    found = cache_folder(os.environ).glob(f"{engine}-*/build/bin/{program}")
    return any(("-cuda/" in str(path)) == cuda for path in found)


def build(
    engine: Engine, log: Path, stop: Callable[[], str | None], say: Callable[[str], None], *, cuda: bool, jobs: int
) -> Path | None:
    """Return the folder of an engine's programs, built unless they were; None where that failed, as `log` says.

    `stop` is asked twice a second and ends the build by answering why; what was compiled is not compiled again.
    """
    environment = {**os.environ, "PYTHON": sys.executable, "ADVISOR_ENGINE_JOBS": str(jobs)}
    with log.open("w") as file:
        process = subprocess.Popen(
            ["bash", str(_SCRIPT), engine, "cuda" if cuda else "cpu"], env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file, start_new_session=True,
        )  # fmt: skip
        try:
            _follow(process, log, stop, say)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            printed = process.communicate()[0].split("\n")
    return Path(printed[-2]) if process.returncode == 0 and len(printed) > 1 else None


def _follow(
    process: subprocess.Popen[str], log: Path, stop: Callable[[], str | None], say: Callable[[str], None]
) -> None:
    told = time.monotonic()
    while process.poll() is None:
        time.sleep(_LOOK_SECONDS)
        if (why := stop()) is not None:
            say(f"the build was ended: {why}")
            return
        if time.monotonic() > told + _TELL_SECONDS:
            told = time.monotonic()
            say("  " + (log.read_text(errors="replace").strip().splitlines() or ["begins"])[-1][:120])
