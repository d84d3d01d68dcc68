"""Who calls: the account behind a bearer token, before the handler runs; a handler names the scope it needs."""

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
PROBLEMS = ("not-authenticated", "not-allowed", "database-unavailable")  # of an operation that takes a token
SEES_MORE = ("not-authenticated",)  # problems of an operation behind `knows`
PRIVATE = {"Cache-Control": "private, no-store", "Vary": "Authorization"}  # headers of what only its caller may see
_STATE = "caller"


def requires(scope: Scope) -> Guard:
    """Return a guard that lets a request pass whose token has `scope`; `caller_of` then says whose it is.

    It raises NotAuthenticated (401) or NotAllowed (403).
    """

    async def guard(connection: Connection, _: BaseRouteHandler) -> None:
        caller = await _identified(connection)
        if caller is None:
            raise NotAuthenticated(f"this needs a token with the scope {scope}")
        caller.require(scope)

    return guard


async def knows(connection: Connection, _: BaseRouteHandler) -> None:
    """Guard of what needs no token, but shows more to anyone who sends one. A token that is not good is refused."""
    await _identified(connection)


async def operators_and_near(connection: Connection, _: BaseRouteHandler) -> None:
    """Guard of what operators may see, and anyone who asks from a network that they name."""
    services = connection.app.state.services
    if services.is_near(connection):
        return
    await services.count_request(connection)
    caller = await _identified(connection)
    if caller is None:
        raise NotAuthenticated("this needs a token with the scope operator, or ADVISOR_METRICS_NETWORKS")
    caller.require("operator")


ANYBODY: dict[str, Any] = {"guards": [knows], "security": [{}, *SECURITY]}  # of a decorator, and of its document


def scoped(scope: Scope) -> dict[str, Any]:
    """Return what the decorator of a handler takes that needs a token with `scope`."""
    return {"guards": [requires(scope)], "security": SECURITY}


def caller_of(request: HttpRequest) -> Caller:
    """Return who calls, behind `requires`."""
    caller: Caller = request.scope["state"][_STATE]
    return caller


def anyone(request: HttpRequest) -> Caller | None:
    """Return who calls, behind `knows`; None for somebody without a token."""
    caller: Caller | None = request.scope["state"][_STATE]
    return caller


def known(request: HttpRequest) -> Caller:
    """Return who calls, behind `knows`. Raises NotAuthenticated for somebody without a token."""
    caller = anyone(request)
    if caller is None:
        raise NotAuthenticated("this needs a token: `Authorization: Bearer …`")
    return caller


def for_viewer(request: HttpRequest, body: bytes, media_type: str) -> Response[bytes]:
    """Return `body` behind `knows`: what somebody with a token sees is kept nowhere."""
    if anyone(request) is None:
        return conditional(request, body, media_type, vary="Accept, Authorization")
    return conditional(request, body, media_type, cache_control=PRIVATE["Cache-Control"], vary=PRIVATE["Vary"])


async def _identified(connection: Connection) -> Caller | None:
    header = connection.headers.get("authorization")
    caller = None
    if header is not None:
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer":
            raise NotAuthenticated("the header Authorization must be `Bearer` and a token")
        caller = await connection.app.state.services.identified(token.strip())
    connection.scope["state"][_STATE] = caller
    return caller
