"""For whom this host measures: always its owner; others as the policy says, some only once approved by hand."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from service.wire.measuring.agent import LeasedRun
from service.wire.measuring.hosts import are_named
from workers.agent.errors import HostError
from workers.agent.journal import utc_now
from workers.agent.policy import Policy
from workers.agent.preflight import Declined
from workers.agent.state import State

ASKERS = "askers.json"
_MOST_WAITING = 100


class Waiting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run that is not approved yet. `at`: when it was last offered, ISO 8601, UTC."""

    run: str
    account: str
    repo: str
    at: str


class Approvals(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Accounts and runs approved by hand, and the runs that wait for approval, oldest first."""

    approved: list[str] = []
    waiting: list[Waiting] = []


def require_welcome(leased: LeasedRun, policy: Policy, state: State) -> None:
    """Raise Declined if the owner does not measure for who asks: for good, or until the run is approved."""
    if leased.is_owners:
        return
    name = leased.asked_by or ""
    if not are_named(policy.askers.accounts, name):
        raise Declined("refused_by_policy", "this host's owner does not measure for this account")
    if policy.askers.approve == "none":
        return
    known = read(state)
    if (name if policy.askers.approve == "accounts" else leased.run) in known.approved:
        return
    waiting = [one for one in known.waiting if one.run != leased.run][-_MOST_WAITING:]
    waiting.append(Waiting(run=leased.run, account=name, repo=leased.document.repo, at=utc_now()))
    state.write(ASKERS, msgspec.json.encode(Approvals(approved=known.approved, waiting=waiting)))
    raise Declined("gave_way", "it is waiting for the approval of this host's owner", transient=True)


def approve(state: State, named: str, say: Callable[[str], None]) -> None:
    """Approve a waiting run, or all runs of an account: measured when offered again. Raises HostError."""
    known = read(state)
    if not any(named in (one.run, one.account) for one in known.waiting):
        raise HostError(f"no waiting run is called {named} or asked for by {named}: see `advisor host status`")
    waiting = [one for one in known.waiting if named not in (one.run, one.account)]
    approved = list(dict.fromkeys([*known.approved, named]))
    state.write(ASKERS, msgspec.json.encode(Approvals(approved=approved, waiting=waiting)))
    say(f"approved  {named}: it will be measured when it is offered again, within about ten minutes")


def read(state: State) -> Approvals:
    """Return what was approved and what waits. Raises HostError if it cannot be read."""
    return state.decoded(ASKERS, Approvals) or Approvals()
