"""OpenAPI operations that describe our answers as they are, where the framework assumes its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from litestar import MediaType
from litestar.datastructures import ResponseHeader
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import (
    Example,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Reference,
    RequestBody,
    Schema,
)

from service.web.http.formats import MEDIA_TYPES
from service.web.http.problems import problem_responses

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


@dataclass
class TextToo(Operation):
    """An operation whose successful answers also come as plain text and Markdown.

    Stated in words: as media types they would turn an answer's type in generated clients into a union with a string.
    """

    def __post_init__(self) -> None:
        """Add the note to every 2xx response."""
        others = " or ".join(f"`{kind}`" for kind in MEDIA_TYPES if kind != "application/json")
        for status, response in (self.responses or {}).items():
            if status.startswith("2") and isinstance(response, OpenAPIResponse) and response.content is not None:
                said = (response.description or "").rstrip(".")
                response.description = f"{said}. As {others} too: by `Accept`, or `?format=`."


@dataclass
class Streaming(Operation):
    """An operation that answers with server-sent events, whose `data` is what the handler states."""

    def __post_init__(self) -> None:
        """Describe the parts of an event."""
        for response in (self.responses or {}).values():
            media = (getattr(response, "content", None) or {}).get("text/event-stream")
            if media is not None:
                media.schema = Schema(
                    type=OpenAPIType.STRING,
                    description="Events with `event`, `id` and `data`, which is JSON of the schema of the content.",
                    content_media_type="application/json",
                    content_schema=media.schema,
                )


@dataclass
class Taking(Operation):
    """An operation with a `kind` as its body, for handlers that read the raw body because a signature covers it."""

    kind: ClassVar[type[Any]]

    def __post_init__(self) -> None:
        """Add the request body."""

        media = OpenAPIMediaType(schema=Reference(ref=f"#/components/schemas/{self.kind.__name__}"))
        self.request_body = RequestBody(content={"application/json": media}, required=True)


def taking(kind: type[Any]) -> type[Taking]:
    """Return the operation of a handler that reads a `kind`."""
    return type("Taking", (Taking,), {"kind": kind})
