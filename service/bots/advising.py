"""The verbs `advise` and `validate`, and the button that shows an advice's commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from service.bots.answer import Answer, BotContext, Button, Code, Outcome, Question
from service.bots.words import advice_id, converted, engine_named, tokens
from service.engine.advice import AdvisedConfig, Shell
from service.engine.config import ENGINES
from service.engine.errors import InvalidInput
from service.engine.goal import EngineChoice, GoalRequest
from service.engine.reduction import reduced
from service.flows.advice import advise as flow
from service.flows.advice.fair_queue import place_payer
from service.flows.advice.requests import as_goal
from service.flows.chat import chat_accounts
from service.flows.measuring import validate, validated
from service.wire.advice.advice import Advice, AdviceRequest
from service.wire.advice.card import (
    LANGUAGES,
    at_once_words,
    card_of,
    fact_words,
    folded,
    server_for,
    shell_of,
    step_lines,
    step_words,
)
from service.wire.advice.config_text import picked_as
from service.wire.advice.text import device_table, render_text, speed_lines
from service.wire.bots import Ask
from service.wire.measuring.runs import FINAL, Validation, ValidationRequest
from service.wire.measuring.validation_text import headline, validation_lines
from service.wire.plain_text import as_text

LOOK_SECONDS = 1.0  # between looks at an advice that is being computed
_MEASURING_SECONDS = 5.0  # between looks at a validation, which takes minutes
_SHOWN_CONFIGS, _SHOWN_REFUSALS = 4, 3
_MOST_CONTEXT = 1 << 24


def advise(bot: BotContext, asked: Question) -> Outcome:
    """Return the advice, or its progress. Raises InvalidInput or a subclass, RateLimited, ServiceUnavailable."""
    if asked.subject:
        advice = flow.read_advice(bot.context, asked.subject, chat_accounts.known_in_chat(bot.context, asked.account))
    else:
        request = _request(bot, asked)
        advice = flow.request_advice(
            bot.context, request, lambda: bot.admit(asked.account), place_payer(asked.place)
        ).advice
    if advice.state == "failed" and advice.problem:
        choices = f" Did you mean: {', '.join(advice.problem.choices[:8])}" if advice.problem.choices else ""
        return Outcome(
            answer=Answer(title=advice.problem.title, parts=(advice.problem.detail + choices,), private=True)
        )
    if advice.state != "ready":
        step = advice.progress or "waiting for a worker"
        return Outcome(answer=Answer(title=f"{advice.repo}: {step} …"), again=LOOK_SECONDS, subject=advice.id)
    return Outcome(answer=advice_answer(bot, advice))


def _request(bot: BotContext, asked: Question) -> AdviceRequest:
    words = asked.words
    if "of" in words:
        return _changed(flow.asked_for(bot.context, words["of"]), words)
    if "repo" not in words:
        raise InvalidInput("name a repo: OWNER/NAME, OWNER/NAME:VARIANT or its address", field="repo")
    plain: dict[str, Any] = {"repo": words["repo"], "hardware": rig_in(bot, asked)}
    base = converted(plain, AdviceRequest)
    return _changed(base, words)


def rig_in(bot: BotContext, asked: Question) -> str:
    """Return the hardware the asker typed, else the rig they saved. Raises InvalidInput if there is neither."""
    stated = asked.words.get("hardware") or asked.words.get("rig")
    found = stated or chat_accounts.remembered_rig(bot.context, asked.account)
    if not found:
        raise InvalidInput(
            "name the hardware, such as 2x5090 + 4090, 128GB DDR5-5600, or save your rig once with `hardware set`",
            field="hardware",
        )
    return reduced(found)


def _changed(base: AdviceRequest, words: dict[str, str]) -> AdviceRequest:
    goal, constraints = as_goal(base.goal), base.constraints
    if "goal" in words:
        goal = converted({"preset": words["goal"].lower()}, GoalRequest, "goal")
    if "context" in words:
        goal = msgspec.structs.replace(goal, context=tokens(words["context"]))
    if "engine" in words:
        choice = converted({"name": engine_named(words["engine"])}, EngineChoice, "engine")
        constraints = msgspec.structs.replace(constraints, engines=[choice])
    return msgspec.structs.replace(base, goal=goal, constraints=constraints)


def advice_answer(bot: BotContext, advice: Advice) -> Answer:
    """Return a finished advice: the first config ready to paste with its memory and speed, the others in a line
    each."""
    link, off = bot.address(f"/advice/{advice.id}"), bot.context.settings.bot_verbs_off
    parts: list[str | Code] = []
    card = card_of(advice)
    if card is not None:
        parts.append(f"Why this one: {card.why}.")
        shell = shell_of(advice.hardware)
        for number, step in enumerate(card.steps, 1):
            parts.append(step_words(number, step))
            if lines := step_lines(step, shell):
                parts.append(Code("\n".join(lines), LANGUAGES[shell]))
        parts.append(Code("\n".join([*device_table(card.devices), *speed_lines(card)])))
    rest = list(_rest(advice))
    if rest:
        parts.append(Code("\n".join(rest)))
    return Answer(
        title=advice.headline or advice.repo,
        parts=tuple(parts),
        buttons=tuple(one for one in _buttons(advice) if one.ask and one.ask.verb not in off),
        link=link,
        full=render_text(msgspec.structs.replace(advice, url=link), "full"),
    )


def _rest(advice: Advice) -> Iterator[str]:
    for first in advice.configs[:1]:
        yield from (f"! {note}" for note in first.notes)
    for config in advice.configs[1:_SHOWN_CONFIGS]:
        yield _one_line(config)
    if len(advice.configs) > _SHOWN_CONFIGS:
        yield f"and {len(advice.configs) - _SHOWN_CONFIGS} more configs"
    for refused in advice.refused[:_SHOWN_REFUSALS]:
        change = f"; to fix it: {refused.smallest_change}" if refused.smallest_change else ""
        yield f"refused: {refused.variant} with {refused.engine}: {refused.reason}{change}"
    if len(advice.refused) > _SHOWN_REFUSALS:
        yield f"and {len(advice.refused) - _SHOWN_REFUSALS} more refused"
    card = card_of(advice)
    if card is not None:
        yield from map(fact_words, card.facts)
        if card.more_assumed:
            yield f"and {card.more_assumed} more assumption{'s' * (card.more_assumed > 1)}"


def _one_line(config: AdvisedConfig) -> str:
    at = config.speed[-1]
    measured = f", measured {config.measured[-1].tg_tps:,.1f}" if config.measured else ""
    together = f"{said}; one alone " if (said := at_once_words(config)) else ""
    return (
        f"#{config.rank}{picked_as(config)} {config.variant}, {config.engine}, {config.bpw:.2f} bpw: {together}"
        f"TG {at.tg_tps:,.1f} ({at.tg_low:,.1f} to {at.tg_high:,.1f}), PP {at.pp_tps:,.0f}{measured}"
    )


def _buttons(advice: Advice) -> Iterator[Button]:
    if not advice.configs or advice.goal is None:
        return
    of, first = {"of": advice.id}, advice.configs[0]
    other = next(engine for engine in ENGINES if engine != first.engine)
    yield Button("Show commands", Ask(verb="commands", words=of))
    yield Button(f"With {other}", Ask(verb="advise", words={**of, "engine": other}))
    more = 2 * advice.goal.context
    if more <= _MOST_CONTEXT:
        yield Button(f"Context {more // 1024}k", Ask(verb="advise", words={**of, "context": str(more)}))
    yield Button("Measure this", Ask(verb="validate", words={"advice": advice.id}))


def commands(bot: BotContext, asked: Question) -> Outcome:
    """Return the commands of an advice's first config: download, server, benchmark. Raises AdviceNotFound."""
    advice = flow.read_advice(bot.context, asked.words.get("of", ""))
    if not advice.configs:
        raise InvalidInput("the advice has no config: nothing fits", field="of")
    first = advice.configs[0]
    shell = shell_of(advice.hardware)
    commands: list[tuple[str, str, Shell]] = [
        ("Download", first.commands.download, shell),
        ("Server", server_for(shell, first.commands), shell),
        ("Benchmark", first.commands.bench, "posix"),
    ]
    given = [(title, "\n".join(folded(line, by)), by) for title, line, by in commands if line]
    parts = [part for title, text, by in given for part in (title, Code(text, LANGUAGES[by]))]
    link = bot.address(f"/advice/{advice.id}")
    full = "\n\n".join(f"# {title}\n{text}" for title, text, _ in given)
    title = f"#1 {first.variant} with {first.engine}"
    return Outcome(answer=Answer(title=title, parts=tuple(parts), link=link, full=full, private=True))


def measure(bot: BotContext, asked: Question) -> Outcome:
    """Return the state of a validation; the first look requests it.

    Raises InvalidInput, AdviceNotFound, NoHost, TooManyValidations, NotAllowed.
    """
    if asked.subject:
        caller = chat_accounts.known_in_chat(bot.context, asked.account)
        found = validated.read_validation(bot.context, asked.subject, caller)
    else:
        caller = chat_accounts.caller_in_chat(bot.context, asked.account)
        advice_id, request = _to_measure(bot, asked)
        found = validate.request_validation(bot.context, caller, advice_id, request, asked.id).validation
    answer = validation_answer(bot, found)
    if found.state in FINAL:
        return Outcome(answer=answer)
    return Outcome(answer=answer, again=_MEASURING_SECONDS, subject=found.id)


def _to_measure(bot: BotContext, asked: Question) -> tuple[str, ValidationRequest]:
    words = asked.words
    identity = advice_id(words.get("advice", ""))
    if not identity:
        raise InvalidInput("name the advice by its address or its id of 22 characters", field="advice")
    plain: dict[str, Any] = {"mode": words.get("mode", "validate"), "minutes": _number(words.get("minutes", "10"))}
    if "config" in words:
        advice, rank = flow.read_advice(bot.context, identity), _number(words["config"])
        chosen = [config.id for config in advice.configs if config.rank == rank]
        if not chosen:
            raise InvalidInput(f"the advice has {len(advice.configs)} configs and no #{rank}", field="config")
        plain["configs"] = chosen
    return identity, converted(plain, ValidationRequest)


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text.strip().lstrip("#")):
        raise InvalidInput(f"{text[:40]!r} is not a whole number", field="config")
    return int(text.strip().lstrip("#"))


def validation_answer(bot: BotContext, found: Validation) -> Answer:
    """Return what a validation has measured so far, next to what was predicted."""
    body = as_text(validation_lines(found)).partition("\n\n")[2].rstrip()
    return Answer(
        title=headline(found),
        parts=(Code(body),) if body else (),
        link=bot.address(f"/advice/{found.advice}"),
        full=as_text(validation_lines(found, "full")),
    )
