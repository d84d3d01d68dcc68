"""Reports and moderation over HTTP: who may, how often, and what comes of it."""

from __future__ import annotations

import secrets

import httpx
import pytest
from sqlalchemy import Engine

from service.store.results.results import StoredResult
from tests.databases import postgres
from tests.stored_results import a_result, keep
from tests.web.joining import shared_app, shared_engine, token_of

__all__ = ["postgres", "shared_app", "shared_engine"]


@pytest.fixture
def result(shared_engine: Engine) -> StoredResult:
    made = a_result(model_slug=f"m-{secrets.token_hex(4)}")
    keep(shared_engine, made)
    return made


@pytest.fixture
def operator(shared_engine: Engine) -> dict[str, str]:
    return token_of(shared_engine, "root", "operator")


def test_a_readers_report_is_read_and_acted_on_by_an_operator(
    shared_app: httpx.Client, result: StoredResult, operator: dict[str, str], redis: object
) -> None:
    said = {"kind": "not-theirs", "text": "this is mine"}
    reply = shared_app.post(f"/v1/results/{result.id}/reports", json=said)
    assert reply.status_code == 201
    (report,) = [one for one in shared_app.get("/v1/moderation/reports", headers=operator).json()
                 if one["result"] == result.id]  # fmt: skip
    assert (report["id"], report["text"], report["by"]) == (reply.json()["id"], "this is mine", None)
    act = {"action": "hide", "subject": result.id, "reason": "it is another person's"}
    assert shared_app.post("/v1/moderation", json=act, headers=operator).json()["by"] == "root"
    assert shared_app.get(f"/v1/results/{result.id}").status_code == 404
    (entry,) = shared_app.get("/v1/moderation/audit", params={"subject": result.id}, headers=operator).json()
    assert (entry["action"], entry["reason"]) == ("hide", "it is another person's")


def test_one_client_may_report_ten_times_an_hour(shared_app: httpx.Client, result: StoredResult, redis: object) -> None:
    replies = [shared_app.post(f"/v1/results/{result.id}/reports", json={"kind": "spam"}) for _ in range(11)]
    assert [reply.status_code for reply in replies] == [201] * 10 + [429]
    assert "10 reports of results" in replies[-1].json()["detail"]


@pytest.mark.parametrize(
    ("act", "field"),
    [
        ({"action": "burn", "subject": "x", "reason": "why not"}, "action"),
        ({"action": "ban", "subject": "x", "reason": ""}, "reason"),
        ({"action": "ban", "subject": "nobody-at-all", "reason": "why not"}, "subject"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_field(
    shared_app: httpx.Client, operator: dict[str, str], act: dict[str, str], field: str
) -> None:
    reply = shared_app.post("/v1/moderation", json=act, headers=operator)
    assert (reply.status_code, reply.json()["field"]) == (422, field)


def test_accuracy_is_for_everybody_and_known_by_its_etag(shared_app: httpx.Client) -> None:
    first = shared_app.get("/v1/accuracy")
    assert first.status_code == 200
    assert first.json()["calibration"]
    again = shared_app.get("/v1/accuracy", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304
