"""Pages for people, readable without scripts, with nothing from outside: a module a group of pages."""

from __future__ import annotations

from typing import Any

from litestar import Router
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from service.web.pages import accuracy, advice, amend, ask, board, documents, people, results, submit


async def _counted(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    await connection.app.state.services.count_request(connection)


# What reads the database counts as the API's requests do; documents and files of the site are free.
_ASKING = (ask, advice, board, results, amend, accuracy, people, submit)
_asking = Router("/", route_handlers=[pages.router for pages in _ASKING], guards=[_counted])
router = Router("/", route_handlers=[_asking, documents.router])
