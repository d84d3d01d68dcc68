"""docs/api.md and docs/shapes.md, written from the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from scripts.reference import DocumentedResponse, OperationView, Row, operations, schemas
from scripts.rules_page import slug
from service.web.documentation.document import openapi_document
from service.web.http.callers import ANYBODY

_API = """\
# HTTP API

The API offers everything that the service does; its pages, the command line and the bots give the same answers.
[clients.md](clients.md) has examples, and [shapes.md](shapes.md) describes the bodies of requests and answers. For
programs there is `/openapi.json` (OpenAPI 3.1).

- Paths are relative to the address of the service: `http://127.0.0.1:8000` for `advisor serve` with default settings.
- Bodies are JSON in UTF-8. A request with an unknown field is refused, and the error names the field. Answers are JSON;
  where `text/plain` and `text/markdown` are listed, `Accept` or `?format=` selects them. By default, curl gets JSON.
- A request that takes time is answered with 202, `Location` and `Retry-After`. With `?wait=` the service holds the
  answer instead; `…/events` sends server-sent events.
- Answers that may be requested again have an `ETag`; with `If-None-Match` the answer is 304 while nothing has changed.
- There are no CORS headers: a page of another site reaches the service through its own server.
- Requests are counted per address or account. If there are too many, the answer is 429 with `Retry-After`.
- Errors are [problems](problems.md), `application/problem+json`, with a type for programs and a sentence for people. If
  text or Markdown is requested, only the sentences are sent.
- Send a token as `Authorization: Bearer …`; [accounts.md](accounts.md) says who needs one, with which scope.
- Within `/v1` fields are added, never renamed or removed, so a client must ignore fields that it does not know.

This file is written by `make openapi`.
"""
_SHAPES = """\
# Shapes

The objects of the [HTTP API](api.md), by name. `null` means that a value is unknown or not stated. Fields without
"required" may be left out of a request; their default is in the last column.

This file is written by `make openapi`.
"""
_ACCESS = {
    (): "",
    ("Token",): "Needs a token.",
    ("", "Token"): "A token is optional; with one, the request counts for its account.",
    ("HostSignature",): "Signed by the host.",
    ("HostSession", "HostSignature"): "Signed by the host, within one of its sessions.",
}


def api_markdown() -> str:
    """Return docs/api.md."""
    document = openapi_document()
    views = operations(document)
    return "\n".join((_API, *(part for tag in document["tags"] for part in _chapter(tag, views, document["paths"]))))


def shapes_markdown() -> str:
    """Return docs/shapes.md."""
    return "\n".join((_SHAPES, *(_shape(*view) for view in schemas(openapi_document()))))


def _chapter(tag: dict[str, Any], views: list[OperationView], paths: dict[str, Any]) -> Iterator[str]:
    yield f"## {tag['name'].capitalize()}\n\n{tag['description']}.\n"
    for view in views:
        spec = paths[view.path][view.method.lower()]
        if tag["name"] in spec["tags"]:
            yield "\n\n".join(filter(None, _operation(view, spec))) + "\n"


def _operation(view: OperationView, spec: dict[str, Any]) -> Iterator[str]:
    yield f"### {view.summary}"
    yield f"`{view.method} {view.path}`"
    yield f"{view.text} {_access(spec)}".strip()
    if view.parameters:
        yield _table(("Parameter", "In", "Type", "Meaning"), (_parameter(row) for row in view.parameters))
    if view.body:
        yield f"Body: {_kinds(view.body)}" + (", for example:" if view.request_example else ".")
    if view.request_example:
        yield f"<!-- json: {view.body[0][0]} -->\n```json\n{view.request_example}\n```"
    yield _table(("Answer", "Media type", "Shape", "Meaning"), _answers(view.answers))
    problems = sorted({name for one in spec["responses"].values() for name in _problems(one)})
    if problems:
        yield "Problems: " + ", ".join(f"[{name}](problems.md#{name})" for name in problems) + "."


def _access(spec: dict[str, Any]) -> str:
    return _ACCESS[tuple(name for one in spec.get("security", ANYBODY["security"]) for name in (one or ("",)))]


def _problems(response: dict[str, Any]) -> Iterable[str]:
    names: Iterable[str] = response.get("content", {}).get("application/problem+json", {}).get("examples", ())
    return names


def _parameter(row: Row) -> tuple[str, str, str, str]:
    return (f"`{row.name}`", row.place, _kinds(row.kinds), row.text + (" Required." if row.required else ""))


def _answers(answers: list[DocumentedResponse]) -> Iterator[tuple[str, str, str, str]]:
    for one in answers:
        if int(one.status) < 400:
            yield (one.status, one.media or "none", _kinds(one.kinds) if one.media else "", one.text)


def _shape(name: str, text: str, rows: list[Row]) -> str:
    fields = [
        (f"`{row.name}`", _kinds(row.kinds), " ".join(filter(None, ("required" if row.required else "", row.text))))
        for row in rows
    ]
    table = _table(("Field", "Type", "Notes"), fields) if fields else ""
    return "\n\n".join(filter(None, (f"## {name}", text, table))) + "\n"


def _kinds(kinds: list[tuple[str, str | None]]) -> str:
    return " or ".join(dict.fromkeys(_kind(text, link) for text, link in kinds))


def _kind(text: str, link: str | None) -> str:
    if link:
        return f"[`{text}`](shapes.md#{slug(link)})"
    return ", ".join(f"`{one}`" for one in text.split(" | "))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table. A bar in a cell would end it, in code on GitHub too."""
    lines = [" | ".join(cell.replace("|", "/") for cell in row) for row in (head, ("---",) * len(head), *rows)]
    return "\n".join(f"| {line} |" for line in lines)
