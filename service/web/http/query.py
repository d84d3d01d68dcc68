"""Query parameters as one Struct: decoded strictly, and documented from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from litestar.openapi.spec import Operation, Parameter, Schema

from service.engine.decoding import refused
from service.engine.errors import InvalidInput
from service.web.http.types import HttpRequest

T = TypeVar("T")


async def require_single(request: HttpRequest) -> None:
    """Refuse a parameter that is given twice: what is meant would be a guess. Raises InvalidInput with its name."""
    given = [name for name, _ in request.query_params.multi_items()]
    twice = next((name for i, name in enumerate(given) if name in given[:i]), None)
    if twice is not None:
        raise InvalidInput(f"{twice[:100]!r} is given twice", field=twice[:100] or "query")


def query_of(request: HttpRequest, kind: type[T], *others: str) -> T:
    """Return the query as a `kind`; an empty value is none, as forms send it. `others`: parameters that are not its.

    Raises InvalidInput with the name of the parameter.
    """
    pairs = request.query_params.multi_items()
    return decoded_query({name: value for name, value in pairs if value and name not in others}, kind)


def decoded_query(given: Mapping[str, str], kind: type[T]) -> T:
    """Return parameters as a `kind`. Raises InvalidInput with the name of the one that is wrong."""
    for name, value in given.items():
        if "\x00" in value or "\x00" in name:
            raise InvalidInput("no name has the character NUL", field=name.replace("\x00", "")[:100])
    with refused(kind):
        found = msgspec.convert(given, kind, strict=False)
    ignored = next((name for name in given if getattr(found, name) is None), None)
    if ignored is not None:  # "null", which msgspec takes for nothing said
        raise InvalidInput(f"{given[ignored]} is not a value: leave {ignored} out for none", field=ignored)
    return found


def asking(kind: type[Any], base: type[Operation] = Operation) -> type[Operation]:
    """Return an operation whose query is a `kind`, for a handler that reads it with `query_of`."""
    _, shapes = msgspec.json.schema_components((kind,), ref_template="#/components/schemas/{name}")
    properties: dict[str, dict[str, Any]] = shapes[kind.__name__]["properties"]

    @dataclass
    class Asking(base):  # type: ignore[valid-type,misc]
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
    """Return a property's schema; None is a parameter that is not given."""
    one = next((part for part in found.get("anyOf", [found]) if part.get("type") != "null"), found)
    names = {"maxLength": "max_length", "minLength": "min_length"}
    values = {names.get(name, name): value for name, value in one.items() if name != "$ref"}
    default = found.get("default")
    return Schema(**values, **({} if default is None or "default" in values else {"default": default}))
