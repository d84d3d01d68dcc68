"""OpenAPI operations as our answers really are, where the framework assumes its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from litestar.openapi.spec import (
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Reference,
    RequestBody,
    Schema,
)

from service.web.http.formats import MEDIA_TYPES
from service.wire.problem import MEDIA_TYPE


@dataclass
class Documented(Operation):
    """An operation without the framework's own 400, and with examples as the specification has them."""

    def __post_init__(self) -> None:
        """Correct the responses, and say that no credentials are needed where none are named."""
        self.security = self.security or []
        responses: dict[str, Any] = dict(self.responses or {})
        if "400" in responses and MEDIA_TYPE not in (responses["400"].content or {}):
            del responses["400"]
        for response in responses.values():
            for media in (response.content or {}).values():
                for example in (media.examples or {}).values():
                    example.id = None
        self.responses = responses


@dataclass
class TextToo(Documented):
    """An operation whose good answers exist as plain text and Markdown as well.

    Said in words: as media types they would make the type of an answer, in generated clients, a union with a string.
    """

    def __post_init__(self) -> None:
        """Say it of every 2xx response."""
        super().__post_init__()
        others = " or ".join(f"`{kind}`" for kind in MEDIA_TYPES if kind != "application/json")
        for status, response in (self.responses or {}).items():
            if status.startswith("2") and isinstance(response, OpenAPIResponse) and response.content is not None:
                said = (response.description or "").rstrip(".")
                response.description = f"{said}. As {others} too: by `Accept`, or `?format=`."


@dataclass
class Streaming(Documented):
    """An operation that answers with server-sent events, whose `data` is what the handler states."""

    def __post_init__(self) -> None:
        """Say what an event is made of."""
        super().__post_init__()
        for response in (self.responses or {}).values():
            media = (getattr(response, "content", None) or {}).get("text/event-stream")
            if media is not None:
                media.schema = Schema(
                    type=OpenAPIType.STRING,
                    description="Events with `event`, `id` and `data`, which is JSON of the schema of the content.",
                    content_media_type="application/json",
                    content_schema=media.schema,
                )


def taking(kind: type[Any]) -> type[Documented]:
    """Return an operation whose body is `kind`, for a handler that reads the raw body: a signature covers bytes."""

    @dataclass
    class Taking(Documented):
        def __post_init__(self) -> None:
            super().__post_init__()
            media = OpenAPIMediaType(schema=Reference(ref=f"#/components/schemas/{kind.__name__}"))
            self.request_body = RequestBody(content={"application/json": media}, required=True)

    return Taking
