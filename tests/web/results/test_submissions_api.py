"""Submissions over HTTP: seen, kept once, corrected and taken back by the holder of the key; and what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.cli import main
from service.flows.accounts import create_token
from service.flows.context import utc_now
from service.queue.embedded import EmbeddedValkey
from service.settings import Settings
from service.store.engines import make_engine
from service.store.migrations import migrate
from tests.flows.results.submitted import COMMAND, submission, sweep
from tests.hosts import bearer, service
from tests.local_hub import LocalHub
from tests.web.http.test_problems import assert_problem


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """A database, and the header of an account that may send."""
    url = f"sqlite:///{tmp_path_factory.mktemp('api')}/advisor.db"
    engine = make_engine(url)
    migrate(engine)
    made = create_token(engine, "ann", ["submit"], utc_now())
    engine.dispose()
    return url, bearer(made.token)


@pytest.fixture(scope="module")
def api(
    token: tuple[str, dict[str, str]], valkey: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    with LocalHub() as hub:
        settings = Settings(
            state_dir=Path(tmp_path_factory.mktemp("state")), database_url=token[0], redis_url=valkey.url,
            hf_endpoint=hub.endpoint, requests_per_minute=10_000, new_repos_per_hour=1_000,
            trusted_proxies=("127.0.0.0/8",),
        )  # fmt: skip
        with service(settings) as client:
            yield client


def body(tg: float = 250.0, **more: object) -> dict[str, object]:
    text = f"$ {COMMAND}\n\n{sweep(tg=tg)}"
    return {"text": text, "hardware": submission().hardware, **more}


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"measured_on": "2026-00-00"}, "measured_on"),
        ({"revision": "a//b"}, "revision"),
        ({"build": "a\0b"}, "build"),
        ({"hardware": {"gpus": [{"name": "RTX 3090", "pcie": "\0"}]}}, "hardware.gpus[0].pcie"),
    ],
)
def test_what_is_wrong_is_named_also_where_the_rest_is_missing(
    api: httpx.Client, asked: dict[str, object], field: str
) -> None:
    reply = api.post("/v1/results/preview", json=asked)
    assert_problem(reply, 422, "invalid-request")
    assert reply.json()["field"] == field


def test_a_preview_names_what_is_missing_and_keeps_nothing(api: httpx.Client) -> None:
    reply = api.post("/v1/results/preview", json={"text": sweep()})
    assert reply.status_code == 200
    assert [one["field"] for one in reply.json()["missing"]] == ["command", "hardware"]
    assert api.get("/v1/results").json()["results"] == []


def test_a_result_is_made_once_read_corrected_and_taken_back(api: httpx.Client) -> None:
    made = api.post("/v1/results", json=body(240.0), headers={"Idempotency-Key": "k1"})
    assert made.status_code == 201
    kept = made.json()
    path = made.headers["location"]
    assert path.endswith(f"/v1/results/{kept['id']}")
    again = api.post("/v1/results", json=body(240.0))
    assert (again.status_code, again.json()["id"], again.json()["edit_key"]) == (200, kept["id"], None)
    assert api.get(path).json()["tier"] == "self-reported"

    key = {"X-Edit-Key": kept["edit_key"]}
    assert_problem(api.patch(path, json={"remarks": "x"}), 403, "wrong-key")
    wrong = assert_problem(api.patch(path, json={"remarks": "x"}, headers={"X-Edit-Key": "no"}), 403, "wrong-key")
    assert "advice" not in wrong["title"]
    assert_problem(api.patch(path, json={"rows": []}, headers=key), 422, "invalid-request")
    changed = api.patch(path, json={"remarks": "two DIMMs"}, headers=key)
    assert (changed.status_code, changed.json()["remarks"]) == (200, "two DIMMs")
    assert [one["before"] for one in api.get(path + "/history").json()] == [{"remarks": ""}]
    assert_problem(api.delete(path), 403, "wrong-key")
    assert api.delete(path, headers=key).status_code == 204
    assert_problem(api.get(path), 404, "result-not-found")
    assert_problem(api.get(path + "/history"), 404, "result-not-found")


def test_with_a_token_it_is_the_account_s(api: httpx.Client, token: tuple[str, dict[str, str]]) -> None:
    made = api.post("/v1/results", json=body(230.0), headers=token[1])
    assert (made.status_code, made.json()["edit_key"]) == (201, None)
    path = made.headers["location"]
    assert api.get(path).json()["contributor"] not in (None, "ann")
    assert_problem(api.delete(path), 403, "wrong-key")
    assert api.delete(path, headers=token[1]).status_code == 204


@pytest.mark.parametrize(
    ("sent", "headers", "status", "problem"),
    [
        ({"text": "x" * (1 << 20) + "x"}, {}, 422, "invalid-request"),
        ({"text": "x" * (3 << 20)}, {}, 413, "body-too-large"),
        ({"text": "", "unknown": 1}, {}, 422, "invalid-request"),
        ({"text": ""}, {}, 422, "invalid-request"),
        ({"text": sweep() + sweep()}, {}, 422, "invalid-request"),
        (body(tg=90_000.0), {}, 422, "invalid-request"),
        (body(hardware="n-a"), {}, 422, "invalid-hardware"),
        (body(220.0), {"Idempotency-Key": "with blank"}, 422, "invalid-request"),
        (body(220.0), {"Authorization": "Bearer adv_nothing"}, 401, "not-authenticated"),
    ],
)
def test_what_is_wrong_is_a_problem_and_nothing_is_kept(
    api: httpx.Client, sent: dict[str, object], headers: dict[str, str], status: int, problem: str
) -> None:
    before = len(api.get("/v1/results").json()["results"])
    reply = api.post("/v1/results", json=sent, headers=headers)
    assert_problem(reply, status, problem)
    assert len(api.get("/v1/results").json()["results"]) == before


def test_a_strangers_idempotency_key_is_not_anothers(api: httpx.Client) -> None:
    def send(tg: float, address: str) -> httpx.Response:
        headers = {"Idempotency-Key": "1", "X-Forwarded-For": address}
        return api.post("/v1/results", json=body(tg), headers=headers)

    assert send(231.0, "192.0.2.1").status_code == 201
    assert_problem(send(232.0, "192.0.2.1"), 409, "idempotency-key-reused")
    assert send(232.0, "192.0.2.2").status_code == 201


def test_what_is_logged_of_a_submission_has_nothing_of_it(api: httpx.Client, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    text = f"margarethe@rig7:~$ HF_TOKEN=hf_{'Zq1' * 12} {COMMAND} --api-key swordfish-9\n\n{sweep(tg=210.0)}"
    assert api.post("/v1/results", json={"text": text, "hardware": "n-a"}).status_code == 422
    assert api.post("/v1/results", json={"text": text, "hardware": submission().hardware}).status_code == 201
    logged = "".join(capfd.readouterr())
    assert '"/v1/results"' in logged
    for secret in ("margarethe", "rig7", "Zq1", "swordfish"):
        assert secret not in logged


def test_anyone_who_sends_too_many_is_asked_to_wait(api: httpx.Client, token: tuple[str, dict[str, str]]) -> None:
    codes = [api.post("/v1/results", json={"text": ""}, headers=token[1]).status_code for _ in range(62)]
    assert codes[-1] == 429
    assert set(codes) == {422, 429}


def test_the_command_line_sends_to_the_real_service(
    api: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "bench.log"
    log.write_text(f"```\n$ {COMMAND}\n\n{sweep(tg=200.0)}```\n")
    words = [str(log), "--service", str(api.base_url), "-H", str(submission().hardware), "--remarks", "sent by hand"]
    assert main(["submit", *words]) == 1  # nobody said yes
    assert "model: Qwen3-0.6B Q8_0 (Qwen/Qwen3-0.6B-GGUF)" in capsys.readouterr().out
    assert main(["submit", *words, "--yes"]) == 0
    told = capsys.readouterr().out
    (result_id,) = re.findall(r"^kept: \S+/results/(\S+)$", told, re.MULTILINE)
    assert api.get(f"/v1/results/{result_id}").json()["remarks"] == "sent by hand"
    (key,) = re.findall(r"#key=(\S+)$", told, re.MULTILINE)
    assert api.delete(f"/v1/results/{result_id}", headers={"X-Edit-Key": key}).status_code == 204
