"""The form that asks for an advice: what it sends, where it leads, and errors that lose nothing."""

from __future__ import annotations

import re
from html import unescape

import httpx
import pytest

from service.engine.goal import EngineChoice
from service.web.advice.ask_page import advice_request
from service.web.pages import Form
from tests.web.pages.test_pages import Tags
from tests.web.world import NEW_REPO, READY_REPO, World

HTML = {"accept": "text/html"}
FILLED = {"repo": READY_REPO, "gpus": "2x RTX 3090", "cpu": "Ryzen 9 7950X", "ram": "128GB DDR5-5600"}


def sent(client: httpx.Client, **fields: str) -> httpx.Response:
    return client.post("/advice", data=fields, headers=HTML)


def test_a_form_becomes_the_request_that_the_api_takes() -> None:
    more = {"preset": "agent", "context": "32768", "min_tg": "7.5", "engine": "llama.cpp", "reserve_mib": "700"}
    form = Form({**FILLED, **more, "variants": "Q4_K_M, IQ3_XXS", "what_if": "+1 RTX 3090\n\n no GPU "})
    asked = advice_request(form)
    assert asked.hardware == "2x RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"
    assert (asked.goal.preset, asked.goal.context, asked.goal.min_tg) == ("agent", 32768, 7.5)  # type: ignore[union-attr]
    assert asked.constraints.engines == [EngineChoice("llama.cpp")]
    assert asked.constraints.variants == ["Q4_K_M", "IQ3_XXS"]
    assert asked.constraints.reserve_mib == 700
    assert asked.what_if == ["+1 RTX 3090", "no GPU"]
    assert not asked.constraints.images


def test_an_advice_for_images_can_be_asked_for_and_stays_marked_where_something_is_wrong(client: httpx.Client) -> None:
    assert advice_request(Form({**FILLED, "images": "yes"})).constraints.images
    shown = sent(client, **{**FILLED, "repo": ""}, images="yes").text
    (box,) = [found for _, found in Tags(shown).tags if found.get("id") == "images"]
    assert "checked" in box
    (box,) = [found for _, found in Tags(client.get("/", headers=HTML).text).tags if found.get("id") == "images"]
    assert "checked" not in box


@pytest.mark.parametrize("context", ["32k", "32 K", "32,768", "32768"])
def test_numbers_of_tokens_are_taken_as_people_write_them(context: str) -> None:
    asked = advice_request(Form({**FILLED, "context": context, "depth": "4k"}))
    assert (asked.goal.context, asked.goal.depth) == (32768, 4096)  # type: ignore[union-attr]


def test_what_was_pasted_goes_below_the_shorthand() -> None:
    form = Form({"repo": "a/b", "ram": "64GB", "paste": "GPU 0: NVIDIA GeForce RTX 3090 (UUID: x)"})
    assert advice_request(form).hardware == "64GB\nGPU 0: NVIDIA GeForce RTX 3090 (UUID: x)"


@pytest.mark.parametrize(("ram", "said"), [("64", "64GB RAM"), ("4x16", "4x16GB RAM"), ("DDR5 64GB", "DDR5 64GB")])
def test_numbers_alone_in_the_field_for_ram_are_gigabytes(ram: str, said: str) -> None:
    assert advice_request(Form({"repo": "a/b", "gpus": "RTX 3090", "ram": ram})).hardware == f"RTX 3090, {said}"


def test_a_form_leads_to_the_advice_and_its_key_goes_into_no_log(client: httpx.Client, world: World) -> None:
    world.put_answer("two-cards", advice_request(Form(FILLED)))
    reply = sent(client, **FILLED)
    assert (reply.status_code, reply.headers["location"]) == (303, "/advice/two-cards")
    reply = sent(client, **{**FILLED, "repo": NEW_REPO}, scripted="yes")
    assert reply.status_code == 303
    assert re.fullmatch(rf"/advice/{world.newest()}#key=[\w-]{{32}}", reply.headers["location"])
    assert client.get(reply.headers["location"]).status_code == 200


def test_without_scripts_the_key_is_shown_and_the_advice_has_no_fragment(client: httpx.Client, world: World) -> None:
    reply = sent(client, **{**FILLED, "repo": NEW_REPO})
    tags = Tags(reply.text)
    refresh = next(found for tag, found in tags.tags if found.get("http-equiv") == "refresh")
    assert reply.status_code == 200
    assert (refresh["content"] or "").endswith(f";url=/advice/{world.newest()}")
    key = re.search(r"<code>([\w-]{32})</code>", reply.text)
    assert key
    deleted = client.post(f"/advice/{world.newest()}/deletion", data={"key": key[1]}, headers=HTML)
    assert deleted.status_code == 200


@pytest.mark.parametrize(
    ("wrong", "field", "says"),
    [
        ({"repo": ""}, "repo", "name a Hugging Face repo"),
        ({"gpus": "", "cpu": "", "ram": ""}, "gpus", "name the GPUs"),
        ({"context": "lots"}, "context", "whole number"),
        ({"min_tg": "fast"}, "min_tg", "must be a number"),
        ({"min_bpw": "99"}, "min_bpw", "must be at most 32"),
        ({"preset": "foo"}, "preset", "Did you mean: agent"),
        ({"engine": "vllm"}, "engine", "Did you mean: ik_llama.cpp"),
        ({"repo": "x" * 600}, "repo", "longer than 512"),
    ],
)
def test_an_error_stands_at_its_field_and_nothing_typed_is_lost(
    client: httpx.Client, wrong: dict[str, str], field: str, says: str
) -> None:
    typed = {**FILLED, "paste": "Swap: 0 <b>\n  two", **wrong}
    if wrong == {"gpus": "", "cpu": "", "ram": ""}:
        typed["paste"] = ""
    reply = sent(client, **typed)
    assert reply.status_code == 422
    tags, html = Tags(reply.text), unescape(reply.text)
    marked = [found for _, found in tags.tags if found.get("aria-invalid") == "true"]
    assert [found["id"] for found in marked] == [field]
    assert f"{field}-wrong" in (marked[0]["aria-describedby"] or "").split()
    assert says in html
    assert f"#{field}" in tags.all("a", "href")
    kept = {found["name"]: found.get("value") or "" for tag, found in tags.tags if tag == "input"}
    assert {name: kept[name] for name in typed if name in kept} == {n: t for n, t in typed.items() if n in kept}
    assert typed["paste"] in html


def test_what_a_flow_refuses_is_said_in_the_form_too(client: httpx.Client, world: World) -> None:
    for n in (3, 4):
        assert sent(client, **{**FILLED, "repo": NEW_REPO, "gpus": f"{n}x RTX 3090"}).status_code == 200
    reply = sent(client, **{**FILLED, "repo": NEW_REPO})
    assert reply.status_code == 429
    assert "2x RTX 3090" in reply.text
    assert 'role="alert"' in reply.text


def test_the_query_fills_the_form(client: httpx.Client) -> None:
    html = client.get("/", params={"repo": "a/b", "gpus": '"><script>'}).text
    assert 'value="a/b"' in html
    assert "<script>" not in html


def test_completion_comes_from_the_catalogue_and_the_repos_seen(client: httpx.Client) -> None:
    offered = Tags(client.get("/").text).all("option", "value")
    assert {READY_REPO, "RTX 3090", "AMD EPYC 9355"} <= set(offered)
    assert "Radeon RX 7900 XTX" in offered


@pytest.mark.parametrize(("body", "kind", "status"), [
    (b"{}", "application/json", 415), (b"a=1&" * 200, "application/x-www-form-urlencoded", 422),
])  # fmt: skip
def test_other_bodies_are_refused(client: httpx.Client, body: bytes, kind: str, status: int) -> None:
    assert client.post("/advice", content=body, headers={"content-type": kind}).status_code == status


def test_forms_count_as_requests_do(client: httpx.Client) -> None:
    answers = (client.get("/", headers=HTML) for _ in range(600))  # of 60 a minute, however slow the machine
    limited = next(answer for answer in answers if answer.status_code == 429)
    assert limited.headers["retry-after"]
    assert re.search(r"<h1>.*</h1>", limited.text)
