"""Each error that a user can cause or meet, through API, queue, worker, database and Hub: a problem and a way out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.hub import retry
from service.queue.embedded import EmbeddedValkey
from service.settings import Settings
from service.web.app import create_app
from tests.databases import engine_with_tables
from tests.local_hub import Fault, LocalHub
from tests.web.http.test_problems import assert_problem
from tests.web.servers import client_of
from tests.web.stack import running_service

QWEN = "Qwen/Qwen3-0.6B-GGUF"
RIG = "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"


@pytest.fixture(scope="module")
def started_hub() -> Iterator[LocalHub]:
    with LocalHub() as hub:
        yield hub


@pytest.fixture(scope="module")
def service(started_hub: LocalHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with running_service(tmp_path_factory.mktemp("state"), started_hub.endpoint) as client:
        yield client


@pytest.fixture
def hub(started_hub: LocalHub) -> LocalHub:
    started_hub.reset()
    return started_hub


def ask(service: httpx.Client, repo: str, hardware: Any = RIG, **options: Any) -> httpx.Response:
    return service.post("/v1/advice?wait=30", json={"repo": repo, "hardware": hardware}, **options)


@pytest.mark.parametrize(
    ("repo", "status", "slug", "way_out"),
    [
        ("local/no-such-repo", 404, "repo-not-found", "private"),
        ("local/private-GGUF", 404, "repo-not-found", "private"),
        ("local/gated-GGUF", 403, "repo-gated", "accept its terms"),
        ("deepseek-ai/DeepSeek-R1-0528", 422, "repo-without-gguf", "ubergarm/DeepSeek-R1-0528-GGUF"),
        ("local/not-a-GGUF", 422, "not-gguf", "not a GGUF file"),
        ("local/truncated-GGUF", 422, "truncated-header", "again"),
        ("local/many-variants-GGUF", 422, "repo-too-large", "name a variant"),
        (f"{QWEN}:NO_SUCH", 422, "unknown-variant", "no variant 'NO_SUCH'"),
    ],
)
def test_a_repo_that_cannot_be_read(
    service: httpx.Client, hub: LocalHub, repo: str, status: int, slug: str, way_out: str
) -> None:
    found = assert_problem(ask(service, repo), status, slug)
    assert way_out in found["detail"]
    assert found["instance"].startswith("/v1/advice/")
    later = service.get(found["instance"])
    assert (later.json()["state"], later.json()["problem"]["type"]) == ("failed", found["type"])
    assert found["detail"] in service.get(found["instance"], params={"format": "text"}).text.replace("\n  ", " ")


@pytest.mark.parametrize(
    ("repo", "status", "slug"),
    [
        ("local/no-such-repo", 404, "repo-not-found"),
        ("deepseek-ai/DeepSeek-R1-0528", 422, "repo-without-gguf"),
        ("local/not-a-GGUF", 422, "not-gguf"),
        ("local/truncated-GGUF", 422, "truncated-header"),
    ],
)
def test_a_repo_that_cannot_be_inspected(
    service: httpx.Client, hub: LocalHub, repo: str, status: int, slug: str
) -> None:
    assert_problem(service.get(f"/v1/repos/{repo}"), status, slug)


def test_inspecting_names_a_variant_that_exists(service: httpx.Client, hub: LocalHub) -> None:
    found = assert_problem(service.get(f"/v1/repos/{QWEN}", params={"variant": "NOPE"}), 422, "unknown-variant")
    assert "Q8_0" in found["choices"]
    chosen = service.get(f"/v1/repos/{QWEN}", params={"variant": "Q8_0"}).json()
    assert (chosen["model"]["variant"], chosen["model"]["n_layer"]) == ("Q8_0", 28)


def test_a_revision_that_does_not_exist(service: httpx.Client, hub: LocalHub) -> None:
    reply = service.get(f"/v1/repos/{QWEN}", params={"revision": "no-such-branch"})
    assert_problem(reply, 404, "revision-not-found")


def test_an_unknown_gpu_offers_the_nearest(service: httpx.Client, hub: LocalHub) -> None:
    found = assert_problem(ask(service, QWEN, "RTX 3095, 128GB DDR5"), 422, "unknown-hardware")
    assert "vram_gib" in found["detail"]
    assert any("3090" in choice for choice in found["choices"])
    assert hub.requests == []


@pytest.mark.parametrize(
    ("hardware", "field"),
    [
        ({"gpus": [{"name": "RTX 3090", "vram_gib": -1}]}, "hardware.gpus[0].vram_gib"),
        ({"gpus": [{"name": "RTX 3090", "count": -1}]}, "hardware.gpus[0].count"),
        ({"gpus": [{"name": "RTX 3090", "free_gib": -1}]}, "hardware.gpus[0].free_gib"),
        ({"gpus": [{"name": "RTX 3090", "bandwidth_gbs": -1}]}, "hardware.gpus[0].bandwidth_gbs"),
        ({"gpus": [], "ram": {"total_gb": -5}}, "hardware.ram.total_gb"),
        ({"gpus": [], "ram": {"channels": -2}}, "hardware.ram.channels"),
        ({"gpus": [], "cpu": {"sockets": -1}}, "hardware.cpu.sockets"),
    ],
)
def test_a_size_that_cannot_be(service: httpx.Client, hub: LocalHub, hardware: Any, field: str) -> None:
    found = assert_problem(ask(service, QWEN, hardware), 422, "invalid-hardware")
    assert found["field"] == field


@pytest.mark.parametrize("repo", ["not a repo", "../../etc/passwd", "https://evil.example/a/b", "a/b/c/d", "x" * 500])
def test_a_text_that_names_no_repo(service: httpx.Client, hub: LocalHub, repo: str) -> None:
    found = assert_problem(ask(service, repo), 422, "invalid-request")
    assert (found["field"], hub.requests) == ("repo", [])
    assert "OWNER/NAME" in found["detail"]


def test_ten_megabytes_and_a_wrong_content_type(service: httpx.Client) -> None:
    assert_problem(ask(service, "a" * 10_000_000), 413, "body-too-large")
    assert_problem(service.post("/v1/advice", content=b"repo=a/b"), 415, "unsupported-media-type")


def test_a_hub_that_limits_us_says_when_to_ask_again(service: httpx.Client, hub: LocalHub) -> None:
    hub.fail(Fault("status", at="api", status=429, headers={"retry-after": "120"}))
    reply = ask(service, "Qwen/Qwen3-4B-GGUF")
    found = assert_problem(reply, 503, "hub-rate-limited")
    assert (found["retry_after"], reply.headers["retry-after"]) == (120, "120")


def test_a_hub_that_fails_is_503_and_works_again_later(service: httpx.Client, hub: LocalHub) -> None:
    hub.fail(Fault("status", at="api", status=500, headers={"retry-after": "0"}))  # it is asked again at once
    assert_problem(ask(service, "local/gemma-3-12b-it-GGUF"), 503, "hub-unavailable")
    hub.reset()
    reply = service.get("/v1/repos/local/gemma-3-12b-it-GGUF")
    assert reply.status_code == 200


def test_the_way_of_one_request(service: httpx.Client, hub: LocalHub) -> None:
    first = ask(service, QWEN)
    assert (first.status_code, first.json()["state"]) == (200, "ready")
    assert first.json()["configs"][0]["commands"]["server"].startswith("llama-server ")
    asked = len(hub.requests)
    again = ask(service, QWEN, headers={"accept": "text/plain"})
    assert again.status_code == 200
    assert "hf download Qwen/Qwen3-0.6B-GGUF" in again.text
    assert len(hub.requests) == asked
    path = f"/v1/advice/{first.json()['id']}"
    with service.stream("GET", path + "/events") as reply:
        assert "event: ready" in "".join(reply.iter_text())
    assert "```" in service.get(path, headers={"accept": "text/markdown"}).text
    assert service.delete(path, headers={"x-advice-key": first.json()["delete_key"]}).status_code == 204
    assert_problem(service.get(path), 404, "advice-not-found")


def test_a_hub_that_is_gone_is_503(
    valkey: EmbeddedValkey, redis: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_FIRST_PAUSE", 0.0)
    with LocalHub() as gone:
        settings = Settings(state_dir=tmp_path, redis_url=valkey.url, hf_endpoint=gone.endpoint)
    with engine_with_tables(settings.database), client_of(create_app(settings)) as client:
        reply = client.get(f"/v1/repos/{QWEN}")
    assert_problem(reply, 503, "hub-unavailable")
    assert int(reply.headers["retry-after"]) > 0
