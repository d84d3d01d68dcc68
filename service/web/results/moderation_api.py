"""`/v1/results/{id}/reports`, `…/removal-requests` and `/v1/moderation`: requests to operators, and their acts."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, Router, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from service.flows.results import moderation
from service.web.documentation.operations import answers
from service.web.http.callers import ANYBODY, PRIVATE, PROBLEMS, anyone, caller_of, scoped
from service.web.http.problems import BODY_PROBLEMS
from service.web.http.types import HttpRequest
from service.web.services import AppServices
from service.wire.results.moderation import (
    AbuseReport,
    AuditEntry,
    Moderation,
    OpenRemovalRequest,
    OpenReport,
    QuarantinedResult,
    RemovalAsked,
    RemovalRequest,
    Reported,
)


@post(
    "/v1/results/{result_id:str}/reports",
    summary="Report a problem with a result",
    **ANYBODY,
    responses=answers(201, Reported, "The report was kept.", "result-not-found", *BODY_PROBLEMS, *PROBLEMS),
)
async def report_result(
    result_id: FromPath[str], data: JSONBody[AbuseReport], request: HttpRequest, services: AppServices
) -> Response[Reported]:
    """Operators read it together with the result. No account is needed; personal names are masked."""
    await services.count_report(request)
    kept = await services.run(moderation.report_abuse, anyone(request), result_id, data)
    return Response(kept, status_code=201, headers=PRIVATE)


@post(
    "/v1/results/{result_id:str}/removal-requests",
    summary="Ask the operator to remove a result",
    **ANYBODY,
    responses=answers(201, RemovalAsked, "The request was kept.", "result-not-found", *BODY_PROBLEMS, *PROBLEMS),
)
async def ask_removal(
    result_id: FromPath[str], data: JSONBody[RemovalRequest], request: HttpRequest, services: AppServices
) -> Response[RemovalAsked]:
    """For people whom a result concerns, or whose work it is. No account is needed; an operator decides."""
    await services.count_report(request)
    kept = await services.run(moderation.ask_removal, anyone(request), result_id, data)
    return Response(kept, status_code=201, headers=PRIVATE)


@get(
    "/v1/moderation/removals",
    summary="Requests for removal that are open",
    **scoped("operator"),
    responses=answers(200, list[OpenRemovalRequest], "The oldest first.", *PROBLEMS),
)
async def list_removal_requests(services: AppServices) -> Response[list[OpenRemovalRequest]]:
    """For operators: the oldest 200 undecided requests. Either `remove` the result or `refuse` the request."""
    return Response(await services.run(moderation.open_requests), headers=PRIVATE)


@get(
    "/v1/moderation/quarantined",
    summary="Results in quarantine",
    **scoped("operator"),
    responses=answers(200, list[QuarantinedResult], "The newest first.", *PROBLEMS),
)
async def list_quarantined(services: AppServices) -> Response[list[QuarantinedResult]]:
    """For operators: the newest 200, which count for nothing until somebody has looked at them."""
    return Response(await services.run(moderation.quarantined), headers=PRIVATE)


@get(
    "/v1/moderation/reports",
    summary="Reports that are open",
    **scoped("operator"),
    responses=answers(200, list[OpenReport], "The oldest first.", *PROBLEMS),
)
async def list_reports(services: AppServices) -> Response[list[OpenReport]]:
    """For operators: the oldest 200 open reports."""
    return Response(await services.run(moderation.open_reports), headers=PRIVATE)


@post(
    "/v1/moderation",
    summary="Hide, show, ban, vouch for, close",
    **scoped("operator"),
    responses=answers(201, AuditEntry, "The action, as recorded.", *BODY_PROBLEMS, *PROBLEMS),
)
async def moderate(data: JSONBody[Moderation], request: HttpRequest, services: AppServices) -> Response[AuditEntry]:
    """For operators. Each action is recorded permanently, with who, when and why."""
    done = await services.run(moderation.moderate, caller_of(request).name, data)
    return Response(done, status_code=201, headers=PRIVATE)


@get(
    "/v1/moderation/audit",
    summary="What operators did",
    **scoped("operator"),
    responses=answers(200, list[AuditEntry], "The newest first.", *PROBLEMS),
)
async def read_audit(
    services: AppServices,
    subject: Annotated[str | None, QueryParameter(description="Of one result, report or account only.")] = None,
) -> Response[list[AuditEntry]]:
    """For operators: the newest 200 actions."""
    return Response(await services.run(moderation.audit, subject), headers=PRIVATE)


router = Router(
    "/",
    route_handlers=[
        report_result,
        ask_removal,
        list_reports,
        list_removal_requests,
        list_quarantined,
        moderate,
        read_audit,
    ],
    tags=["moderation"],
)
