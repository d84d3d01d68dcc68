"""Every page of a filled site: what readers and search engines need, small, and no name gets out of its place."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from redis import Redis

from service.flows.results.moderation import open_reports
from service.queue.embedded import EmbeddedValkey
from service.web.http.middleware import HEADERS
from tests.valkeys import redis, valkey
from tests.web.pages.site import EDIT_KEY, HOSTILE, Site, site
from tests.web.pages.test_pages import Tags

__all__ = ["redis", "valkey"]
MOST_BYTES = 100_000  # of a page with its style, script and icon
WITHOUT_NAMES = ("about", "privacy", "terms", "removal", "moderation", "no model", "check")
NAMES = (
    *("models", "rigs"),
    *("start", "advice", "running", "failed", "leaderboard", "model", "hardware", "result", "published"),
    *("quarantined", "compare", "accuracy", "submit", "hosts", "contributor"),
    *WITHOUT_NAMES,
)


@pytest.fixture(scope="module")
def client_redis(valkey: EmbeddedValkey) -> Iterator[Redis]:
    with Redis.from_url(valkey.url) as connection:
        yield connection


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory, valkey: EmbeddedValkey, client_redis: Redis) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("usual"), valkey, client_redis) as made:
        yield made


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, valkey: EmbeddedValkey, client_redis: Redis) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("hostile"), valkey, client_redis, HOSTILE) as made:
        yield made


@pytest.mark.parametrize("name", NAMES)
def test_a_page_says_what_it_is_and_weighs_little(usual: Site, name: str) -> None:
    reply = usual.client.get(usual.paths[name])
    assert reply.status_code == 200
    assert {header: reply.headers.get(header) for header in HEADERS} == HEADERS
    tags = Tags(reply.text)
    about = {found.get("name") or found.get("property"): found.get("content") for t, found in tags.tags if t == "meta"}
    assert about["description"]
    assert about["og:title"] and about["og:url"]  # noqa: PT018
    assert len([tag for tag, _ in tags.tags if tag == "h1"]) == 1
    ids = [found["id"] for _, found in tags.tags if found.get("id")]
    assert len(ids) == len(set(ids))
    assert all(target[1:] in ids for target in tags.all("a", "href") if target.startswith("#"))
    files = {*tags.all("script", "src"), *tags.all("img", "src"), *tags.all("link", "href")}
    files_size = sum(len(usual.client.get(file).content) for file in files if file.startswith("/static/"))
    assert len(reply.content) + files_size <= MOST_BYTES


@pytest.fixture(scope="module")
def statuses() -> dict[str, int]:
    """What was answered under each address: most links stand on every page."""
    return {}


@pytest.mark.parametrize("name", NAMES)
def test_links_of_a_page_lead_somewhere(usual: Site, statuses: dict[str, int], name: str) -> None:
    tags = Tags(usual.client.get(usual.paths[name]).text)
    local = {href.partition("#")[0] for href in tags.all("a", "href") if href.startswith("/")} - {""}
    statuses |= {href: usual.client.get(href).status_code for href in local - statuses.keys()}
    assert {href: statuses[href] for href in local if statuses[href] != 200} == {}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITHOUT_NAMES])
def test_a_hostile_name_stays_a_name(hostile: Site, name: str) -> None:
    reply = hostile.client.get(hostile.paths[name])
    assert reply.status_code == 200
    tags = Tags(reply.text)
    assert all((found.get("src") or "").startswith("/static/") for tag, found in tags.tags if tag == "script")
    assert not {"\x1b", "\u202e", "\u200b"} & set(reply.text)
    assert not [f for _, f in tags.tags if any(attribute.startswith("on") or attribute == "style" for attribute in f)]
    led = {urlsplit(f.get(a) or "").netloc for tag, f in tags.tags if tag != "meta" for a in ("href", "src", "action")}
    assert led <= {"", hostile.client.base_url.netloc.decode(), "example.com"}
    if name not in ("start", "submit", "hosts", "contributor"):
        assert "&lt;script" in reply.text, "the name is not on the page: the test shows nothing"


@pytest.mark.parametrize("depth", ["1e3", "7", "9" * 30, "-1"])
def test_a_depth_that_is_no_class_is_refused(usual: Site, depth: str) -> None:
    assert usual.client.get(f"{usual.paths['model']}?depth={depth}").status_code == 422


def test_a_reader_reports_a_result_and_an_operator_reads_it(usual: Site) -> None:
    path, html = usual.paths["result"], {"accept": "text/html"}
    reply = usual.client.post(f"{path}/reports", data={"kind": "nothing"}, headers=html)
    assert (reply.status_code, 'id="kind-wrong"' in reply.text) == (422, True)
    reply = usual.client.post(f"{path}/reports", data={"kind": "spam", "text": "bought"}, headers=html)
    assert reply.status_code == 200
    (kept,) = open_reports(usual.context)
    assert (kept.kind, kept.text, kept.result) == ("spam", "bought", path.rpartition("/")[2])
    assert kept.id in reply.text


def test_a_submitter_corrects_a_result_with_his_key_and_takes_it_back(usual: Site) -> None:
    path, html = usual.paths["own"], {"accept": "text/html"}

    def changed(**fields: str) -> httpx.Response:
        return usual.client.post(f"{path}/changes", data=fields, headers=html)

    wrong = changed(key="guess", do="correct", remarks="undervolted")
    assert (wrong.status_code, 'id="key-wrong"' in wrong.text, "undervolted" in wrong.text) == (403, True, True)
    assert changed(key=EDIT_KEY, do="correct", remarks="undervolted").headers["location"] == path
    shown = usual.client.get(path).text
    assert "undervolted" in shown
    assert "Changes by the submitter" in shown
    assert changed(key=EDIT_KEY, do="delete").status_code == 200
    assert usual.client.get(path).status_code == 404
