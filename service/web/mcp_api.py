"""`/mcp`: the Model Context Protocol over HTTP, one JSON answer per message, with the API's limits and payers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec
from anyio import to_thread
from litestar import Response, Router, post

from service.engine.errors import AdvisorError
from service.engine.hardware_text import parse_hardware
from service.errors import NotAllowed
from service.flows.advice import advise, check, repos
from service.flows.results import leaderboard
from service.web.advice.advice_api import MAX_WAIT_SECONDS
from service.web.http.callers import anyone, identify
from service.web.http.follow import wait_until_final
from service.web.http.types import HttpRequest
from service.web.services import AppServices, Services
from service.wire import mcp, mcp_tools
from service.wire.advice.advice import FINAL, Advice
from service.wire.advice.check_text import check_lines
from service.wire.advice.hardware import render_hardware
from service.wire.advice.repo_text import render_repo
from service.wire.advice.text import render_text
from service.wire.plain_text import as_text
from service.wire.results.board_text import board_lines


@post("/mcp", status_code=200, include_in_schema=False)
async def mcp_message(request: HttpRequest, services: AppServices) -> Response[Any]:
    """Answer one message. Raises NotAllowed if a page of another site sends it."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != services.authority(request):
        raise NotAllowed("a page of another site may not speak to this service", field="Origin")
    headers = {name.lower(): value for name, value in request.headers.items()}
    asked = mcp.received(await request.body(), mcp_tools.TOOLS, headers)
    reply = asked if isinstance(asked, mcp.Reply) else await _run(asked, request, services)
    body = b"" if reply.body is None else msgspec.json.encode(reply.body)
    return Response(body, status_code=reply.status, media_type="application/json")


async def _run(call: mcp.Call, request: HttpRequest, services: Services) -> mcp.Reply:
    """Count and run a call. Every refusal is a result: a status of 429 ends sessions of the Python SDK before 2.0."""
    try:
        await services.count_request(request)
        await identify(request)
        return mcp.result_of(call, await _RUN[call.tool.name](call.arguments, request, services))
    except AdvisorError as error:
        return mcp.failure_of(call, error)


async def _advise(asked: mcp_tools.Advise, request: HttpRequest, services: Services) -> str:
    wanted, caller = asked.request(), anyone(request)
    ready = await services.run(advise.ready_advice, wanted)
    if ready is not None:
        advice = await services.run(advise.read_advice, ready.id, caller)
        return _told(advice, request, services)
    async with await services.hold(request, MAX_WAIT_SECONDS + 5):
        admit, payer = services.admission(request), services.payer(request, caller)
        advice = (await services.run(advise.request_advice, wanted, admit, payer)).advice
        if advice.state not in FINAL:
            await wait_until_final(services, advice.id, MAX_WAIT_SECONDS)
            advice = await services.run(advise.read_advice, advice.id, caller)
    return _told(advice, request, services)


def _told(advice: Advice, request: HttpRequest, services: Services) -> str:
    """Return the answer with its address. Raises AdvisorError for a failed advice."""
    if advice.problem:
        said = advice.problem
        raise AdvisorError(said.detail, field=said.field, choices=tuple(said.choices or ()))
    advice = services.addressed(request, "/v1/advice", advice)
    again = "" if advice.state in FINAL else "\nIt is being computed: call this tool again with the same arguments."
    return render_text(advice) + again


async def _check(asked: mcp_tools.Check, request: HttpRequest, services: Services) -> str:
    admit = services.admission(request)
    checked = await services.run_reading(check.check_command, asked.request(), admit)
    return as_text(check_lines(checked))


async def _inspect(asked: mcp_tools.Inspect, request: HttpRequest, services: Services) -> str:
    admit = services.admission(request)
    view = await services.run_reading(repos.inspect, asked.repo, asked.revision, asked.variant, admit)
    return render_repo(view)


async def _leaderboard(asked: mcp_tools.Leaderboard, request: HttpRequest, services: Services) -> str:
    board = await services.run(leaderboard.leaderboard, asked.request())
    return as_text(board_lines(board))


async def _hardware(asked: mcp_tools.HardwareArguments, request: HttpRequest, services: Services) -> str:
    return await to_thread.run_sync(lambda: render_hardware(parse_hardware(asked.text)))


_RUN: Mapping[str, Callable[[Any, HttpRequest, Services], Awaitable[str]]] = {
    "advise": _advise,
    "check": _check,
    "inspect": _inspect,
    "leaderboard": _leaderboard,
    "hardware": _hardware,
}

router = Router("/", route_handlers=[mcp_message])
