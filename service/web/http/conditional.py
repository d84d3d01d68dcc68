"""Conditional answers: an ETag over the bytes, 304 for a client that has them, 412 for one that expects others."""

from __future__ import annotations

import hashlib
from typing import Literal

from litestar import Response

from service.web.http.types import HttpRequest

REVALIDATE = "no-cache"  # may be cached, but must be revalidated


def etag_of(body: bytes) -> str:
    """Return the strong ETag of a representation."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def conditional(
    request: HttpRequest,
    body: bytes,
    media_type: str,
    *,
    cache_control: str = REVALIDATE,
    etag: str | None = None,
    vary: str = "Accept",
) -> Response[bytes]:
    """Return `body` with its ETag; 304 if `If-None-Match` names it, 412 if `If-Match` names only others."""
    etag = etag or etag_of(body)
    headers = {"ETag": etag, "Cache-Control": cache_control, "Vary": vary}
    status = without_body(request, etag)
    return Response(b"" if status else body, status_code=status or 200, headers=headers, media_type=media_type)


def without_body(request: HttpRequest, etag: str) -> Literal[304, 412] | None:
    """Return the status of an answer without a body, if there is to be none: 412 if `If-Match` names only others, by
    strong comparison (RFC 9110, section 13.1.1), 304 if `If-None-Match` names it, by weak comparison (section
    13.1.2)."""
    wanted = request.headers.get("if-match")
    if wanted is not None and wanted.strip() != "*" and etag not in _tags(wanted):
        return 412
    known = request.headers.get("if-none-match", "")
    is_read = request.method in ("GET", "HEAD")
    has_it = known.strip() == "*" or etag in [tag.removeprefix("W/") for tag in _tags(known)]
    return 304 if is_read and has_it else None


def _tags(header: str) -> list[str]:
    return [part.strip() for part in header.split(",")]
