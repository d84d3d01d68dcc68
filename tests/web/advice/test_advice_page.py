"""The page of an advice: before it is ready, when it failed, when it is deleted."""

from __future__ import annotations

import httpx
import pytest
from msgspec.structs import replace

from service.engine.errors import NotGguf
from service.engine.goal import GoalRequest
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.form import canonical
from service.flows.measuring import validated
from tests.engine.planner.asking import ask
from tests.rigs import ONE_3090_DESKTOP
from tests.web.pages.site import body
from tests.web.pages.test_pages import Tags
from tests.web.world import DELETE_KEY, World
from tests.wire.test_validation_text import DONE, MEASURED

HTML = {"accept": "text/html"}


def test_what_goes_on_is_followed_with_and_without_scripts(client: httpx.Client, world: World) -> None:
    world.put("one", "running", progress="reading headers")
    html = client.get("/advice/one").text
    assert "reading headers" in html
    assert 'data-events="/v1/advice/one/events"' in html
    assert '<noscript><meta http-equiv="refresh"' in html
    world.put("one", "ready")
    html = client.get("/advice/one").text
    assert "data-events" not in html
    assert "http-equiv" not in html


def test_a_failure_says_what_to_do(client: httpx.Client, world: World) -> None:
    world.put("one", "running")
    world.fail("one", NotGguf("no magic number"))
    html = client.get("/advice/one").text
    assert "no magic number" in html
    assert "/docs/problems#not-gguf" in Tags(html).all("a", "href")


@pytest.mark.full
def test_an_advice_leads_to_what_was_measured_of_its_model(client: httpx.Client, world: World) -> None:
    world.put("one", "ready", body=replace(body(), model_slug="qwen3-8b"))
    assert "/leaderboard?model=qwen3-8b" in Tags(client.get("/advice/one").text).all("a", "href")
    assert client.get("/leaderboard?model=qwen3-8b").status_code == 200


def test_an_advice_is_not_for_search_engines(client: httpx.Client, world: World) -> None:
    world.put("one", "ready")
    reply = client.get("/advice/one")
    assert reply.headers["x-robots-tag"] == "noindex, nofollow"
    assert '<meta name="robots" content="noindex, nofollow">' in reply.text


def test_a_browser_gets_problems_as_pages_and_a_program_as_json(client: httpx.Client) -> None:
    page = client.get("/advice/none", headers=HTML)
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "<h1>" in page.text
    assert client.get("/nothing", headers=HTML).headers["content-type"].startswith("text/html")
    assert client.get("/advice/none").headers["content-type"] == "application/problem+json"
    assert client.get("/v1/advice/none", headers=HTML).headers["content-type"] == "application/problem+json"


def test_deleting_takes_the_key(client: httpx.Client, world: World) -> None:
    world.put("one", "ready")
    for key in ("", "guess"):
        assert client.post("/advice/one/deletion", data={"key": key}, headers=HTML).status_code == 403
    assert client.post("/advice/one/deletion", data={"key": DELETE_KEY}, headers=HTML).status_code == 200
    assert client.get("/advice/one").status_code == 404


@pytest.mark.full
def test_a_machine_is_named_plainly_and_the_short_form_shows_what_it_would_replace(
    client: httpx.Client, world: World
) -> None:
    world.put("one", "ready", body=replace(body(), hardware=parse_hardware("RTX 4060 8GB, i7-13700H, 16GB DDR5")))
    html = client.get("/advice/one").text
    assert "i7-13700H, 16GB DDR5</span>" in html
    assert 'name="cpu" autocomplete="off" maxlength="200" placeholder="i7-13700H"' in html
    assert 'name="ram" autocomplete="off" maxlength="200" placeholder="16GB DDR5"' in html
    world.put("one", "ready", body=replace(body(), hardware=canonical(parse_hardware("Strix Halo 128GB"))))
    assert "on Radeon 8060S, 128GB</span>" in client.get("/advice/one").text
    world.put("two", "ready", body=replace(body(), hardware=parse_hardware("RTX 3090")))
    assert 'placeholder="Ryzen 9 7950X"' in client.get("/advice/two").text


def test_configs_for_several_requests_at_once_have_the_speed_of_all_of_them(client: httpx.Client, world: World) -> None:
    goal = GoalRequest(preset="batch", parallel=8)
    found = ask("Qwen3-8B", "q8_0", "q4_K_M", hardware=ONE_3090_DESKTOP, goal=goal)
    world.put("one", "ready", body=found)
    html = client.get("/advice/one").text
    tables = [table.partition("</table>")[0] for table in html.split("<table ")[1:]]
    for caption, configs in (("Other configs.", found.configs[1:]), ("Ranked for this goal", found.configs)):
        (table,) = [one for one in tables if f"<caption>{caption}" in one]
        assert '<th scope="col">8 at once, t/s</th>' in table
        for config in configs:
            assert config.at_once is not None
            (row,) = [one for one in table.split("<tr>") if f'"#config-{config.rank}"' in one]
            assert f">{config.at_once.tps:,.0f}<" in row
            assert f"{config.at_once.each:,.1f}" in row
    assert f"8 at once {found.configs[0].at_once.tps:,.0f} t/s (" in html  # type: ignore[union-attr]
    world.put("two", "ready", body=body())
    assert "at once" not in client.get("/advice/two").text


def test_what_is_being_measured_is_followed_and_said(
    client: httpx.Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put("one", "ready", configs=body().configs[:1])
    running = replace(MEASURED, state="running", outcome=None, progress="measuring at 4,096 tokens", result=None)
    validations = [DONE, replace(DONE, id="v2", state="running", runs=[running])]
    monkeypatch.setattr(validated, "validations_of_advice", lambda *_: validations)
    html = client.get("/advice/one").text
    assert 'data-events="/v1/validations/v2/events"' in html
    assert "measuring at 4,096 tokens" in html
    assert "Measured fastest: IQ4_KS_R4" in html
    assert "advisor validate http" in html
    del validations[1]
    assert "data-events" not in client.get("/advice/one").text
