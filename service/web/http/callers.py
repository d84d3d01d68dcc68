"""Identifies callers by bearer token before the handler runs; each handler names the scope it needs."""

from __future__ import annotations

from typing import Any

from litestar import Response
from litestar.handlers import BaseRouteHandler
from litestar.types import Guard

from service.errors import NotAuthenticated
from service.flows.accounts import Caller, Scope
from service.web.http.conditional import conditional
from service.web.http.types import Connection, HttpRequest

SECURITY: list[dict[str, list[str]]] = [{"Token": []}]  # of an operation, in OpenAPI
PROBLEMS = ("not-authenticated", "not-allowed", "database-unavailable")  # of operations that take a token
SEES_MORE = ("not-authenticated",)  # of operations behind `knows`
PRIVATE = {"Cache-Control": "private, no-store", "Vary": "Authorization"}  # headers of caller-specific answers
_STATE = "caller"


def requires(scope: Scope) -> Guard:
    """Return a guard that passes requests whose token has `scope`, after which `caller_of` returns the caller.

    It raises NotAuthenticated (401) or NotAllowed (403).
    """

    async def guard(connection: Connection, _: BaseRouteHandler) -> None:
        caller = await identify(connection)
        if caller is None:
            raise NotAuthenticated(f"this needs a token with the scope {scope}")
        caller.require(scope)

    return guard


async def knows(connection: Connection, _: BaseRouteHandler) -> None:
    """Guard for what needs no token but shows more with one; an invalid token is refused."""
    await identify(connection)


async def operators_and_near(connection: Connection, _: BaseRouteHandler) -> None:
    """Guard for what operators may see, and anybody in a network that the operator named."""
    services = connection.app.state.services
    if services.is_near(connection):
        return
    await services.count_request(connection)
    caller = await identify(connection)
    if caller is None:
        raise NotAuthenticated("this needs a token with the scope operator, or ADVISOR_METRICS_NETWORKS")
    caller.require("operator")


ANYBODY: dict[str, Any] = {"guards": [knows], "security": [{}, *SECURITY]}  # of a decorator, and of its document


def scoped(scope: Scope) -> dict[str, Any]:
    """Return the decorator's arguments for a handler that needs a token with `scope`."""
    return {"guards": [requires(scope)], "security": SECURITY}


def caller_of(request: HttpRequest) -> Caller:
    """Return the caller, behind `requires`."""
    caller: Caller = request.scope["state"][_STATE]
    return caller


def anyone(request: HttpRequest) -> Caller | None:
    """Return the caller, behind `knows`; None without a token."""
    caller: Caller | None = request.scope["state"][_STATE]
    return caller


def known(request: HttpRequest) -> Caller:
    """Return the caller, behind `knows`. Raises NotAuthenticated without a token."""
    caller = anyone(request)
    if caller is None:
        raise NotAuthenticated("this needs a token: `Authorization: Bearer …`")
    return caller


def for_viewer(request: HttpRequest, body: bytes, media_type: str) -> Response[bytes]:
    """Return `body` as an answer behind `knows`, never to be cached if there was a token."""
    if anyone(request) is None:
        return conditional(request, body, media_type, vary="Accept, Authorization")
    return conditional(request, body, media_type, cache_control=PRIVATE["Cache-Control"], vary=PRIVATE["Vary"])


async def identify(connection: Connection) -> Caller | None:
    """Return the caller, of whom `anyone` then knows. Raises NotAuthenticated or RateLimited."""
    header = connection.headers.get("authorization")
    caller = None
    if header is not None:
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer":
            raise NotAuthenticated("the header Authorization must be `Bearer` and a token")
        caller = await connection.app.state.services.identified(token.strip())
    connection.scope["state"][_STATE] = caller
    return caller
