"""Steps common to both platforms' endpoints: check the signature, who may ask and how often, and store the question.

Nothing here waits for an answer: a question is a row, which `workers.bots` answers.
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

_REMEMBERED_SECONDS = 1_200  # twice the validity of a signed request, for clocks that are off either way
_TYPED_FOR_ONE = 12  # completions per question that a person may ask


async def require_signature(request: HttpRequest, services: Services, good: bool, signature: str) -> None:
    """Pass a signed request, once. Raises NotAuthenticated, or RateLimited for too many attempts."""
    if not good:
        await services.count_request(request)
        raise NotAuthenticated("the signature is missing, wrong or too old")
    seen = hashlib.sha256(signature.lower().encode()).hexdigest()
    if not await services.limits.first_time(f"bots:seen:{seen}", _REMEMBERED_SECONDS):
        raise NotAuthenticated("this request came before")


def require_media_type(request: HttpRequest, media_type: str) -> None:
    """Refuse a body declared as another type (400)."""
    if declared_type(request) != media_type:
        raise HTTPException(status_code=400, detail=f"the body must be {media_type}")


async def admit(services: Services, asker: Asker) -> None:
    """Rate-limit a person and a place. Raises NotAllowed by the operator's lists, RateLimited."""
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
    """Rate-limit completions. Raises NotAllowed by the operator's lists, RateLimited."""
    _require_listed(services, asker)
    most = services.settings.bot_person_per_minute * _TYPED_FOR_ONE
    await services.limits.take(Bucket("bot-typed", most, 60, "completions"), asker.account, needs_redis=False)


async def store_question(services: Services, question: IncomingQuestion) -> BackgroundTask:
    """Commit a question; return the task that releases it, to run once it is acknowledged.

    Raises NotAuthenticated for a replay, RateLimited, NotAllowed, ServiceUnavailable.
    """
    await admit(services, question.asker)
    if not await services.run(interactions.take, *question):
        raise NotAuthenticated("this question came before")
    return BackgroundTask(to_thread.run_sync, interactions.acknowledged, services.context, question.id)
