"""Questions to bots: none is lost, none is taken twice, and one whose answerer died goes to the next."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from service.engine.errors import InvalidInput
from service.flows.chat import interactions
from service.flows.context import Context
from service.store.tables import interaction
from service.wire.bots import Ask, Asker, Reply, Visit
from tests.flows.conftest import Clock

ANNA = Asker(account="discord:1", place="discord-guild:9")
BERT = Asker(account="discord:2", place="discord-guild:9")
ASK = Ask(verb="advise", words={"repo": "a/b"})
SET, FORGET = (Ask(verb="hardware", words={"action": action}) for action in ("set", "forget"))
REPLY = Reply(platform="discord", application="7", token="secret-token")


def take(context: Context, identity: str = "discord:100", asker: Asker = ANNA, ask: Ask = ASK) -> bool:
    taken = interactions.take(context, identity, asker, ask, REPLY)
    interactions.acknowledged(context, identity)
    return taken


def test_a_question_is_claimed_once_and_again_when_its_answerer_fell_silent(context: Context, clock: Clock) -> None:
    assert take(context)
    assert [row.ask for row in interactions.claim(context, 10)] == [ASK]
    assert interactions.claim(context, 10) == []
    clock.pass_minutes(interactions.CLAIM_SECONDS / 60)
    assert [row.id for row in interactions.claim(context, 10)] == ["discord:100"]


def test_a_question_that_no_database_keeps_is_refused(context: Context) -> None:
    with pytest.raises(InvalidInput, match="NUL"):
        interactions.take(context, "discord:101", ANNA, Ask(verb="check", words={"command": "a\0"}), REPLY)


def test_a_claim_that_is_renewed_holds(context: Context, clock: Clock) -> None:
    take(context)
    interactions.claim(context, 10)
    clock.pass_minutes(0.4)
    interactions.renew(context, ["discord:100"])
    clock.pass_minutes(0.4)
    assert interactions.claim(context, 10) == []


def test_a_question_that_is_to_be_looked_at_again_is_due_then_with_what_was_noted(
    context: Context, clock: Clock
) -> None:
    take(context)
    interactions.claim(context, 10)
    interactions.look_again(context, "discord:100", Visit(subject="advice-1", uses=1), 60)
    assert interactions.claim(context, 10) == []
    clock.pass_minutes(1)
    assert [row.visit for row in interactions.claim(context, 10)] == [Visit(subject="advice-1", uses=1)]


def test_the_same_question_sent_again_is_not_taken_even_after_it_was_answered(context: Context, clock: Clock) -> None:
    assert take(context)
    assert not take(context)
    interactions.end(context, "discord:100")
    assert not take(context)
    clock.pass_minutes(31)
    interactions.end(context, "discord:101")
    assert take(context)


def test_an_answered_question_keeps_neither_words_nor_tokens(context: Context, engine: Engine) -> None:
    take(context)
    interactions.end(context, "discord:100")
    with engine.connect() as connection:
        (row,) = connection.execute(interaction.select())
    assert (row.ask, row.reply, row.due_at) == (None, None, None)
    assert "secret-token" not in str(row)


def claimed(context: Context) -> set[str]:
    return {row.id for row in interactions.claim(context, 10)}


def test_what_a_person_asks_about_what_is_saved_of_them_is_claimed_one_by_one_in_the_order_in_which_it_was_taken(
    context: Context, clock: Clock
) -> None:
    assert interactions.take(context, "first", ANNA, SET, REPLY)
    clock.pass_minutes(0.01)
    take(context, "second", ANNA, FORGET)
    assert claimed(context) == set()  # the first is not acknowledged yet
    interactions.acknowledged(context, "first")
    assert claimed(context) == {"first"}
    assert claimed(context) == set()
    interactions.look_again(context, "first", Visit(in_turn=True, failures=1), 60)  # its answer is to be sent again
    assert claimed(context) == set()
    interactions.end(context, "first")
    assert claimed(context) == {"second"}


def test_others_and_what_uses_nothing_saved_wait_for_nobody(context: Context, clock: Clock) -> None:
    take(context, "set", ask=SET)
    clock.pass_minutes(0.01)
    take(context, "of-another", BERT, FORGET)
    take(context, "board", ask=Ask(verb="leaderboard"))
    take(context, "named", ask=Ask(verb="advise", words={"repo": "a/b", "hardware": "RTX 3090"}))
    take(context, "form", ask=Ask(verb="check", words={"command": "llama-server", "rig": "RTX 3090"}))
    take(context, "button", ask=Ask(verb="advise", words={"of": "x", "engine": "llama.cpp"}))
    take(context, "with-the-saved-rig")
    assert claimed(context) == {"set", "of-another", "board", "named", "form", "button"}


def test_nothing_waits_for_an_advice_that_is_being_computed_with_the_saved_rig(context: Context, clock: Clock) -> None:
    take(context, "advice")
    clock.pass_minutes(0.01)
    take(context, "forget", ask=FORGET)
    assert claimed(context) == {"advice"}
    interactions.look_again(context, "advice", Visit(subject="advice-1", looks=1), 60)
    assert claimed(context) == {"forget"}
