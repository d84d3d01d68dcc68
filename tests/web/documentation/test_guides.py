"""The documentation as the service shows it: every page there, whole, linked and found."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from service.web.documentation import guides
from tests.web.pages.test_pages import Tags

DOCS = Path(__file__).parents[3] / "docs"
_MOST = 100_000  # bytes of a page


def pages() -> list[str]:
    """Return the address of each page, and of each part of the long ones."""
    known = guides.guides().values()
    return [
        path for one in known for path in (f"/docs/{one.name}", *(one.address(p.anchor) for p in guides.parts(one)))
    ]


def test_the_index_leads_to_every_page(client: httpx.Client) -> None:
    links = Tags(client.get("/docs").text).all("a", "href")
    assert {f"/docs/{path.stem}" for path in DOCS.glob("*.md")} - {"/docs/index"} <= set(links)


def test_every_page_is_small_and_its_links_and_anchors_lead_somewhere(client: httpx.Client) -> None:
    anchors, wanted = {}, set()
    for path in pages():
        reply = client.get(path)
        assert reply.status_code == 200, path
        assert len(reply.content) < _MOST, path
        tags = Tags(reply.text)
        levels = [int(tag[1]) for tag, _ in tags.tags if re.fullmatch(r"h[1-6]", tag)]
        assert levels[0] == 1, path
        assert all(after - before <= 1 for before, after in pairwise(levels)), path
        anchors[path] = {found["id"] for _, found in tags.tags if found.get("id")}
        wanted |= {(path, href if not href.startswith("#") else path + href) for href in tags.all("a", "href")}
    lost = []
    for source, href in wanted:
        target, _, anchor = href.partition("#")
        if target.startswith("/docs/") and (target not in anchors or (anchor and anchor not in anchors[target])):
            lost.append((source, href))
        assert not href.endswith(".md"), (source, href)
    assert lost == []


@pytest.mark.parametrize(("query", "address"), [
    ("what goes where", "/docs/offloading"), ("adviser_tokne", ""), ("ADVISOR_PORT", "/docs/settings#advisor_port"),
    ("AdviceRequest", "/docs/shapes/advicerequest"),
])  # fmt: skip
def test_a_search_leads_to_the_section(client: httpx.Client, query: str, address: str) -> None:
    links = Tags(client.get("/docs", params={"q": query}).text).all("a", "href")
    assert any(link.startswith(address) for link in links) if address else not any("#" in link for link in links[1:])


def test_a_query_stays_text(client: httpx.Client) -> None:
    assert "<script>x" not in client.get("/docs", params={"q": "<script>x"}).text


def test_what_is_no_page_is_not_found(client: httpx.Client) -> None:
    for path in ("/docs/nothing", "/docs/../pyproject", "/docs/api/nothing", "/docs/theme"):
        assert client.get(path).status_code == 404


def test_a_pages_picture_is_there(client: httpx.Client) -> None:
    assert "/docs/speed.svg" in client.get("/docs/speed").text
    assert client.get("/docs/speed.svg").headers["content-type"].startswith("image/svg+xml")


def test_a_heading_has_the_anchor_that_github_gives_it() -> None:
    assert guides.slug("Which `-ot` comes first? (ik)") == "which--ot-comes-first-ik"
