"""`/v1/advice/{id}/validations`, `/v1/validations`: have an advice measured, and read the outcome."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import msgspec
from anyio import to_thread
from litestar import Response, Router, delete, get, post
from litestar.datastructures import ResponseHeader
from litestar.params import FromPath, JSONBody

from service.flows.accounts import Caller
from service.flows.measuring import validate, validated
from service.queue.progress import validation_channel
from service.web.documentation.operations import E_TAG, answer, answers, streamed
from service.web.http.body import IdempotencyKey, checked
from service.web.http.callers import ANYBODY, PRIVATE, PROBLEMS, SEES_MORE, anyone, caller_of, for_viewer, knows, scoped
from service.web.http.follow import STREAM_LEASE_SECONDS, event_stream, looks, sse, stream
from service.web.http.limits import Lease
from service.web.http.problems import BODY_PROBLEMS, problem_responses
from service.web.http.types import HttpRequest
from service.web.services import AppServices, Services
from service.wire.measuring.runs import FINAL, ConfigHosts, Run, Validation, ValidationEvent, ValidationRequest

PATH = "/v1/validations"


@post(
    "/v1/advice/{advice_id:str}/validations",
    summary="Have configs measured",
    **scoped("validate"),
    responses={
        200: answer(Validation, "The validation that was created with this key."),
        201: answer(Validation, "The validation; `Location` is its address."),
        **problem_responses(
            *("advice-not-found", "host-not-found", "no-host", "too-many-validations", "idempotency-key-reused"),
            *BODY_PROBLEMS,
            *PROBLEMS,
        ),
    },
    response_headers=[ResponseHeader(name="Location", description="Of the validation.", documentation_only=True)],
)
async def request_validation(
    advice_id: FromPath[str],
    data: JSONBody[ValidationRequest],
    request: HttpRequest,
    services: AppServices,
    key: IdempotencyKey = None,
) -> Response[Validation]:
    """Measures, by default, the best two configs, the other engine's best, and the command in use if one was given."""
    asked = await services.run(validate.request_validation, caller_of(request), advice_id, data, checked(key))
    validation = services.addressed(request, PATH, asked.validation)
    return services.created(validation, f"{PATH}/{validation.id}", is_new=asked.is_new)


@get(
    "/v1/advice/{advice_id:str}/hosts",
    summary="Which hosts could measure the configs",
    guards=[knows],
    responses=answers(
        200,
        list[ConfigHosts],
        "For each config: which hosts could measure it, and what the others lack.",
        "advice-not-found",
        "invalid-request",
        "not-authenticated",
        "database-unavailable",
    ),
)
async def hosts_of_advice(
    advice_id: FromPath[str], request: HttpRequest, services: AppServices
) -> Response[list[ConfigHosts]]:
    """Public hosts and, with a token, your own."""
    found = await services.run(validate.hosts_of_advice, anyone(request), advice_id)
    return Response(found, headers=PRIVATE)


@get(
    PATH + "/{validation_id:str}",
    summary="Read a validation",
    **ANYBODY,
    responses=answers(
        200, Validation, "The validation as it is now.", "validation-not-found", "database-unavailable", *SEES_MORE
    ),
    response_headers=E_TAG,
)
async def read_validation(validation_id: FromPath[str], request: HttpRequest, services: AppServices) -> Response[bytes]:
    """Its runs, with measured and predicted figures.

    If a private host may take part, only the asker, the host's owner and operators can see it.
    """
    found = await services.run(validated.read_validation, validation_id, anyone(request))
    body = msgspec.json.encode(services.addressed(request, PATH, found))
    return for_viewer(request, body, "application/json")


@get(
    PATH + "/{validation_id:str}/events",
    summary="Follow a validation live",
    **ANYBODY,
    responses=streamed(
        ValidationEvent,
        "named after the state of a run or of the whole; `data` is this object.",
        *("validation-not-found", "too-many-streams", "queue-unavailable", *SEES_MORE),
    ),
)
async def follow_validation(validation_id: FromPath[str], request: HttpRequest, services: AppServices) -> Response[Any]:
    """The current state first, then rows as they are measured; a comment line every 15 seconds."""
    found = await services.run(validated.read_validation, validation_id, anyone(request))
    if found.state in FINAL and request.headers.get("last-event-id") == found.state:
        return Response(None, status_code=204)
    lease = await services.hold(request, STREAM_LEASE_SECONDS)
    return event_stream(events(services, found.id, lease, anyone(request)))


@delete(
    PATH + "/{validation_id:str}",
    summary="Cancel a validation",
    **scoped("validate"),
    responses=problem_responses("validation-not-found", *PROBLEMS),
)
async def cancel_validation(validation_id: FromPath[str], request: HttpRequest, services: AppServices) -> None:
    """Ends its unfinished runs; a host that measures one is told at its next renewal."""
    await services.run(validated.cancel_validation, caller_of(request), validation_id)


router = Router(
    "/",
    route_handlers=[request_validation, hosts_of_advice, read_validation, follow_validation, cancel_validation],
    tags=["validations"],
)


def events(services: Services, validation_id: str, lease: Lease, caller: Caller | None = None) -> AsyncGenerator[bytes]:
    """Yield server-sent events: the current state, then each changed run with its new rows, and comments.

    A run's event is named after its state, the whole's after the validation's state; the last one is final.
    """
    look = looks(
        lambda _: to_thread.run_sync(
            validated.read_validation, services.context, validation_id, caller, limiter=services.looking
        ),
        services.listener.listen(validation_channel(validation_id)),
        lambda validation: validation.state in FINAL,
        services.drain,
    )
    return stream(look, _News().of, lease, services.drain)


class _News:
    """Tracks what a client has been told, to tell it only what is new."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._state = ""

    def of(self, validation: Validation) -> Iterator[bytes]:
        """Yield events for what changed since the last look."""
        if not self._state:
            yield self._whole(validation)
        for run in validation.runs:
            yield from self._of_run(validation, run)
        if validation.state != self._state:
            yield self._whole(validation)

    def _whole(self, validation: Validation) -> bytes:
        self._state = validation.state
        event = ValidationEvent(validation.id, None, validation.state)
        return sse(event.state, event.state, event)

    def _of_run(self, validation: Validation, run: Run) -> Iterator[bytes]:
        before = self._runs.get(run.id)
        self._runs[run.id] = run
        if before == run or (before is None and run.state == "queued"):
            return
        known = before.rows if before and run.rows[: len(before.rows)] == before.rows else []
        event = ValidationEvent(validation.id, run.id, run.state, run.progress, run.rows[len(known) :])
        yield sse(event.state, f"{run.state}-{zlib.crc32(msgspec.json.encode(event)):08x}", event)
