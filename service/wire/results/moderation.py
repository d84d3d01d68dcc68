"""The types of reports, removal requests and operators' acts."""

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
    """A report of what is wrong with a result, for operators. `private`: it contains something personal; `not-theirs`:
    it is somebody else's measurement."""

    kind: ReportKind
    text: Annotated[str, Meta(max_length=1000)] = ""


class Reported(msgspec.Struct, frozen=True):
    """A report was stored; `id` is for asking an operator about it."""

    id: str


class OpenReport(msgspec.Struct, frozen=True, kw_only=True):
    """An open report, with the result it is about. `by`: a pseudonym, null without an account."""

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
    """An operator's act, and why: `hide` and `show` a result by its id; `ban`, `unban`, `trust` (vouch
    for) and `distrust` an account by its name or pseudonym; `close` a report by its id; `revoke` a host for good,
    by its pseudonym or id; `remove` a result for good by its id, which grants requests about it; `refuse` a request for
    removal by the request's id; `settle` a difference of buffers by its name in `/v1/accuracy`."""

    action: Action
    subject: Annotated[str, Meta(min_length=1, max_length=120)]
    reason: Annotated[str, Meta(min_length=3, max_length=400)]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded act of an operator. `subject`: the id of a result, report or host, or the name of an account or
    a difference."""

    at: str
    by: str
    action: Action
    subject: str
    reason: str


class QuarantinedResult(msgspec.Struct, frozen=True, kw_only=True):
    """A quarantined result, which counts for nothing until somebody has looked at it, and the reason."""

    id: str
    model: str
    gpus: str
    reason: str | None
    of: str | None
    created_at: str


class RemovalRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a result should be removed, and how to reply; `contact` is deleted once it is decided."""

    text: Annotated[str, Meta(min_length=3, max_length=1000)]
    contact: Annotated[str, Meta(max_length=200)] | None = None


class RemovalAsked(msgspec.Struct, frozen=True):
    """A request was stored; `id` is for asking the operator about it."""

    id: str


class OpenRemovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An undecided request, with the result it is about."""

    id: str
    result: str
    text: str
    contact: str | None
    created_at: str
    result_state: ResultState
    origin: str
    model: str
    gpus: str
