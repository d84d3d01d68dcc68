"""Validity of ids and names of rows from addresses."""

from __future__ import annotations

import re

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")  # 128 random bits


def is_name(text: str) -> bool:
    """Return whether `text` can be a name in any column: PostgreSQL rejects NUL."""
    return "\x00" not in text


def is_id(text: str) -> bool:
    """Return whether `text` can be an id at all. Anything else must not reach the database (PostgreSQL rejects NUL)."""
    return _ID.fullmatch(text) is not None
