"""The state folder: closed to others, written whole or not at all, for one agent at a time."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest
from nacl.signing import VerifyKey

from service.wire.measuring.agent import enrolment_text, signed_text
from workers.agent.errors import AlreadyRunning, HostError, NotEnrolled
from workers.agent.state import COUNTER, ENROLLED, KEY, State, load_key, make_key


@pytest.fixture
def state(tmp_path: Path) -> State:
    state = State(tmp_path / "host")
    state.make()
    return state


def test_the_key_is_for_this_user_only_and_signs_what_the_protocol_says(state: State) -> None:
    key = make_key(state)
    assert stat.S_IMODE((state.path / KEY).stat().st_mode) == 0o600
    assert stat.S_IMODE(state.path.stat().st_mode) == 0o700
    verify = VerifyKey(base64.b64decode(key.public))
    again = load_key(state)
    assert again.public == key.public
    call = again.sign_call("a.example", "/v1/agent/leases", "h", 7, b"{}")
    verify.verify(signed_text("a.example", "POST", "/v1/agent/leases", "h", 7, b"{}"), base64.b64decode(call))
    proof = again.sign_enrolment("a.example", "code")
    verify.verify(enrolment_text("a.example", "code", key.public), base64.b64decode(proof))


def test_the_private_half_is_not_shown(state: State) -> None:
    key = make_key(state)
    secret = (state.path / KEY).read_text().strip()
    assert secret not in repr(key)
    assert secret not in str(vars(key))


def test_a_second_key_is_refused(state: State) -> None:
    make_key(state)
    with pytest.raises(HostError, match="already"):
        make_key(state)


@pytest.mark.parametrize("content", [b"", b"x", b"AAAA", b"\xff" * 40, b"A" * 100_000])
def test_a_spoiled_key_is_refused(state: State, content: bytes) -> None:
    state.write(KEY, content)
    with pytest.raises(HostError, match="is not a key"):
        load_key(state)


def test_a_key_that_others_can_read_is_refused(state: State) -> None:
    make_key(state)
    (state.path / KEY).chmod(0o644)
    with pytest.raises(HostError, match="other users"):
        load_key(state)


def test_a_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(HostError, match="chmod 700"):
        State(tmp_path / "open").make()


def test_a_folder_without_a_host_says_how_to_enrol(state: State) -> None:
    for missing in (state.enrolled, lambda: load_key(state)):
        with pytest.raises(NotEnrolled, match="advisor host enrol"):
            missing()
    state.write(ENROLLED, b"{")
    with pytest.raises(HostError, match="is damaged"):
        state.enrolled()


def test_the_counter_only_grows_also_over_restarts(state: State) -> None:
    assert [state.next_counter() for _ in range(3)] == [1, 2, 3]
    assert State(state.path).next_counter() == 4
    state.raise_counter(100)
    state.raise_counter(50)
    assert state.next_counter() == 101
    state.write(COUNTER, b"many")
    with pytest.raises(HostError, match="not a number"):
        state.next_counter()


def test_a_write_that_was_cut_off_leaves_the_old_content(state: State) -> None:
    state.write(COUNTER, b"7")
    (state.path / f".{COUNTER}.new").write_bytes(b"")
    assert state.next_counter() == 8


def test_one_agent_at_a_time(state: State) -> None:
    assert not state.is_held()
    with state.alone():
        assert state.is_held()
        with pytest.raises(AlreadyRunning), State(state.path).alone():
            pass
    assert not state.is_held()
