"""`/v1/agent`: the agents' API. After enrolment every call is signed, and the signature is checked first."""

from __future__ import annotations

import random
from typing import Any, TypeVar

import anyio
from anyio import to_thread
from litestar import Response, Router, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, JSONBody

from service import logs, metrics
from service.engine.decoding import require_no_nul
from service.flows.measuring import hosts, runs, signed_calls
from service.flows.measuring.signed_calls import SignedCall, SignedHost
from service.queue.progress import WAITING_RUNS
from service.web.documentation.operations import answer, answers
from service.web.http.body import decoded
from service.web.http.middleware import waits
from service.web.http.problems import BODY_PROBLEMS, problem_responses
from service.web.http.types import HttpRequest
from service.web.services import AppServices, Services
from service.wire.measuring.agent import (
    Accepted,
    EnrolledHost,
    Greeted,
    Greeting,
    LeasedRun,
    LeaseRequest,
    NewHost,
    Nothing,
    Progress,
    Renewed,
    Report,
    Session,
)
from service.wire.measuring.hosts import Probe

T = TypeVar("T")
PATH = "/v1/agent"
SIGNED: list[dict[str, list[str]]] = [{"HostSignature": [], "HostSession": []}]
_BODY = (*BODY_PROBLEMS, "database-unavailable")
SIGNED_PROBLEMS = ("not-authenticated", "host-not-active", "counter-too-small", *_BODY)
MAX_PROBE_BYTES = 1 << 20
MAX_REPORT_BYTES = 2 << 20
_LOOK_SECONDS = 10.0  # between looks for a waiting host that nobody wakes


async def signed(request: HttpRequest, services: Services, kind: type[T]) -> tuple[SignedHost, T]:
    """Return the host that signed this request, and its body; the signature is checked before the body."""
    call = await signed_call(request, services)
    host = await services.run(signed_calls.authenticate, call)
    logs.note(host_id=host.id)
    return host, _decoded(call.body, kind)


async def signed_call(request: HttpRequest, services: Services) -> SignedCall:
    """Return the parts of the request that its signature covers."""
    return SignedCall(
        authority=services.authority(request),
        method=request.method,
        path=request.scope["raw_path"].decode("latin-1"),
        headers={name.lower(): value for name, value in request.headers.items()},
        body=await request.body(),
    )


def _decoded(body: bytes, kind: type[T]) -> T:
    found = decoded(body, kind)
    require_no_nul(found)
    return found


@post(
    PATH + "/greeting",
    status_code=200,
    summary="Ask whose code this is",
    responses=answers(200, Greeted, "Who made the code.", "enrolment-code-unknown", *_BODY),
)
async def greet(data: JSONBody[Greeting], request: HttpRequest, services: AppServices) -> Greeted:
    """Lets the person at the machine confirm the account before the machine's key is sent."""
    await services.count_code(request)
    return await services.run(hosts.greet, data.code, services.address(request, ""))


@post(
    PATH + "/hosts",
    summary="Enrol a machine",
    responses=answers(
        201,
        EnrolledHost,
        "The host; it waits for its owner.",
        "enrolment-code-unknown",
        "not-authenticated",
        "host-exists",
        *_BODY,
    ),
)
async def enrol_host(data: JSONBody[NewHost], request: HttpRequest, services: AppServices) -> EnrolledHost:
    """Takes a code, the machine's public key, and proof of its private key."""
    await services.count_code(request)
    return await services.run(hosts.enrol, data, services.authority(request))


@post(
    PATH + "/sessions",
    opt={"body": Nothing},
    summary="Open a session",
    security=[{"HostSignature": []}],
    responses=answers(201, Session, "A token for an hour.", *SIGNED_PROBLEMS),
)
async def open_session(request: HttpRequest, services: AppServices) -> Session:
    """Signed like every call, with `{}` as the body; ends the host's earlier session."""
    call = await signed_call(request, services)
    _decoded(call.body, Nothing)
    return await services.run(signed_calls.open_session, call)


@post(
    PATH + "/probe",
    status_code=204,
    request_max_body_size=MAX_PROBE_BYTES,
    opt={"body": Probe},
    summary="Describe the machine",
    security=SIGNED,
    responses=problem_responses("invalid-hardware", *SIGNED_PROBLEMS),
)
async def send_probe(request: HttpRequest, services: AppServices) -> None:
    """Hardware, engine builds and models, in the schema `Probe`; replaces what was sent before."""
    host, probe = await signed(request, services, Probe)
    await services.run(hosts.save_probe, host, probe)


@post(
    PATH + "/leave",
    status_code=204,
    opt={"body": Nothing},
    summary="Leave for good",
    security=SIGNED,
    responses=problem_responses(*SIGNED_PROBLEMS),
)
async def leave(request: HttpRequest, services: AppServices) -> None:
    """Revokes the host at its own request, with `{}` as the body."""
    host, _ = await signed(request, services, Nothing)
    await services.run(hosts.leave, host)


@post(
    PATH + "/leases",
    status_code=200,
    opt={"body": LeaseRequest},
    summary="Ask for a run",
    security=SIGNED,
    responses={
        200: answer(LeasedRun, "A run, leased to this host for a while."),
        204: ResponseSpec(None, description="There is none; ask again."),
        **problem_responses("too-many-streams", *SIGNED_PROBLEMS),
    },
)
async def lease_run(request: HttpRequest, services: AppServices) -> Response[Any]:
    """Waits up to 25 seconds for a run. What the host held before goes back to the queue."""
    host, asked = await signed(request, services, LeaseRequest)
    runs.require_active(host)
    leased = None
    if await services.hosts_concerned.of(host.id):
        leased = await to_thread.run_sync(runs.lease, services.context, host, limiter=services.looking)
    if leased is None and asked.wait:
        waits(request.scope)
        with metrics.HELD.of("host").track_inprogress():
            leased = await _waited_for(services, host, asked.wait)
    if leased is None:
        return Response(None, status_code=204)
    logs.note(run_id=leased.run)
    return Response(leased)


async def _waited_for(services: Services, host: SignedHost, seconds: int) -> LeasedRun | None:
    """Look again whenever something is queued, and regularly, as without Redis nobody tells. Ends with the process.

    All waiting hosts share one look; only hosts that a run waits for then ask for one.
    """
    deadline = anyio.current_time() + seconds * random.uniform(0.8, 1.0)  # noqa: S311 - hosts come again one by one
    max_age = 0.0
    async with services.listener.listen(WAITING_RUNS) as news:
        while (left := deadline - anyio.current_time()) > 0:
            if await services.hosts_with_runs.of(host.id, max_age):
                leased = await to_thread.run_sync(runs.next_run, services.context, host, limiter=services.looking)
                if leased is not None:
                    return leased
            if services.drain.leaving:
                return None
            pause = anyio.move_on_after(min(left, _LOOK_SECONDS * random.uniform(0.7, 1.0)))  # noqa: S311
            max_age = _LOOK_SECONDS / 2
            with pause, services.drain.cutting(pause):
                await anext(news)
                max_age = 0.0
    return None


@post(
    PATH + "/runs/{run_id:str}/progress",
    status_code=200,
    opt={"body": Progress},
    summary="Renew a lease",
    security=SIGNED,
    responses=answers(
        200, Renewed, "The lease is renewed, or the run must stop.", "run-not-found", "lease-lost", *SIGNED_PROBLEMS
    ),
)
async def note_progress(run_id: FromPath[str], request: HttpRequest, services: AppServices) -> Renewed:
    """To be called three times per lease, with the new rows."""
    host, said = await signed(request, services, Progress)
    return await services.run(runs.note_progress, host, run_id, said)


@post(
    PATH + "/runs/{run_id:str}/report",
    status_code=200,
    request_max_body_size=MAX_REPORT_BYTES,
    opt={"body": Report},
    summary="Report the end of a run",
    security=SIGNED,
    responses=answers(200, Accepted, "It is stored.", "run-not-found", "lease-lost", *SIGNED_PROBLEMS),
)
async def report_run(run_id: FromPath[str], request: HttpRequest, services: AppServices) -> Accepted:
    """Rows or a failure; sending the same report again gives the same answer."""
    host, said = await signed(request, services, Report)
    return await services.run(runs.report, host, run_id, said)


router = Router(
    "/",
    route_handlers=[greet, enrol_host, open_session, send_probe, leave, lease_run, note_progress, report_run],
    tags=["agent"],
)
