"""`/v1/check`: a command that somebody uses, checked.

A check reads at most one header and matches strangers' patterns: in a thread, as `/v1/repos`, and like there with a few
reads of the Hub at once.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, Router, post
from litestar.di import NamedDependency
from litestar.params import BodyKwarg, QueryParameter

from service.flows.advice import check
from service.web.documentation.examples import CHECK_REQUEST
from service.web.documentation.operations import TextToo, answers
from service.web.http.body import json_body
from service.web.http.formats import Format, media_type_of, wanted_format
from service.web.http.limits import MAX_CHECK_BYTES
from service.web.services import Services
from service.wire.advice.check import Checked, CheckRequest
from service.wire.advice.check_text import render_check_markdown, render_check_text

_PROBLEMS = (
    *("malformed-json", "body-too-large", "unsupported-media-type", "not-acceptable", "invalid-request"),
    *("invalid-flags", "unknown-hardware", "invalid-hardware", "unknown-variant", "rate-limited"),
    *("repo-not-found", "revision-not-found", "repo-gated", "repo-without-gguf", "repo-too-large", "not-gguf"),
    *("truncated-header", "invalid-header", "unsupported-model", "hub-unauthorised", "hub-reply-refused"),
    *("hub-unavailable", "hub-rate-limited", "service-unavailable"),
)
AsFormat = Annotated[Format | None, QueryParameter(name="format", description="Instead of an Accept header.")]
Detail = Annotated[
    str, QueryParameter(pattern="^(short|full)$", description="`full`: text and Markdown with every finding.")
]


@post(
    "/v1/check",
    **json_body(CheckRequest),
    request_max_body_size=MAX_CHECK_BYTES,
    status_code=200,
    operation_class=TextToo,
    summary="Check a command that you use",
    responses=answers(200, Checked, "Memory, speed and findings.", *_PROBLEMS),
)
async def check_command(
    data: Annotated[CheckRequest, BodyKwarg(examples=[CHECK_REQUEST])],
    request: Request[Any, Any, Any],
    services: NamedDependency[Services],
    as_format: AsFormat = None,
    detail: Detail = "short",
) -> Response[Any]:
    """Memory of every device, whether it fits, speeds by depth, and what is wrong with the command.

    A path in the command is a name only: nothing is opened. Options that today's engine refuses are findings.
    """
    form = wanted_format(request, as_format)
    admit = services.admission(request)
    checked = await services.run_reading(check.check_command, services.context, data, admit)
    return _answer(checked, form, detail)


def _answer(checked: Checked, form: Format, detail: str) -> Response[Any]:
    render = {
        "json": lambda: msgspec.json.encode(checked),
        "text": lambda: render_check_text(checked, detail).encode(),
        "markdown": lambda: render_check_markdown(checked, detail).encode(),
    }
    return Response(
        render[form](), media_type=media_type_of(form), headers={"Vary": "Accept", "Cache-Control": "no-store"}
    )


router = Router("/", route_handlers=[check_command], tags=["check"])
