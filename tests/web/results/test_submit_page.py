"""The form that sends a benchmark: shown first, kept when asked, and nothing typed is lost."""

from __future__ import annotations

from html import unescape

import httpx
from sqlalchemy import func, select

from service.store.tables import result
from tests.flows.results.submitted import COMMAND, RIG, sweep
from tests.web.world import World

HTML = {"accept": "text/html"}
TABLE = f"$ {COMMAND}\n\n{sweep()}<b>"
FILLED = {"text": TABLE, "hardware": RIG, "repo": "", "engine": "", "measured_on": "2026-11-01"}


def n_results(world: World) -> int:
    with world.context.engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(result)) or 0


def sent(client: httpx.Client, do: str, **fields: str) -> httpx.Response:
    return client.post("/submit", data={**fields, "do": do}, headers=HTML)


def test_a_preview_keeps_nothing_and_offers_to(client: httpx.Client, world: World) -> None:
    reply = sent(client, "preview", **FILLED)
    assert reply.status_code == 200
    assert "How it was read" in reply.text
    assert 'value="keep"' in reply.text
    assert TABLE in unescape(reply.text)
    assert "<b>" not in reply.text
    assert n_results(world) == 0


def test_weights_larger_than_the_machines_memory_are_warned_of_and_can_be_sent(client: httpx.Client) -> None:
    command = "llama-sweep-bench -m Qwen3-235B-A22B-Q4_K_M-00001-of-00003.gguf -c 4096 -ngl 99 -ot exps=CPU"
    asked = {"text": f"$ {command}\n\n{sweep(60.0, 4.0)}", "repo": "unsloth/Qwen3-235B-A22B-GGUF:Q4_K_M"}
    reply = sent(client, "preview", **{**FILLED, **asked, "hardware": "RTX 3090, Ryzen 9 7950X, 64GB DDR5-5600"})
    assert "The weights of Q4_K_M take 132 GiB, more than this machine has" in unescape(reply.text)
    assert 'value="keep"' in reply.text


def test_what_is_missing_stands_at_its_field(client: httpx.Client) -> None:
    reply = sent(client, "preview", **{**FILLED, "hardware": ""})
    assert "Still missing" in reply.text
    assert 'id="hardware-wrong"' in reply.text
    assert 'value="keep"' not in reply.text


def test_keeping_leads_to_the_result_with_the_key_in_no_log(client: httpx.Client, world: World) -> None:
    reply = sent(client, "keep", **FILLED)
    assert reply.status_code == 303
    page, _, key = reply.headers["location"].partition("#key=")
    assert len(key) >= 32
    assert n_results(world) == 1
    assert client.get(page).status_code == 200


def test_a_wrong_day_stands_at_its_field_and_nothing_is_lost(client: httpx.Client) -> None:
    reply = sent(client, "preview", **{**FILLED, "measured_on": "yesterday"})
    assert reply.status_code == 422
    assert 'id="measured_on-wrong"' in reply.text
    assert TABLE in unescape(reply.text)


def test_a_paste_may_be_as_long_as_the_api_takes(client: httpx.Client) -> None:
    assert sent(client, "preview", **{**FILLED, "text": "x" * 1_000_000}).status_code == 200
    assert sent(client, "preview", **{**FILLED, "text": "x" * 3_000_000}).status_code == 413


def test_what_somebody_else_published_is_cited_by_its_link(client: httpx.Client, world: World) -> None:
    link = "https://forum.example.org/t/12#post-3"
    reply = sent(client, "keep", **FILLED, source=link)
    assert reply.status_code == 303
    page = client.get(reply.headers["location"].partition("#key=")[0])
    assert link in unescape(page.text)
    assert 'id="source-wrong"' in sent(client, "preview", **FILLED, source="my memory").text
