"""One set of verbs for all platforms: a question becomes an Answer. An error is an answer too."""

from __future__ import annotations

from collections.abc import Callable

from service.bots.advising import advise, commands, measure
from service.bots.answer import Answer, BotContext, Button, Code, Outcome, Question
from service.bots.checking import check
from service.bots.results import board, keep, result
from service.bots.vocabulary import OF_BUTTONS, example, shown, verb_named
from service.engine.errors import AdvisorError, InvalidInput
from service.errors import RateLimited, ServiceUnavailable
from service.flows.chat import chat_accounts
from service.wire.bots import Ask, Interaction

_DID_YOU_MEAN = 8


def answer(bot: BotContext, asked: Interaction) -> Outcome:
    """Return what to say to a question now. Raises only ServiceUnavailable, which means: look again later."""
    ask = asked.ask or Ask(verb="help")
    question = Question(
        words={},
        account=asked.account,
        platform=asked.reply.platform if asked.reply else "",
        id=asked.id,
        place=asked.place,
        subject=asked.visit.subject,
        asked_at=asked.created_at,
    ).asking(ask)
    try:
        return _said(bot, ask, question)
    except ServiceUnavailable:
        raise
    except AdvisorError as error:
        return Outcome(answer=refusal(error, ask.verb, question.platform))


def _said(bot: BotContext, ask: Ask, question: Question) -> Outcome:
    off = bot.context.settings.bot_verbs_off
    known = [verb.name for verb in shown(off)]
    verb = _VERBS.get(ask.verb)
    if verb is None or (OF_BUTTONS.get(ask.verb, ask.verb) not in known):
        turned_off = " is turned off here" if ask.verb in off else " is not a command here"
        raise InvalidInput(f"{ask.verb[:40]}{turned_off}", field="verb", choices=tuple(known))
    return verb(bot, question)


def refusal(error: AdvisorError, verb: str, platform: str) -> Answer:
    """Return an error as an answer: what is wrong, what was perhaps meant, and an example to type instead."""
    parts: list[str | Code] = []
    if error.choices and any(choice not in error.detail for choice in error.choices):
        parts.append(f"Did you mean: {', '.join(error.choices[:_DID_YOU_MEAN])}")
    known = verb_named(verb)
    if known and known.line and isinstance(error, InvalidInput):
        parts += ["For example:", Code(example(known, platform))]
    if isinstance(error, RateLimited):
        parts.append(f"Try again in {error.retry_after} seconds.")
    return Answer(title=_sentence(error.detail), parts=tuple(parts), private=True)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"


def _hardware(bot: BotContext, asked: Question) -> Outcome:
    action, account = asked.words.get("action", "show"), asked.account
    if action == "set":
        understood = chat_accounts.remember_rig(bot.context, account, asked.words.get("rig", ""))
        title = "Saved, for you only. From now on you can leave the hardware out."
        return _private(title, "It was read as:", Code(understood))
    if action == "forget":
        had = chat_accounts.forget(bot.context, account, asked.asked_at)
        gone = ["your rig"] if had.rig else []
        gone += [f"{had.tokens} API token{'s' if had.tokens > 1 else ''}"] if had.tokens else []
        title = f"Forgotten: {' and '.join(gone)}." if gone else "There was nothing to forget."
        rest = "Results you sent stay, without your name; what your private hosts measured is deleted too."
        return _private(
            title, f"{'Your account here is' if gone else 'If you had an account here, it is'} deleted. {rest}"
        )
    if action != "show":
        raise InvalidInput(
            f"{action[:40]!r}: use set, show or forget", field="action", choices=("set", "show", "forget")
        )
    rig = chat_accounts.remembered_rig(bot.context, account)
    if rig:
        return _private("Your rig:", Code(rig))
    known = verb_named("hardware")
    how = ("To save one:", Code(example(known, asked.platform))) if known else ()
    return _private("No rig is saved for you.", *how)


def _token(bot: BotContext, asked: Question) -> Outcome:
    made = chat_accounts.give_token(bot.context, asked.account, instead=asked.words.get("instead") == "yes")
    if made is None:
        again = Button("Revoke it and give me a new one", Ask(verb="token", words={"instead": "yes"}))
        return _private("You already have a token. It was shown once, and cannot be shown again.", buttons=(again,))
    usage = (
        "It sends results, asks for validations and adds hosts under your account: put it into ADVISOR_TOKEN, or send "
        f"it as `Authorization: Bearer …` to {bot.address('')}. `hardware forget` revokes it."
    )
    title = "Your API token. It is shown only once: keep it to yourself."
    return Outcome(answer=Answer(title=title, parts=(Code(made.token), usage), private=True, once=True))


def _help(bot: BotContext, asked: Question) -> Outcome:
    lines: list[str | Code] = []
    for verb in shown(bot.context.settings.bot_verbs_off):
        lines += [f"{verb.help}:", Code(example(verb, asked.platform))]
    return _private("Where to put a GGUF model on your hardware: ranked, explained, ready to paste.", *lines)


def _private(title: str, *parts: str | Code, buttons: tuple[Button, ...] = ()) -> Outcome:
    return Outcome(answer=Answer(title=title, parts=parts, buttons=buttons, private=True))


_VERBS: dict[str, Callable[[BotContext, Question], Outcome]] = {
    "advise": advise,
    "check": check,
    "validate": measure,
    "commands": commands,
    "leaderboard": board,
    "result": result,
    "keep": keep,
    "hardware": _hardware,
    "token": _token,
    "help": _help,
}
