"""Lists of what was measured, with their search; and the form that adds a host."""

from __future__ import annotations

import re

import httpx

from service.flows.accounts import create_token
from service.flows.context import utc_now
from tests.web.pages.test_pages import Tags
from tests.web.world import World

HTML = {"accept": "text/html"}


def test_nothing_measured_leads_to_asking(client: httpx.Client) -> None:
    for path in ("/models", "/hardware"):
        reply = client.get(path, params={"q": "no <such> name"})
        assert reply.status_code == 200
        assert "no &lt;such&gt; name" in reply.text
        assert "/" in Tags(reply.text).all("a", "href")


def test_the_form_gives_the_line_that_adds_a_host(client: httpx.Client, world: World) -> None:
    token = create_token(world.context.engine, "alice", ["host"], utc_now()).token
    reply = client.post("/hosts/new", data={"token": token, "visibility": "public"}, headers=HTML)
    assert reply.status_code == 200
    assert re.search(r"advisor host enrol http://\S+ --code=[\w-]{22}", reply.text)
    assert token not in reply.text


def test_a_wrong_token_is_said_at_its_field_and_is_not_shown(client: httpx.Client, world: World) -> None:
    reader = create_token(world.context.engine, "bob", ["submit"], utc_now()).token
    for token, status in (("", 401), ("adv_guess", 401), (reader, 403)):
        reply = client.post("/hosts/new", data={"token": token}, headers=HTML)
        assert reply.status_code == status
        assert 'role="alert"' in reply.text
        assert not token or token not in reply.text
