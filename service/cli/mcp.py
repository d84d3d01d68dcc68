"""`advisor mcp`: serves the tools of the Model Context Protocol on standard input and output, for local clients."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from service.cli.inputs import add_no_cache, reading_settings, service_address
from service.engine.errors import AdvisorError
from service.structs import made_from
from service.wire import mcp, mcp_tools
from service.wire.plain_text import as_text

if TYPE_CHECKING:
    from service.settings import Settings

_MAX_LINE = 4 << 20
_QUICK_CALLS = 4  # at a time, while one `advise` runs: several of those at once would only slow each other down
_SENDING = Lock()
Show: TypeAlias = Callable[[float, str], None]
Run: TypeAlias = Callable[[Any, "Settings", Show], str]


class _Cancelled(BaseException):
    """The client no longer wants the answer: no failure that anything on the way may handle."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--service", metavar="ADDRESS", help="https://HOST of a service whose leaderboard is offered as a tool too"
    )
    add_no_cache(parser)


def run(arguments: argparse.Namespace) -> int:
    """Answer one message per line, calls as they end, until standard input ends; return the exit code 0."""
    settings, runs = reading_settings(arguments), dict(_RUN)
    if arguments.service:
        address = service_address(arguments.service)
        runs["leaderboard"] = lambda asked, settings, show: _leaderboard(asked, address)
    tools = {name: tool for name, tool in _TOOLS.items() if name in runs}
    unwanted: dict[str | int, Event] = {}  # by the id of each call that has no answer yet
    with ThreadPoolExecutor(1) as advising, ThreadPoolExecutor(_QUICK_CALLS) as others:
        for line in iter(lambda: sys.stdin.buffer.readline(_MAX_LINE), b""):
            asked = mcp.received(line, tools) if line.strip() else mcp.Reply(None)
            if isinstance(asked, mcp.Call):
                unwanted[asked.id] = ended = Event()
                pool = advising if asked.tool.name == "advise" else others
                answer = pool.submit(_answer, asked, runs[asked.tool.name], settings, ended)
                answer.add_done_callback(partial(_forget, unwanted, asked.id, ended))
            elif asked.cancels is None:
                _send(asked)
            elif running := unwanted.get(asked.cancels):
                running.set()
    return 0


def _forget(unwanted: dict[str | int, Event], identity: str | int, ended: Event, _: Future[None]) -> None:
    """Forget an answered call, unless its id has been used for another one meanwhile."""
    if unwanted.get(identity) is ended:
        del unwanted[identity]


def _answer(call: mcp.Call, run: Run, settings: Settings, unwanted: Event) -> None:
    """Send a call's progress and its result; nothing more once it is unwanted."""

    def show(share: float, text: str) -> None:
        if unwanted.is_set():
            raise _Cancelled
        _send(mcp.progress_of(call, share, text))

    try:
        show(0, "beginning")
        reply = _result(call, run, settings, show)
        if not unwanted.is_set():
            _send(reply)
    except _Cancelled:
        pass


def _send(reply: mcp.Reply) -> None:
    if reply.body is not None:
        with _SENDING:
            sys.stdout.buffer.write(msgspec.json.encode(reply.body) + b"\n")
            sys.stdout.buffer.flush()


def _result(call: mcp.Call, run: Run, settings: Settings, show: Show) -> mcp.Reply:
    try:
        return mcp.result_of(call, run(call.arguments, settings, show))
    except AdvisorError as error:
        return mcp.failure_of(call, error)
    except Exception:  # one message must not end the conversation
        traceback.print_exc()
        return mcp.defect_of(call)


def _advise(asked: mcp_tools.Advise, settings: Settings, show: Show) -> str:
    from service.flows.advice.direct import advise_directly
    from service.flows.advice.requests import as_goal
    from service.wire.advice.text import render_text

    request = asked.request()
    advice = advise_directly(
        settings, asked.repo, asked.hardware, as_goal(request.goal), request.constraints, asked.revision, asked.what_if,
        show,
    )  # fmt: skip
    return render_text(advice)


def _check(asked: mcp_tools.Check, settings: Settings, _: Show) -> str:
    from service.flows.advice.check_direct import check_directly
    from service.wire.advice.check import BatchCase
    from service.wire.advice.check_text import check_lines

    case = made_from(BatchCase, asked, model=asked.repo)
    return as_text(check_lines(check_directly(settings, case)))


def _inspect(asked: mcp_tools.Inspect, settings: Settings, _: Show) -> str:
    from service.flows.advice.repo_view import inspect_directly
    from service.wire.advice.repo_text import render_repo

    repo = f"{asked.repo}:{asked.variant}" if asked.variant else asked.repo
    return render_repo(inspect_directly(settings, repo, asked.revision))


def _hardware(asked: mcp_tools.ThisHardware, settings: Settings, _: Show) -> str:
    from service.detect import detect
    from service.engine.hardware_text import parse_hardware
    from service.wire.advice.hardware import render_hardware

    return render_hardware(parse_hardware(asked.text) if asked.text else detect())


def _leaderboard(asked: mcp_tools.Leaderboard, address: str) -> str:
    from contextlib import closing
    from urllib.parse import urlencode

    from service.cli.remote import Service
    from service.wire.results.board import Board
    from service.wire.results.board_text import board_lines

    query = urlencode({name: value for name, value in msgspec.structs.asdict(asked).items() if value is not None})
    with closing(Service(address)) as service:
        return as_text(board_lines(service.get(f"/v1/leaderboard?{query}", Board)))


_RUN: dict[str, Run] = {"advise": _advise, "check": _check, "inspect": _inspect, "hardware": _hardware}
_TOOLS = mcp_tools.TOOLS | {"hardware": mcp_tools.THIS_HARDWARE}
