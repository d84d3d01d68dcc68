"""`python -m tests.local_hub [--port N]`: run the local Hub in the foreground and print its endpoint."""

from __future__ import annotations

import argparse
import signal
import threading

from tests.local_hub import LocalHub


def main() -> None:
    """Serve until interrupted or terminated."""
    parser = argparse.ArgumentParser(prog="python -m tests.local_hub", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port of the API (default: a free one)")
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with LocalHub(port=parser.parse_args().port) as hub:
        print(hub.endpoint, flush=True)
        stopped.wait()


if __name__ == "__main__":
    main()
