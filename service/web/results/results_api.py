"""`/v1/results`, `/v1/leaderboard`, `/v1/dumps` and `/v1/accuracy`: measured results, sent and read by anybody."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlencode

import msgspec
from anyio import to_thread
from litestar import Response, Router, delete, get, patch, post
from litestar.datastructures import ResponseHeader
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter

from service.flows.results import dumps, leaderboard, read_results, submissions
from service.web.documentation.operations import answer, answers
from service.web.http.body import IdempotencyKey, checked, query_of
from service.web.http.callers import ANYBODY, PROBLEMS, SEES_MORE, anyone, for_viewer, knows
from service.web.http.conditional import conditional, file_answer
from service.web.http.formats import AsFormat, media_type_of, rendered, wanted_format, wanted_of
from service.web.http.limits import MAX_CHECK_BYTES
from service.web.http.problems import BODY_PROBLEMS, RUN_PROBLEMS, problem_responses
from service.web.http.types import HttpRequest
from service.web.services import AppServices
from service.wire.results.accuracy import Accuracy
from service.wire.results.board import Board, BoardQuery
from service.wire.results.board_text import board_lines, result_lines
from service.wire.results.dumps import DumpList
from service.wire.results.results import Result, ResultPage, ResultQuery
from service.wire.results.results_table import csv_head, csv_lines
from service.wire.results.submissions import Correction, Preview, ResultChange, Submission, Submitted

PATH = "/v1/results"
_DUMP_AGE = "public, max-age=3600"  # not longer, because a removal deletes the dumps that contain the result
_PROBLEMS = ("invalid-request", "rate-limited", "database-unavailable")
ListFormat: TypeAlias = Literal["json", "jsonl", "csv"]
AsList = Annotated[
    ListFormat | None,
    QueryParameter(
        name="format",
        description="Instead of an Accept header. `jsonl`: one result per line; `csv`: one line per measured row.",
    ),
]
_LIST_TYPES: dict[str, ListFormat] = {"application/json": "json", "application/jsonl": "jsonl", "text/csv": "csv"}


@get(
    "/v1/leaderboard",
    opt={"query": BoardQuery},
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
    opt={"query": ResultQuery},
    summary="Results, most recently received first",
    responses=answers(
        200,
        ResultPage,
        "A page of results. Also as `application/jsonl` or `text/csv`, by `Accept` or `?format=`.",
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
    summary="Read a result",
    **ANYBODY,
    responses=answers(200, Result, "The result.", "not-acceptable", "result-not-found", *_PROBLEMS, *SEES_MORE),
)
async def read_result(
    result_id: FromPath[str], request: HttpRequest, services: AppServices, as_format: AsFormat = None
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
        200: ResponseSpec(str, description="The log, empty if there is none.", media_type="text/plain"),
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
        **problem_responses("dump-not-found", "precondition-failed", "range-not-satisfiable", "rate-limited"),
    },
)
async def read_dump(name: FromPath[str], request: HttpRequest, services: AppServices) -> Response[Any]:
    """A file that `GET /v1/dumps` lists; the ETag comes from its SHA-256. `Range` and preconditions are supported."""
    path, digest = await to_thread.run_sync(dumps.path_of, dumps.folder_of(services.settings), name)
    return file_answer(request, path, digest, "application/gzip", _DUMP_AGE)


EditKey = Annotated[
    str | None,
    HeaderParameter(name="X-Edit-Key", description="The `edit_key` that was given when it was sent without a token."),
]


@post(
    PATH + "/preview",
    request_max_body_size=MAX_CHECK_BYTES,
    status_code=200,
    summary="See how a benchmark is read",
    guards=[knows],
    responses=answers(
        200, Preview, "What was understood, and what is missing.", *BODY_PROBLEMS, *RUN_PROBLEMS, *PROBLEMS
    ),
)
async def preview_submission(data: JSONBody[Submission], request: HttpRequest, services: AppServices) -> Preview:
    """Model, flags, machine and rows as they would be stored, with the expected figures. Nothing is stored."""
    return await services.run_reading(submissions.preview, anyone(request), data, services.admission(request))


@post(
    PATH,
    request_max_body_size=MAX_CHECK_BYTES,
    summary="Send a benchmark that you ran",
    **ANYBODY,
    responses={
        200: answer(Submitted, "These rows are known already; this is their result."),
        201: answer(Submitted, "The result; `Location` is its address."),
        **problem_responses("idempotency-key-reused", *BODY_PROBLEMS, *RUN_PROBLEMS, *PROBLEMS),
    },
    response_headers=[ResponseHeader(name="Location", description="Of the result.", documentation_only=True)],
)
async def submit_result(
    data: JSONBody[Submission], request: HttpRequest, services: AppServices, key: IdempotencyKey = None
) -> Response[Submitted]:
    """No account is needed: without one the answer has an `edit_key`, which is shown once, and again if the same
    request is repeated with the same `Idempotency-Key` of at least 22 characters. With a token, it needs the scope
    `submit`."""
    key = checked(key)
    caller, admit = anyone(request), services.admission(request)
    await services.count_submission(request, caller)
    # Senders without a token share no account, so only the address tells one sender's idempotency keys from another's.
    own_key = f"{services.client(request)} {key}" if key and caller is None else key
    kept = await services.run_reading(submissions.submit, caller, data, own_key, admit)
    shown = services.addressed(request, "/results", kept)
    return services.created(shown, f"{PATH}/{kept.id}", is_new=kept.is_new)


@patch(
    PATH + "/{result_id:str}",
    summary="Correct a result of yours",
    **ANYBODY,
    responses=answers(
        200,
        Result,
        "The result as it is now.",
        "result-not-found",
        "wrong-key",
        *BODY_PROBLEMS,
        *RUN_PROBLEMS,
        *PROBLEMS,
    ),
)
async def correct_result(
    result_id: FromPath[str],
    data: JSONBody[Correction],
    request: HttpRequest,
    services: AppServices,
    edit_key: EditKey = None,
) -> Result:
    """Remarks, hardware and build, never rows. The result is predicted and judged again; its history has the old
    values.
    """
    admit = services.admission(request)
    result = await services.run_reading(submissions.correct, anyone(request), edit_key, result_id, data, admit)
    return services.addressed(request, "/results", result)


@delete(
    PATH + "/{result_id:str}",
    summary="Withdraw a result of yours",
    **ANYBODY,
    responses=problem_responses("result-not-found", "wrong-key", *PROBLEMS),
)
async def delete_result(
    result_id: FromPath[str], request: HttpRequest, services: AppServices, edit_key: EditKey = None
) -> None:
    """Erases log, command, remarks and history; the result is shown nowhere and counts for nothing."""
    await services.run(submissions.delete, anyone(request), edit_key, result_id)


@get(
    PATH + "/{result_id:str}/history",
    summary="Read what its submitter changed",
    **ANYBODY,
    responses=answers(
        200, list[ResultChange], "The oldest first.", "result-not-found", "database-unavailable", *SEES_MORE
    ),
)
async def read_result_history(result_id: FromPath[str], request: HttpRequest, services: AppServices) -> Response[bytes]:
    """The changes since the result was sent, with the previous values."""
    changes = await services.run(submissions.history, result_id, anyone(request))
    return for_viewer(request, msgspec.json.encode(changes), "application/json")


@get(
    "/v1/accuracy",
    summary="How good predictions are",
    responses=answers(200, Accuracy, "Errors by class and month, and the worst.", "database-unavailable"),
)
async def read_accuracy(request: HttpRequest, services: AppServices) -> Response[bytes]:
    """Errors of predictions made before the results: the newest 2,000 results, updated every ten minutes."""
    found = await services.run(services.accuracy.read)
    return conditional(request, msgspec.json.encode(found), "application/json", cache_control="public, max-age=600")


router = Router(
    "/",
    route_handlers=[
        *(read_leaderboard, list_results, read_result, read_result_log, list_dumps, read_dump, read_accuracy),
        *(preview_submission, submit_result, correct_result, delete_result, read_result_history),
    ],
    tags=["results"],
)
