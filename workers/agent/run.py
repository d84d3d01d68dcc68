"""The agent as a process: puts its parts together, handles signals, and ends what an earlier one left."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial

from service import logs
from service.logs import LEVELS, Log
from service.scratch import own_scratch
from workers.agent import owner
from workers.agent.errors import HostError
from workers.agent.leftovers import end_leftovers
from workers.agent.loop import Agent, EndRequested
from workers.agent.measure import RECORD
from workers.agent.process import Confinement, confinement
from workers.agent.state import State
from workers.agent.watcher import Watcher

log = Log("agent")

SCRATCH = "scratch"


def run_agent(state: State, policy: str | None, *, once: bool, dry_run: bool) -> int:
    """Run the agent until it is told to end, and return the exit code. Raises HostError if it cannot work."""
    _configure_logs()
    state.make()
    with state.alone():
        held = _greet(state, policy)
        with own_scratch(state.path / SCRATCH):
            return _work(state, policy, held, once=once, dry_run=dry_run)


def _work(state: State, policy: str | None, held: Confinement, *, once: bool, dry_run: bool) -> int:
    ending = threading.Event()
    client = owner.open_client(state)
    watcher = Watcher(state.path, ending=ending)
    say = partial(print, flush=True)
    path = owner.policy_path(state, policy)
    agent = Agent(state, path, client, watcher, held=held, ending=ending, say=say)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, agent.end)
    try:
        could = agent.serve(once=once or dry_run, dry_run=dry_run)
    except EndRequested:
        could = True
    finally:
        client.close()
    return 0 if could else 1


def _greet(state: State, policy: str | None) -> Confinement:
    """Log who this is, end what a killed agent left running, and return how engines are confined here."""
    known, held = state.enrolled(), confinement(state.path)
    network, files = held.network or "NOT taken away", held.files or "NOT restricted"
    said = owner.summary(owner.policy_path(state, policy))
    log.info("process.started", host=known.pseudonym, service=known.service, network=network, files=files, detail=said)
    ended = end_leftovers(state.path / RECORD)
    if ended:
        log.warning("process.ended", n=ended, detail="an earlier agent left them")
    return held


def _configure_logs() -> None:
    level = os.environ.get("ADVISOR_LOG_LEVEL") or "info"
    if level not in LEVELS:
        raise HostError(f"ADVISOR_LOG_LEVEL is {level!r}: it must be one of {', '.join(LEVELS)}")
    logs.configure("agent", level)
