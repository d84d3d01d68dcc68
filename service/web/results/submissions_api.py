"""`POST /v1/results`: submissions of benchmarks, with an optional preview, and their corrections."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Response, delete, get, patch, post
from litestar.datastructures import ResponseHeader
from litestar.params import BodyKwarg, FromPath, HeaderParameter

from service.flows.results import corrections, submissions
from service.web.documentation.examples import CORRECTION, SUBMISSION
from service.web.documentation.operations import answer, answers
from service.web.http.body import IdempotencyKey, checked, json_body
from service.web.http.callers import ANYBODY, PROBLEMS, SEES_MORE, anyone, for_viewer, knows
from service.web.http.limits import MAX_CHECK_BYTES
from service.web.http.problems import BODY_PROBLEMS, RUN_PROBLEMS, problem_responses
from service.web.http.types import HttpRequest
from service.web.services import AppServices
from service.wire.results.results import Result
from service.wire.results.submissions import Correction, Preview, ResultChange, Submission, Submitted

PATH = "/v1/results"
Sent = Annotated[Submission, BodyKwarg(examples=[SUBMISSION])]
EditKey = Annotated[
    str | None,
    HeaderParameter(name="X-Edit-Key", description="The `edit_key` that was given when it was sent without a token."),
]


@post(
    PATH + "/preview",
    **json_body(Submission),
    request_max_body_size=MAX_CHECK_BYTES,
    status_code=200,
    summary="See what is understood of a benchmark",
    guards=[knows],
    responses=answers(
        200, Preview, "What was understood, and what is missing.", *BODY_PROBLEMS, *RUN_PROBLEMS, *PROBLEMS
    ),
)
async def preview_submission(data: Sent, request: HttpRequest, services: AppServices) -> Preview:
    """Model, flags, machine and rows as they would be stored, with the expected figures. Nothing is stored."""
    return await services.run_reading(submissions.preview, anyone(request), data, services.admission(request))


@post(
    PATH,
    **json_body(Submission),
    request_max_body_size=MAX_CHECK_BYTES,
    summary="Send a benchmark that you ran",
    **ANYBODY,
    responses={
        200: answer(Submitted, "These rows are known: their result."),
        201: answer(Submitted, "The result; `Location` has it."),
        **problem_responses("idempotency-key-reused", *BODY_PROBLEMS, *RUN_PROBLEMS, *PROBLEMS),
    },
    response_headers=[ResponseHeader(name="Location", description="Of the result.", documentation_only=True)],
)
async def submit_result(
    data: Sent, request: HttpRequest, services: AppServices, key: IdempotencyKey = None
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
    headers = {"Location": services.location(f"{PATH}/{kept.id}")}
    return Response(shown, status_code=201 if kept.is_new else 200, headers=headers)


@patch(
    PATH + "/{result_id:str}",
    **json_body(Correction),
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
    data: Annotated[Correction, BodyKwarg(examples=[CORRECTION])],
    request: HttpRequest,
    services: AppServices,
    edit_key: EditKey = None,
) -> Result:
    """Remarks, hardware and build, never rows. The result is predicted and judged again; its history has the old
    values.
    """
    admit = services.admission(request)
    result = await services.run_reading(corrections.correct, anyone(request), edit_key, result_id, data, admit)
    return services.addressed(request, "/results", result)


@delete(
    PATH + "/{result_id:str}",
    summary="Take a result of yours back",
    **ANYBODY,
    responses=problem_responses("result-not-found", "wrong-key", *PROBLEMS),
)
async def delete_result(
    result_id: FromPath[str],
    request: HttpRequest,
    services: AppServices,
    edit_key: EditKey = None,
) -> None:
    """Erases log, command, remarks and history; the result is shown nowhere and counts for nothing."""
    await services.run(corrections.delete, anyone(request), edit_key, result_id)


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
    changes = await services.run(corrections.history, result_id, anyone(request))
    return for_viewer(request, msgspec.json.encode(changes), "application/json")


_SENT = [preview_submission, submit_result]
HANDLERS = [
    *_SENT,
    correct_result,
    delete_result,
    read_result_history,
]  # of the router of results, which shares their paths
