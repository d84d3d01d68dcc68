"""Turns every error, expected or not, into a problem of the same form."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Response
from litestar.exceptions import HTTPException, InternalServerException, ValidationException
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example

from service import metrics
from service.engine.decoding import ENUM_VALUE, in_words, values_of, wrong_choice
from service.engine.errors import AdvisorError
from service.logs import Log
from service.web.http.body import parameters_of
from service.web.http.formats import asked_format, media_type_of, rendered
from service.web.http.limits import MAX_BODY_BYTES
from service.web.http.types import HttpRequest
from service.wire.problem import MEDIA_TYPE, PROBLEM_TYPES, Problem, problem, problem_of

log = Log("web")

BODY_PROBLEMS = ("malformed-json", "body-too-large", "unsupported-media-type", "invalid-request")
HUB_PROBLEMS = (
    *("repo-not-found", "revision-not-found", "repo-gated", "repo-without-gguf", "repo-too-large", "unknown-variant"),
    *("not-gguf", "truncated-header", "invalid-header", "unsupported-model", "hub-unauthorised"),
    *("hub-reply-refused", "hub-unavailable", "hub-rate-limited"),
)  # of reading a repo's headers
RUN_PROBLEMS = (
    *("invalid-flags", "unknown-hardware", "invalid-hardware", "unknown-variant", "rate-limited"),
    *(*HUB_PROBLEMS, "service-unavailable"),
)  # of checking a user's command on their hardware
_RETRY_SECONDS = 5  # when nothing better is known: long enough for a part of the service to restart
_SHOWN = 200  # characters of a path in an answer
_SLUGS = {
    400: "bad-request",
    404: "not-found",
    405: "method-not-allowed",
    406: "not-acceptable",
    412: "precondition-failed",
    413: "body-too-large",
    415: "unsupported-media-type",
    416: "range-not-satisfiable",
    422: "invalid-request",
    429: "rate-limited",
    503: "service-unavailable",
}


def problem_response(body: Problem, headers: dict[str, str] | None = None) -> Response[Problem]:
    """Return `body` as a response, with `Retry-After` if the problem may pass."""
    metrics.PROBLEMS.of(body.type.rpartition("#")[2]).inc()
    found = dict(headers or {})
    retry_after = body.retry_after or (_RETRY_SECONDS if body.status == HTTPStatus.SERVICE_UNAVAILABLE else None)
    if retry_after:
        body = msgspec.structs.replace(body, retry_after=retry_after)
        found["Retry-After"] = str(retry_after)
    if body.status == HTTPStatus.UNAUTHORIZED:
        found["WWW-Authenticate"] = "Bearer"
    return Response(body, status_code=body.status, media_type=MEDIA_TYPE, headers=found)


def as_asked(request: HttpRequest, response: Response[Problem]) -> Response[Any]:
    """Return a problem as JSON, or as sentences if the request asks for plain text or Markdown."""
    form, body = asked_format(request), response.content
    if form == "json":
        return response
    unsaid = body.choices or []
    lines = [
        f"{body.title}: {body.detail}",
        *([f"in: {body.field}"] if body.field else []),
        *([f"did you mean: {', '.join(unsaid)}"] if any(choice not in body.detail for choice in unsaid) else []),
        *([f"try again in {body.retry_after} s"] if body.retry_after else []),
        f"{body.status}, what to do: {request.app.state.services.address(request, body.type)}",
    ]
    headers = {**response.headers, "Vary": "Accept"}
    return Response(
        rendered(form, body, lines), status_code=body.status, media_type=media_type_of(form), headers=headers
    )


def on_validation(request: HttpRequest, error: ValidationException) -> Response[Problem]:
    """Answer an invalid path or query parameter with its name."""
    first = next((item for item in error.extra or [] if isinstance(item, dict)), {})
    message = str(first.get("message", "a parameter of the request is wrong"))
    key = str(first.get("key", ""))
    field = parameters_of(request.route_handler).get(key, key)
    declared = request.route_handler.parsed_fn_signature.parameters.get(key)
    choices: tuple[str, ...] = ()
    if message.startswith(ENUM_VALUE):
        message, choices = wrong_choice(message, values_of(declared.annotation) if declared else ())
    return problem_response(
        problem("invalid-request", in_words(message), field=field or None, choices=list(choices) or None)
    )


def on_http(request: HttpRequest, error: HTTPException) -> Response[Problem]:
    """Answer the framework's own refusals: unknown paths and methods, large bodies."""
    slug = _SLUGS.get(error.status_code, "internal")
    if isinstance(error, InternalServerException) and "disconnected" in error.detail:  # and nobody reads this
        slug, error = "bad-request", HTTPException(detail="the body was incomplete")
    methods = [name for name in (error.headers or {}).get("allow", "").split(", ") if name not in ("", "OPTIONS")]
    taken = f": it takes {', '.join(methods)}" if methods else ""
    most = request.route_handler.resolve_request_max_body_size() if slug == "body-too-large" else None
    details = {
        "not-found": f"there is no {request.url.path[:_SHOWN]} here: /docs/api lists all paths",
        "method-not-allowed": f"{request.url.path[:_SHOWN]} does not accept {request.method}{taken}",
        "body-too-large": f"the body is over {(most or MAX_BODY_BYTES) >> 10:,} KiB",
    }
    return problem_response(problem(slug, details.get(slug, error.detail)), headers=dict(error.headers or {}))


def on_crash(request: HttpRequest, error: Exception) -> Response[Problem]:
    """Answer and log an unexpected error; the answer reveals nothing internal."""
    log.error("request.failed", error, path=request.scope.get("path_template"))
    return problem_response(problem("internal", "an unexpected error; it has been logged"))


HANDLERS: dict[type[Exception] | int, Any] = {
    AdvisorError: lambda request, error: problem_response(problem_of(error)),
    ValidationException: on_validation,
    HTTPException: on_http,
    Exception: on_crash,
}


def problem_responses(*slugs: str) -> dict[int, ResponseSpec]:
    """Return the OpenAPI responses for these problems, with examples, plus those that every path may answer."""
    by_status: dict[int, list[str]] = {}
    for slug in (*slugs, "address-too-long", "rate-limited", "internal"):
        by_status.setdefault(PROBLEM_TYPES[slug].status, []).append(slug)
    return {status: _specification(found) for status, found in sorted(by_status.items())}


def _specification(slugs: Iterable[str]) -> ResponseSpec:
    kinds = [(slug, PROBLEM_TYPES[slug]) for slug in dict.fromkeys(slugs)]
    return ResponseSpec(
        Problem,
        description="; ".join(kind.title for _, kind in kinds),
        media_type=MEDIA_TYPE,
        generate_examples=False,
        examples=[Example(slug, value=msgspec.to_builtins(problem(slug, kind.meaning))) for slug, kind in kinds],
    )
