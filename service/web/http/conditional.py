"""Conditional answers: an ETag over the bytes, 304 for a client that has them, 412 for one that expects others; and a
cache of answers by their content's version, so that a repeated request only looks up the version.

Files are sent whole or in one range: RFC 9110, sections 13 (conditions) and 14 (ranges). A change made by this
service's code shows at once in every process, because the version is read from the database each time. A change that
nothing counts, such as a row edited by hand, shows after MOST_SECONDS.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from anyio import to_thread
from litestar import Response
from litestar.exceptions import HTTPException
from litestar.response import Stream

from service.web.http.types import HttpRequest

REVALIDATE = "no-cache"  # may be cached, but must be revalidated
MOST_BYTES = 32 << 20
MOST_SECONDS = 10.0
_OF_AN_ENTRY = 500  # approximate bytes of an entry besides its body


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
    """Return `body` with its ETag; 304 if `If-None-Match` names it. Raises as `has_it`."""
    etag = etag or etag_of(body)
    headers = {"ETag": etag, "Cache-Control": cache_control, "Vary": vary}
    known = has_it(request, etag)
    return Response(b"" if known else body, status_code=304 if known else 200, headers=headers, media_type=media_type)


def has_it(request: HttpRequest, etag: str) -> bool:
    """Return whether the client has this representation: `If-None-Match` names it, by weak comparison (RFC 9110,
    section 13.1.2).

    Raises HTTPException (412) if `If-Match` names only others, by strong comparison (section 13.1.1).
    """
    wanted = request.headers.get("if-match")
    if wanted is not None and wanted.strip() != "*" and etag not in _tags(wanted):
        raise HTTPException(status_code=412, detail=f"`If-Match` does not name {etag}", headers={"ETag": etag})
    known = request.headers.get("if-none-match", "")
    is_named = known.strip() == "*" or etag in [tag.removeprefix("W/") for tag in _tags(known)]
    return request.method in ("GET", "HEAD") and is_named


def _tags(header: str) -> list[str]:
    return [part.strip() for part in header.split(",")]


_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))", re.ASCII)
_PIECE = 64 << 10


def file_answer(request: HttpRequest, path: Path, digest: str, media_type: str, cache_control: str) -> Response[Any]:
    """Return a file: 200, 206 for a range of it, or 304. `digest`: of its content, in hex.

    Several ranges, or a range with an `If-Range` that differs, are answered with the whole file, as a server may.
    Raises HTTPException: 412 as `has_it`, 416 for a range outside the file.
    """
    etag, n_bytes = f'"{digest[:32]}"', path.stat().st_size
    headers = {"ETag": etag, "Cache-Control": cache_control, "Vary": "Accept-Encoding", "Accept-Ranges": "bytes"}
    if has_it(request, etag):
        return Response(b"", status_code=304, headers=headers, media_type=media_type)
    headers["Content-Disposition"] = f'attachment; filename="{path.name}"'
    asked = _RANGE.fullmatch(request.headers.get("range", "").strip())
    if asked is None or request.headers.get("if-range", etag) != etag:
        return _sent(path, 0, n_bytes, 200, headers, media_type)
    start, stop = _bounds(asked, n_bytes)
    if start >= stop:
        outside = {"Content-Range": f"bytes */{n_bytes}"}
        raise HTTPException(status_code=416, detail=f"the file has {n_bytes:,} bytes", headers=outside)
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{n_bytes}"
    return _sent(path, start, stop, 206, headers, media_type)


def _bounds(asked: re.Match[str], n_bytes: int) -> tuple[int, int]:
    """Return the first byte of the range and the end after its last; an empty range lies outside the file."""
    first, last, suffix = asked.groups()
    if suffix is not None:
        return max(n_bytes - int(suffix), 0), n_bytes
    stop = int(last) + 1 if last else n_bytes
    return int(first), min(stop, n_bytes)


def _sent(path: Path, start: int, stop: int, status: int, headers: dict[str, str], media_type: str) -> Response[Any]:
    headers = {**headers, "Content-Length": str(stop - start)}
    return Stream(_pieces(path, start, stop), status_code=status, headers=headers, media_type=media_type)


async def _pieces(path: Path, start: int, stop: int) -> AsyncIterator[bytes]:
    async with await anyio.open_file(path, "rb") as file:
        await file.seek(start)
        left = stop - start
        while left > 0 and (piece := await file.read(min(_PIECE, left))):
            left -= len(piece)
            yield piece


class CachedResponse(NamedTuple):
    """A body with its ETag. `version` None: it changes too often to be cached."""

    body: bytes
    etag: str
    version: str | None


class ResponseCache:
    """Up to `most_bytes` of answers, least recently used dropped first. For the event loop's thread."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self.n_bytes = most_bytes, 0
        self._kept: OrderedDict[Hashable, tuple[float, CachedResponse]] = OrderedDict()
        self._making: dict[tuple[Hashable, str], asyncio.Task[CachedResponse]] = {}

    async def answer(self, key: Hashable, version: str | None, make: Callable[[], bytes]) -> CachedResponse:
        """Return what `make` returns, called in a thread, or what it returned before for this `version`.

        The version is read before calling this, so an answer is never older than the version it is cached under.
        Concurrent calls for the same answer share one `make`.
        """
        kept = self._kept.get(key)
        if kept and kept[1].version == version and time.monotonic() - kept[0] < MOST_SECONDS:
            self._kept.move_to_end(key)
            return kept[1]
        if version is None:
            self._forget(key)
            return await to_thread.run_sync(_made, make, version)
        making = self._making.get((key, version))
        if making is None:
            making = self._making[key, version] = asyncio.create_task(self._make(key, version, make))
        return await asyncio.shield(making)  # the first caller may be cancelled before it is made

    async def _make(self, key: Hashable, version: str, make: Callable[[], bytes]) -> CachedResponse:
        try:
            answer = await to_thread.run_sync(_made, make, version)
            self._keep(key, answer)
            return answer
        finally:
            del self._making[key, version]

    def _keep(self, key: Hashable, answer: CachedResponse) -> None:
        self._forget(key)
        self._kept[key] = (time.monotonic(), answer)
        self.n_bytes += len(answer.body) + _OF_AN_ENTRY
        while self.n_bytes > self._most:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: Hashable) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self.n_bytes -= len(found[1].body) + _OF_AN_ENTRY


def _made(make: Callable[[], bytes], version: str | None) -> CachedResponse:
    body = make()
    return CachedResponse(body, etag_of(body), version)
