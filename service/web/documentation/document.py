"""The OpenAPI document of the API.

It is made by an app that is never served, so that the framework's own documentation routes, which load scripts from
other sites, do not exist in ours. `document.json` has what no handler says: about the whole, about parameters, and
examples of requests, by their types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from types import UnionType
from typing import Any, get_args

import msgspec
from litestar import Litestar
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.routes import HTTPRoute

from service import __version__
from service.web.api_routes import ROUTERS
from service.web.http.body import JsonBody
from service.web.http.callers import ANYBODY
from service.web.http.formats import MEDIA_TYPES
from service.wire.health import Health
from service.wire.problem import MEDIA_TYPE, Problem

_OWN = msgspec.json.decode(resources.files("service.web.documentation").joinpath("document.json").read_bytes())
_CONFIG = OpenAPIConfig(
    title="Offload Advisor",
    version=__version__,
    use_handler_docstrings=True,
    operation_id_creator=lambda handler, *_: handler.handler_name,
)
_REFERENCE = "#/components/schemas/{name}"
_OTHERS = (Health, Problem)  # types that no handler lists in its `responses`


@cache
def openapi_json() -> bytes:
    """Return the document as it is served, and stored in `openapi/openapi.json`."""
    return msgspec.json.format(msgspec.json.encode(openapi_document()), indent=1) + b"\n"


@cache
def openapi_document() -> dict[str, Any]:
    """Return the document as plain data.

    Schemas are msgspec's, which unlike the framework's have docstrings, all bounds and `additionalProperties`.
    """
    no_services = Provide(lambda: None, sync_to_thread=False)
    app = Litestar(
        ROUTERS, dependencies={"services": no_services}, openapi_config=_CONFIG, logging_config=None, dto=JsonBody,
        return_dto=None,
    )  # fmt: skip
    schema = app.openapi_schema.to_schema()
    routes = (route for route in app.routes if isinstance(route, HTTPRoute))
    handlers = {one.operation_id or one.handler_name: one for r in routes for one, _ in r.route_handler_map.values()}
    for spec in (spec for item in schema["paths"].values() for spec in item.values()):
        _correct(spec)
        _complete(spec, handlers[spec["operationId"]].opt)
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(schema, order="sorted"))
    explain(spec for item in document["paths"].values() for spec in item.values())
    kinds = (*(kind for one in handlers.values() for kind in _stated_by(one)), *_OTHERS)
    _, shapes = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    for shape in shapes.values():
        _say_simply(shape)
    for name in _sent_by_clients(document["paths"], shapes):
        _say_defaults_in_words(shapes[name])
    components = {"schemas": dict(sorted(shapes.items())), "securitySchemes": _OWN["securitySchemes"]}
    return document | {
        "components": components,
        "info": dict(sorted((document["info"] | _OWN["info"]).items())),
        "security": ANYBODY["security"],
        "tags": _OWN["tags"],
    }


def _correct(spec: dict[str, Any]) -> None:
    """State explicitly where no token is taken, and remove the framework's own 400 and ids.

    Where a token is optional is not stated: openapi-python-client wants one wherever an operation itself names one.
    """
    if spec.setdefault("security", []) == ANYBODY["security"]:
        del spec["security"]
    refused = spec["responses"].get("400", {})
    if MEDIA_TYPE not in refused.get("content", {}):
        spec["responses"].pop("400", None)
    for response in spec["responses"].values():
        for media in response.get("content", {}).values():
            for example in media.get("examples", {}).values():
                example.pop("id", None)


def _complete(spec: dict[str, Any], opt: Mapping[str, Any]) -> None:
    """Add what the framework does not see: a `body` that the handler reads itself, because a signature covers it, a
    `query` that is decoded as one Struct, and what events consist of."""
    if "body" in opt:
        schema = {"$ref": _REFERENCE.format(name=opt["body"].__name__)}
        spec["requestBody"] = {"content": {"application/json": {"schema": schema}}, "required": True}
    if "query" in opt:
        _, shapes = msgspec.json.schema_components((opt["query"],), ref_template=_REFERENCE)
        usual = {"in": "query", "required": False, "deprecated": False, "allowEmptyValue": True, "allowReserved": False}
        asked = shapes[opt["query"].__name__]["properties"].items()
        spec["parameters"] = [*spec["parameters"], *({**usual, "name": name, "schema": one} for name, one in asked)]
    for response in spec["responses"].values():
        if media := response.get("content", {}).get("text/event-stream"):
            said = "Events with `event`, `id` and `data`, which is JSON of the schema of the content."
            event = {"contentMediaType": "application/json", "contentSchema": media["schema"]}
            media["schema"] = {"type": "string", "description": said, **event}


def _stated_by(handler: HTTPRouteHandler) -> Iterator[Any]:
    """Yield the types of the bodies of its requests and answers."""
    for kind in (spec.data_container for spec in (handler.responses or {}).values() if spec.data_container):
        yield from get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if (data := handler.parsed_data_field) is not None:
        yield data.annotation
    if "body" in handler.opt:
        yield handler.opt["body"]


def _sent_by_clients(paths: dict[str, Any], shapes: dict[str, Any]) -> set[str]:
    """Return the names of the schemas that request bodies consist of."""
    bodies = [operation.get("requestBody") for item in paths.values() for operation in item.values()]
    found, new = set[str](), _named_in(bodies)
    while new:
        found |= new
        new = set().union(*(_named_in(shapes[name]) for name in new)) - found
    return found


def _named_in(part: Any) -> set[str]:
    text = msgspec.json.encode(part).decode()
    return set(re.findall(r'"#/components/schemas/([^"]+)"', text))


def _say_defaults_in_words(shape: dict[str, Any]) -> None:
    """Move defaults into descriptions: TypeScript generators treat a property with a default as always present."""
    for field in shape.get("properties", {}).values():
        default = field.pop("default", None)
        if default not in (None, [], ""):
            said = field.get("description", "").rstrip(".")
            field["description"] = f"{said}{'. ' if said else ''}Default: {msgspec.json.encode(default).decode()}."


def _say_simply(schema: Any) -> None:
    """Rewrite constructs that client generators do not understand into equivalent ones.

    `items: false` after `prefixItems` means the same as `maxItems`; equal prefix items are `items`; an object's default
    consists of its fields' defaults.
    """
    if isinstance(schema, dict):
        prefix = schema.get("prefixItems", [])
        if schema.get("items") is False and schema.get("maxItems") == len(prefix):
            del schema["items"]
        if prefix and all(item == prefix[0] for item in prefix):
            schema["items"] = schema.pop("prefixItems")[0]
        if isinstance(schema.get("default"), dict):
            del schema["default"]
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _say_simply(part)


def explain(operations: Iterable[dict[str, Any]]) -> None:
    """Describe every parameter, without null in its type (a query has a text or nothing); give requests examples."""
    meanings = _OWN["parameters"]
    for spec in operations:
        for one in spec.get("parameters", ()):
            name = one["name"]
            meaning = meanings.get(f"{spec['operationId']}.{name}") or meanings.get(name)
            if meaning and not one.get("description"):
                one["description"] = meaning
            one["schema"].pop("description", None)
            _leave_out_null(one["schema"])
            if name == "format" and "markdown" in one["schema"]["enum"]:
                _say_text_too(spec)
        for media in spec.get("requestBody", {}).get("content", {}).values():
            example = _OWN["requests"].get(media["schema"]["$ref"].rpartition("/")[2])
            if example is not None:
                media["schema"] = {"allOf": [media["schema"]], "examples": [example]}


def _say_text_too(spec: dict[str, Any]) -> None:
    """State in words that answers also come as text and Markdown: as media types they would turn an answer's type in
    generated clients into a union with a string."""
    others = " or ".join(f"`{kind}`" for kind in MEDIA_TYPES if kind != "application/json")
    for status, response in spec["responses"].items():
        if status.startswith("2") and "content" in response:
            said = response["description"].rstrip(".")
            response["description"] = f"{said}. Also as {others}, by `Accept` or `?format=`."


def _leave_out_null(schema: dict[str, Any]) -> None:
    if schema.get("default", "") is None:
        del schema["default"]
    several = [kind for kind in (*schema.pop("oneOf", ()), *schema.pop("anyOf", ())) if kind != {"type": "null"}]
    if len(several) == 1:
        schema |= several[0]
    elif several:
        schema["oneOf"] = several
    if "enum" in schema:
        schema["enum"] = [value for value in schema["enum"] if value is not None]
    if isinstance(schema.get("type"), list):
        schema["type"] = next(kind for kind in schema["type"] if kind != "null")
