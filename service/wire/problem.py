"""Problems, the API's error answers (RFC 9457). Elsewhere, errors carry only the slug of their type.

All types are in `problems.json`, from which `docs/problems.md`, the page `/docs/problems` and every answer are made.
"""

from __future__ import annotations

from typing import Any

import msgspec

from service.engine.errors import AdvisorError
from service.engine.tables import table_of

MEDIA_TYPE = "application/problem+json"
PAGE = "/docs/problems"


class ProblemType(msgspec.Struct, frozen=True):
    """A type of problem: HTTP status, title, when it happens, and the remedy."""

    status: int
    title: str
    meaning: str
    remedy: str


PROBLEM_TYPES = table_of("problems.json", dict[str, ProblemType], "service.wire")


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One problem. `field`: path of the wrong value; `choices`: valid values; `retry_after`: in seconds."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    choices: list[str] | None = None
    retry_after: int | None = None
    instance: str | None = None


def problem(slug: str, detail: str, **extensions: Any) -> Problem:
    """Return the problem of type `slug`; `extensions` are Problem's optional fields."""
    kind = PROBLEM_TYPES[slug]
    return Problem(type=f"{PAGE}#{slug}", title=kind.title, status=kind.status, detail=detail, **extensions)


def problem_of(error: AdvisorError) -> Problem:
    slug = error.problem if error.problem in PROBLEM_TYPES else "internal"
    retry_after = getattr(error, "retry_after", None)
    choices = list(error.choices) or None
    return problem(slug, error.detail, field=error.field, choices=choices, retry_after=retry_after)


def stored_problem(parts: dict[str, Any]) -> Problem:
    """Return the problem from the parts that `service.errors.describe` gave; an unknown type becomes internal."""
    slug = str(parts.get("type", ""))
    known = {name: parts[name] for name in ("field", "choices", "retry_after") if parts.get(name) is not None}
    return problem(slug if slug in PROBLEM_TYPES else "internal", str(parts.get("detail", "")), **known)
