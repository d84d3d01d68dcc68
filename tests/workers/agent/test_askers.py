"""For whom a host measures: its owner always, others by the policy, by hand where it says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.engine.measured.classify import Failure
from service.wire.measuring.agent import LeasedRun
from tests.workers.agent.documents import DOCUMENT
from workers.agent.askers import ASKERS, approve, read, require_welcome
from workers.agent.errors import HostError
from workers.agent.policy import AskerPolicy, Policy
from workers.agent.preflight import Declined
from workers.agent.state import State


@pytest.fixture
def state(tmp_path: Path) -> State:
    state = State(tmp_path / "state")
    state.make()
    return state


def asked(by: str | None, run: str = "r1", *, is_owners: bool = False) -> LeasedRun:
    return LeasedRun(run=run, fence=1, lease_seconds=90, document=DOCUMENT, asked_by=by, is_owners=is_owners)


def refusal(leased: LeasedRun, policy: AskerPolicy, state: State) -> Failure | None:
    try:
        require_welcome(leased, Policy(askers=policy), state)
    except Declined as refused:
        return refused.failure
    return None


@pytest.mark.parametrize(
    ("accounts", "name", "welcome"),
    [
        (("*",), "anybody", True),
        ((), "anybody", False),
        (("alice", "bob"), "bob", True),
        (("alice", "bob"), "bobby", False),
        (("slack:T0123:*",), "slack:T0123:U1", True),
        (("slack:T0123:*",), "slack:T9999:U1", False),
        (("alice",), None, False),
    ],
)
def test_accounts_are_named_one_by_one_or_as_a_group(
    accounts: tuple[str, ...], name: str | None, welcome: bool, state: State
) -> None:
    failure = refusal(asked(name), AskerPolicy(accounts=accounts), state)
    assert (failure is None) == welcome
    if failure is not None:
        assert (failure.kind, failure.transient) == ("refused_by_policy", False)
    assert refusal(asked(name, is_owners=True), AskerPolicy(accounts=accounts, approve="runs"), state) is None


def test_each_run_waits_for_the_owners_approval(state: State) -> None:
    policy = AskerPolicy(approve="runs")
    for _ in range(2):
        failure = refusal(asked("bob"), policy, state)
        assert failure is not None
        assert (failure.kind, failure.transient) == ("gave_way", True)
    assert [(one.run, one.account) for one in read(state).waiting] == [("r1", "bob")]
    approve(state, "r1", lambda _: None)
    assert refusal(asked("bob"), policy, state) is None
    assert refusal(asked("bob", "r2"), policy, state) is not None


def test_an_account_is_approved_once(state: State) -> None:
    policy = AskerPolicy(approve="accounts")
    assert refusal(asked("bob"), policy, state) is not None
    approve(state, "bob", lambda _: None)
    assert refusal(asked("bob", "r2"), policy, state) is None
    assert refusal(asked("eve"), policy, state) is not None


def test_nothing_is_approved_that_does_not_wait_and_what_cannot_be_read_lets_nobody_in(state: State) -> None:
    with pytest.raises(HostError, match="no waiting run"):
        approve(state, "eve", lambda _: None)
    state.write(ASKERS, b"{")
    with pytest.raises(HostError, match=ASKERS):
        refusal(asked("bob"), AskerPolicy(approve="runs"), state)
