"""Filters of the leaderboard as a form: the choice stays, and names beyond number do not make the page heavy."""

from __future__ import annotations

import httpx
import pytest

from service.flows.results import leaderboard
from service.wire.results.board import BoardChoices, NamedSlug
from tests.web.pages.test_pages import Tags

HTML = {"accept": "text/html"}


def test_the_chosen_name_is_offered_however_many_there_are(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [NamedSlug(slug=f"model-{i}", name=f"A model with quite a long name {i}") for i in range(500)]
    names = [f"VARIANT_{i}" for i in range(500)]
    found = BoardChoices(models=many, rigs=many, variants=names, archs=[], depths=[0], vram=[24], ram=[])
    monkeypatch.setattr(leaderboard, "choices", lambda _: found)
    page = client.get("/leaderboard?model=model-499&variant=nowhere&rig=&utm_source=x").text
    assert len(page) < 60_000
    chosen = [found["value"] for tag, found in Tags(page).tags if tag == "option" and "selected" in found]
    assert {"model-499", "nowhere"} <= set(chosen)


def test_a_wrong_filter_is_said_at_its_field(client: httpx.Client) -> None:
    reply = client.get("/leaderboard?depth=7&q=x", headers=HTML)
    assert (reply.status_code, 'id="depth-wrong"' in reply.text, 'value="x"' in reply.text) == (422, True, True)


def test_a_wrong_value_that_has_no_field_is_said_with_its_name(client: httpx.Client) -> None:
    page = client.get("/leaderboard?limit=abc", headers=HTML).text
    assert "limit: this must be a whole number" in page
    assert 'href="#limit"' not in page


def test_who_shows_unverified_results_too_keeps_the_other_filters(client: httpx.Client) -> None:
    links = [
        found.get("href", "") for tag, found in Tags(client.get("/leaderboard?q=3090&sort=pp").text).tags if tag == "a"
    ]
    assert "/leaderboard?q=3090&sort=pp&trust=self-reported" in links
    assert "/v1/leaderboard?q=3090&sort=pp" in links
