"""`/v1/hardware` and `/v1/repos`."""

from __future__ import annotations

import httpx
import pytest

from service.engine.catalogue.rows import known_gpus
from tests.local_hub import commit_of
from tests.web.world import READY_REPO, World


def test_the_catalogue_is_searched_by_words_in_any_order(client: httpx.Client) -> None:
    found = client.get("/v1/hardware/gpus", params={"q": "rtx nvidia"}).json()
    assert "NVIDIA GeForce RTX 3090" in [row["name"] for row in found["rows"]]
    assert all("RTX" in row["name"] for row in found["rows"])
    assert found["total"] < client.get("/v1/hardware/gpus").json()["total"] == len(known_gpus())
    assert client.get("/v1/hardware/cpus", params={"q": "no such"}).json() == {"total": 0, "rows": []}


@pytest.mark.parametrize("written", ["rtx5090", "5090 geforcertx", "RTX 5090"])
def test_the_catalogue_is_searched_without_regard_to_spaces(client: httpx.Client, written: str) -> None:
    names = [row["name"] for row in client.get("/v1/hardware/gpus", params={"q": written}).json()["rows"]]
    assert "NVIDIA GeForce RTX 5090" in names
    assert all("5090" in name for name in names)


def test_a_search_has_a_limit(client: httpx.Client) -> None:
    assert client.get("/v1/hardware/gpus", params={"q": "a" * 101}).status_code == 422


def test_a_text_is_answered_in_both_forms_with_assumptions(client: httpx.Client) -> None:
    found = client.post("/v1/hardware/parse", json={"text": "3090"}).json()
    assert (found["hardware"]["gpus"][0]["name"], found["shorthand"]) == ("3090", "NVIDIA GeForce RTX 3090")
    assert found["assumed"][0]["field"] == "hardware.ram.total_gb"


def test_a_repo_is_shown_at_a_revision_with_a_variant(client: httpx.Client) -> None:
    path, asked = f"/v1/repos/{READY_REPO}", {"variant": "Q8_0", "revision": commit_of(READY_REPO)}
    reply = client.get(path, params=asked)
    assert (reply.json()["revision"], reply.json()["model"]["variant"]) == (asked["revision"], "Q8_0")
    again = client.get(path, params=asked, headers={"if-none-match": reply.headers["etag"]})
    assert again.status_code == 304
    refused = client.get(path, params={"variant": "Q9"}).json()
    assert (refused["field"], refused["choices"]) == ("variant", ["Q8_0", "Q4_K_M", "BF16"])


def test_a_catalogue_answer_is_304_for_anyone_who_has_it(client: httpx.Client, world: World) -> None:
    etag = client.get("/v1/hardware/gpus").headers["etag"]
    assert client.get("/v1/hardware/gpus", headers={"if-none-match": etag}).status_code == 304
