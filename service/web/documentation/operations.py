"""OpenAPI operations as our answers really are, where the framework assumes its own."""

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
    """Return what a handler's `responses` say of one status: the type of the body, and what it means."""
    return ResponseSpec(
        kind, description=description, media_type=media_type, generate_examples=False, examples=list(examples) or None
    )


def answers(status: int, kind: Any, description: str, *problems: str) -> dict[int, ResponseSpec]:
    """Return the `responses` of a handler with one good answer, and the problems with these slugs."""
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
    """An operation whose good answers exist as plain text and Markdown as well.

    Said in words: as media types they would make the type of an answer, in generated clients, a union with a string.
    """

    def __post_init__(self) -> None:
        """Say it of every 2xx response."""
        others = " or ".join(f"`{kind}`" for kind in MEDIA_TYPES if kind != "application/json")
        for status, response in (self.responses or {}).items():
            if status.startswith("2") and isinstance(response, OpenAPIResponse) and response.content is not None:
                said = (response.description or "").rstrip(".")
                response.description = f"{said}. As {others} too: by `Accept`, or `?format=`."


@dataclass
class Streaming(Operation):
    """An operation that answers with server-sent events, whose `data` is what the handler states."""

    def __post_init__(self) -> None:
        """Say what an event is made of."""
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
    """An operation whose body is a `kind`, for a handler that reads the raw body: a signature covers bytes."""

    kind: ClassVar[type[Any]]

    def __post_init__(self) -> None:
        """State the body."""
        media = OpenAPIMediaType(schema=Reference(ref=f"#/components/schemas/{self.kind.__name__}"))
        self.request_body = RequestBody(content={"application/json": media}, required=True)


def taking(kind: type[Any]) -> type[Taking]:
    """Return the operation of a handler that reads a `kind`."""
    return type("Taking", (Taking,), {"kind": kind})
