"""Who signed a call, whatever the clocks say: counters order calls, and sessions end by the service's clock alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from nacl.signing import SigningKey
from sqlalchemy import Engine, event, update

from service.errors import CounterTooSmall, EnrolmentCodeUnknown, HostNotActive, NotAuthenticated
from service.flows.accounts import caller_of, create_token
from service.flows.context import Context
from service.flows.measuring import hosts, signed_calls
from service.flows.measuring.signed_calls import SignedCall
from service.store import accounts
from service.store.measuring import hosts as store
from service.store.measuring.hosts import StoredHost
from service.store.tables import account
from service.wire.measuring.agent import COUNTER_HEADER, HOST_HEADER, SESSION_SECONDS, SIGNATURE_HEADER, signed_text
from service.wire.measuring.hosts import EnrolmentRequest
from tests.flows.conftest import Clock
from tests.hosts import AUTHORITY, a_host, caller, signature

PATH = "/v1/agent/probe"


@contextmanager
def statements(engine: Engine) -> Iterator[list[str]]:
    """What is asked of the database within the block."""
    found: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        found.extend([statement] if not statement.startswith("BEGIN") else [])

    event.listen(engine, "before_cursor_execute", note)
    yield found
    event.remove(engine, "before_cursor_execute", note)


SKEWS = [-24 * 60, -11, -10, -1, 1, 10, 11, 59]


@pytest.fixture
def key() -> SigningKey:
    return SigningKey.generate()


@pytest.fixture
def host(context: Context, key: SigningKey) -> StoredHost:
    return a_host(context, key=key)


def call(host: StoredHost, key: SigningKey, counter: int, token: str | None = None, path: str = PATH) -> SignedCall:
    text = signed_text(AUTHORITY, "POST", path, host.id, counter, b"{}")
    headers = {
        HOST_HEADER.lower(): host.id,
        COUNTER_HEADER.lower(): str(counter),
        SIGNATURE_HEADER.lower(): signature(key, text),
    }
    authorization = {"authorization": f"Bearer {token}"} if token else {}
    return SignedCall(authority=AUTHORITY, method="POST", path=path, headers=headers | authorization, body=b"{}")


def session(context: Context, host: StoredHost, key: SigningKey, counter: int = 1) -> str:
    return signed_calls.open_session(context, call(host, key, counter, path="/v1/agent/sessions")).token


@pytest.mark.parametrize("minutes", SKEWS)
def test_a_clock_that_jumps_neither_stops_a_host_nor_lets_a_call_in_twice(
    context: Context, clock: Clock, host: StoredHost, key: SigningKey, minutes: float
) -> None:
    token = session(context, host, key)
    made = call(host, key, 2, token)
    assert signed_calls.authenticate(context, made).id == host.id
    clock.pass_minutes(minutes)
    assert signed_calls.authenticate(context, call(host, key, 3, token)).id == host.id
    with pytest.raises(CounterTooSmall) as raised:
        signed_calls.authenticate(context, made)
    assert raised.value.choices == ("3",)


def test_a_session_ends_after_an_hour_and_another_may_begin(
    context: Context, clock: Clock, host: StoredHost, key: SigningKey
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


@pytest.mark.parametrize("how", ["revoked", "banned"])
def test_a_host_whose_key_is_remembered_is_refused_at_once_when_it_may_no_more(
    context: Context, host: StoredHost, key: SigningKey, how: str
) -> None:
    token = session(context, host, key)
    assert signed_calls.authenticate(context, call(host, key, 2, token)).id == host.id
    if how == "revoked":
        store.change(context.engine, host.id, context.clock(), state="revoked")
    else:
        with context.engine.begin() as connection:
            connection.execute(update(account).values(banned_at=context.clock()))
    with pytest.raises(HostNotActive):
        signed_calls.authenticate(context, call(host, key, 3, token))
    kept = store.read(context.engine, host.id)
    assert kept is not None
    assert kept.counter == 2


def test_a_call_of_a_known_host_costs_one_statement(context: Context, host: StoredHost, key: SigningKey) -> None:
    token = session(context, host, key)
    signed_calls.authenticate(context, call(host, key, 2, token))
    with statements(context.engine) as asked:
        signed_calls.authenticate(context, call(host, key, 3, token))
    assert len(asked) == 1, asked
    assert asked[0].startswith("UPDATE host")
    with pytest.raises(CounterTooSmall):
        signed_calls.authenticate(context, call(host, key, 3, token))


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
