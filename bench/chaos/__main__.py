"""Runs a campaign from the command line: see the package."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from bench.chaos.campaign import campaign, lines
from bench.stamp import stamp

EACH_SECONDS = 6.5


def main() -> int:
    """Run, print what came of it, and return 1 where anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description=sys.modules["bench.chaos"].__doc__)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--faults", type=int, help=f"one each {EACH_SECONDS} s, where none are given")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--together", action="store_true")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(stamp(), flush=True)
    seconds = arguments.minutes * 60
    n = arguments.faults or round(seconds / EACH_SECONDS)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        found = campaign(Path(folder), n, seconds, arguments.seed, together=arguments.together)
    for line in lines(found):
        print(line)
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
