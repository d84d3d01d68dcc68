"""The shapes of reports of abuse and of what operators do about them."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from service.wire.results.results import ResultState

ReportKind: TypeAlias = Literal["wrong-figures", "not-theirs", "private", "offensive", "spam", "other"]
Action: TypeAlias = Literal[
    "hide", "show", "ban", "unban", "trust", "distrust", "close", "revoke", "remove", "refuse", "settle"
]


class AbuseReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is wrong with a result, for operators: `private` is something of a person that should not be there,
    `not-theirs` somebody else's measurement."""

    kind: ReportKind
    text: Annotated[str, Meta(max_length=1000)] = ""


class Reported(msgspec.Struct, frozen=True):
    """A report was kept; `id` for anyone who asks an operator about it."""

    id: str


class OpenReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report that no operator has closed, with the result it is about. `by`: a pseudonym, null without an account."""

    id: str
    result: str
    kind: ReportKind
    text: str
    by: str | None
    created_at: str
    result_state: ResultState
    model: str
    gpus: str
    of: str | None


class Moderation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that an operator does, and why: `hide` and `show` a result by its id; `ban`, `unban`, `trust` (vouch
    for) and `distrust` an account by its name or pseudonym; `close` a report by its id; `revoke` a host for good,
    by its pseudonym or id; `remove` a result for good by its id, which grants requests about it; `refuse` a request for
    removal by the request's id; `settle` a difference of buffers by its name in `/v1/accuracy`."""

    action: Action
    subject: Annotated[str, Meta(min_length=1, max_length=120)]
    reason: Annotated[str, Meta(min_length=3, max_length=400)]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of what operators did. `subject`: the id of a result, report or host, or the name of an account or
    a difference."""

    at: str
    by: str
    action: Action
    subject: str
    reason: str


class QuarantinedResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result that counts for nothing until somebody has looked at it, and why."""

    id: str
    model: str
    gpus: str
    reason: str | None
    of: str | None
    created_at: str


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
