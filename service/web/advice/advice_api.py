"""`/v1/advice`: ask, read, follow, delete."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from anyio import to_thread
from litestar import Response, Router, delete, get, post
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter

from service.engine.config import FileFormat
from service.engine.errors import InvalidInput
from service.errors import WrongKey
from service.flows.advice import advise
from service.web.documentation.operations import E_TAG, EXAMPLES, answer, streamed
from service.web.http.callers import ANYBODY, SEES_MORE, anyone, for_viewer
from service.web.http.conditional import conditional
from service.web.http.follow import STREAM_LEASE_SECONDS, event_id, event_stream, events, wait_until_final
from service.web.http.formats import AsFormat, Format, media_type_of, wanted_format
from service.web.http.problems import BODY_PROBLEMS, HUB_PROBLEMS, as_asked, problem_response, problem_responses
from service.web.http.types import HttpRequest
from service.web.services import AppServices, Services
from service.wire.advice.advice import FINAL, Advice, AdviceEvent, AdviceRequest, CreatedAdvice
from service.wire.advice.compact import CompactAdvice, compact
from service.wire.advice.files import FILE_NAMES, advised_file
from service.wire.advice.text import render_markdown, render_text

PATH = "/v1/advice"
MAX_WAIT_SECONDS = 30
POLL_SECONDS = 2
_PROBLEMS = (
    *(*BODY_PROBLEMS, "not-acceptable"),
    *("unknown-hardware", "invalid-hardware", "too-many-streams", "queue-unavailable", "database-unavailable"),
    *("not-authenticated", "rate-limited", "too-many-open-advices", "advice-too-expensive"),
    *(*HUB_PROBLEMS, "advice-failed"),
)

Wait = Annotated[
    int, QueryParameter(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for the advice to become final.")
]
Detail = Annotated[
    Literal["short", "full", "card"],
    QueryParameter(description="`full`: text and Markdown with everything. `card`: short JSON, a `CompactAdvice`."),
]
_MOST_IDS = 8


@post(
    PATH,
    **ANYBODY,
    status_code=200,
    summary="Ask for ranked configs",
    responses={
        200: answer(CreatedAdvice | CompactAdvice, "The advice is ready.", EXAMPLES["ready-advice"]),
        202: answer(
            CreatedAdvice | CompactAdvice,
            "The request is queued; `Location` is its address.",
            EXAMPLES["queued-advice"],
        ),
        **problem_responses(*_PROBLEMS),
    },
)
async def request_advice(
    data: JSONBody[AdviceRequest],
    request: HttpRequest,
    services: AppServices,
    wait: Wait = 0,
    as_format: AsFormat = None,
    detail: Detail = "short",
) -> Response[Any]:
    """Name a repo and your hardware. Advice computed before is returned at once; otherwise the request is queued.

    If you wait and the computation fails, the answer is the problem.
    """
    form = wanted_format(request, as_format)
    ready = await services.run(advise.ready_advice, data)
    if ready is not None:
        response = await _answered(ready.id, ready.version, request, services, form, detail, created=True)
        response.headers["Location"] = services.location(f"{PATH}/{ready.id}")
        return response
    if not wait:
        return await _requested(data, request, services, form, detail, 0)
    async with await services.hold(request, MAX_WAIT_SECONDS + 5):
        return await _requested(data, request, services, form, detail, wait)


async def _requested(
    data: AdviceRequest, request: HttpRequest, services: Services, form: Format, detail: str, wait: int
) -> Response[Any]:
    admit, payer = services.admission(request), services.payer(request, anyone(request))
    asked = await services.run(advise.request_advice, data, admit, payer)
    advice = asked.advice
    if wait and advice.state not in FINAL:
        await wait_until_final(services, advice.id, wait)
        advice = await services.run(advise.read_advice, advice.id)
    if advice.problem:
        failed = msgspec.structs.replace(advice.problem, instance=f"{PATH}/{advice.id}")
        return as_asked(request, problem_response(failed))
    created = _created(services.addressed(request, PATH, advice), asked.delete_key)
    response = conditional(request, _rendered(created, form, detail), media_type_of(form))
    if advice.state not in FINAL:
        response.status_code = 202
        response.headers = {"Retry-After": str(POLL_SECONDS), "Vary": "Accept", "Cache-Control": "no-store"}
    response.headers["Location"] = services.location(f"{PATH}/{advice.id}")
    if asked.delete_key:
        response.headers["Cache-Control"] = "no-store"
        if form != "json":
            response.headers["X-Advice-Key"] = asked.delete_key
    return response


@get(
    PATH + "/{advice_id:str}",
    summary="Read advice",
    **ANYBODY,
    responses={
        200: answer(Advice | CompactAdvice, "The advice as it is now.", EXAMPLES["ready-advice"]),
        **problem_responses("advice-not-found", "not-acceptable", "invalid-request", "too-many-streams", *SEES_MORE),
    },
    response_headers=E_TAG,
)
async def read_advice(
    advice_id: FromPath[str],
    request: HttpRequest,
    services: AppServices,
    wait: Wait = 0,
    as_format: AsFormat = None,
    detail: Detail = "short",
) -> Response[Any]:
    """The advice's state, and its content once it is `ready`; as JSON, plain text or Markdown.

    With a token, the results of the caller's own hosts count too.

    """
    form = wanted_format(request, as_format)
    if wait and (await services.run(advise.advice_progress, advice_id)).state not in FINAL:
        async with await services.hold(request, MAX_WAIT_SECONDS + 5):
            await wait_until_final(services, advice_id, wait)
    caller = anyone(request)
    if caller is not None:
        advice = await services.run(advise.read_advice, advice_id, caller)
        return for_viewer(
            request, _rendered(services.addressed(request, PATH, advice), form, detail), media_type_of(form)
        )
    version = await services.run(advise.advice_version, advice_id)
    return await _answered(advice_id, version, request, services, form, detail)


@get(
    PATH + "/{advice_id:str}/file",
    summary="Read advice as a file for another program",
    responses={
        200: answer(str, "The file.", media_type="text/plain"),
        **problem_responses("advice-not-found", "invalid-request", "invalid-flags"),
    },
)
async def read_advice_file(
    advice_id: FromPath[str],
    request: HttpRequest,
    services: AppServices,
    form: Annotated[FileFormat, QueryParameter(name="as", description="Which program's.")] = "llama-swap",
    config: Annotated[int, QueryParameter(ge=1, le=1000, description="The rank of the config.")] = 1,
    others: Annotated[
        str,
        QueryParameter(
            name="with", max_length=500, description="Ids of other finished advice to include, separated by commas."
        ),
    ] = "",
) -> Response[Any]:
    """llama-swap's YAML, llama-server's router presets, a compose service, variables, or a systemd unit.

    llama-swap and presets can hold several models: `with` adds those of other advice for the same hardware.
    """
    ids = [one.strip() for one in (advice_id, *filter(None, others.split(",")))]
    if len(ids) > _MOST_IDS:
        raise InvalidInput(f"one file is of at most {_MOST_IDS} advices", field="with")
    advices = [await services.run(advise.read_advice, one) for one in ids]
    text = await to_thread.run_sync(advised_file, form, advices, config)
    answer = conditional(request, text.encode(), "text/plain")
    answer.headers["Content-Disposition"] = f'inline; filename="{FILE_NAMES[form]}"'
    return answer


@get(
    PATH + "/{advice_id:str}/events",
    summary="Follow advice live",
    responses=streamed(
        AdviceEvent,
        "named after the state; `data` is this object. Ends when final.",
        *("advice-not-found", "too-many-streams", "queue-unavailable"),
    ),
)
async def follow_advice(advice_id: FromPath[str], request: HttpRequest, services: AppServices) -> Response[Any]:
    """The current state first, then live progress; a comment line every 15 seconds."""
    found = await services.run(advise.advice_progress, advice_id)
    if found.state in FINAL and request.headers.get("last-event-id") == event_id(found):
        return Response(None, status_code=204)
    lease = await services.hold(request, STREAM_LEASE_SECONDS)
    return event_stream(events(services, found.id, lease))


@delete(
    PATH + "/{advice_id:str}", summary="Delete advice", responses=problem_responses("advice-not-found", "wrong-key")
)
async def delete_advice(
    advice_id: FromPath[str],
    services: AppServices,
    key: Annotated[
        str | None, HeaderParameter(name="X-Advice-Key", description="The `delete_key` of the answer.")
    ] = None,
) -> None:
    """Needs the key that was given in the answer to the request that created the advice."""
    if not key:
        raise WrongKey("deleting needs the key that was given when the advice was made", field="X-Advice-Key")
    await services.run(advise.delete_advice, advice_id, key[:200])


def _created(advice: Advice, delete_key: str | None) -> CreatedAdvice:
    return CreatedAdvice(**msgspec.structs.asdict(advice), delete_key=delete_key)


async def _answered(
    advice_id: str, version: str | None, request: HttpRequest, services: Services, form: Format, detail: str,
    *, created: bool = False
) -> Response[Any]:  # fmt: skip
    """Return the advice as it is now, from the cache if it is final and nothing that it shows has changed."""

    def make() -> bytes:
        advice = services.addressed(request, PATH, advise.read_advice(services.context, advice_id))
        return _rendered(_created(advice, None) if created else advice, form, detail)

    key = ("advice", advice_id, services.address(request, ""), form, detail, created)
    answer = await services.kept.answer(key, version, make)
    response = conditional(request, answer.body, media_type_of(form), etag=answer.etag)
    if answer.version is None:
        response.headers["Retry-After"] = str(POLL_SECONDS)
    return response


def _rendered(advice: Advice, form: Format, detail: str) -> bytes:
    if form == "json":
        return msgspec.json.encode(compact(advice) if detail == "card" else advice)
    return (render_text if form == "text" else render_markdown)(advice, detail).encode()


router = Router(
    "/", route_handlers=[request_advice, read_advice, read_advice_file, follow_advice, delete_advice], tags=["advice"]
)
