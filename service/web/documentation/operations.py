"""What handlers state about their answers, where the framework assumes its own, and examples."""

from __future__ import annotations

from typing import Any

from litestar import MediaType
from litestar.datastructures import ResponseHeader
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example

from service.engine.tables import table_of
from service.web.http.problems import problem_responses

RIG = "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"
REPO = "unsloth/Qwen3-235B-A22B-GGUF"
EXAMPLES = table_of("examples.json", dict[str, Example], "service.web.documentation")
"""Of answers; those of requests are in `document.json`."""
E_TAG = [ResponseHeader(name="ETag", description="For `If-None-Match`.", documentation_only=True)]


def answer(kind: Any, description: str, *examples: Example, media_type: str = MediaType.JSON) -> ResponseSpec:
    """Return the entry of one status in a handler's `responses`: the body's type and meaning."""
    return ResponseSpec(
        kind, description=description, media_type=media_type, generate_examples=False, examples=list(examples) or None
    )


def answers(status: int, kind: Any, description: str, *problems: str) -> dict[int, ResponseSpec]:
    """Return the `responses` of a handler with one successful answer and these problems."""
    return {status: answer(kind, description), **problem_responses(*problems)}


def streamed(kind: Any, description: str, *problems: str) -> dict[int, ResponseSpec]:
    """Return the `responses` of a handler of server-sent events whose `data` is a `kind`."""
    return {
        200: answer(kind, f"Server-sent events, {description}", media_type="text/event-stream"),
        204: ResponseSpec(None, description="`Last-Event-ID` says that the final state was seen."),
        **problem_responses(*problems),
    }
