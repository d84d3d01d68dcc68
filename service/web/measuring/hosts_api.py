"""`/v1/hosts` and `/v1/account`: hosts, as their owners manage them and the public sees them."""

from __future__ import annotations

from litestar import Response, Router, delete, get, patch, post
from litestar.params import FromPath, JSONBody

from service.flows.measuring import hosts
from service.web.documentation.operations import answers
from service.web.http.callers import ANYBODY, PRIVATE, PROBLEMS, SECURITY, anyone, caller_of, known, knows, scoped
from service.web.http.problems import BODY_PROBLEMS, problem_responses
from service.web.http.types import HttpRequest
from service.web.services import AppServices
from service.wire.measuring.hosts import Account, Enrolment, EnrolmentRequest, Host, HostChange

PATH = "/v1/hosts"


@get(
    "/v1/account",
    summary="Whose token this is",
    security=SECURITY,
    guards=[knows],
    responses=answers(200, Account, "The account, and the token's scopes.", *PROBLEMS),
)
async def read_account(request: HttpRequest) -> Response[Account]:
    """The account's name, given by the operator or by the chat platform."""
    caller = known(request)
    return Response(Account(name=caller.name, scopes=list(caller.scopes)), headers=PRIVATE)


@post(
    PATH + "/enrolments",
    summary="Get a code for a new host",
    **scoped("host"),
    responses=answers(201, Enrolment, "The code, shown once.", "too-many-hosts", *BODY_PROBLEMS, *PROBLEMS),
)
async def create_enrolment(
    data: JSONBody[EnrolmentRequest], request: HttpRequest, services: AppServices
) -> Response[Enrolment]:
    """A single-use code for one machine, valid for ten minutes, and the command to type there."""
    address = services.address(request, "")
    enrolment = await services.run(hosts.create_enrolment, caller_of(request), data, address)
    return Response(enrolment, headers=PRIVATE)


@get(
    PATH, summary="List hosts", **ANYBODY, responses=answers(200, list[Host], "Public hosts, and your own.", *PROBLEMS)
)
async def list_hosts(request: HttpRequest, services: AppServices) -> Response[list[Host]]:
    """The public hosts; with a token also your own, with details for their owner."""
    found = await services.run(hosts.list_hosts, anyone(request))
    return Response(found, headers=PRIVATE)


@get(
    PATH + "/{host_id:str}",
    summary="Read a host",
    **ANYBODY,
    responses=answers(200, Host, "The host.", "host-not-found", *PROBLEMS),
)
async def read_host(host_id: FromPath[str], request: HttpRequest, services: AppServices) -> Response[Host]:
    """A public host, or one of your own."""
    found = await services.run(hosts.read_host, host_id, anyone(request))
    return Response(found, headers=PRIVATE)


@patch(
    PATH + "/{host_id:str}",
    summary="Approve, pause or publish a host",
    **scoped("host"),
    responses=answers(
        200, Host, "The host as it is now.", "host-not-found", "host-not-active", *BODY_PROBLEMS, *PROBLEMS
    ),
)
async def change_host(
    host_id: FromPath[str], data: JSONBody[HostChange], request: HttpRequest, services: AppServices
) -> Response[Host]:
    """For its owner: `active` approves a waiting host, or ends a pause."""
    found = await services.run(hosts.change_host, host_id, data, caller_of(request))
    return Response(found, headers=PRIVATE)


@delete(
    PATH + "/{host_id:str}",
    summary="Revoke a host",
    security=SECURITY,
    guards=[knows],
    responses=problem_responses("host-not-found", *PROBLEMS),
)
async def revoke_host(host_id: FromPath[str], request: HttpRequest, services: AppServices) -> None:
    """For its owner and for operators: ends its session and invalidates its key at once. Results stay."""
    await services.run(hosts.revoke_host, host_id, known(request))


router = Router(
    "/",
    route_handlers=[read_account, create_enrolment, list_hosts, read_host, change_host, revoke_host],
    tags=["hosts"],
)
