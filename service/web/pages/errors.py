"""Errors as pages, for anyone who asks with a browser; for programs they stay problems in JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from litestar import Request, Response

from service.web.pages.render import page
from service.wire.problem import Problem

Handler = Callable[[Request[Any, Any, Any], Any], Response[Problem]]


def for_people(handler: Handler) -> Callable[[Request[Any, Any, Any], Any], Response[Any]]:
    """Return `handler`, whose answers are pages where a browser asks for one outside of `/v1`."""

    def answer(request: Request[Any, Any, Any], error: Any) -> Response[Any]:
        response = handler(request, error)
        accepts = request.headers.get("accept", "")[:1000].lower()
        if "text/html" not in accepts or request.url.path.startswith("/v1/"):
            return response
        found = response.content
        shown = page(request, request.app.state.services, "problem.html", status=found.status, problem=found)
        shown.headers |= {name: value for name, value in response.headers.items() if name != "content-type"}
        return shown

    return answer
