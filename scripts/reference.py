"""The OpenAPI document as the reference page shows it: operations in order, schemas as tables."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

_METHODS = ("get", "post", "patch", "delete")
_PREFIX = "#/components/schemas/"
_BOUNDS = {
    "minimum": "≥ {}",
    "maximum": "≤ {}",
    "exclusiveMinimum": "> {}",
    "minLength": "≥ {} characters",
    "maxLength": "≤ {} characters",
    "minItems": "≥ {} items",
    "maxItems": "≤ {} items",
}


class Row(NamedTuple):
    """One parameter or field. `kinds`: (text, schema to link to or None)."""

    name: str
    place: str
    kinds: list[tuple[str, str | None]]
    required: bool
    text: str


class DocumentedResponse(NamedTuple):
    """One response: status, media types, what it means, the schema."""

    status: str
    media: str
    text: str
    kinds: list[tuple[str, str | None]]


class OperationView(NamedTuple):
    """One operation as the page shows it; examples are pretty JSON."""

    method: str
    path: str
    summary: str
    text: str
    parameters: list[Row]
    body: list[tuple[str, str | None]]
    request_example: str | None
    answers: list[DocumentedResponse]


class SchemaView(NamedTuple):
    """One schema as the page shows it."""

    name: str
    text: str
    rows: list[Row]


def operations(document: dict[str, Any]) -> list[OperationView]:
    """Return every operation, by path."""
    found = [
        (path, method, item[method])
        for path, item in sorted(document["paths"].items())
        for method in _METHODS
        if method in item
    ]
    return [_operation(path, method, spec) for path, method, spec in found]


def schemas(document: dict[str, Any]) -> list[SchemaView]:
    """Return every object schema, by name."""
    components = document.get("components", {}).get("schemas", {})
    return [
        SchemaView(name, _plain(schema.get("description", "")), _fields(schema))
        for name, schema in sorted(components.items())
    ]


def _operation(path: str, method: str, spec: dict[str, Any]) -> OperationView:
    content = spec.get("requestBody", {}).get("content", {}).get("application/json", {})
    return OperationView(
        method=method.upper(),
        path=path,
        summary=spec.get("summary", ""),
        text=_plain(spec.get("description", "")),
        parameters=[_parameter(p) for p in spec.get("parameters", [])],
        body=_kinds(content["schema"]) if content else [],
        request_example=_first_example(content),
        answers=[_answer(status, response) for status, response in sorted(spec["responses"].items())],
    )


def _parameter(spec: dict[str, Any]) -> Row:
    schema = spec.get("schema", {})
    text = " ".join(part for part in (spec.get("description", ""), _limits(schema)) if part)
    return Row(spec["name"], spec["in"], _kinds(schema), bool(spec.get("required")), text)


def _answer(status: str, response: dict[str, Any]) -> DocumentedResponse:
    content = response.get("content", {})
    first: dict[str, Any] = next(iter(content.values()), {})
    return DocumentedResponse(
        status, ", ".join(content), response.get("description", ""), _kinds(first.get("schema", {}))
    )


def _fields(schema: dict[str, Any]) -> list[Row]:
    required = schema.get("required", ())
    return [
        Row(name, "", _kinds(field), name in required, _limits(field))
        for name, field in schema.get("properties", {}).items()
    ]


def _kinds(schema: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Return the types that a schema allows, in the order of the document."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_PREFIX)
        return [(name, name)]
    if "contentSchema" in schema.get("properties", {}).get("data", {}):  # an event of a stream
        return _kinds(schema["properties"]["data"]["contentSchema"])
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return [(" | ".join(json.dumps(value) for value in values), None)]
    several = schema.get("oneOf") or schema.get("anyOf") or schema.get("allOf")
    if several:
        return [kind for part in several for kind in _kinds(part)]
    if schema.get("type") == "array":
        item = schema["prefixItems"][0] if "prefixItems" in schema else schema.get("items", {})
        return [(f"[{text}]", link) for text, link in _kinds(item)]
    kind = schema.get("type", "any")
    return [(" | ".join(kind) if isinstance(kind, list) else str(kind), None)]


def _limits(schema: dict[str, Any]) -> str:
    """Return the bounds of a value and its default."""
    parts = [schema, *schema.get("oneOf", []), *schema.get("anyOf", [])]
    said = [text.format(_number(part[name])) for part in parts for name, text in _BOUNDS.items() if name in part]
    default = schema.get("default")
    said += [] if default in (None, [], {}, "") else [f"default: {json.dumps(default)}"]
    return ", ".join(dict.fromkeys(said))


def _number(value: float) -> str:
    return f"{int(value) if value == int(value) else value:,}"


def _first_example(content: dict[str, Any]) -> str | None:
    for example in content.get("schema", {}).get("examples", []):
        return json.dumps(example, indent=2, ensure_ascii=False)
    return None


def _plain(text: str) -> str:
    return " ".join(text.split())
