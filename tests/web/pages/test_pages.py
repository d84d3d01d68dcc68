"""Pages: readable without scripts, nothing from outside, headers on everything."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from importlib import resources
from typing import Any, get_args, get_type_hints

import httpx
import pytest

from service.engine.check.learning import Part
from service.web.documentation.document import openapi_document
from service.web.http.middleware import HEADERS
from service.wire.results.accuracy import Division, MemoryDifference
from service.wire.results.moderation import Action, ReportKind

PAGES = ("/", "/docs", "/docs/problems", "/docs/speed", "/docs/api/check")


class Tags(HTMLParser):
    """Collects start tags and ids."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, name: str, attribute: str) -> list[str]:
        return [value for tag, found in self.tags if tag == name and (value := found.get(attribute))]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_inline_script_or_style_and_loads_nothing_from_outside(client: httpx.Client, path: str) -> None:
    tags = Tags(client.get(path).text)
    assert not [tag for tag, _ in tags.tags if tag in ("style", "iframe")]
    assert all(
        link and link.startswith("/static/")
        for tag, found in tags.tags
        if tag == "script"
        for link in [found.get("src")]
    )
    assert not [found for _, found in tags.tags if any(name.startswith("on") or name == "style" for name in found)]
    links = [found["href"] or "" for tag, found in tags.tags if tag == "link" and found["rel"] != "canonical"]
    assert all(link.startswith("/static/") for link in links)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_what_readers_and_screen_readers_need(client: httpx.Client, path: str) -> None:
    html = client.get(path).text
    tags = Tags(html)
    assert tags.all("html", "lang") == ["en"]
    assert len([tag for tag, _ in tags.tags if tag == "h1"]) == 1
    assert [tag for tag, _ in tags.tags if tag in ("main", "title", "nav", "header")]
    ids = [found["id"] for _, found in tags.tags if found.get("id")]
    assert len(ids) == len(set(ids))
    assert all(target[1:] in ids for target in tags.all("a", "href") if target.startswith("#"))


@pytest.mark.parametrize("path", PAGES)
def test_links_within_the_site_lead_somewhere(client: httpx.Client, path: str) -> None:
    tags = Tags(client.get(path).text)
    local = {href.partition("#")[0] for href in (*tags.all("a", "href"), *tags.all("script", "src"))} - {""}
    assert {href: client.get(href).status_code for href in local} == dict.fromkeys(local, 200)


def test_the_reference_shows_every_operation_and_schema(client: httpx.Client) -> None:
    document = openapi_document()
    api, shapes = (
        "".join(client.get(path).text for path in Tags(client.get(top).text).all("a", "href") if path.startswith(top))
        for top in ("/docs/api", "/docs/shapes")
    )
    asked = [f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item]
    assert [one for one in asked if f"<code>{one}</code>" not in api] == []
    assert [name for name in document["components"]["schemas"] if f'id="{name.lower()}"' not in shapes] == []


def test_the_start_page_shows_lines_that_work_as_printed(client: httpx.Client) -> None:
    html = client.get("/").text
    lines = [
        unescape(line)
        for line in re.findall(r"(?:<code>|^)(curl .*?)(?:</code>|$)", html.replace("\\\n", ""), re.MULTILINE)
    ]
    assert len(lines) == 7
    for line in lines:
        if "/v1/advice/ID" not in line:
            (url,) = re.findall(r"'(http[^']+)'", line)
            body = re.findall(r"--json '([^']+)'", line)
            headers = {"content-type": "application/json"}
            reply = (
                client.post(url.replace("wait=30", "wait=0"), content=body[0], headers=headers)
                if body
                else client.get(url)
            )
            assert reply.status_code in (200, 202), line


def test_a_forged_host_does_not_reach_the_page_unescaped(client: httpx.Client) -> None:
    assert "evil" not in client.get("/", headers={"host": "evil'@x"}).text


@pytest.mark.parametrize("path", [*PAGES, "/health", "/v1/nothing", "/openapi.json", "/v1/hardware/gpus"])
def test_every_answer_has_the_security_headers(client: httpx.Client, path: str) -> None:
    headers = client.get(path).headers
    assert {name: headers.get(name) for name in HEADERS} == HEADERS
    assert headers["x-request-id"]


@pytest.mark.parametrize("path", [*PAGES, "/health", "/openapi.json", "/v1/hardware/gpus"])
def test_head_is_get_without_the_body(client: httpx.Client, path: str) -> None:
    head, whole = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers.get("etag") == whole.headers.get("etag")
    assert head.headers["content-length"] == whole.headers["content-length"]
    assert client.head("/v1/advice").status_code == 405


def test_static_files_are_kept_for_ever_under_their_hash(client: httpx.Client) -> None:
    style = next(link for link in Tags(client.get("/").text).all("link", "href") if link.endswith(".css"))
    reply = client.get(style)
    assert "immutable" in reply.headers["cache-control"]
    assert reply.headers["content-type"].startswith("text/css")
    assert client.get(style, headers={"if-none-match": reply.headers["etag"]}).status_code == 304
    assert client.get("/static/000000000000/style.css").status_code == 404
    assert client.get("/static/000000000000/..%2fapp.py").status_code == 404


def test_pages_are_304_for_anyone_who_has_them(client: httpx.Client) -> None:
    etag = client.get("/docs").headers["etag"]
    assert client.get("/docs", headers={"if-none-match": etag}).status_code == 304


@pytest.mark.parametrize(
    ("template", "kind"),
    [
        ("moderation", Action), ("result", ReportKind), ("accuracy", Division),
        ("accuracy", Part), ("accuracy", get_type_hints(MemoryDifference)["state"]),
    ],
)  # fmt: skip
def test_a_template_has_words_for_every_value_of_what_it_shows(template: str, kind: Any) -> None:
    text = resources.files("service.web").joinpath(f"templates/{template}.html").read_text()
    assert [value for value in get_args(kind) if f"'{value}'" not in text] == []
