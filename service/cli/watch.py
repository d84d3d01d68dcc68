"""`advisor watch`: compares a llama-server that runs, or ran, with the prediction for its command."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli.inputs import add_no_cache, machine_or_this, reading_settings, text_argument
from service.engine.errors import InvalidInput
from service.wire.plain_text import plainly

if TYPE_CHECKING:
    from service.cli.serving import Watch

_LOOKED_SECONDS = 0.5
_CHUNK = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", metavar="WHAT",
        help="the file that llama-server writes to, its process number, or its address (needs --metrics)",
    )  # fmt: skip
    parser.add_argument(
        "--command", metavar="COMMAND", help="the command it was started with (default: for a process, its own)"
    )
    parser.add_argument(
        "--model", metavar="MODEL", help="OWNER/NAME:VARIANT or GGUF files (default: what the command names)"
    )
    parser.add_argument("--hardware", "-H", help="as for check (default: this machine's)")
    parser.add_argument("--engine", choices=("ik_llama.cpp", "llama.cpp"), help="default: guessed from the command")
    parser.add_argument("--once", action="store_true", help="stop at the current end of the log")
    add_no_cache(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command until its input ends, or until Ctrl-C; return the exit code 0."""
    from service.cli.serving import Watch
    from service.wire.advice.check import BatchCase

    log, command, pid = _source(arguments)
    case = BatchCase(
        command=command, model=arguments.model, hardware=machine_or_this(arguments), engine=arguments.engine
    )
    watch = Watch(reading_settings(arguments), case, lambda line: print(line, flush=True))
    print(f"expected: {watch.compared().verdict}", flush=True)
    try:
        if log is not None:
            for data in _followed(log, pid, once=arguments.once):
                watch.take(data)
            watch.finish()
            if not watch.is_loaded:
                print(f"{log} shows no loaded server and no request")
        else:
            _poll(arguments.what.rstrip("/"), watch)
    except KeyboardInterrupt:
        print("stopped watching; the server keeps running", file=sys.stderr)
    return 0


def _source(arguments: argparse.Namespace) -> tuple[Path | None, str, int | None]:
    """Return (log, or None to use metrics; command; process id). Raises InvalidInput for missing ones."""
    what, log, pid, command = arguments.what, None, None, arguments.command
    if what.isdecimal():
        pid = int(what)
        log, own = _of_process(pid)
        command = command or own
    elif not what.startswith(("http://", "https://")):
        log = Path(what)
        if not log.is_file():
            raise InvalidInput(f"{what} is not a file, process or address", field="WHAT")
    if not command:
        raise InvalidInput("say what it was started with: --command 'llama-server -m …'", field="--command")
    return log, text_argument(command, "command"), pid


def _of_process(pid: int) -> tuple[Path, str]:
    """Return the file that a process prints to, and its command with full paths."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        folder = Path(os.readlink(f"/proc/{pid}/cwd"))
        outputs = [Path(os.readlink(f"/proc/{pid}/fd/{number}")) for number in (2, 1)]
    except FileNotFoundError as error:
        raise InvalidInput(f"there is no process {pid} here", field="WHAT") from error
    except OSError as error:
        raise InvalidInput(f"process {pid} cannot be inspected: {error.strerror}", field="WHAT") from error
    log = next((path for path in outputs if path.is_file()), None)
    if log is None:
        what = f"process {pid} prints to no file: give its address (with --metrics), or start it with `> FILE 2>&1`"
        raise InvalidInput(what, field="WHAT")
    whole = [str(folder / word) if word.endswith(".gguf") else word for word in words]
    return log, shlex.join(whole)


def _followed(log: Path, pid: int | None, *, once: bool) -> Iterator[bytes]:
    """Yield a file's contents and what is appended to it; with a process, until that has ended."""
    with log.open("rb") as file:
        while True:
            ended = once or (pid is not None and not Path(f"/proc/{pid}").exists())
            while data := file.read(_CHUNK):
                yield data
            if ended:
                return
            time.sleep(_LOOKED_SECONDS)


def _poll(address: str, watch: Watch) -> None:
    """Poll a server's totals: their growth between two idle moments is a request, if one ran at a time."""

    import httpx

    from service.engine.logs.requests import TOGETHER, Totals, read_totals

    before: Totals | None = None
    busy = 0.0
    with httpx.Client(timeout=10, trust_env=False) as client:
        while True:
            try:
                answer = client.get(f"{address}/metrics")
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise InvalidInput(f"{address}/metrics: {plainly(error)}", field="WHAT") from error
            now = read_totals(answer.text.splitlines())
            if now is None:
                what = f"{address}/metrics has no totals of llama-server, which needs --metrics for them"
                raise InvalidInput(what, field="WHAT")
            busy = max(busy, now.n_running)
            if not now.n_running:
                if before is not None and now.n_output > before.n_output:
                    watch.requests((now.since(before, TOGETHER if busy > 1 else None),))
                before, busy = now, 0.0
            time.sleep(_LOOKED_SECONDS)
