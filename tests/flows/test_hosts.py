"""Who signed a call, whatever the clocks say: counters order calls, and sessions end by the service's clock alone."""

from __future__ import annotations

from datetime import timedelta

import pytest
from nacl.signing import SigningKey

from service.errors import CounterTooSmall, EnrolmentCodeUnknown, HostNotActive, NotAuthenticated
from service.flows import hosts, signed_calls
from service.flows.accounts import caller_of, create_token
from service.flows.context import Context
from service.flows.signed_calls import SignedCall, SignedHost
from service.store import accounts
from service.store import hosts as store
from service.wire.agent import COUNTER_HEADER, HOST_HEADER, SESSION_SECONDS, SIGNATURE_HEADER, signed_text
from service.wire.hosts import EnrolmentRequest
from tests.flows.conftest import Clock
from tests.hosts import AUTHORITY, a_host, caller, signature

PATH = "/v1/agent/probe"
SKEWS = [-24 * 60, -11, -10, -1, 1, 10, 11, 59]


@pytest.fixture
def key() -> SigningKey:
    return SigningKey.generate()


@pytest.fixture
def host(context: Context, key: SigningKey) -> SignedHost:
    return a_host(context, key=key)


def call(host: SignedHost, key: SigningKey, counter: int, token: str | None = None, path: str = PATH) -> SignedCall:
    text = signed_text(AUTHORITY, "POST", path, host.id, counter, b"{}")
    headers = {
        HOST_HEADER.lower(): host.id,
        COUNTER_HEADER.lower(): str(counter),
        SIGNATURE_HEADER.lower(): signature(key, text),
    }
    authorization = {"authorization": f"Bearer {token}"} if token else {}
    return SignedCall(authority=AUTHORITY, method="POST", path=path, headers=headers | authorization, body=b"{}")


def session(context: Context, host: SignedHost, key: SigningKey, counter: int = 1) -> str:
    return signed_calls.open_session(context, call(host, key, counter, path="/v1/agent/sessions")).token


@pytest.mark.parametrize("minutes", SKEWS)
def test_a_clock_that_jumps_neither_stops_a_host_nor_lets_a_call_in_twice(
    context: Context, clock: Clock, host: SignedHost, key: SigningKey, minutes: float
) -> None:
    token = session(context, host, key)
    made = call(host, key, 2, token)
    assert signed_calls.authenticate(context, made).id == host.id
    clock.pass_minutes(minutes)
    assert signed_calls.authenticate(context, call(host, key, 3, token)).counter == 3
    with pytest.raises(CounterTooSmall) as raised:
        signed_calls.authenticate(context, made)
    assert raised.value.choices == ("3",)


def test_a_session_ends_after_an_hour_and_another_may_begin(
    context: Context, clock: Clock, host: SignedHost, key: SigningKey
) -> None:
    token = session(context, host, key)
    clock.pass_minutes(SESSION_SECONDS / 60 - 0.1)
    signed_calls.authenticate(context, call(host, key, 2, token))
    clock.pass_minutes(0.2)
    with pytest.raises(NotAuthenticated, match="session"):
        signed_calls.authenticate(context, call(host, key, 3, token))
    signed_calls.authenticate(context, call(host, key, 5, session(context, host, key, 4)))


def test_a_code_ends_by_the_services_clock(context: Context, clock: Clock) -> None:
    made = hosts.create_enrolment(context, caller(context), EnrolmentRequest(), "https://" + AUTHORITY)
    clock.pass_minutes(9.9)
    assert hosts.greet(context, made.code, "https://" + AUTHORITY).owner == "alice"
    clock.pass_minutes(0.2)
    with pytest.raises(EnrolmentCodeUnknown):
        hosts.greet(context, made.code, "https://" + AUTHORITY)


def test_a_host_that_is_revoked_between_two_steps_of_a_call_is_refused(
    context: Context, host: SignedHost, key: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = session(context, host, key)
    really = store.has_session

    def revoked_meanwhile(*arguments: object) -> bool:
        found = really(*arguments)  # type: ignore[arg-type]
        store.change(context.engine, host.id, context.clock(), state="revoked")
        return found

    monkeypatch.setattr(store, "has_session", revoked_meanwhile)
    with pytest.raises(HostNotActive):
        signed_calls.authenticate(context, call(host, key, 2, token))
    kept = store.read(context.engine, host.id)
    assert kept is not None
    assert kept.counter == 1


def test_the_use_of_a_token_is_noted_once_a_minute(context: Context, clock: Clock) -> None:
    token = create_token(context.engine, "alice", ["host"], clock.now).token

    def used() -> object:
        caller_of(context.engine, token, clock.now)
        return accounts.tokens(context.engine)[0][1].used_at

    first = used()
    clock.pass_minutes(0.9)
    assert used() == first
    clock.pass_minutes(0.2)
    assert used() == clock.now
    clock.now -= timedelta(days=1)
    assert used() == clock.now + timedelta(days=1)
