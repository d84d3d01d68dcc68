"""What lists that go on for pages share: a cursor that only we read, and days as people write them."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from service.engine.errors import InvalidInput

T = TypeVar("T")


def cursor_of(position: object) -> str:
    """Return where a page ended as text that stands in an address."""
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def position_in(cursor: str, kind: type[T]) -> T | None:
    """Return what `cursor_of` was given, None for text that it never wrote."""
    padded = cursor + "=" * (-len(cursor) % 4)
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        return None


def instant_text(instant: datetime) -> str:
    """Return an instant as it stands in a cursor: in UTC, which it does not name."""
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat()


def instant_in(text: str) -> datetime:
    """Return what `instant_text` was given. Raises ValueError for other text."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def day_of(text: str, field: str) -> datetime:
    """Return the beginning of a day in UTC. Raises InvalidInput for one that is none."""
    try:
        return instant_in(text)
    except ValueError as error:
        raise InvalidInput(f"{text} is not a valid date", field=field) from error
