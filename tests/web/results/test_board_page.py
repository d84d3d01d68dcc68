"""Filters of the leaderboard as a form: the choice stays, and names beyond number do not make the page heavy."""

from __future__ import annotations

import httpx
import pytest

from service.flows.results import leaderboard
from service.wire.results.board import BoardChoices, NamedSlug
from tests.stored_results import a_result, keep, row
from tests.web.pages.test_pages import Tags
from tests.web.world import World

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


def test_the_board_says_what_a_row_is_the_fastest_of_and_counts_ram_in_gib(client: httpx.Client, world: World) -> None:
    fast, slow = (a_result([row(0, tg)], variant=name) for name, tg in (("Q4_K_M", 20.0), ("Q8_0", 12.0)))
    keep(world.context.engine, fast, slow)
    page = client.get("/leaderboard?trust=self-reported", headers=HTML).text
    assert page.count('name="ids"') == 1
    assert "The fastest measured result of each model on each set of cards with each engine" in page
    assert f"{fast.ram_gib} GiB" in page


def test_a_rig_of_an_unknown_platform_can_be_chosen_and_stays_chosen(client: httpx.Client) -> None:
    chosen = [
        found["value"]
        for tag, found in Tags(client.get("/leaderboard?platform=unknown").text).tags
        if tag == "option" and "selected" in found
    ]
    assert "unknown" in chosen
