"""Query parameters as one Struct, which the handler names in `opt` as its `query`, decoded strictly."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from litestar.handlers import BaseRouteHandler
from litestar.params import QueryParameter

from service.engine.decoding import in_words, refused
from service.engine.errors import InvalidInput
from service.web.http.types import HttpRequest

T = TypeVar("T", bound=msgspec.Struct)


def parameters_of(handler: BaseRouteHandler) -> dict[str, str]:
    """Return a handler's query parameters: public names by the names of its arguments."""
    declared = {name: one.kwarg_definition for name, one in handler.parsed_fn_signature.parameters.items()}
    own = {name: one.name or name for name, one in declared.items() if isinstance(one, QueryParameter)}
    return own | {name: name for name in getattr(handler.opt.get("query"), "__struct_fields__", ())}


async def require_understood(request: HttpRequest) -> None:
    """Refuse unknown and repeated parameters instead of guessing what is meant.

    Raises InvalidInput with its name.
    """
    given = [name for name, _ in request.query_params.multi_items()]
    known = tuple(parameters_of(request.route_handler).values()) if given else ()
    for i, name in enumerate(given):
        if name not in known:
            raise InvalidInput(
                f"there is no parameter {name[:100]!r} here",
                field=name.replace("\x00", "")[:100] or "query",
                choices=known,
            )
        if name in given[:i]:
            raise InvalidInput(f"{name[:100]!r} is given twice", field=name[:100])


def query_of(request: HttpRequest, kind: type[T]) -> T:
    """Return the query as a `kind`; an empty value counts as none, as forms send it.

    Raises InvalidInput with the name of the wrong parameter.
    """
    names = [field.name for field in msgspec.structs.fields(kind)]
    given = {name: value for name, value in request.query_params.multi_items() if value and name in names}
    for name, value in given.items():
        if "\x00" in value:
            raise InvalidInput("no name has the character NUL", field=name)
    try:
        with refused(kind):
            found = msgspec.convert(given, kind, strict=False)
    except InvalidInput as error:
        error.detail = in_words(error.detail)
        raise
    ignored = next((name for name in given if getattr(found, name) is None), None)
    if ignored is not None:  # "null", which msgspec treats as absent
        raise InvalidInput(f"{given[ignored]} is not a value: leave {ignored} out for none", field=ignored)
    return found
