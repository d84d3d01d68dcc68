"""Answers the accepted questions: looks at each when it is due, and delivers what there is to say on its platform.

The whole state of a question is in its database row, so a dispatcher that dies loses nothing: its questions are due
again half a minute later, here or in another process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import httpx
import msgspec

from service import logs, metrics
from service.bots import sending
from service.bots.answer import Answer, BotContext, Outcome
from service.bots.discord import deliver as discord_deliver
from service.bots.sending import Sent
from service.bots.slack import deliver as slack_deliver
from service.bots.verbs import answer
from service.bots.vocabulary import verb_named
from service.errors import ServiceUnavailable
from service.flows.chat import interactions
from service.flows.context import Context
from service.logs import Log
from service.wire.bots import Interaction, Reply

log = Log("bots")

KEPT = timedelta(days=7)  # how long a validation may wait for a host
MAX_FAILURES = 12
_UNAVAILABLE_SECONDS = 5.0
_HOLDS, _HELD_SECONDS = 3, 10.0
_PATIENCE = 20  # looks after which the intervals grow
_SLOWEST_SECONDS = 30.0


class Dispatcher:
    """Looks at questions. `admit(account)` is called before a new repo is read and may raise RateLimited."""

    def __init__(self, context: Context, client: httpx.Client, admit: Callable[[str], None]) -> None:
        self._context = context
        files = context.settings.discord_files
        self._bot = BotContext(context, admit, lambda address: sending.read_file(client, address, files))
        self._ways: dict[str, discord_deliver.Delivery | slack_deliver.Delivery] = {
            "discord": discord_deliver.Delivery(client, context.settings),
            "slack": slack_deliver.Delivery(client, context.settings),
        }

    def look(self, asked: Interaction) -> None:
        """Look at a claimed question: answer it, show its progress, or postpone it. Raises nothing."""
        if asked.reply is not None:
            with logs.bound(request_id=asked.visit.request_id, question_id=asked.id):
                self._look(asked, asked.reply)

    def _look(self, asked: Interaction, reply: Reply) -> None:
        if _is_once(asked):
            sent = self._ways[reply.platform].reaches(reply, self._age(asked))
            if sent.kind != "sent":  # do not make what nobody would see
                self._settle(asked, reply, sent, Answer(title=""))
                return
        try:
            outcome = answer(self._bot, asked)
        except ServiceUnavailable as error:
            self._again_or_give_up(asked, reply, _UNAVAILABLE_SECONDS, error.detail)
            return
        except Exception as error:
            log.error("question.failed", error)
            outcome = Outcome(answer=Answer(title="An unexpected error. It has been logged.", private=True))
        self._bring(asked, reply, outcome)

    def _bring(self, asked: Interaction, reply: Reply, outcome: Outcome) -> None:
        way, age = self._ways[reply.platform], self._age(asked)
        if outcome.again is None:
            self._settle(asked, reply, self._given(asked, reply, outcome.answer), outcome.answer)
            return
        looks = asked.visit.looks + 1
        visit = msgspec.structs.replace(asked.visit, subject=outcome.subject, looks=looks, in_turn=False)
        seconds = max(outcome.again, min(outcome.again * looks / _PATIENCE, _SLOWEST_SECONDS))
        interim = way.interim(reply, outcome, age)
        if interim is not None and interim[1] != visit.shown:
            sent = way.show(asked, reply, interim[0], age)
            if sent.kind == "later":
                seconds = max(seconds, sent.seconds)
            else:
                visit = msgspec.structs.replace(visit, shown=interim[1], uses=visit.uses + 1)
        if way.goes_on(asked, age) and age < KEPT.total_seconds():
            interactions.look_again(self._context, asked.id, visit, seconds)
        else:
            self._lose(asked, reply, "expired", "")

    def _given(self, asked: Interaction, reply: Reply, answer: Answer) -> Sent:
        """Deliver an answer. One that cannot be made again is retried right here until the platform takes it."""
        for _ in range(_HOLDS if answer.once else 0):
            sent = self._ways[reply.platform].final(asked, reply, answer, self._age(asked))
            if sent.kind != "later":
                return sent
            time.sleep(min(sent.seconds, _HELD_SECONDS))
        return self._ways[reply.platform].final(asked, reply, answer, self._age(asked))

    def _settle(self, asked: Interaction, reply: Reply, sent: Sent, answer: Answer) -> None:
        if sent.kind == "later":
            self._again_or_give_up(asked, reply, sent.seconds, None)
            return
        if sent.kind == "refused" and answer.parts:
            least = Answer(title=answer.title[:100], link=answer.link, private=answer.private)
            self._settle(asked, reply, self._ways[reply.platform].final(asked, reply, least, self._age(asked)), least)
            return
        if sent.kind == "sent":
            metrics.BOT_SECONDS.only.observe(self._age(asked))
            took = round(self._age(asked) * 1000)
            log.info("question.answered", platform=reply.platform, outcome=sent.kind, duration_ms=took)
            interactions.end(self._context, asked.id)
        else:
            self._lose(asked, reply, sent.why or "refused", sent.code)

    def _again_or_give_up(self, asked: Interaction, reply: Reply, seconds: float, why: str | None) -> None:
        visit = msgspec.structs.replace(asked.visit, failures=asked.visit.failures + 1)
        if visit.failures < MAX_FAILURES:
            interactions.look_again(self._context, asked.id, visit, seconds)
            return
        if why is not None:
            said = Answer(title=f"No answer: {why}. Ask again later.", private=True)
            self._ways[reply.platform].final(asked, reply, said, self._age(asked))
        log.error("question.abandoned", platform=reply.platform, attempt=visit.failures)
        self._lose(asked, reply, "abandoned", "")

    def _lose(self, asked: Interaction, reply: Reply, why: str, code: str) -> None:
        """Give up a question whose answer reached nobody."""
        metrics.BOT_ANSWERS_LOST.of(reply.platform, why).inc()
        log.warning("question.lost", platform=reply.platform, detail=why, code=code)
        interactions.end(self._context, asked.id)

    def _age(self, asked: Interaction) -> float:
        return (self._context.clock() - asked.created_at).total_seconds()


def _is_once(asked: Interaction) -> bool:
    verb = verb_named(asked.ask.verb) if asked.ask else None
    return verb is not None and verb.once
