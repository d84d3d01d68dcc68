"""People on Discord and Slack: a rig that is theirs alone, one token, and an account that can be forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine, func, select, update

from service.engine.errors import InvalidInput, UnknownHardware
from service.errors import NotAllowed, NotAuthenticated
from service.flows import accounts
from service.flows.chat import chat_accounts, interactions
from service.flows.context import Context
from service.flows.results.leaderboard import leaderboard
from service.flows.results.read_results import list_results
from service.store.engines import locked
from service.store.measuring import hosts
from service.store.results.board import rebuild
from service.store.tables import account, host, interaction, rig, token
from service.wire.results.board import BoardQuery
from service.wire.results.results import ResultQuery
from tests.flows.chat.test_interactions import take
from tests.flows.conftest import Clock
from tests.hosts import a_host
from tests.stored_results import a_result, keep, row

ANNA, BERT = "discord:1", "slack:T1:U2"


def test_a_rig_is_remembered_as_typed_for_its_owner_only_and_the_last_one_counts(context: Context) -> None:
    chat_accounts.remember_rig(context, ANNA, "RTX 3090")
    assert "5090" in chat_accounts.remember_rig(context, ANNA, " 2x5090, 128GB DDR5-5600 ")
    assert chat_accounts.remembered_rig(context, ANNA) == "2x5090, 128GB DDR5-5600"
    assert chat_accounts.remembered_rig(context, BERT) is None


@pytest.mark.parametrize(("text", "error"), [("RTX 9999", UnknownHardware), ("2x3090 " + "x" * 4000, InvalidInput)])
def test_a_rig_that_cannot_be_is_not_remembered(context: Context, text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        chat_accounts.remember_rig(context, ANNA, text)
    assert chat_accounts.remembered_rig(context, ANNA) is None


def test_a_token_is_given_once_and_a_second_one_ends_the_first(context: Context, engine: Engine) -> None:
    first = chat_accounts.give_token(context, ANNA)
    assert first is not None
    assert accounts.caller_of(engine, first.token, context.clock()).name == ANNA
    assert chat_accounts.give_token(context, ANNA) is None
    second = chat_accounts.give_token(context, ANNA, instead=True)
    assert second is not None
    with pytest.raises(NotAuthenticated):
        accounts.caller_of(engine, first.token, context.clock())
    assert accounts.caller_of(engine, second.token, context.clock()).scopes == chat_accounts.SCOPES


def test_forgetting_deletes_everything_that_is_the_persons_own(context: Context, engine: Engine) -> None:
    chat_accounts.remember_rig(context, ANNA, "RTX 3090")
    chat_accounts.give_token(context, ANNA)
    a_host(context, ANNA)
    take(context)
    had = chat_accounts.forget(context, ANNA)
    assert (had.rig, had.tokens) == (True, 2)
    with engine.connect() as connection:
        left = [
            connection.scalar(select(func.count()).select_from(t)) for t in (account, rig, token, host, interaction)
        ]
    assert left == [0, 0, 0, 0, 0]
    assert chat_accounts.forget(context, ANNA) == chat_accounts.Forgotten(False, 0)


def test_what_is_asked_after_forgetting_is_still_to_be_answered(context: Context, clock: Clock) -> None:
    take(context, "before")
    clock.pass_minutes(0.01)
    take(context, "forget")
    asked_at = clock()
    clock.pass_minutes(0.01)
    take(context, "after")
    chat_accounts.forget(context, ANNA, asked_at)
    assert [row.id for row in interactions.claim(context, 10)] == ["after"]


def test_forgetting_leaves_results_without_a_name_and_none_of_private_hosts(context: Context, engine: Engine) -> None:
    private, public = a_host(context, ANNA), a_host(context, ANNA)
    hosts.change(engine, public.id, context.clock(), visibility="public")
    shared: dict[str, Any] = {"account_id": private.account_id, "origin": "agent", "tier": "agent-run"}
    told = a_result(host_id=public.id, **shared)
    keep(engine, a_result([row(tg=21.0)], host_id=private.id, **shared), told)
    chat_accounts.forget(context, ANNA)
    assert [(one.id, one.contributor) for one in list_results(context, ResultQuery()).results] == [(told.id, None)]
    with locked(engine) as connection:
        rebuild(connection)
    assert [one.result for one in leaderboard(context, BoardQuery()).rows] == [told.id]


def test_forgetting_does_not_end_a_ban(context: Context, engine: Engine) -> None:
    chat_accounts.remember_rig(context, ANNA, "RTX 3090")
    with engine.begin() as connection:
        connection.execute(update(account).values(banned_at=context.clock()))
    chat_accounts.forget(context, ANNA)
    assert chat_accounts.remembered_rig(context, ANNA) is None
    with pytest.raises(NotAllowed):
        chat_accounts.caller_in_chat(context, ANNA)
