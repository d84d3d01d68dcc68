"""What paged lists share: an opaque cursor, and dates in requests."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from service.engine.errors import InvalidInput
from service.store.queries import is_id

_Instant = Annotated[datetime, Meta(tz=True)]


def cursor_of(order: str, position: tuple[float | datetime, str]) -> str:
    """Return where a page ended, the sort key and id of its last row, as text that is safe in a URL."""
    return base64.urlsafe_b64encode(msgspec.json.encode((order, *position))).decode().rstrip("=")


def position_in(cursor: str, order: str, *, is_time: bool) -> tuple[Any, str]:
    """Return the key and id that `cursor_of` was given. Raises InvalidInput for other text, or another order."""
    kind: Any = tuple[str, _Instant, str] if is_time else tuple[str, float, str]
    try:
        of, key, row_id = msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=kind)
        if of == order and is_id(row_id):
            return key.astimezone(UTC) if is_time else key, row_id
    except (ValueError, OverflowError):  # bad Base64, bad JSON, or a time that no timezone shift can represent
        pass
    raise InvalidInput("this is not a cursor that a page in this order gave", field="cursor")


def day_of(text: str, field: str) -> datetime:
    """Return the start of a day in UTC. Raises InvalidInput for an invalid date."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError as error:
        raise InvalidInput(f"{text} is not a valid date", field=field) from error
