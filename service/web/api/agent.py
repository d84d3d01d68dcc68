"""`/v1/agent`: what an agent calls. Every call after enrolment is signed, which is found out before anything else."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from anyio import to_thread
from litestar import Request, Response, Router, post
from litestar.di import NamedDependency
from litestar.enums import RequestEncodingType
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import BodyKwarg

from service.engine.decoding import wrong_value
from service.engine.errors import InvalidInput
from service.flows.hosts import SignedCall, SignedHost
from service.web.body import JsonBody, MalformedJson
from service.web.operations import Documented, taking
from service.web.problems import problem_responses
from service.web.services import Services
from service.wire.agent import EnrolledHost, Greeted, Greeting, NewHost, Session
from service.wire.hosts import Probe

T = TypeVar("T")
PATH = "/v1/agent"
SIGNED: list[dict[str, list[str]]] = [{"HostSignature": [], "HostSession": []}]
_BODY = ("malformed-json", "body-too-large", "unsupported-media-type", "invalid-request", "database-unavailable")
SIGNED_PROBLEMS = ("not-authenticated", "host-not-active", "counter-too-small", *_BODY)
MAX_PROBE_BYTES = 1 << 20
_NO_STORE = {"Cache-Control": "no-store"}


async def signed(request: Request[Any, Any, Any], services: Services, kind: type[T]) -> tuple[SignedHost, T]:
    """Return the host that signed this request, and its body. A bad signature is found before a bad body."""
    call = await signed_call(request, services)
    host = await to_thread.run_sync(services.flows.authenticate, call)
    return host, _decoded(call.body, kind)


async def signed_call(request: Request[Any, Any, Any], services: Services) -> SignedCall:
    """Return the request as its signature covers it."""
    return SignedCall(
        authority=services.authority(request),
        method=request.method,
        path=request.scope["raw_path"].decode("latin-1"),
        headers={name.lower(): value for name, value in request.headers.items()},
        body=await request.body(),
    )


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        what, field, choices = wrong_value(error, kind)
        raise InvalidInput(what, field=field, choices=choices) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedJson(str(error)) from error


@post(
    PATH + "/greeting",
    dto=JsonBody[Greeting],
    return_dto=None,
    status_code=200,
    operation_id="greet",
    operation_class=Documented,
    summary="Ask whose code this is",
    responses={
        200: ResponseSpec(Greeted, description="Who made the code.", generate_examples=False),
        **problem_responses("enrolment-code-unknown", *_BODY),
    },
)
async def greet(
    data: Annotated[Greeting, BodyKwarg(media_type=RequestEncodingType.JSON)],
    request: Request[Any, Any, Any],
    services: NamedDependency[Services],
) -> Response[Greeted]:
    """For the person at the machine to confirm, before the machine's key is sent."""
    await services.count_code(request)
    greeted = await to_thread.run_sync(services.flows.greet, data.code, services.address(request, ""))
    return Response(greeted, headers=_NO_STORE)


@post(
    PATH + "/hosts",
    dto=JsonBody[NewHost],
    return_dto=None,
    operation_id="enrol_host",
    operation_class=Documented,
    summary="Enrol a machine",
    responses={
        201: ResponseSpec(EnrolledHost, description="The host; it waits for its owner.", generate_examples=False),
        **problem_responses("enrolment-code-unknown", "not-authenticated", "host-exists", *_BODY),
    },
)
async def enrol_host(
    data: Annotated[NewHost, BodyKwarg(media_type=RequestEncodingType.JSON)],
    request: Request[Any, Any, Any],
    services: NamedDependency[Services],
) -> Response[EnrolledHost]:
    """A code, the machine's public key, and proof that it has the private one."""
    await services.count_code(request)
    enrolled = await to_thread.run_sync(services.flows.enrol, data, services.authority(request))
    return Response(enrolled, headers=_NO_STORE)


@post(
    PATH + "/sessions",
    operation_id="open_session",
    operation_class=Documented,
    summary="Open a session",
    security=[{"HostSignature": []}],
    responses={
        201: ResponseSpec(Session, description="A token for an hour.", generate_examples=False),
        **problem_responses(*SIGNED_PROBLEMS),
    },
)
async def open_session(request: Request[Any, Any, Any], services: NamedDependency[Services]) -> Response[Session]:
    """Signed like every call, with `{}` as its body; an earlier session of the host ends."""
    session = await to_thread.run_sync(services.flows.open_session, await signed_call(request, services))
    return Response(session, headers=_NO_STORE)


@post(
    PATH + "/probe",
    status_code=204,
    request_max_body_size=MAX_PROBE_BYTES,
    operation_id="send_probe",
    operation_class=taking(Probe),
    summary="Say what the machine is",
    security=SIGNED,
    responses=problem_responses("invalid-hardware", *SIGNED_PROBLEMS),
)
async def send_probe(request: Request[Any, Any, Any], services: NamedDependency[Services]) -> None:
    """Hardware, engine builds and models, as service.wire.hosts.Probe; in place of what was sent before."""
    host, probe = await signed(request, services, Probe)
    await to_thread.run_sync(services.flows.save_probe, host, probe)


@post(
    PATH + "/leave",
    status_code=204,
    operation_id="leave",
    operation_class=Documented,
    summary="Leave for good",
    security=SIGNED,
    responses=problem_responses(*SIGNED_PROBLEMS),
)
async def leave(request: Request[Any, Any, Any], services: NamedDependency[Services]) -> None:
    """The host is revoked by its own wish; `{}` as the body."""
    host, _ = await signed(request, services, dict[str, str])
    await to_thread.run_sync(services.flows.leave, host)


router = Router("/", route_handlers=[greet, enrol_host, open_session, send_probe, leave], tags=["agent"])
