"""Answers in each platform's form: within its limits however large, and with nothing in them that calls or misleads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from service.bots.advising import advice_answer, validation_answer
from service.bots.answer import Answer, BotContext, Button, Code, asked_by_button, button_id
from service.bots.discord import render as discord
from service.bots.slack import render as slack
from service.bots.verbs import refusal
from service.engine.advice import AtOnce, Refusal
from service.engine.errors import InvalidInput, UnknownHardware
from service.engine.hardware import Assumption
from service.errors import RateLimited
from service.flows.advice.advise import read_advice
from service.store.tables import advice as advice_table
from service.wire.advice.advice import Advice
from service.wire.bots import Ask
from service.wire.measuring.runs import HostMatch, Validation
from service.wire.plain_text import clean
from tests.bots.conftest import Chat
from tests.bots.platforms import Platforms

HOSTILE = (
    "@everyone <@1> <!channel> <@U1> ```\n``` \x1b[31m *b* _i_ ~~s~~ `c` [l](http://e) \u202el \\*x\\* &lt;!here&gt;"
)
REPO, RIG = "Qwen/Qwen3-0.6B-GGUF", "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"


@pytest.fixture
def advice(chat: Chat) -> Advice:
    chat.ask_discord("advise", {"repo": REPO, "hardware": RIG})
    with chat.context.engine.connect() as connection:
        found = connection.execute(advice_table.select().where(advice_table.c.state == "ready")).first()
    assert found is not None
    return read_advice(chat.context, found.id)


@pytest.fixture
def bot(chat: Chat) -> BotContext:
    return BotContext(chat.context, lambda account: None, lambda address: "")


def larger(advice: Advice, length: int) -> Advice:
    """Return an advice with everything in it as long and hostile as headers and repos can make it."""
    first = advice.configs[0]
    long = (HOSTILE * (length // len(HOSTILE) + 1))[:length]
    command = f"llama-server -m a.gguf {' '.join(f'-ot blk.{i}.ffn_.*=CUDA{i % 8}' for i in range(length // 20))}"
    config = msgspec.structs.replace(
        first,
        variant=long[:200],
        commands=msgspec.structs.replace(first.commands, server=command, bench=command, download=long),
        devices=[msgspec.structs.replace(first.devices[0], gpu=long[:120])] * 33,
    )
    return msgspec.structs.replace(
        advice,
        headline=long,
        configs=[config] * 8,
        refused=[Refusal(variant=long, engine="llama.cpp", reason=long, smallest_change=long)] * 100,
        assumed=[Assumption(long[:100], long[:200], long, long)] * 30,
    )


def answers(bot: BotContext, advice: Advice) -> Iterator[Answer]:
    """Yield what every verb could answer, of small to huge."""
    for length in (10, 5_000):
        yield advice_answer(bot, larger(advice, length))
        text = (HOSTILE * (length // len(HOSTILE) + 1))[:length]
        yield refusal(InvalidInput(text, choices=(text,) * 30), "advise", "discord")
        yield refusal(UnknownHardware(text), text, "slack")
        yield refusal(RateLimited(text, retry_after=9), "advise", "slack")
        host = HostMatch(host="a", pseudonym=text[:60], match=None, missing=[text] * 5)
        yield validation_answer(bot, Validation(id="v", advice="a" * 22, mode="validate", state="queued", runs=[],
                                                 hosts=[host] * 20, refused=[text] * 8, created_at=""))  # fmt: skip
        parts = (text, Code(text), Code("x" * length, "bash"), *(text,) * 60)
        buttons = tuple(Button(f"{text}{i}", Ask(verb="commands", words={"n": str(i)})) for i in range(9))
        yield Answer(title=text, parts=parts, link=f"https://a/{'l' * length}", full=text, attach=True, buttons=buttons)


def test_every_answer_of_every_size_is_within_the_limits_and_calls_nobody(bot: BotContext, advice: Advice) -> None:
    platforms = Platforms(lambda: 0.0)
    for answer in answers(bot, advice):
        message = discord.render(answer)
        platforms._check_discord(message.body)
        platforms._check_slack({"response_type": "ephemeral", **slack.render(answer)})
        assert len((message.file or "").encode()) < 8 << 20
        shown = message.body["embeds"][0]
        for text in (shown["title"], shown.get("description", "")):
            assert "\x1b" not in text
            assert "\u202e" not in text
            assert text.count("```") % 2 == 0
    assert platforms.breaches == []


def blocks_of(text: str) -> list[str]:
    return re.findall(r"```(?:bash)?\n(.*?)\n```", text, re.DOTALL)


def test_a_command_is_shown_whole_or_left_out_and_is_then_in_the_file(bot: BotContext, advice: Advice) -> None:
    for length in (2_000, 6_000):
        answer = advice_answer(bot, larger(advice, length))
        message, whole = discord.render(answer), {part.text for part in answer.parts if isinstance(part, Code)}
        cleaned = {clean(text).replace("```", "'''") for text in whole}
        description = message.body["embeds"][0]["description"]
        assert set(blocks_of(description)) <= cleaned
        if len(blocks_of(description)) < len(whole):
            assert message.file
            assert "blk.0.ffn_.*=CUDA0" in message.file
            assert "in the file" in description


def test_markup_in_names_is_shown_as_it_is_written() -> None:
    shown = discord.escaped(r"\*x\* **b** @everyone <@1> `c` # head")
    assert shown == r"\\\*x\\\* \*\*b\*\* @" + "\u2060everyone" + r" \<@" + "\u2060" + r"1\> 'c' \# head"
    assert slack.escaped("<!channel> & @here `x`") == "&lt;!channel&gt; &amp; @\u2060here 'x'"


def test_code_on_slack_is_what_it_was_once_it_is_copied() -> None:
    assert slack.escaped_code("a && b < c @x `y`") == "a &amp;&amp; b &lt; c @x `y`"


def test_a_button_asks_what_its_name_says() -> None:
    ask = Ask(verb="advise", words={"of": "MZ0Vb1p2QvK3x9dT4sLwGg", "engine": "llama.cpp"})
    back = asked_by_button(button_id(ask))
    assert (back.verb, back.words, back.private) == (ask.verb, ask.words, True)


@pytest.mark.parametrize("words", [{"a": "x" * 100}, {"a": "b&c=d"}])
def test_a_button_that_could_not_be_read_back_is_not_made(words: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not the name of a button"):
        button_id(Ask(verb="advise", words=words))


@pytest.mark.parametrize(
    "name", ["", "?", "advise?of", "advise?of=../../x", "hardware?action=forget", "x" * 300, "a?b=c&b=d&&"]
)
def test_whatever_a_button_is_called_it_is_a_question(name: str) -> None:
    assert isinstance(asked_by_button(name), Ask)


def test_each_config_has_the_speed_of_all_requests_at_once(advice: Advice, bot: BotContext) -> None:
    together = AtOnce(requests=8, n_kv=0, tps=768.4, low=512.0, high=1152.0, each=96.05)
    configs = [msgspec.structs.replace(one, at_once=together) for one in advice.configs]
    answer = advice_answer(bot, msgspec.structs.replace(advice, configs=configs))
    code = "\n".join(part.text for part in answer.parts if isinstance(part, Code))
    lines = [line for line in code.splitlines() if line.startswith("#")]
    assert lines
    assert all(" bpw: 8 at once 768 t/s (512 to 1,152), 96.0 each; one alone TG " in line for line in lines)


def test_what_is_to_be_known_of_the_first_config_is_said(advice: Advice, bot: BotContext) -> None:
    first = msgspec.structs.replace(advice.configs[0], notes=["on 3 rigs the cache of a card is larger"])
    answer = advice_answer(bot, msgspec.structs.replace(advice, configs=[first, *advice.configs[1:]]))
    code = "\n".join(part.text for part in answer.parts if isinstance(part, Code))
    assert "! on 3 rigs the cache of a card is larger\n" in code
