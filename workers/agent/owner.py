"""What the person at the machine does with the agent: enrol, check, pause and leave. Plain text, nothing hidden."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from shlex import quote

import msgspec

from service import __version__
from service.wire.measuring.agent import key_fingerprint
from workers.agent import askers, journal
from workers.agent.client import Client
from workers.agent.engines import BENCH, SWEEP, programs_in
from workers.agent.errors import HostError, ServiceError, naming
from workers.agent.policy import InvalidPolicy, Policy, example, folder, log_path, pause_path, read_policy
from workers.agent.state import (
    COUNTER,
    DOING,
    ENROLLED,
    KEY,
    Doing,
    Enrolled,
    State,
    default_folder,
    load_key,
    make_key,
)

POLICY = "policy.toml"
AGENT = f"offload-advisor/{__version__}"
_LAST_RUNS = 5
Ask = Callable[[str], bool]
Say = Callable[[str], None]


def policy_path(state: State, stated: str | None) -> Path:
    """Return the path of the policy file: `stated`, or the one in the state folder."""
    return Path(stated).expanduser() if stated else state.path / POLICY


def enrol(address: str, code: str, state: State, policy: Path, ask: Ask, say: Say) -> Enrolled | None:
    """Register this machine once the person has seen whose code it is. Returns None if they decline.

    Raises HostError, and whatever the service refuses. The key is made after the confirmation, and removed again if the
    service rejects it.
    """
    if state.read(ENROLLED) is not None:
        there = state.enrolled()
        raise HostError(f"{state.path} is {there.pseudonym} at {there.service} already: run `advisor host leave` first")
    client = Client(address, AGENT)
    try:
        greeted = client.greet(code)
        say(f"service   {client.address} ({_plain(greeted.service)})")
        say(f"owner     {_plain(greeted.owner)}")
        say(f"host      {greeted.visibility}: {_VISIBILITY[greeted.visibility]}")
        if not ask("Enrol this machine there?"):
            return None
        state.make()
        state.remove(KEY, COUNTER)
        key = make_key(state)
        try:
            host = client.enrol(code, key, AGENT)
        except HostError:
            state.remove(KEY)
            raise
    finally:
        client.close()
    known = Enrolled(
        service=client.address, host=host.host, pseudonym=_plain(host.pseudonym), owner=_plain(greeted.owner)
    )
    state.write(ENROLLED, msgspec.json.encode(known))
    if not policy.exists():
        with naming(policy):
            policy.parent.mkdir(parents=True, exist_ok=True)
            policy.write_text(example())
    say(f"key       {key_fingerprint(key.public)}: compare it with what the service shows its owner")
    say(_next_steps(known, state, policy))
    return known


_VISIBILITY = {
    "private": "measures only what its owner asks for",
    "public": "measures what anyone with an account asks for, within the policy",
}


def _next_steps(known: Enrolled, state: State, policy: Path) -> str:
    run = "advisor host run"
    if state.path != default_folder():
        run += f" --state-dir {quote(str(state.path))}"
    if policy != policy_path(state, None):
        run += f" --policy {quote(str(policy))}"
    approve = (
        f"curl -X PATCH {known.service}/v1/hosts/{known.host} -H 'Authorization: Bearer adv_…' "
        "-H 'Content-Type: application/json' -d '{\"state\": \"active\"}'"
    )
    return (
        f"enrolled  as {known.pseudonym}\n\nThree things to do:\n"
        f"1. Say in {policy} which engines and models it may use.\n"
        f"2. Approve it, with your account's token:\n   {approve}\n"
        f"3. Start it: {run} (first: {run} --once --dry-run)"
    )


def open_client(state: State) -> Client:
    """Return a client that signs as this host. Raises NotEnrolled, HostError."""
    known, key = state.enrolled(), load_key(state)
    client = Client(known.service, AGENT)
    client.sign_as(known.host, key, state)
    return client


def pause(state: State, policy: Path, say: Say) -> Path:
    """Stop a running run within seconds and let none start. Returns the pause file. Raises NotEnrolled."""
    found = _policy_or_default(policy)
    if found.pause_file is None:
        state.enrolled()  # else the next host here would begin paused
    path = pause_path(found, state.path)
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    say(f"paused: {path} is there")
    return path


def resume(state: State, policy: Path, say: Say) -> Path:
    """Let runs start again. Returns the pause file, which is gone."""
    path = pause_path(_policy_or_default(policy), state.path)
    with naming(path):
        path.unlink(missing_ok=True)
    say("not paused")
    return path


def _policy_or_default(path: Path) -> Policy:
    """Return the policy; if its file is missing, the default, whose pause file is the standard one."""
    return read_policy(path) if path.exists() else Policy()


class HostStatus(Enrolled, frozen=True, kw_only=True):
    """What this host is, what it is doing, and what it did last.

    `doing`: None if no agent runs; `policy`: the path of its file, and `policy_error` why nothing can run under it;
    `pause_file` exists while the host is paused.
    """

    doing: Doing | None
    policy: str
    policy_error: str | None
    pause_file: str | None = None
    paused: bool | None = None
    waiting: tuple[askers.Waiting, ...] = ()
    ran: tuple[journal.Ran, ...] = ()


def status(state: State, policy: Path, say: Say) -> HostStatus:
    """Print and return what this host is, what its agent does, and what ran last. The service is not contacted."""
    known, doing = state.enrolled(), state.doing() if state.is_held() else None
    say(f"host      {known.pseudonym} ({known.host}) of {known.owner} at {known.service}")
    if doing is not None:
        say(f"agent     {doing.what}{': ' + doing.text if doing.text else ''} (since {doing.at})")
    else:
        say("agent     not running: advisor host run")
    begun = {**msgspec.structs.asdict(known), "doing": doing, "policy": str(policy)}
    try:
        found = read_policy(policy)
    except InvalidPolicy as error:
        say(f"policy    nothing runs: {error.detail}")
        return HostStatus(**begun, policy_error=error.detail)
    say(f"policy    {policy}: {_summary(found)}")
    path, waiting = pause_path(found, state.path), askers.read(state).waiting
    say(f"paused    {'yes: ' + str(path) if path.exists() else 'no'}")
    for one in waiting:
        say(f"waiting   {_plain(one.run)} of {_plain(one.account)}: {_plain(one.repo)} (advisor host approve …)")
    last = journal.last(log_path(found, state.path), _LAST_RUNS)
    for ran in last:
        say(f"ran       {ran.at} {_plain(ran.repo)} {_plain(ran.file)}: {_plain(ran.outcome)}")
    return HostStatus(
        **begun, policy_error=None, pause_file=str(path), paused=path.exists(), waiting=tuple(waiting), ran=tuple(last)
    )


def summary(path: Path) -> str:
    """Return what the policy in a file lets run, or why nothing does."""
    try:
        return _summary(read_policy(path))
    except InvalidPolicy as error:
        return f"nothing runs: {error.detail}"


def _summary(policy: Policy) -> str:
    engines, models = len(policy.engines.folders), len(policy.models.folders)
    missing = [name for name, count in (("engines", engines), ("models", models)) if not count]
    if missing:
        return f"nothing can run: no folder of {' and none of '.join(missing)} is named"
    named = (*policy.engines.folders, *policy.models.folders)
    gone = "".join(f"; there is no folder {one}" for one in named if not folder(one).is_dir())
    for one in policy.engines.folders:
        if folder(one).is_dir() and not any(programs_in(one)):
            gone += f"; no {SWEEP} or {BENCH} that can be run is in {one}"
    return f"folders: {engines} of engines, {models} of models{gone}; {policy.max_minutes} minutes a run"


def leave(state: State, ask: Ask, say: Say) -> bool:
    """Delete the key and ask the service to revoke this host. Returns whether the service was told.

    The key is deleted in any case: without it nobody can act as this host.
    """
    known = state.enrolled()
    if state.is_held():
        raise HostError("the agent runs: stop it first")
    if not ask(f"Leave {known.service} as {known.pseudonym}, for good?"):
        return False
    told = _tell(state)
    state.remove(KEY, ENROLLED, COUNTER, DOING)
    if told is None:
        say(f"left      {known.service} has revoked {known.pseudonym}, and its key is gone")
        return True
    say(f"left      the key is gone, but the service could not be told ({told}).")
    say(f"          Revoke {known.pseudonym} there: DELETE {known.service}/v1/hosts/{known.host}")
    return False


def _tell(state: State) -> str | None:
    """Return why the service could not be told, None if it was."""
    try:
        client = open_client(state)
    except HostError as error:
        return error.detail
    try:
        client.leave()
    except ServiceError as error:
        return None if error.slug == "host-not-active" else error.detail  # nothing is left there to revoke
    finally:
        client.close()
    return None


def _plain(text: str) -> str:
    """Return a text of others without what a terminal would interpret."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", " ", text)[:200]
