"""`advisor serve`: runs the API, workers and an embedded Valkey."""

from __future__ import annotations

import argparse

from service.cli.inputs import load_settings, port


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on (default: ADVISOR_HOST or 127.0.0.1)")
    parser.add_argument("--port", type=port, help="port to listen on, 0 for a free one (default: ADVISOR_PORT or 8000)")
    parser.add_argument("--workers", type=int, help="worker processes (default: ADVISOR_WORKERS)")


def run(arguments: argparse.Namespace) -> int:
    from service.serve import serve

    stated = {"ADVISOR_HOST": arguments.host, "ADVISOR_PORT": arguments.port, "ADVISOR_WORKERS": arguments.workers}
    return serve(load_settings({name: str(value) for name, value in stated.items() if value is not None}))
