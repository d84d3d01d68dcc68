"""The form that sends a benchmark: shown first, kept when asked, and nothing typed is lost."""

from __future__ import annotations

from html import unescape

import httpx

from service.wire.submissions import Submission
from tests.web.memory_flows import DELETE_KEY, MemoryFlows

HTML = {"accept": "text/html"}
TABLE = "|  512 |  128 |  0 |  1.00 |  512.00 |  6.40 |  20.00 |\n<b>"
FILLED = {"text": TABLE, "hardware": "RTX 3090", "repo": "a/b:Q4_K_M", "engine": "", "measured_on": "2026-11-01"}


def sent(client: httpx.Client, do: str, **fields: str) -> httpx.Response:
    return client.post("/submit", data={**fields, "do": do}, headers=HTML)


def test_a_preview_keeps_nothing_and_offers_to(client: httpx.Client, flows: MemoryFlows) -> None:
    reply = sent(client, "preview", **FILLED)
    assert reply.status_code == 200
    assert "What was understood" in reply.text
    assert 'value="keep"' in reply.text
    assert TABLE in unescape(reply.text)
    assert "<b>" not in reply.text
    assert flows.submitted == []


def test_what_is_missing_stands_at_its_field(client: httpx.Client) -> None:
    reply = sent(client, "preview", **{**FILLED, "repo": ""})
    assert "Still missing" in reply.text
    assert 'id="repo-wrong"' in reply.text
    assert 'value="keep"' not in reply.text


def test_keeping_leads_to_the_result_with_the_key_in_no_log(client: httpx.Client, flows: MemoryFlows) -> None:
    reply = sent(client, "keep", **FILLED)
    assert (reply.status_code, reply.headers["location"]) == (303, f"/results/kept-one#key={DELETE_KEY}")
    asked = Submission(text=TABLE, hardware="RTX 3090", repo="a/b:Q4_K_M", measured_on="2026-11-01")
    assert flows.submitted == [asked]


def test_a_wrong_day_stands_at_its_field_and_nothing_is_lost(client: httpx.Client) -> None:
    reply = sent(client, "preview", **{**FILLED, "measured_on": "yesterday"})
    assert reply.status_code == 422
    assert 'id="measured_on-wrong"' in reply.text
    assert TABLE in unescape(reply.text)


def test_a_paste_may_be_as_long_as_the_api_takes(client: httpx.Client) -> None:
    assert sent(client, "preview", **{**FILLED, "text": "x" * 1_000_000}).status_code == 200
    assert sent(client, "preview", **{**FILLED, "text": "x" * 3_000_000}).status_code == 413
