"""What both platforms' endpoints have in common: a signature first, then who may ask, how often, and the question kept.

Nothing here waits for an answer: a question is a row, and is answered by `workers.bots`.
"""

from __future__ import annotations

import hashlib

from anyio import to_thread
from litestar.background_tasks import BackgroundTask
from litestar.exceptions import HTTPException

from service.bots.incoming import IncomingQuestion
from service.errors import NotAllowed, NotAuthenticated
from service.flows.chat import interactions
from service.web.http.body import declared_type
from service.web.http.limits import Bucket
from service.web.http.types import HttpRequest
from service.web.services import Services
from service.wire.bots import Asker

_REMEMBERED_SECONDS = 1_200  # twice as long as a signed request is good for, either way of the clock
_TYPED_FOR_ONE = 12  # completions that a person may see for each question he may ask


async def require_signature(request: HttpRequest, services: Services, good: bool, signature: str) -> None:
    """Let pass what its platform signed, once. Raises NotAuthenticated, RateLimited for who tries too often."""
    if not good:
        await services.count_request(request)
        raise NotAuthenticated("the signature is missing, wrong or too old")
    seen = hashlib.sha256(signature.lower().encode()).hexdigest()
    if not await services.limits.first_time(f"bots:seen:{seen}", _REMEMBERED_SECONDS):
        raise NotAuthenticated("this request came before")


def require_media_type(request: HttpRequest, media_type: str) -> None:
    """Refuse a body that is declared as something else (400)."""
    if declared_type(request) != media_type:
        raise HTTPException(status_code=400, detail=f"the body must be {media_type}")


async def admit(services: Services, asker: Asker) -> None:
    """Count a question of a person and of where he is. Raises NotAllowed by the operator's lists, RateLimited."""
    settings = services.settings
    _require_listed(services, asker)
    person = Bucket("bot-person", settings.bot_person_per_minute, 60, "questions to the bot")
    place = Bucket("bot-place", settings.bot_place_per_minute, 60, "questions to the bot from one place")
    await services.limits.take(person, asker.account, needs_redis=False)
    await services.limits.take(place, asker.place, needs_redis=False)


def _require_listed(services: Services, asker: Asker) -> None:
    settings, named = services.settings, {asker.account, asker.place}
    if named & set(settings.bot_deny) or (settings.bot_allow and not named & set(settings.bot_allow)):
        raise NotAllowed("the bot does not answer here")


async def admit_completion(services: Services, asker: Asker) -> None:
    """Count what is typed. Raises NotAllowed by the operator's lists, RateLimited."""
    _require_listed(services, asker)
    most = services.settings.bot_person_per_minute * _TYPED_FOR_ONE
    await services.limits.take(Bucket("bot-typed", most, 60, "completions"), asker.account, needs_redis=False)


async def store_question(services: Services, question: IncomingQuestion) -> BackgroundTask:
    """Commit a question; return what is to run when the acknowledgement is out: nothing is answered before that.

    Raises NotAuthenticated if it came before, RateLimited, NotAllowed, ServiceUnavailable.
    """
    await admit(services, question.asker)
    if not await services.run(interactions.take, *question):
        raise NotAuthenticated("this question came before")
    return BackgroundTask(to_thread.run_sync, interactions.acknowledged, services.context, question.id)
