"""Who runs the service, what they promise, how they are asked to remove something, and where they decide."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import msgspec
import pytest
from sqlalchemy import Engine

from service.flows.accounts import create_token
from service.flows.context import Database, utc_now
from service.flows.results.moderation import open_requests
from service.queue.embedded import EmbeddedValkey
from service.store.results import results
from tests.databases import postgres
from tests.hosts import service
from tests.stored_results import a_result, keep, row
from tests.web.joining import settings_for, shared_app, shared_engine

__all__ = ["postgres", "shared_app", "shared_engine"]
TERMS = "# House <rules>\nBe kind,\nand brief.\n\n- see https://example.org/rules\n- no `rm`\n"
PAGES = ("/about", "/privacy", "/terms")


@pytest.fixture(scope="module")
def operated(
    shared_engine: Engine, valkey: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """A service whose operator has a name, a contact, and terms of their own."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "terms.txt").write_text(TERMS)
    settings = msgspec.structs.replace(
        settings_for(shared_engine.url.render_as_string(hide_password=False), valkey),
        operator="Ada & Friends", operator_contact="ada@example.org", pages_dir=folder,
        public_url="https://advisor.example", keep_advice_days=41,
    )  # fmt: skip
    with service(settings) as client:
        yield client


@pytest.fixture
def token(shared_engine: Engine) -> str:
    return create_token(shared_engine, "root", ["operator"], utc_now()).token


@pytest.fixture
def result_id(shared_engine: Engine) -> str:
    made = a_result([row(0, 20.0, 480.0)], state="quarantined", state_reason="twice as fast as four others")
    keep(shared_engine, made)
    return made.id


@pytest.mark.parametrize("path", PAGES)
def test_the_pages_name_the_operator_or_say_that_none_is_named(
    shared_app: httpx.Client, operated: httpx.Client, path: str, redis: object
) -> None:
    said = operated.get(path).text
    assert "Ada &amp; Friends" in said
    assert 'href="mailto:ada@example.org"' in said
    assert "No operator is named" in shared_app.get(path).text


def test_every_page_links_them(shared_app: httpx.Client, redis: object) -> None:
    for path in ("/", "/leaderboard", "/docs", "/nowhere"):
        footer = shared_app.get(path, headers={"accept": "text/html"}).text.partition("<footer")[2]
        assert all(f'href="{page}"' in footer for page in (*PAGES, "/removal"))


def test_privacy_says_what_the_settings_keep(shared_app: httpx.Client, operated: httpx.Client, redis: object) -> None:
    assert "41 days; advice that was measured is kept" in operated.get("/privacy").text
    assert "365 days; advice that was measured is kept" in shared_app.get("/privacy").text


def test_the_operator_s_own_text_takes_the_place_of_the_one_that_ships(operated: httpx.Client, redis: object) -> None:
    said = operated.get("/terms").text
    assert "<h2>House &lt;rules&gt;</h2>" in said
    assert "<p>Be kind, and brief.</p>" in said
    assert '<li>see <a href="https://example.org/rules">https://example.org/rules</a></li>' in said
    assert "<li>no <code>rm</code></li>" in said
    assert "Limits for each client" not in said
    assert "What is kept" in operated.get("/privacy").text


def test_security_txt_is_as_rfc_9116_has_it(shared_app: httpx.Client, operated: httpx.Client, redis: object) -> None:
    reply = operated.get("/.well-known/security.txt")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    fields = dict(line.split(": ", 1) for line in reply.text.splitlines())
    assert fields["Contact"] == "mailto:ada@example.org"
    assert fields["Canonical"] == "https://advisor.example/.well-known/security.txt"
    assert timedelta(days=30) < datetime.fromisoformat(fields["Expires"]) - datetime.now(UTC) < timedelta(days=366)
    assert shared_app.get("/.well-known/security.txt").status_code == 404


def test_a_request_for_removal_reaches_the_operator_by_form_and_by_api(
    shared_app: httpx.Client, shared_engine: Engine, result_id: str, redis: object
) -> None:
    form = shared_app.get("/removal", params={"result": result_id}).text
    assert f'value="{result_id}"' in form
    sent = {"result": f"https://advisor.example/results/{result_id}?x=1#key=abc", "text": "it names me"}
    assert "Asked for" in shared_app.post("/removal", data={**sent, "contact": "me@example.org"}).text
    api = shared_app.post(f"/v1/results/{result_id}/removal-requests", json={"text": "please remove it"})
    assert api.status_code == 201
    found = [one for one in open_requests(Database(shared_engine)) if one.result == result_id]
    assert [(one.text, one.contact) for one in found] == [("it names me", "me@example.org"), ("please remove it", None)]
    assert found[1].id == api.json()["id"]


def test_what_is_missing_in_a_request_is_said_next_to_its_field(shared_app: httpx.Client, redis: object) -> None:
    html = {"accept": "text/html"}
    reply = shared_app.post("/removal", data={"result": "x" * 22, "text": "it names me"}, headers=html)
    assert (reply.status_code, 'id="result-wrong"' in reply.text, "it names me" in reply.text) == (422, True, True)
    reply = shared_app.post("/removal", data={"result": "x" * 22, "text": "x"}, headers=html)
    assert (reply.status_code, 'id="text-wrong"' in reply.text) == (422, True)


def test_moderation_shows_nothing_without_an_operator_s_token(
    shared_app: httpx.Client, shared_engine: Engine, result_id: str, redis: object
) -> None:
    other = create_token(shared_engine, "somebody", ["submit"], utc_now()).token
    pages = [shared_app.get("/moderation"), *(shared_app.post("/moderation", data={"token": t}) for t in ("x", other))]
    assert [page.status_code for page in pages] == [200, 401, 403]
    assert not any(result_id in page.text for page in pages)
    assert not any(other in page.text for page in pages)
    assert pages[0].headers["x-robots-tag"] == "noindex, nofollow"
    acted = {"token": other, "action": "hide", "subject": result_id, "reason": "because"}
    assert shared_app.post("/moderation", data=acted).status_code == 403
    kept = results.read(shared_engine, result_id)
    assert kept
    assert kept.state == "quarantined"


def test_an_operator_decides_on_the_page_and_types_the_token_for_each_step(
    shared_app: httpx.Client, shared_engine: Engine, result_id: str, token: str, redis: object
) -> None:
    shared_app.post("/removal", data={"result": result_id, "text": "it names my dog", "contact": "me@example.org"})
    shared_app.post(f"/v1/results/{result_id}/reports", json={"kind": "private", "text": "a name"})
    page = shared_app.post("/moderation", data={"token": token})
    assert page.headers["cache-control"] == "no-store"
    assert token not in page.text
    assert "set-cookie" not in page.headers
    for said in ("it names my dog", "me@example.org", "a name", "twice as fast as four others"):
        assert said in page.text
    ids = re.findall(r' id="([^"]+)"', page.text)
    assert len(ids) == len(set(ids))
    incomplete = shared_app.post("/moderation", data={"token": token, "action": "remove", "subject": result_id})
    assert (incomplete.status_code, 'id="reason-wrong"' in incomplete.text) == (422, True)
    acted = {"token": token, "action": "remove", "subject": result_id, "reason": "it names somebody"}
    done = shared_app.post("/moderation", data=acted)
    assert f"Done: remove <code>{result_id}</code>" in done.text
    assert "dog" not in done.text
    assert shared_app.get(f"/results/{result_id}").status_code == 404
    gone = results.read(shared_engine, result_id)
    assert gone
    assert gone.state == "deleted"


def test_the_page_answers_to_its_own_site_only(shared_app: httpx.Client, token: str, redis: object) -> None:
    elsewhere = {"sec-fetch-site": "cross-site"}
    for path in ("/moderation", "/removal"):
        assert shared_app.post(path, data={"token": token}, headers=elsewhere).status_code == 403
