"""Questions to bots: stored until they are answered, so that no restart loses one, and looked at when they are due.

The process that answers claims a question for CLAIM_SECONDS and renews the claim while it works; if it dies, another
process takes over. A person's questions about what is saved of them are claimed one by one, in the order of `take`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta

from redis import asyncio as redis_async
from redis.exceptions import RedisError

from service import logs
from service.engine.decoding import require_no_nul
from service.engine.errors import AdvisorError
from service.errors import ServiceUnavailable
from service.flows.context import Context
from service.logs import Log
from service.queue.progress import Listener
from service.store.chat import interactions
from service.wire.bots import Ask, Asker, Interaction, Reply, Visit

log = Log("bots")

CLAIM_SECONDS = 30.0
_HELD = timedelta(seconds=3)  # both platforms' deadline to acknowledge; after it, a question is due in any case
MAX_OPEN = 2_000  # unanswered questions, of all users together
_REMEMBERED = timedelta(minutes=30)  # longer than a request's signature is valid, so that a replay is recognised
_CHANNEL = "interactions"
_OF_NOBODY = frozenset({"leaderboard", "commands", "help"})  # verbs that use nothing that is saved of the asker
_OF_A_RIG, _RIG_WORDS = frozenset({"advise", "check"}), ("hardware", "rig", "of")  # these do without such a word


def take(context: Context, identity: str, asker: Asker, ask: Ask, reply: Reply) -> bool:
    """Commit a question, to be answered once it is `acknowledged`. Return False if it is a repeat.

    Raises ServiceUnavailable when too many are open, InvalidInput for a NUL character, which no database stores.
    """
    require_no_nul(ask)
    if interactions.count_open(context.engine) >= MAX_OPEN:
        raise ServiceUnavailable(f"{MAX_OPEN} questions are already waiting for an answer: ask again in a few minutes")
    now = context.clock()
    row = Interaction(
        id=identity,
        account=asker.account,
        place=asker.place,
        ask=ask,
        reply=reply,
        visit=Visit(request_id=logs.request_id(), in_turn=_uses_what_is_saved(ask)),
        created_at=now,
        due_at=now + _HELD,
    )
    if not interactions.add(context.engine, row):
        return False
    logs.note(question_id=identity)
    log.info("question.taken", platform=reply.platform)
    return True


def _uses_what_is_saved(ask: Ask) -> bool:
    """Return whether a question uses or changes its asker's account: their rig, tokens, hosts and validations."""
    if ask.verb in _OF_A_RIG:
        return not any(ask.words.get(name) for name in _RIG_WORDS)
    return ask.verb not in _OF_NOBODY


def acknowledged(context: Context, identity: str) -> None:
    """Release a question for answering: its platform has been told that it was received. Raises nothing."""
    with suppress(AdvisorError, RedisError, OSError):
        interactions.release(context.engine, identity, _HELD, context.clock())
        context.redis.publish(_CHANNEL, b"{}")


def asked(listener: redis_async.Redis) -> AbstractAsyncContextManager[AsyncIterator[str]]:
    """Listen for new questions; each message is a hint to call `claim`."""
    return Listener(listener, _CHANNEL).listen(_CHANNEL)


def read(context: Context, identity: str) -> Interaction | None:
    """Return a question, whoever asked it; None if it is unknown or forgotten."""
    return interactions.read(context.engine, identity)


def claim(context: Context, limit: int) -> list[Interaction]:
    """Claim and return due questions, for CLAIM_SECONDS."""
    now = context.clock()
    return interactions.claim(context.engine, now, now + timedelta(seconds=CLAIM_SECONDS), limit)


def renew(context: Context, ids: Sequence[str]) -> None:
    interactions.renew(context.engine, ids, context.clock() + timedelta(seconds=CLAIM_SECONDS))


def look_again(context: Context, identity: str, visit: Visit, seconds: float) -> None:
    """Save how far the answer is; the question is due again in `seconds`."""
    interactions.keep(context.engine, identity, visit, context.clock() + timedelta(seconds=seconds))


def end(context: Context, identity: str) -> None:
    """Mark a question as answered, or as never to be; its contents are deleted."""

    interactions.end(context.engine, identity)
    interactions.purge(context.engine, context.clock() - _REMEMBERED)
