"""Conditional answers: an ETag over the bytes sent, and 304 for whoever has them already."""

from __future__ import annotations

import hashlib
from typing import Any

from litestar import Request, Response

REVALIDATE = "no-cache"  # may be kept, but must be asked for again


def etag_of(body: bytes) -> str:
    """Return the strong ETag of a representation."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def conditional(
    request: Request[Any, Any, Any],
    body: bytes,
    media_type: str,
    *,
    cache_control: str = REVALIDATE,
    etag: str | None = None,
) -> Response[bytes]:
    """Return `body` with its ETag, or 304 when `If-None-Match` names it (RFC 9110, section 13.1.2)."""
    etag = etag or etag_of(body)
    headers = {"ETag": etag, "Cache-Control": cache_control, "Vary": "Accept"}
    known = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
    if request.method in ("GET", "HEAD") and (etag in known or known == ["*"]):
        return Response(b"", status_code=304, headers=headers, media_type=media_type)
    return Response(body, status_code=200, headers=headers, media_type=media_type)
