"""Ids of rows: 128 random bits, as they stand in addresses."""

from __future__ import annotations

import re

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_id(text: str) -> bool:
    """Return whether `text` can be an id at all; what is not never reaches the database (PostgreSQL takes no NUL)."""
    return _ID.fullmatch(text) is not None
