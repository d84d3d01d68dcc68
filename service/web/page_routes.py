"""The routes of the pages for people, a module a group of pages."""

from __future__ import annotations

from typing import Any

from litestar import Router
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from service.web.advice import advice_page, ask_page, check_page
from service.web.documentation import documents
from service.web.measuring import add_host_page
from service.web.operations import moderation_page, operator_pages
from service.web.results import accuracy_page, amend_page, board_page, people_page, results_page, submit_page


async def _counted(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    await connection.app.state.services.count_request(connection)


# Pages that read the database count as the API's requests do; documents and files of the site are free.
_COUNTED = (
    ask_page, advice_page, check_page, add_host_page, board_page, results_page, amend_page, accuracy_page, people_page,
    submit_page, operator_pages, moderation_page,
)  # fmt: skip
_counted_pages = Router("/", route_handlers=[pages.router for pages in _COUNTED], guards=[_counted])
PAGES = Router("/", route_handlers=[_counted_pages, documents.router])
