"""`/v1/check`: checks a user's command.

A check reads at most one header and matches untrusted patterns, so it runs in a thread like `/v1/repos`, and like there
only a few may read from the Hub at once.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from litestar import Response, Router, post
from litestar.params import JSONBody, QueryParameter

from service.flows.advice import check
from service.web.documentation.operations import answers
from service.web.http.formats import AsFormat, media_type_of, rendered, wanted_format
from service.web.http.limits import MAX_CHECK_BYTES
from service.web.http.problems import BODY_PROBLEMS, RUN_PROBLEMS
from service.web.http.types import HttpRequest
from service.web.services import AppServices
from service.wire.advice.check import Checked, CheckRequest
from service.wire.advice.check_text import check_lines

Detail = Annotated[
    Literal["short", "full"], QueryParameter(description="`full`: text and Markdown with every finding.")
]


@post(
    "/v1/check",
    request_max_body_size=MAX_CHECK_BYTES,
    status_code=200,
    summary="Check a command that you use",
    responses=answers(200, Checked, "Memory, speed and findings.", "not-acceptable", *BODY_PROBLEMS, *RUN_PROBLEMS),
)
async def check_command(
    data: JSONBody[CheckRequest],
    request: HttpRequest,
    services: AppServices,
    as_format: AsFormat = None,
    detail: Detail = "short",
) -> Response[Any]:
    """Memory of every device, whether it fits, speed by depth, and what is wrong with the command.

    A path in the command is only a name: nothing is opened. Options that today's engine rejects become findings.
    """
    form = wanted_format(request, as_format)
    admit = services.admission(request)
    checked = await services.run_reading(check.check_command, data, admit)
    body = rendered(form, checked, check_lines(checked, detail))
    return Response(body, media_type=media_type_of(form), headers={"Vary": "Accept"})


router = Router("/", route_handlers=[check_command], tags=["check"])
