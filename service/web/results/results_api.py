"""`/v1/results`, `/v1/leaderboard` and `/v1/dumps`: measured results, open to everybody."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlencode

import msgspec
from anyio import to_thread
from litestar import Response, Router, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, QueryParameter

from service.flows.results import dumps, leaderboard, read_results
from service.web.documentation.operations import TextToo, answers
from service.web.http.callers import ANYBODY, SEES_MORE, anyone, for_viewer
from service.web.http.conditional import conditional
from service.web.http.formats import AsFormat, media_type_of, rendered, wanted_format, wanted_of
from service.web.http.problems import problem_responses
from service.web.http.query import asking, query_of
from service.web.http.ranged import file_answer
from service.web.http.types import HttpRequest
from service.web.results import submissions_api as submissions
from service.web.services import AppServices
from service.wire.results.board import Board, BoardQuery
from service.wire.results.board_text import board_lines, result_lines
from service.wire.results.dumps import DumpList
from service.wire.results.results import Result, ResultPage, ResultQuery
from service.wire.results.results_table import csv_head, csv_lines

PATH = "/v1/results"
_DUMP_AGE = "public, max-age=3600"  # not longer, because a removal deletes the dumps that contain the result
_PROBLEMS = ("invalid-request", "rate-limited", "database-unavailable")
ListFormat: TypeAlias = Literal["json", "jsonl", "csv"]
AsList = Annotated[
    ListFormat | None,
    QueryParameter(
        name="format",
        description="Instead of an Accept header. `jsonl`: a result a line; `csv`: a line for each measured row.",
    ),
]
_LIST_TYPES: dict[str, ListFormat] = {"application/json": "json", "application/jsonl": "jsonl", "text/csv": "csv"}


@get(
    "/v1/leaderboard",
    operation_class=asking(BoardQuery, TextToo),
    summary="The fastest of each model, rig and engine",
    responses=answers(200, Board, "A page of the board.", "not-acceptable", *_PROBLEMS),
)
async def read_leaderboard(request: HttpRequest, services: AppServices, as_format: AsFormat = None) -> Response[Any]:
    """Measured speeds at one depth, never interpolated: the best of each model, set of cards and engine.

    Filters apply before the best is chosen. `next` is the cursor of the following page.
    """
    form = wanted_format(request, as_format)
    query = query_of(request, BoardQuery)

    def make() -> bytes:
        board = leaderboard.leaderboard(services.context, query)
        return rendered(form, board, board_lines(board))

    key = ("leaderboard", msgspec.json.encode(query), form)
    answer = await services.kept.answer(key, await services.run(leaderboard.board_version), make)
    return conditional(request, answer.body, media_type_of(form), etag=answer.etag)


@get(
    PATH,
    operation_class=asking(ResultQuery),
    summary="Results, the last received first",
    responses=answers(
        200,
        ResultPage,
        "A page of results. As `application/jsonl` or `text/csv` too, by `?format=` or an Accept header.",
        "not-acceptable",
        *_PROBLEMS,
    ),
)
async def list_results(request: HttpRequest, services: AppServices, as_format: AsList = None) -> Response[Any]:
    """With the raw times of each repeat, under the data's licence; includes quarantined results, with the reason.

    A cursor stays valid when results are added. The header `Link` has the next page, also for CSV and JSONL.
    """
    form = wanted_of(request, as_format, _LIST_TYPES)
    query = query_of(request, ResultQuery)
    found = await services.run(read_results.list_results, query)
    several = [services.addressed(request, "/results", one) for one in found.results]
    if form == "json":
        body = msgspec.json.encode(ResultPage(results=several, next=found.next))
    elif form == "jsonl":
        body = msgspec.json.Encoder().encode_lines(several)
    else:
        body = "".join((csv_head(), *csv_lines(several))).encode()
    answer = conditional(request, body, next(kind for kind, name in _LIST_TYPES.items() if name == form))
    if found.next:
        kept = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
        path = f"{PATH}?{urlencode([*kept, ('cursor', found.next)])}"
        answer.headers["Link"] = f'<{services.address(request, path)}>; rel="next"'
    return answer


@get(
    PATH + "/{result_id:str}",
    operation_class=TextToo,
    summary="Read a result",
    **ANYBODY,
    responses=answers(200, Result, "The result.", "not-acceptable", "result-not-found", *_PROBLEMS, *SEES_MORE),
)
async def read_result(
    result_id: FromPath[str],
    request: HttpRequest,
    services: AppServices,
    as_format: AsFormat = None,
) -> Response[Any]:
    """Rows, speeds, predictions, hardware, command and origin.

    A private host's result is visible only to its owner, whoever asked for it, and operators.
    """
    form = wanted_format(request, as_format)
    result = await services.run(read_results.read_result, result_id, anyone(request))
    result = services.addressed(request, "/results", result)
    return for_viewer(request, rendered(form, result, result_lines(result)), media_type_of(form))


@get(
    PATH + "/{result_id:str}/log",
    summary="Read what the engine printed",
    **ANYBODY,
    responses={
        200: ResponseSpec(str, description="The log, empty where there is none.", media_type="text/plain"),
        **problem_responses("result-not-found", *_PROBLEMS, *SEES_MORE),
    },
)
async def read_result_log(result_id: FromPath[str], request: HttpRequest, services: AppServices) -> Response[Any]:
    """The engine's output as plain text, without anything that identifies a person or machine, or is a secret."""
    log = await services.run(read_results.read_log, result_id, anyone(request))
    return for_viewer(request, log.encode(), "text/plain")


@get(
    "/v1/dumps",
    summary="Files with all results",
    responses=answers(200, DumpList, "Files of the last nights.", "rate-limited"),
)
async def list_dumps(request: HttpRequest, services: AppServices) -> Response[Any]:
    """JSONL and CSV, each with its size and SHA-256, made every night; without results published elsewhere."""
    found = await to_thread.run_sync(dumps.list_dumps, dumps.folder_of(services.settings))
    several = [
        msgspec.structs.replace(one, url=services.address(request, f"/v1/dumps/{one.name}")) for one in found.dumps
    ]
    return conditional(request, msgspec.json.encode(msgspec.structs.replace(found, dumps=several)), "application/json")


@get(
    "/v1/dumps/{name:str}",
    summary="Download a dump",
    responses={
        200: ResponseSpec(bytes, description="The file, compressed.", media_type="application/gzip"),
        206: ResponseSpec(bytes, description="The range of it that was asked for.", media_type="application/gzip"),
        **problem_responses("dump-not-found", "rate-limited"),
    },
)
async def read_dump(name: FromPath[str], request: HttpRequest, services: AppServices) -> Response[Any]:
    """A file that `GET /v1/dumps` lists; the ETag comes from its SHA-256. `Range` and preconditions are supported."""
    path, digest = await to_thread.run_sync(dumps.path_of, dumps.folder_of(services.settings), name)
    return file_answer(request, path, digest, "application/gzip", _DUMP_AGE)


router = Router(
    "/",
    route_handlers=[
        read_leaderboard,
        list_results,
        read_result,
        read_result_log,
        list_dumps,
        read_dump,
        *submissions.HANDLERS,
    ],
    tags=["results"],
)
