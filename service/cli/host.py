"""`advisor host`: makes this machine a measuring host. Needs the extra `agent`, and nothing of the server's."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from service.cli.output import FAILURE, confirmed, print_json

if TYPE_CHECKING:
    from workers.agent.state import State

Done: TypeAlias = tuple[object, int]  # the value for --json, None for nothing, and the exit code
DONE, DECLINED = 0, FAILURE
CANNOT_WORK = 78  # EX_CONFIG of sysexits.h: restarting would not help


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    enrol = verbs.add_parser("enrol", help="register this machine with a service, with its owner's code")
    enrol.add_argument("url", metavar="URL", help="the service's address: https://…")
    enrol.add_argument("--code", required=True, help="from POST /v1/hosts/enrolments, valid for ten minutes")
    run = verbs.add_parser("run", help="wait for runs and measure them, until told to stop")
    run.add_argument("--once", action="store_true", help="exit after one run, or if none is waiting or allowed")
    run.add_argument("--dry-run", action="store_true", help="show what the next run would start, and start nothing")
    status = verbs.add_parser("status", help="show what this host is, what it does, and what it did last")
    pause = verbs.add_parser("pause", help="stop the current run, and start none")
    resume = verbs.add_parser("resume", help="end a pause")
    approve = verbs.add_parser("approve", help="approve a run that waits for approval, or all runs of an account")
    approve.add_argument("named", metavar="RUN|ACCOUNT", help="as `advisor host status` names them")
    leave = verbs.add_parser("leave", help="give up this machine's key and have it revoked")
    for verb in (enrol, leave):
        verb.add_argument("--yes", action="store_true", help="do not ask")
    for verb in (enrol, run, status, pause, resume, approve, leave):
        verb.add_argument(
            "--state-dir", metavar="DIR", help="the host's folder (default: ~/.local/state/offload-advisor/host)"
        )
    for verb in (enrol, status, pause, resume, approve, leave):
        verb.add_argument("--json", action="store_true", help="the outcome as JSON; messages go to stderr")
    for verb in (enrol, run, status, pause, resume):
        verb.add_argument(
            "--policy", metavar="FILE", help="what this host may do (default: policy.toml in the host's folder)"
        )
    functions = {enrol: _enrol, run: _run, status: _status, pause: _pause, resume: partial(_pause, paused=False)}
    functions |= {approve: _approve, leave: _leave}
    for verb, function in functions.items():
        verb.set_defaults(host=function)


def run(arguments: argparse.Namespace) -> int:
    if sys.platform == "win32":
        print("advisor: hosts are Linux machines (or WSL 2)", file=sys.stderr)
        return FAILURE
    done: Done = arguments.host(arguments)
    if done[0] is not None and arguments.json:
        print_json(done[0])
    return done[1]


def _state(arguments: argparse.Namespace) -> State:
    from workers.agent.state import State, default_folder

    return State(Path(arguments.state_dir).expanduser() if arguments.state_dir else default_folder())


def _say(arguments: argparse.Namespace) -> Callable[[str], None]:
    return partial(print, file=sys.stderr if arguments.json else None)


def _ask(arguments: argparse.Namespace, question: str) -> bool:
    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        print("advisor: there is no terminal to ask on: --yes confirms", file=sys.stderr)
        return False
    return confirmed(question)


def _enrol(arguments: argparse.Namespace) -> Done:
    from workers.agent import owner

    state, say = _state(arguments), _say(arguments)
    policy = owner.policy_path(state, arguments.policy)
    enrolled = owner.enrol(arguments.url, arguments.code, state, policy, partial(_ask, arguments), say)
    return enrolled or None, DONE if enrolled else DECLINED


def _run(arguments: argparse.Namespace) -> Done:
    from workers.agent.errors import NotEnrolled, Unsafe
    from workers.agent.run import run_agent

    try:
        return None, run_agent(_state(arguments), arguments.policy, once=arguments.once, dry_run=arguments.dry_run)
    except (NotEnrolled, Unsafe) as error:
        print(f"advisor: {error.detail}", file=sys.stderr)
        return None, CANNOT_WORK


def _status(arguments: argparse.Namespace) -> Done:
    from workers.agent import owner

    state = _state(arguments)
    say = (lambda line: None) if arguments.json else print
    return owner.status(state, owner.policy_path(state, arguments.policy), say), DONE


def _pause(arguments: argparse.Namespace, *, paused: bool = True) -> Done:
    from workers.agent import owner

    state, act = _state(arguments), owner.pause if paused else owner.resume
    path = act(state, owner.policy_path(state, arguments.policy), _say(arguments))
    return {"paused": paused, "pause_file": str(path)}, DONE


def _approve(arguments: argparse.Namespace) -> Done:
    from workers.agent import askers

    askers.approve(_state(arguments), arguments.named, _say(arguments))
    return {"approved": arguments.named}, DONE


def _leave(arguments: argparse.Namespace) -> Done:
    from workers.agent import owner
    from workers.agent.state import ENROLLED

    state = _state(arguments)
    revoked = owner.leave(state, partial(_ask, arguments), _say(arguments))
    return {"left": state.read(ENROLLED) is None, "revoked": revoked}, DONE if revoked else FAILURE
