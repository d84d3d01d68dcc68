"""Chooses an answer's format: JSON, plain text or Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec
from litestar.exceptions import HTTPException
from litestar.params import QueryParameter

from service.engine.errors import InvalidInput
from service.web.http.types import HttpRequest
from service.wire.plain_text import as_markdown, as_text
from service.wire.problem import MEDIA_TYPE as PROBLEM_TYPE

Name = TypeVar("Name", bound=str)
Format: TypeAlias = Literal["json", "text", "markdown"]
AsFormat = Annotated[Format | None, QueryParameter(name="format", description="Instead of an Accept header.")]
MEDIA_TYPES: dict[str, Format] = {"application/json": "json", "text/plain": "text", "text/markdown": "markdown"}


def media_type_of(form: Format) -> str:
    return next(kind for kind, name in MEDIA_TYPES.items() if name == form)


def rendered(form: Format, what: object, lines: Iterable[str]) -> bytes:
    """Return `what` in a format: as JSON, or as its `lines`, the first of which is a sentence."""
    if form == "json":
        return msgspec.json.encode(what)
    return (as_text if form == "text" else as_markdown)(lines).encode()


def wanted_format(request: HttpRequest, asked: Format | None) -> Format:
    """Return the format asked for by `?format=`, else by the Accept header. Raises 406 if there is none."""
    return wanted_of(request, asked, MEDIA_TYPES)


def wanted_of(request: HttpRequest, asked: Name | None, kinds: Mapping[str, Name]) -> Name:
    """Return one of several formats, which are named by their media types, as `wanted_format` does."""
    if asked:
        return asked
    if request.query_params.get("format"):  # "null", which the framework treats as absent
        raise InvalidInput("there is no such format", field="format", choices=tuple(kinds.values()))
    accepted = request.headers.get("accept", "*/*")[:1000].split(",")
    if any(part.partition(";")[0].strip().lower() == PROBLEM_TYPE for part in accepted):
        accepted.append("application/json;q=0.001")  # such a client reads JSON: it asks for how errors are written
    weights = {kind: max((_weight(part, kind) for part in accepted), default=0.0) for kind in kinds}
    best = max(weights, key=lambda kind: weights[kind])
    if weights[best] <= 0:
        raise HTTPException(status_code=406, detail=f"there is {', '.join(kinds)}")
    return kinds[best]


def asked_format(request: HttpRequest) -> Format:
    """Return the format of a problem: what the request asks for, JSON if that is nothing we have."""
    named = request.query_params.get("format")
    try:
        return wanted_format(request, next((form for form in MEDIA_TYPES.values() if form == named), None))
    except (InvalidInput, HTTPException):
        return "json"


def _weight(part: str, kind: str) -> float:
    """Return the quality that one element of an Accept header gives `kind`; more specific ones get a small bonus."""
    name, *parameters = (piece.strip().lower() for piece in part.split(";"))
    ranges = {kind: 0.002, kind.partition("/")[0] + "/*": 0.001, "*/*": 0.0}
    if name not in ranges:
        return 0.0
    quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
    try:
        value = min(max(float(quality), 0.0), 1.0)
    except ValueError:
        value = 1.0
    return value + ranges[name] if value == value and value > 0 else 0.0
