"""`/v1/hardware` and `/v1/repos`."""

from __future__ import annotations

import httpx

from tests.web.memory_flows import MemoryFlows


def test_the_catalogue_is_searched_by_words_in_any_order(client: httpx.Client) -> None:
    found = client.get("/v1/hardware/gpus", params={"q": "rtx nvidia"}).json()
    assert [row["name"] for row in found["rows"]] == ["NVIDIA GeForce RTX 3090"]
    assert client.get("/v1/hardware/gpus").json()["total"] == 2
    assert client.get("/v1/hardware/cpus", params={"q": "no such"}).json() == {"total": 0, "rows": []}


def test_a_search_has_a_limit(client: httpx.Client) -> None:
    assert client.get("/v1/hardware/gpus", params={"q": "a" * 101}).status_code == 422


def test_a_text_is_answered_in_both_forms_with_assumptions(client: httpx.Client) -> None:
    found = client.post("/v1/hardware/parse", json={"text": "3090"}).json()
    assert found["hardware"]["gpus"][0]["name"] == "NVIDIA GeForce RTX 3090"
    assert found["shorthand"] == "1x RTX 3090"
    assert found["assumed"][0]["field"] == "ram"


def test_a_repo_is_shown_at_a_revision_with_a_variant(client: httpx.Client) -> None:
    reply = client.get("/v1/repos/known/ready", params={"variant": "IQ4_KS", "revision": "v1"})
    assert (reply.json()["revision"], reply.json()["variants"][0]["name"]) == ("v1", "IQ4_KS")
    etag = reply.headers["etag"]
    again = client.get(
        "/v1/repos/known/ready", params={"variant": "IQ4_KS", "revision": "v1"}, headers={"if-none-match": etag}
    )
    assert again.status_code == 304


def test_a_catalogue_answer_is_304_for_whoever_has_it(client: httpx.Client, flows: MemoryFlows) -> None:
    etag = client.get("/v1/hardware/gpus").headers["etag"]
    assert client.get("/v1/hardware/gpus", headers={"if-none-match": etag}).status_code == 304
