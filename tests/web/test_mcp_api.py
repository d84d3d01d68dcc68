"""The Model Context Protocol over HTTP, with the limits of the API."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from redis import Redis

from tests.web.world import READY_REPO, World

HEADERS = {"Accept": "application/json, text/event-stream"}


def called(client: httpx.Client, name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    reply = client.post("/mcp", json=message, headers=HEADERS)
    assert reply.status_code == 200, reply.text
    result: dict[str, Any] = reply.json()["result"]
    return result


# Claude Code shows its model only the structured content if there is some (anthropics/claude-code#79944).
def test_an_advice_is_a_text_alone(client: httpx.Client) -> None:
    result = called(client, "advise", repo=READY_REPO, hardware="RTX 3090")
    assert result["content"][0]["text"].startswith("Yes: about 18 t/s.")
    assert set(result) == {"content"}


def test_each_tool_answers(client: httpx.Client) -> None:
    command = "llama-server -m Qwen3-0.6B-Q8_0.gguf -ngl 99 -c 4096"
    assert (
        "CUDA0" in called(client, "check", command=command, hardware="RTX 3090", repo=READY_REPO)["content"][0]["text"]
    )
    assert "Q8_0" in called(client, "inspect", repo=READY_REPO)["content"][0]["text"]
    assert called(client, "leaderboard", q="nothing has this name")["content"][0]["text"]
    assert "NVIDIA GeForce RTX 3090" in called(client, "hardware", text="3090")["content"][0]["text"]


def test_a_repo_that_is_not_there_is_said_to_the_model_that_asks(client: httpx.Client) -> None:
    result = called(client, "inspect", repo="nobody/nothing")
    assert result["isError"]
    assert "nobody/nothing" in result["content"][0]["text"]


def test_new_repos_are_counted_as_over_http(client: httpx.Client, world: World) -> None:
    for name in "abc":
        result = called(client, "inspect", repo=f"nobody/{name}")
    assert "2 requests for repos not yet read here" in result["content"][0]["text"]


def test_calls_are_counted_as_requests_and_the_rest_is_not(client: httpx.Client, redis: Redis) -> None:
    assert client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}).status_code == 200
    assert not list(redis.scan_iter("limit:requests:*"))
    called(client, "hardware", text="RTX 3090")
    (bucket,) = redis.scan_iter("limit:requests:*")
    assert float(redis.hget(bucket, "tokens") or 0) < 60


# The Python SDK before 2.0 ends the whole session at a status of 429 (modelcontextprotocol/python-sdk#2047).
def test_a_call_too_many_or_with_a_wrong_token_is_a_result_that_says_so(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(client.headers, "Authorization", "Bearer nobody")
    results = [called(client, "hardware", text="RTX 3090") for _ in range(64)]
    assert all(result["isError"] for result in results)
    assert "token" in results[0]["content"][0]["text"]
    assert "60 requests in 60 seconds (again in " in results[-1]["content"][0]["text"]


def test_a_page_of_another_site_is_refused_and_there_is_no_stream(client: httpx.Client) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert client.post("/mcp", json=message, headers={"Origin": "https://elsewhere.example"}).status_code == 403
    assert client.post("/mcp", json=message, headers={"Origin": str(client.base_url).rstrip("/")}).status_code == 200
    assert client.get("/mcp").status_code == 405


def test_a_notification_is_accepted_without_a_body(client: httpx.Client) -> None:
    reply = client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (reply.status_code, reply.content) == (202, b"")
