"""Query parameters as one Struct, decoded strictly and documented from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import msgspec
from litestar.handlers import BaseRouteHandler
from litestar.openapi.spec import Operation, Parameter, Schema
from litestar.params import QueryParameter

from service.engine.decoding import refused
from service.engine.errors import InvalidInput
from service.web.http.types import HttpRequest

T = TypeVar("T", bound=msgspec.Struct)


def parameters_of(handler: BaseRouteHandler) -> dict[str, str]:
    """Return a handler's query parameters: public names by the names of its arguments."""
    declared = {name: one.kwarg_definition for name, one in handler.parsed_fn_signature.parameters.items()}
    own = {name: one.name or name for name, one in declared.items() if isinstance(one, QueryParameter)}
    return own | {name: name for name in getattr(getattr(handler, "operation_class", None), "asked", ())}


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
    with refused(kind):
        found = msgspec.convert(given, kind, strict=False)
    ignored = next((name for name in given if getattr(found, name) is None), None)
    if ignored is not None:  # "null", which msgspec treats as absent
        raise InvalidInput(f"{given[ignored]} is not a value: leave {ignored} out for none", field=ignored)
    return found


def asking(kind: type[Any], base: type[Operation] = Operation) -> type[Operation]:
    """Return an operation with the fields of `kind` as its query, for a handler that uses `query_of`."""
    _, shapes = msgspec.json.schema_components((kind,), ref_template="#/components/schemas/{name}")
    properties: dict[str, dict[str, Any]] = shapes[kind.__name__]["properties"]

    @dataclass
    class Asking(base):  # type: ignore[valid-type,misc]
        asked: ClassVar = tuple(properties)

        def __post_init__(self) -> None:
            if base is not Operation:
                super().__post_init__()
            asked = [
                Parameter(name=name, param_in="query", schema=_schema(one), allow_empty_value=True)
                for name, one in properties.items()
            ]
            declared: list[Any] = getattr(self, "parameters", None) or []
            self.parameters = [*declared, *asked]

    return Asking


def _schema(found: dict[str, Any]) -> Schema:
    """Return a property's schema without null, which stands for a parameter that is not given."""
    one = next((part for part in found.get("anyOf", [found]) if part.get("type") != "null"), found)
    names = {"maxLength": "max_length", "minLength": "min_length"}
    values = {names.get(name, name): value for name, value in one.items() if name != "$ref"}
    default = found.get("default")
    return Schema(**values, **({} if default is None or "default" in values else {"default": default}))
