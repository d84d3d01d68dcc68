"""The shapes of requests to remove a result."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from service.wire.results.results import ResultState


class RemovalRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a result should be removed, and how the operator can answer; `contact` is forgotten once it is decided."""

    text: Annotated[str, Meta(min_length=3, max_length=1000)]
    contact: Annotated[str, Meta(max_length=200)] | None = None


class RemovalAsked(msgspec.Struct, frozen=True):
    """A request was kept; `id` for anyone who asks the operator about it."""

    id: str


class OpenRemovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that no operator has decided, with the result that it is about."""

    id: str
    result: str
    text: str
    contact: str | None
    created_at: str
    result_state: ResultState
    origin: str
    model: str
    gpus: str
