"""`/v1/results/{id}/reports` and `/v1/moderation`: what readers say is wrong, and what operators do about it."""

from __future__ import annotations

from typing import Annotated, Any

from anyio import to_thread
from litestar import Request, Response, Router, get, post
from litestar.di import NamedDependency
from litestar.enums import RequestEncodingType
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import BodyKwarg, FromPath, QueryParameter

from service.web.body import JsonBody
from service.web.callers import PRIVATE, PROBLEMS, SECURITY, anyone, caller_of, knows, requires
from service.web.examples import ABUSE_REPORT, MODERATION
from service.web.operations import Documented
from service.web.problems import BODY_PROBLEMS, problem_responses
from service.web.services import Services
from service.wire.moderation import AbuseReport, AuditEntry, Moderation, OpenReport, Reported


@post(
    "/v1/results/{result_id:str}/reports",
    dto=JsonBody[AbuseReport],
    return_dto=None,
    operation_id="report_result",
    operation_class=Documented,
    summary="Say what is wrong with a result",
    security=[{}, *SECURITY],
    guards=[knows],
    responses={
        201: ResponseSpec(Reported, description="The report was kept.", generate_examples=False),
        **problem_responses("result-not-found", *BODY_PROBLEMS, *PROBLEMS),
    },
)
async def report_result(
    result_id: FromPath[str],
    data: Annotated[AbuseReport, BodyKwarg(media_type=RequestEncodingType.JSON, examples=[ABUSE_REPORT])],
    request: Request[Any, Any, Any],
    services: NamedDependency[Services],
) -> Response[Reported]:
    """For operators, who read it beside the result. No account is needed; what names a person is masked."""
    await services.count_report(request)
    kept = await to_thread.run_sync(services.flows.report_abuse, anyone(request), result_id, data)
    return Response(kept, status_code=201, headers=PRIVATE)


@get(
    "/v1/moderation/reports",
    operation_id="list_reports",
    operation_class=Documented,
    summary="Reports that are open",
    security=SECURITY,
    guards=[requires("operator")],
    responses={
        200: ResponseSpec(list[OpenReport], description="The oldest first.", generate_examples=False),
        **problem_responses(*PROBLEMS),
    },
)
async def list_reports(services: NamedDependency[Services]) -> Response[list[OpenReport]]:
    """For operators: the oldest 200 that nobody has closed."""
    return Response(await to_thread.run_sync(services.flows.open_reports), headers=PRIVATE)


@post(
    "/v1/moderation",
    dto=JsonBody[Moderation],
    return_dto=None,
    operation_id="moderate",
    operation_class=Documented,
    summary="Hide, show, ban, vouch for, close",
    security=SECURITY,
    guards=[requires("operator")],
    responses={
        201: ResponseSpec(AuditEntry, description="What was done, as it was written down.", generate_examples=False),
        **problem_responses(*BODY_PROBLEMS, *PROBLEMS),
    },
)
async def moderate(
    data: Annotated[Moderation, BodyKwarg(media_type=RequestEncodingType.JSON, examples=[MODERATION])],
    request: Request[Any, Any, Any],
    services: NamedDependency[Services],
) -> Response[AuditEntry]:
    """For operators. Each act is written down with who, when and why, for good."""
    done = await to_thread.run_sync(services.flows.moderate, caller_of(request).name, data)
    return Response(done, status_code=201, headers=PRIVATE)


@get(
    "/v1/moderation/audit",
    operation_id="read_audit",
    operation_class=Documented,
    summary="What operators did",
    security=SECURITY,
    guards=[requires("operator")],
    responses={
        200: ResponseSpec(list[AuditEntry], description="The newest first.", generate_examples=False),
        **problem_responses(*PROBLEMS),
    },
)
async def read_audit(
    services: NamedDependency[Services],
    subject: Annotated[str | None, QueryParameter(description="Of one result, report or account only.")] = None,
) -> Response[list[AuditEntry]]:
    """For operators: the newest 200 acts."""
    return Response(await to_thread.run_sync(services.flows.audit, subject), headers=PRIVATE)


router = Router("/", route_handlers=[report_result, list_reports, moderate, read_audit], tags=["moderation"])
