"""The header that makes it safe to send a request again."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

from litestar.params import HeaderParameter

from service.engine.errors import InvalidInput

_KEY = re.compile(r"[\x21-\x7e]{1,200}")
IdempotencyKey: TypeAlias = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        description="Makes it safe to send the same request again.",
        schema_extra={"pattern": f"^{_KEY.pattern}$"},
    ),
]


def checked(key: str | None) -> str | None:
    """Return the key that came with a request. Raises InvalidInput for one that nobody keeps."""
    if key is not None and not _KEY.fullmatch(key):
        raise InvalidInput("the key has 1 to 200 printable characters", field="Idempotency-Key")
    return key
