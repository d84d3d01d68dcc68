"""`POST /v1/results`: what people send of their benchmarks, shown to them first if they want, and kept."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, post
from litestar.datastructures import ResponseHeader
from litestar.di import NamedDependency
from litestar.enums import RequestEncodingType
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import BodyKwarg, HeaderParameter

from service.engine.errors import InvalidInput
from service.web.body import JsonBody
from service.web.callers import PROBLEMS, SECURITY, anyone, knows
from service.web.examples import SUBMISSION
from service.web.limits import MAX_CHECK_BYTES
from service.web.operations import Documented
from service.web.problems import BODY_PROBLEMS, problem_responses
from service.web.services import Services
from service.wire.submissions import Preview, Submission, Submitted

PATH = "/v1/results"
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_READ_HEADERS = (
    *("invalid-flags", "unknown-hardware", "invalid-hardware", "unknown-variant", "rate-limited"),
    *("repo-not-found", "revision-not-found", "repo-gated", "repo-without-gguf", "repo-too-large", "not-gguf"),
    *("truncated-header", "invalid-header", "unsupported-model", "hub-unauthorised", "hub-reply-refused"),
    *("hub-unavailable", "hub-rate-limited", "service-unavailable"),
)
Sent = Annotated[Submission, BodyKwarg(media_type=RequestEncodingType.JSON, examples=[SUBMISSION])]
Key = Annotated[
    str | None, HeaderParameter(name="Idempotency-Key", description="Makes it safe to send the same request again.")
]


@post(
    PATH + "/preview",
    dto=JsonBody[Submission],
    return_dto=None,
    request_max_body_size=MAX_CHECK_BYTES,
    status_code=200,
    operation_id="preview_submission",
    operation_class=Documented,
    summary="See what is understood of a benchmark",
    guards=[knows],
    responses={
        200: ResponseSpec(Preview, description="What was understood, and what is missing.", generate_examples=False),
        **problem_responses(*BODY_PROBLEMS, *_READ_HEADERS, *PROBLEMS),
    },
)
async def preview_submission(
    data: Sent, request: Request[Any, Any, Any], services: NamedDependency[Services]
) -> Response[Preview]:
    """Model, flags, machine and rows as they would be kept, beside what would have been expected. Nothing is kept."""
    flow = services.flows.preview_submission
    shown = await services.run_reading(flow, anyone(request), data, services.admission(request))
    return Response(shown, headers={"Cache-Control": "no-store"})


@post(
    PATH,
    dto=JsonBody[Submission],
    return_dto=None,
    request_max_body_size=MAX_CHECK_BYTES,
    operation_id="submit_result",
    operation_class=Documented,
    summary="Send a benchmark that you ran",
    security=[{}, *SECURITY],
    guards=[knows],
    responses={
        200: ResponseSpec(Submitted, description="These rows are known: their result.", generate_examples=False),
        201: ResponseSpec(Submitted, description="The result; `Location` has it.", generate_examples=False),
        **problem_responses("idempotency-key-reused", *BODY_PROBLEMS, *_READ_HEADERS, *PROBLEMS),
    },
    response_headers=[ResponseHeader(name="Location", description="Of the result.", documentation_only=True)],
)
async def submit_result(
    data: Sent, request: Request[Any, Any, Any], services: NamedDependency[Services], key: Key = None
) -> Response[Submitted]:
    """No account is needed: without one the answer has an `edit_key`, given once. With a token, scope `submit`."""
    if key is not None and not _KEY.fullmatch(key):
        raise InvalidInput("the key has 1 to 200 printable characters", field="Idempotency-Key")
    admit = services.admission(request)
    kept = await services.run_reading(services.flows.submit, anyone(request), data, key, admit)
    shown = msgspec.structs.replace(kept, url=services.address(request, f"/results/{kept.id}"))
    headers = {"Location": (services.settings.public_url or "").rstrip("/") + f"{PATH}/{kept.id}"}
    return Response(shown, status_code=201 if kept.is_new else 200, headers=headers | {"Cache-Control": "no-store"})


HANDLERS = [preview_submission, submit_result]  # of the router of results, which shares their paths
