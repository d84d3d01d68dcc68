"""The OpenAPI document of the API.

It is made by an app that is never served, so that the framework's own documentation routes, which load scripts from
other sites, do not exist in ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import msgspec
from litestar import Litestar
from litestar.di import Provide
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, Contact, License, Reference, SecurityScheme, Tag

from service import __version__
from service.web.api_routes import ROUTERS
from service.web.documentation.operations import Taking
from service.wire.advice.compact import CompactAdvice
from service.wire.health import Health
from service.wire.measuring.agent import SIGNATURE_HEADER
from service.wire.problem import MEDIA_TYPE, Problem

_DESCRIPTION = (
    "Name a Hugging Face GGUF repo and your hardware; get ranked, copy-and-paste configurations for ik_llama.cpp and "
    "llama.cpp, with the memory of every device and the speed at every context depth."
)
_SCHEMES: dict[str, SecurityScheme | Reference] = {
    "Token": SecurityScheme(type="http", scheme="bearer", description="What `advisor token create` printed."),
    "HostSession": SecurityScheme(type="http", scheme="bearer", description="The token of `POST /v1/agent/sessions`."),
    "HostSignature": SecurityScheme(
        type="apiKey",
        name=SIGNATURE_HEADER,
        security_scheme_in="header",
        description="Ed25519 signature (base64) with the headers Advisor-Host and Advisor-Counter: see docs/hosts.md.",
    ),
}
_CONFIG = OpenAPIConfig(
    title="Offload Advisor",
    version=__version__,
    description=_DESCRIPTION,
    use_handler_docstrings=True,
    operation_id_creator=lambda handler, *_: handler.handler_name,
    components=Components(security_schemes=_SCHEMES),
    contact=Contact(name="The operator of the service: see /about"),
    license=License(name="Apache-2.0", identifier="Apache-2.0"),
    tags=[
        Tag("advice", "Ask for configs, read them, follow their making"),
        Tag("check", "A command that you use: memory, speed, and what is wrong with it"),
        Tag("repos", "What a repo holds"),
        Tag("validations", "Have configs measured, follow it, and see what came of it"),
        Tag("results", "What was measured: the leaderboard, and every result as open data"),
        Tag("moderation", "What readers say is wrong with a result, and what operators do about it"),
        Tag("hosts", "Machines that measure, and whose they are"),
        Tag("agent", "What the agent on a host calls; every call after enrolment is signed"),
        Tag("hardware", "The catalogue, and how hardware is understood"),
        Tag("health", "Whether the service runs"),
    ],
)


_OTHERS = (CompactAdvice, Health, Problem)  # types that no handler lists in its `responses`


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
    app = Litestar(ROUTERS, dependencies={"services": no_services}, openapi_config=_CONFIG, logging_config=None)
    schema = app.openapi_schema.to_schema()
    operations = [spec for item in schema["paths"].values() for spec in item.values()]
    for spec in operations:
        _correct(spec)
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(schema, order="sorted"))
    explain(spec for item in document["paths"].values() for spec in item.values())
    kinds = (*_stated_by(app), *_OTHERS)
    _, shapes = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    for shape in shapes.values():
        _say_simply(shape)
    for name in _sent_by_clients(document["paths"], shapes):
        _say_defaults_in_words(shapes[name])
    schemes = document["components"]["securitySchemes"]
    return document | {"components": {"schemas": dict(sorted(shapes.items())), "securitySchemes": schemes}}


def _correct(spec: dict[str, Any]) -> None:
    """State explicitly where no credentials are needed, and remove the framework's own 400 and ids."""
    spec.setdefault("security", [])
    refused = spec["responses"].get("400", {})
    if MEDIA_TYPE not in refused.get("content", {}):
        spec["responses"].pop("400", None)
    for response in spec["responses"].values():
        for media in response.get("content", {}).values():
            for example in media.get("examples", {}).values():
                example.pop("id", None)


def _stated_by(app: Litestar) -> Iterator[Any]:
    """Yield the types of all bodies in requests and answers."""
    for handler in {handler for route in app.routes for handler, _ in getattr(route, "route_handler_map", {}).values()}:
        yield from (spec.data_container for spec in (handler.responses or {}).values() if spec.data_container)
        if (data := handler.parsed_data_field) is not None:
            yield data.annotation
        if issubclass(handler.operation_class, Taking):
            yield handler.operation_class.kind


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


_MEANINGS = {
    "advice_id": "Of an advice, as the answer to its request has it.",
    "arch": "The family of the model, as its header names it: `deepseek2`, `qwen3moe`.",
    "contributor": "The pseudonym of who sent it.",
    "cursor": "`next` of the page before.",
    "depth": "Tokens in the cache at which speeds are compared.",
    "engine": "Results of this engine only.",
    "host": "The pseudonym of the host that measured it.",
    "host_id": "Of a host, as its enrolment or the list of hosts has it.",
    "limit": "Rows in one page.",
    "model": "The model's slug, as in the address of its page.",
    "name": "Of the repo: what stands behind the `/`.",
    "origin": "How it came here: from an agent, from a submission, or published elsewhere.",
    "owner": "Of the repo: what stands before the `/`.",
    "platform": "The kind of machine, by its channels of memory.",
    "q": "Words that the name of the model, the cards or the variant has.",
    "ram": "The class of RAM, in GiB.",
    "repo": "The Hugging Face repo, as OWNER/NAME.",
    "result_id": "Of a result, as the answer to its submission or a list has it.",
    "rig": "The cards, by slug: `2x-rtx-3090`.",
    "run_id": "Of the run that was leased.",
    "since": "Received on this day or later, as YYYY-MM-DD.",
    "sort": "What the rows are ordered by.",
    "tier": "Results of this trust tier only.",
    "trust": "Results of this trust tier at least.",
    "until": "Received on this day or before, as YYYY-MM-DD.",
    "validation_id": "Of a validation, as the answer to its request has it.",
    "variant": "The quantised model: `Q4_K_M`.",
    "vram": "The class of the cards' memory together, in GiB.",
}
_ELSEWHERE = {
    ("read_dump", "name"): "Of the file, as the list of dumps has it.",
    ("read_leaderboard", "since"): "Measured on this day or later, as YYYY-MM-DD.",
}


def explain(operations: Iterable[dict[str, Any]]) -> None:
    """Describe every parameter, and remove null from its type: a query has a text or nothing."""
    for spec in operations:
        for one in spec.get("parameters", ()):
            name = one["name"]
            meaning = _ELSEWHERE.get((spec["operationId"], name)) or _MEANINGS.get(name)
            if meaning and not one.get("description"):
                one["description"] = meaning
            one["schema"].pop("description", None)
            _leave_out_null(one["schema"])


def _leave_out_null(schema: dict[str, Any]) -> None:
    several = [kind for kind in schema.pop("oneOf", ()) if kind != {"type": "null"}]
    if len(several) == 1:
        schema |= several[0]
    elif several:
        schema["oneOf"] = several
    if "enum" in schema:
        schema["enum"] = [value for value in schema["enum"] if value is not None]
    if isinstance(schema.get("type"), list):
        schema["type"] = next(kind for kind in schema["type"] if kind != "null")
