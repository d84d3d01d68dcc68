"""`advisor up`: downloads a model's best config, starts it as a child process, and compares it with its prediction."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli.inputs import add_no_cache, file_text, machine_or_this, port, reading_settings, tokens
from service.cli.output import FAILURE, confirmed
from service.engine.commands.render import Launch, bash
from service.engine.errors import AdvisorError, InvalidInput

if TYPE_CHECKING:
    from service.cli.replanning import Plan
    from service.cli.serving import Watch
    from service.engine.measured.classify import Failure
    from workers.agent.local import EngineProgram
    from workers.agent.process import Ended

_MOST_STARTS = 6
_FOREVER = 10 * 365 * 86_400.0
_MAX_ADVICE = 16 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", metavar="WHAT",
        help="OWNER/NAME[:VARIANT], GGUF files, @FILE with advice, or a llama-server command, quoted",
    )  # fmt: skip
    parser.add_argument("--hardware", "-H", help="as for advise (default: this machine's)")
    parser.add_argument("--context", type=tokens, metavar="N", help="tokens (default: 8192, or what the command says)")
    parser.add_argument(
        "--engine-dir", type=Path, metavar="DIR", help="folder of llama-server (default: found on PATH)"
    )
    parser.add_argument("--models", type=Path, metavar="DIR", help="folder to fetch files into (default: ~/models)")
    parser.add_argument(
        "--images", action="store_true", help="for images or sound too: also fetches and loads the repo's projector"
    )
    parser.add_argument("--port", type=port, metavar="N", help="port for the server to listen on (default: 8080)")
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="file to save the command and the lines with figures to"
    )
    parser.add_argument(
        "--yes", action="store_true", help="if a config does not fit, start the next one without asking"
    )
    parser.add_argument("--dry-run", action="store_true", help="only print what would be done, step by step")
    add_no_cache(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0 if the server ran until it was ended, 1 if it did not start."""
    from service.cli.replanning import first_plan

    settings, engine = reading_settings(arguments), _server(arguments.engine_dir)
    hardware = machine_or_this(arguments)
    plan = first_plan(settings, arguments, hardware, engine.build.engine, _advice(arguments.what))
    _say(f"engine: {engine.path} ({engine.build.version or engine.build.sha256[:12]}, {engine.build.engine})")
    for step in plan.steps():
        _say(step)
    if arguments.dry_run:
        _say(f"start: {bash(plan.launch(engine.path))}")
        _say("watch: buffers when it has loaded, each request when it is answered; Ctrl-C ends it")
        return 0
    for _ in range(_MOST_STARTS):
        ready = plan.fetched(_say)
        try:
            ended, failure = _start(ready, engine, arguments.log)
        except KeyboardInterrupt:
            _say("ended; the model's files stay")
            return 0
        if failure is None:
            _say(f"the server ended by itself, with status {ended.exit_status}")
            return 0 if ended.exit_status == 0 else FAILURE
        _say(f"it did not start: {failure.text}")
        following = None
        if failure.kind == "out_of_memory":
            following = ready.without(failure, ended.tail.decode(errors="replace"))
        if following is None:
            return FAILURE
        _say(f"instead: {following.what}")
        if not (arguments.yes or confirmed("start this?")):
            return FAILURE
        plan = following
    return FAILURE


def _start(ready: Plan, engine: EngineProgram, log: Path | None) -> tuple[Ended, Failure | None]:
    """Run the server until it ends; return how it ended, and the failure if it never served. `log`: where to save it.

    Its processes end with this one, however this one ends.
    """
    from service.cli.serving import Watch
    from service.engine.measured.classify import classify
    from service.wire.advice.check import BatchCase
    from workers.agent.process import ProcessLimits, run_engine

    launch, hardware, name = ready.launch(engine.path), ready.asked.hardware, engine.build.engine
    command = bash(launch)
    case = BatchCase(command=command, hardware=hardware, engine=name, build=engine.build.commit)
    watch = Watch(ready.asked.settings, case, _say)
    _say(f"start: {command}")
    for line in _expected(watch):
        _say(line)
    with tempfile.TemporaryDirectory(prefix="advisor-up-") as folder:
        limits = ProcessLimits(
            folder=Path(folder), seconds=_FOREVER, readable=(Path("/"),), network=(), confined=False,
            output_bytes=1 << 50, file_bytes=1 << 40,
        )  # fmt: skip
        try:
            words = (*launch.prefix, launch.program, *launch.arguments)
            ended = run_engine(words, {**os.environ, **launch.env}, limits, watch.take, lambda: None)
        finally:
            watch.finish()
            if watch.kept:
                text = _told(launch, watch.kept)
                if log is not None:
                    log.write_text(text)
                _offer(text, hardware, ready.repo)
    tail = ended.tail.decode(errors="replace")
    failure = None if watch.is_loaded else classify(ended.exit_status, ended.signal, False, tail, name)
    return ended, failure


def _expected(watch: Watch) -> list[str]:
    checked = watch.compared()
    rows = [f"{row.device} {row.total_mib:,.0f} of {row.capacity_mib:,.0f} MiB" for row in checked.memory.devices]
    return [f"expected: {checked.verdict}", f"expected memory: {', '.join(rows)}"]


def _server(folder: Path | None) -> EngineProgram:
    """Return the llama-server of a folder or of PATH. Raises InvalidInput if none runs."""
    from service.cli.local_validation import local_policy
    from workers.agent.engines import SERVER, described

    found = str(folder.expanduser() / SERVER) if folder else shutil.which(SERVER)
    path = Path(found) if found else None
    how = "`advisor advise` prints how to get one, as a package or built; then name its folder with --engine-dir"
    if path is None or not path.is_file():
        where = f"in {folder}" if folder else "on PATH"
        raise InvalidInput(f"there is no {SERVER} {where}: {how}", field="--engine-dir")
    program = described(path.resolve(), local_policy([path.parent], [], 1))
    if program is None:
        raise InvalidInput(f"{path} does not run on this machine: {how}", field="--engine-dir")
    return program


def _advice(what: str) -> bytes | None:
    return file_text(what[1:], "WHAT", _MAX_ADVICE).encode() if what.startswith("@") else None


def _told(launch: Launch, kept: list[str]) -> str:
    """Return the log in the form that `advisor submit` takes, without this machine's folders."""
    plain = tuple(Path(word).name if "/" in word else word for word in launch.arguments)
    return "\n".join((bash(Launch(launch.env, (), Path(launch.program).name, plain)), "", *kept, ""))


def _offer(text: str, hardware: str, repo: str | None) -> None:
    """Show the measurements and send them if ADVISOR_SEND is `ask` or `always`; nothing else sends anything."""
    from service.cli.submit import send_log

    choice = os.environ.get("ADVISOR_SEND", "").strip().lower()
    if choice in ("", "never"):
        return
    try:
        if choice not in ("ask", "always"):
            raise InvalidInput(f"{choice[:20]!r} must be ask, always or never", field="ADVISOR_SEND")
        send_log(text, hardware, repo, agreed=choice == "always")
    except AdvisorError as error:
        _say(f"nothing was sent: {error.detail}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
