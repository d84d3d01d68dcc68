"""The campaign of kills and pauses itself: its schedule, its ledger, and the relays between parts."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from bench.chaos.faults import APART, TOGETHER, schedule
from bench.chaos.ledger import Ledger
from bench.chaos.relay import Relay


@pytest.mark.parametrize("together", [False, True])
def test_the_same_seed_gives_the_same_blows_of_every_kind_in_their_time(together: bool) -> None:
    faults = schedule(1, 369, 2400, together=together)
    assert faults == schedule(1, 369, 2400, together=together) != schedule(2, 369, 2400, together=together)
    assert {(fault.victim, fault.how) for fault in faults} == set(TOGETHER if together else APART)
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    assert 0 <= faults[0].at <= faults[-1].at <= 2400
    assert all(0.1 <= fault.seconds <= 10 for fault in faults)


def test_the_ledger_knows_gaps_recovery_and_advices_that_change_their_mind() -> None:
    ledger = Ledger()
    ledger.went_well["ready"] = [(1.0, 2.0), (4.0, 5.0), (5.5, 6.0)]
    assert ledger.longest_gap("ready", 0.0, 10.0) == 4.0
    assert (ledger.recovered("ready", 3.0), ledger.recovered("ready", 4.5), ledger.recovered("ready", 6)) == (
        2,
        1.5,
        None,
    )
    ledger.accept("a", "queued")
    ledger.accept("a", "ready")
    ledger.accept("a", "running")  # told by somebody who asked before
    assert (ledger.advices, ledger.wrong) == ({"a": "ready"}, [])
    ledger.accept("a", "failed")
    assert len(ledger.wrong) == 1


@pytest.fixture
def ends() -> Iterator[tuple[Relay, socket.socket]]:
    """A relay to a listening socket, behind one that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as nobody:
        dead = nobody.getsockname()[1]
        nobody.close()
        relay = Relay([dead, listener.getsockname()[1]])
        yield relay, listener
        relay.close()


def test_a_relay_passes_on_holds_back_and_cuts(ends: tuple[Relay, socket.socket]) -> None:
    relay, listener = ends
    with socket.create_connection(("127.0.0.1", relay.port), timeout=60) as near:
        near.sendall(b"one")
        far, _ = listener.accept()
        with far:
            far.settimeout(5)
            assert far.recv(10) == b"one"
            relay.stall()
            near.sendall(b"two")
            far.settimeout(0.1)
            with pytest.raises(TimeoutError):
                far.recv(10)
            relay.flow()
            far.settimeout(5)
            assert far.recv(10) == b"two"
            relay.cut()
            with pytest.raises(ConnectionResetError):
                near.recv(10)
