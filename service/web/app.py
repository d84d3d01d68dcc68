"""`create_app` wires the application together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from litestar import Litestar, Response, Router
from litestar.di import Provide
from litestar.handlers import BaseRouteHandler

from service import logs
from service.errors import InvalidSetting
from service.flows.context import Context, open_context
from service.queue.connection import connect_async
from service.queue.progress import PATTERNS, Listener
from service.settings import Settings
from service.structs import learn_structs
from service.web import mcp_api
from service.web.advice import advice_page, ask_page, check_page
from service.web.api_routes import API, PARTS
from service.web.chat import bot_routers
from service.web.documentation import documents
from service.web.http.body import JsonBody, require_json, require_understood
from service.web.http.limits import MAX_BODY_BYTES, RateLimits
from service.web.http.middleware import (
    access_log,
    bounded,
    compressed,
    head_as_get,
    methods_of,
    security_headers,
    with_allow,
)
from service.web.http.problems import HANDLERS, as_asked
from service.web.http.types import Connection, HttpRequest
from service.web.operations import moderation_page, operator_pages
from service.web.pages import page
from service.web.results import board_page, people_page, results_page
from service.web.services import Services
from service.wire.problem import Problem

_COUNT_SECONDS = 5.0
_REDIS_SECONDS = 2  # after which a rate limit goes uncounted, as if Redis were gone


def create_app(settings: Settings, context: Context | None = None) -> Litestar:
    """Return the ASGI app. Without `context`, it opens one and closes it at the end. Raises InvalidSetting."""
    if settings.redis_url is None:
        raise InvalidSetting("REDIS_URL is not set, and `advisor serve` has not started a server", field="REDIS_URL")
    logs.configure("api", settings.log_level)
    resources = AsyncExitStack()
    redis = connect_async(settings.redis_url, _REDIS_SECONDS)
    resources.push_async_callback(redis.aclose)
    followed = connect_async(settings.redis_url)
    resources.push_async_callback(followed.aclose)
    context = context or resources.enter_context(open_context(settings))
    limits = RateLimits(redis, settings.streams_per_client)
    services = Services(settings, context, Listener(followed, *PATTERNS), limits)
    app = Litestar(
        route_handlers=[_JSON, *PARTS, PAGES, *bot_routers(settings)],
        dependencies={"services": Provide(lambda: services, sync_to_thread=False)},
        exception_handlers={kind: for_people(handler) for kind, handler in HANDLERS.items()},
        lifespan=[resources, lambda _: _counting(services)],
        openapi_config=None,
        request_max_body_size=MAX_BODY_BYTES,
        logging_config=None,
    )
    learn_structs()
    app.state.services = services  # for guards, which get no dependencies
    # Wrapped around everything, because Litestar does not run middleware for unknown paths and methods.
    is_https = (settings.public_url or "").startswith("https://")
    answered = compressed(with_allow(app.asgi_handler, methods_of(app)), services.kept)
    inner = bounded(head_as_get(answered))
    app.asgi_handler = access_log(security_headers(inner, is_https=is_https))
    return app


async def _count(connection: Connection, _: BaseRouteHandler) -> None:
    """Rate-limit before handlers' own guards, which look up tokens: guessing those must not be free."""
    await connection.app.state.services.count_request(connection)


async def _well_formed(request: HttpRequest) -> None:
    await require_understood(request)
    await require_json(request)


@asynccontextmanager
async def _counting(services: Services) -> AsyncIterator[None]:
    """Send this process's counters every few seconds and at the end."""
    task = asyncio.create_task(_send_counts(services))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await services.counted.answer()


async def _send_counts(services: Services) -> None:
    while True:
        await asyncio.sleep(_COUNT_SECONDS)
        await services.counted.answer()


Handler = Callable[[HttpRequest, Any], Response[Problem]]


def for_people(handler: Handler) -> Callable[[HttpRequest, Any], Response[Any]]:
    """Return `handler` with its problems as pages for browsers outside of `/v1`, else in the format asked for."""

    def answer(request: HttpRequest, error: Any) -> Response[Any]:
        response = handler(request, error)
        accepts = request.headers.get("accept", "")[:1000].lower()
        if "text/html" not in accepts or request.url.path.startswith("/v1/"):
            return as_asked(request, response)
        found = response.content
        shown = page(request, "problem.html", status=found.status, problem=found)
        shown.headers |= {name: value for name, value in response.headers.items() if name != "content-type"}
        return shown

    return answer


# Pages that read the database are rate-limited like the API; documents and static files are not.
_COUNTED = (
    ask_page, advice_page, check_page, board_page, results_page, people_page, operator_pages, moderation_page,
)  # fmt: skip
_counted_api = Router("/", route_handlers=API, guards=[_count])
_JSON = Router(
    "/", route_handlers=[_counted_api, mcp_api.router], before_request=_well_formed, dto=JsonBody, return_dto=None
)
_counted_pages = Router("/", route_handlers=[pages.router for pages in _COUNTED], guards=[_count])
PAGES = Router("/", route_handlers=[_counted_pages, documents.router])
