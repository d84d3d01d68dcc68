"""Pages, readable without scripts: forms of browsers, and templates, which print everything cleaned and escaped."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import jinja2
import msgspec
from litestar import Response
from litestar.exceptions import HTTPException
from markupsafe import Markup, escape

from service import __version__
from service.engine.commands.shell import fold
from service.engine.decoding import in_words, refused
from service.engine.errors import AdvisorError, InvalidInput
from service.errors import NotAllowed
from service.web.http.body import declared_type
from service.web.http.conditional import conditional
from service.web.http.types import HttpRequest
from service.web.pictures import mark
from service.wire.advice.card import basis_words, interval_words
from service.wire.plain_text import clean

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


HTML = "text/html"
STATIC_TYPES = {"style.css": "text/css", "icon.svg": "image/svg+xml", "advisor.js": "text/javascript"}
_CODE = re.compile(r"`([^`]{1,200})`")
_ADDRESS = re.compile(r"(https://[^\s<>&\"']{1,300}[\w/])")
_MOST = 400  # characters shown of a name from outside; the filter `whole` exempts commands and logs


def _finished(value: Any) -> Any:
    """Return a printed value without control, direction and zero-width characters; None prints nothing."""
    if isinstance(value, Markup):  # escaped by filters such as `join`, but may contain names
        return Markup(clean(value))  # noqa: S704 (clean only leaves out)
    if isinstance(value, str):
        return clean(value if len(value) <= _MOST else value[: _MOST - 1] + "…")
    return "" if value is None else value


def _prose(text: str) -> Markup:
    """Return `text` as HTML, with text in backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(clean(text)))))  # noqa: S704 (escaped before)


def _linked(text: str) -> Markup:
    """Return `text` as HTML, with text in backticks as code and addresses as links."""
    return Markup(_ADDRESS.sub(r'<a href="\1">\1</a>', str(_prose(text))))  # noqa: S704 (escaped before)


def _whole(text: str) -> Markup:
    """Return `text` as HTML in full length, each line cleaned."""
    return escape(clean(text.replace("\r\n", "\n").replace("\t", "    ")))


def _figure(value: float | None) -> str:
    """Return a speed with two decimals below 10 t/s, one below 100, none above."""
    if value is None:
        return "–"
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _day(instant: datetime | str | None) -> str:
    """Return the date of a time, or of its ISO form."""
    return (instant if isinstance(instant, str) else instant.isoformat() if instant else "")[:10]


def _counted(count: int, what: str) -> str:
    """Return a count of things, such as `1 result` and `2,000 results`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _capitalised(text: str) -> str:
    """Return a sentence with its first letter capitalised; `str.capitalize` would lower-case the rest."""
    return text[:1].upper() + text[1:]


def _outside(address: str) -> str:
    """Return an external address for a link; anything but http and https becomes the start page."""
    return address if re.match(r"https?://", address) else "/"


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("service.web"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finished,
    )
    made.filters.update(
        prose=_prose,
        linked=_linked,
        whole=_whole,
        figure=_figure,
        day=_day,
        fold=fold,
        outside=_outside,
        counted=_counted,
        capitalised=_capitalised,
        interval_words=interval_words,
        basis_words=basis_words,
    )
    made.globals.update(mark=mark, versioned=versioned, version=__version__)
    return made


@cache
def static_files() -> dict[str, bytes]:
    folder = resources.files("service.web") / "static"
    return {name: (folder / name).read_bytes() for name in STATIC_TYPES}


@cache
def versioned(name: str) -> str:
    """Return the path of a static file, which contains the hash of its content."""
    return f"/static/{hashlib.sha256(static_files()[name]).hexdigest()[:12]}/{name}"


_templates = _environment()


def page(request: HttpRequest, template: str, *, status: int = 200, **values: Any) -> Response[bytes]:
    """Return a page with its ETag, or 304. Answers to forms, and any status but 200, are never cached."""
    path, services = request.url.path, request.app.state.services
    here = services.address(request, path)  # as users see it
    body = _templates.get_template(template).render(here=here, path=path, **values).encode()
    if status == 200 and request.method in ("GET", "HEAD"):
        return conditional(request, body, HTML)
    return Response(body, status_code=status, media_type=HTML)
