"""Forms: what a browser sends as a mapping of texts, and errors to show at their fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from litestar.exceptions import HTTPException

from service.engine.decoding import in_words, refused
from service.engine.errors import AdvisorError, InvalidInput
from service.errors import NotAllowed
from service.web.http.body import declared_type
from service.web.http.types import HttpRequest

_TYPE = "application/x-www-form-urlencoded"
_MOST_FIELDS = 64
_MOST_QUERY = 8_192
T = TypeVar("T")


class FieldError(msgspec.Struct, frozen=True):
    """An error in a field of a form; `field` None: in the form as a whole."""

    field: str | None
    text: str
    choices: tuple[str, ...] = ()


class Form(msgspec.Struct, frozen=True):
    """The contents of a form, and their errors."""

    values: Mapping[str, str] = {}
    errors: tuple[FieldError, ...] = ()

    def value(self, name: str) -> str:
        """Return a field's text, empty if there is none."""
        return self.values.get(name, "")

    def refused(self, error: AdvisorError, fields: Mapping[str, str]) -> Form:
        """Return the form with `error`, placed as by `field_error`."""
        return Form(self.values, (field_error(error, fields),))

    def filled(self, names: Iterable[str]) -> dict[str, str]:
        """Return the texts of those of these fields that are not blank."""
        return {name: self.value(name) for name in names if self.value(name)}

    def error(self, name: str) -> FieldError | None:
        """Return a field's error, if any."""
        return next((error for error in self.errors if error.field == name), None)


async def read_form(request: HttpRequest) -> Form:
    """Return the form that a browser sent.

    Raises 415 for another kind of body, InvalidInput for too many fields, and NotAllowed for a form on another site,
    which would make each of its visitors send it from an address of their own.
    """
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise NotAllowed("this form was sent from another site")
    if declared_type(request) != _TYPE:
        raise HTTPException(status_code=415, detail=f"a form is sent as {_TYPE}")
    return Form(values_of((await request.body()).decode(errors="replace")))


def values_of(encoded: str) -> dict[str, str]:
    """Return the non-blank fields of an encoded form or query, with line ends as `\\n`. Raises InvalidInput, also for a
    NUL character, which no database stores."""
    try:
        pairs = parse_qsl(encoded, max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise InvalidInput(f"a form has {_MOST_FIELDS} fields at most") from error
    if any("\x00" in value for _, value in pairs):
        raise InvalidInput("a field holds the character NUL, which nothing here has")
    return {name: text for name, value in pairs if (text := value.replace("\r\n", "\n").strip())}


def query_of(request: HttpRequest) -> dict[str, str]:
    """Return the non-blank fields of the query. Raises InvalidInput."""
    return values_of(request.scope["query_string"].decode("latin-1")[:_MOST_QUERY])


def converted(asked: Mapping[str, Any], kind: type[T]) -> T:
    """Return a form's fields as a `kind`, with numbers parsed from text. Raises InvalidInput with the path."""
    try:
        with refused(kind):
            return msgspec.convert(asked, kind, strict=False)
    except InvalidInput as error:
        error.detail = in_words(error.detail)
        raise


def field_error(error: AdvisorError, fields: Mapping[str, str]) -> FieldError:
    """Return `error` placed at its field. `fields`: the form's field for each path of a request."""
    path = error.field or ""
    known = [prefix for prefix in fields if path == prefix or path.startswith((f"{prefix}.", f"{prefix}["))]
    field = fields[max(known, key=len)] if known else None
    text = error.detail if field or not path else f"{path}: {error.detail}"
    return FieldError(field, text, tuple(error.choices[:8]))
