"""The log says what was asked and how it ended, and nothing that could be a secret."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from tests.waiting import PATIENCE
from tests.web.world import NEW_REPO, READY_REPO


def logged(capsys: pytest.CaptureFixture[str], requests: int) -> str:
    """Return what was logged once it holds that many requests: the line comes after the response."""
    text, end = "", time.monotonic() + PATIENCE
    while text.count('"event":"request"') < requests and time.monotonic() < end:
        text += capsys.readouterr().err
        time.sleep(0.005)
    return text


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_a_request_is_one_json_line_with_the_path_template(
    client: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    reply = client.get("/v1/advice/secret-id?format=json", headers={"x-request-id": "from-a-proxy-1"})
    (line,) = [line for line in lines(logged(capsys, 1)) if line["event"] == "request"]
    assert line["path"] == "/v1/advice/{advice_id}"
    assert (line["method"], line["status"], line["request_id"]) == ("GET", 404, "from-a-proxy-1")
    assert line["duration_ms"] >= 0
    assert reply.headers["x-request-id"] == "from-a-proxy-1"


def test_nothing_of_bodies_keys_or_queries_is_logged(
    client: httpx.Client, broken: None, capsys: pytest.CaptureFixture[str]
) -> None:
    client.post("/v1/advice?detail=full", json={"repo": NEW_REPO, "hardware": "my-own-machine"})
    client.delete("/v1/advice/queued-one", headers={"x-advice-key": "my-key", "authorization": "Bearer my-token"})
    client.post("/v1/advice", json={"repo": READY_REPO, "hardware": "my-own-machine"})
    written = logged(capsys, 3)
    assert [line for line in lines(written) if line["event"] == "request.failed"]
    assert [word for word in ("my-own-machine", "my-key", "my-token", "detail=full") if word in written] == []


def test_ids_of_ours_are_logged_and_whatever_else_stands_in_a_path_is_not(
    client: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.get(f"/v1/advice/{'a' * 22}")
    client.get(f"/v1/advice/{'adv_' + 's' * 43}")
    known, unknown = [line for line in lines(logged(capsys, 2)) if line["event"] == "request"]
    assert known["advice_id"] == "a" * 22
    assert "advice_id" not in unknown


def test_a_forged_request_id_is_replaced(client: httpx.Client) -> None:
    reply = client.get("/health", headers={"x-request-id": 'x" injected'})
    assert reply.headers["x-request-id"] != 'x" injected'


def test_unknown_paths_are_logged_without_the_path(client: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    client.get("/some/secret/path")
    (line,) = [line for line in lines(logged(capsys, 1)) if line["event"] == "request"]
    assert (line["path"], line["status"]) == ("-", 404)
