"""Results and the leaderboard over HTTP: filters, pages, forms, and names that were planted."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from sqlalchemy import Engine

from service.flows.context import Database, utc_now
from service.flows.results import dumps
from service.flows.results.imports import import_results
from service.queue.embedded import EmbeddedValkey
from service.store import accounts
from service.store.results.results import StoredResult
from service.wire.results.results import Published
from service.wire.results.results_table import COLUMNS
from tests.databases import engine_with_tables, postgres
from tests.hosts import service
from tests.stored_results import A_DAY, a_result, keep, row
from tests.web.joining import settings_for, shared_app, shared_engine

__all__ = ["postgres", "shared_app", "shared_engine"]
PLANTED = "=cmd|'/c calc'!A1 <img src=x onerror=alert(1)> [x](http://evil) \x1b[31mred\u202etxt @everyone `x`\n| a |"
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\u202a-\u202e\u2066-\u2069]|\\u001b|\\u202e")


def cursor(*position: object) -> str:
    """Return a cursor that nobody gave."""
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")


@pytest.fixture(scope="module")
def kept(shared_engine: Engine) -> list[StoredResult]:
    """Five results: of an account, of another rig, published, quarantined, hidden."""
    alice = accounts.ensure(shared_engine, "alice", ["quiet-heron-417"], utc_now())
    stated = Published(
        by="ubergarm", url="https://github.com/ikawrakow/ik_llama.cpp/discussions/258", date="2025-03-14"
    )
    several = [
        a_result([row(0, 30.0), row(4096, 25.0)], account_id=alice.id, tier="agent-run", command="llama-bench -m a"),
        a_result([row(0, 60.0, 900.0)], rig_slug="rtx-5090", gpus="RTX 5090", vram_mib=32_607, ram_gib=64),
        a_result([row(0, 20.0, 300.0)], bpw=2.5, origin="published", published=stated, variant="IQ2_K", repo=None),
        a_result([row(0, 999.0)], state="quarantined", state_reason="three times as fast as its like"),
        a_result([row(0, 998.0)], state="hidden", state_reason="spam"),
    ]
    several = [_received(one, i) for i, one in enumerate(several)]
    keep(shared_engine, *several, log="llama_model_loader: loaded\n")
    return several


def _received(one: StoredResult, hours: int) -> StoredResult:
    return msgspec.structs.replace(one, created_at=A_DAY + timedelta(hours=hours))


@pytest.fixture
def api(shared_app: httpx.Client, kept: list[StoredResult]) -> httpx.Client:
    return shared_app


def ids(reply: httpx.Response) -> list[str]:
    assert reply.status_code == 200, reply.text
    return [one["id"] for one in reply.json()["results"]]


def test_the_board_has_the_fastest_of_each_rig_and_nothing_doubtful(
    api: httpx.Client, kept: list[StoredResult]
) -> None:
    assert [r["result"] for r in api.get("/v1/leaderboard").json()["rows"]] == [kept[0].id]
    rows = api.get("/v1/leaderboard?trust=self-reported").json()["rows"]
    assert [(r["result"], r["tg_tps"], r["rig"]) for r in rows] == [
        (kept[1].id, 60.0, "RTX 5090"),
        (kept[0].id, 30.0, "2x RTX 3090"),
    ]
    assert rows[1]["contributor"] == "quiet-heron-417"
    assert "alice" not in json.dumps(rows)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sort=pp&limit=1&trust=self-reported", [1]),
        ("depth=4096", [0]),
        ("trust=agent-run", [0]),
        ("vram=32&ram=64&trust=self-reported", [1]),
        ("q=3090+qwen3", [0]),
        ("q=iq2", [2]),
        ("variant=IQ2_K&engine=ik_llama.cpp", [2]),
        ("model=none", []),
        ("since=2026-12-01", []),
        ("arch=&rig=", [0]),
        ("rig=2x+RTX+3090", [0]),
    ],
)
def test_the_board_can_be_asked(api: httpx.Client, kept: list[StoredResult], query: str, expected: list[int]) -> None:
    rows = api.get(f"/v1/leaderboard?{query}").json()["rows"]
    assert [one["result"] for one in rows] == [kept[i].id for i in expected]


def test_results_of_a_rig_are_found_by_its_name_too(api: httpx.Client, kept: list[StoredResult]) -> None:
    by_slug, by_name = (api.get(f"/v1/results?rig={rig}").json()["results"] for rig in ("2x-rtx-3090", "2x RTX 3090"))
    assert [one["id"] for one in by_name] == [one["id"] for one in by_slug] != []


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/leaderboard?depth=5", "depth"),
        ("/v1/leaderboard?nonsense=1", "nonsense"),
        ("/v1/leaderboard?limit=1000", "limit"),
        ("/v1/leaderboard?since=2026-13-40", "since"),
        ("/v1/leaderboard?cursor=%C3%A9", "cursor"),
        ("/v1/leaderboard?model=a&model=b", "model"),
        ("/v1/leaderboard?q=%00", "q"),
        ("/v1/leaderboard?vram=null", "vram"),
        ("/v1/leaderboard?vram=25", "vram"),
        ("/v1/leaderboard?ram=100", "ram"),
        ("/v1/results?cursor=abc", "cursor"),
        ("/v1/results?tier=best", "tier"),
        ("/v1/results?until=yesterday", "until"),
        ("/v1/results?until=9999-12-31", "until"),
        ("/v1/results?cursor=" + cursor("received", "2026-01-01T00:00:00Z", "a\0"), "cursor"),
        ("/v1/results?cursor=" + cursor("received", "0001-01-01T00:00:00+14:00", "x" * 22), "cursor"),
        ("/v1/results?cursor=" + cursor("received", 1.0, "x" * 22), "cursor"),
        ("/v1/leaderboard?cursor=" + cursor("tg", 1.0, "a\0"), "cursor"),
        ("/v1/leaderboard?sort=newest&cursor=" + cursor("newest", 1.0, "x" * 22), "cursor"),
    ],
)
def test_a_wrong_question_is_answered_with_what_is_wrong(api: httpx.Client, path: str, field: str) -> None:
    reply = api.get(path)
    assert (reply.status_code, reply.json()["field"]) == (422, field)


@pytest.mark.parametrize(
    ("path", "status"),
    [("/leaderboard?q=a%00", 422), *((f"/{name}/a%00b", 404) for name in ("models", "hardware", "contributors"))],
)
def test_a_page_of_a_name_that_no_database_keeps_is_none(api: httpx.Client, path: str, status: int) -> None:
    assert api.get(path, headers={"accept": "text/html"}).status_code == status


def test_pages_of_the_board_follow_each_other_and_a_cursor_is_of_its_order(
    api: httpx.Client, kept: list[StoredResult]
) -> None:
    for sort in ("tg", "pp", "newest", "bits"):
        first = api.get("/v1/leaderboard", params={"trust": "self-reported", "sort": sort, "limit": 1}).json()
        second = api.get(
            "/v1/leaderboard", params={"trust": "self-reported", "sort": sort, "limit": 1, "cursor": first["next"]}
        ).json()
        assert {r["result"] for r in first["rows"] + second["rows"]} == {kept[0].id, kept[1].id}
        assert second["next"] is None
    wrong = api.get("/v1/leaderboard", params={"sort": "tg", "cursor": first["next"]})
    assert wrong.status_code == 422


def test_results_come_newest_first_also_the_quarantined_with_the_reason(
    api: httpx.Client, kept: list[StoredResult]
) -> None:
    found = api.get("/v1/results").json()["results"]
    assert [one["id"] for one in found] == [kept[i].id for i in (3, 2, 1, 0)]
    assert (found[0]["state"], found[0]["state_reason"]) == ("quarantined", "three times as fast as its like")
    assert [one["licence"] for one in found] == ["CC-BY-4.0", None, "CC-BY-4.0", "CC-BY-4.0"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"rig": "rtx-5090"}, [1]),
        ({"contributor": "quiet-heron-417"}, [0]),
        ({"contributor": "alice"}, []),
        ({"origin": "published"}, [2]),
        ({"tier": "agent-run", "model": "qwen3-30b-a3b"}, [0]),
        ({"since": "2026-11-02"}, []),
        ({"until": "2026-11-01", "variant": "IQ2_K"}, [2]),
        ({"repo": "unsloth/Qwen3-30B-A3B-GGUF", "engine": "ik_llama.cpp", "origin": "submitted"}, [3, 1, 0]),
    ],
)
def test_results_can_be_asked_for(
    api: httpx.Client, kept: list[StoredResult], query: dict[str, str], expected: list[int]
) -> None:
    assert ids(api.get("/v1/results", params=query)) == [kept[i].id for i in expected]


def test_a_cursor_goes_on_where_the_page_ended_whatever_is_added(
    api: httpx.Client, shared_engine: Engine, kept: list[StoredResult]
) -> None:
    first = api.get("/v1/results", params={"limit": 2, "model": "qwen3-30b-a3b"})
    later = a_result(created_at=A_DAY + timedelta(days=1), state="quarantined")
    keep(shared_engine, later)
    following = api.get(re.findall("<(.*)>", first.headers["link"])[0])
    assert ids(first) + ids(following) == [kept[i].id for i in (3, 2, 1, 0)]
    assert "link" not in following.headers
    assert ids(api.get("/v1/results", params={"limit": 1})) == [later.id]


def test_a_result_has_its_rows_speeds_and_log_and_is_answered_once(api: httpx.Client, kept: list[StoredResult]) -> None:
    reply = api.get(f"/v1/results/{kept[0].id}")
    found = reply.json()
    assert found["url"] == f"{api.base_url}/results/{kept[0].id}"
    assert [point["tg_tps"] for point in found["outcome"]["speed"]] == [30.0, 25.0]
    said = (found["command"], found["contributor"], found["has_log"])
    assert said == (
        "llama-bench -m a",
        "quiet-heron-417",
        True,
    )
    assert api.get(f"/v1/results/{kept[0].id}", headers={"if-none-match": reply.headers["etag"]}).status_code == 304
    log = api.get(f"/v1/results/{kept[0].id}/log")
    assert (log.text, log.headers["content-type"]) == ("llama_model_loader: loaded\n", "text/plain; charset=utf-8")
    for gone in (kept[4].id, "none", "n" * 64):
        assert api.get(f"/v1/results/{gone}").json()["type"].endswith("#result-not-found")
        assert api.get(f"/v1/results/{gone}/log").status_code == 404


def test_the_list_comes_in_the_format_that_the_accept_header_names(api: httpx.Client, kept: list[StoredResult]) -> None:
    for named in ("json", "jsonl", "csv"):
        by_query = api.get("/v1/results", params={"format": named}, headers={"Accept": "*/*"})
        media_type = by_query.headers["content-type"].partition(";")[0]
        by_header = api.get("/v1/results", headers={"Accept": media_type})
        assert by_header.status_code == 200
        assert "Accept" in by_header.headers["vary"].split(", ")
        assert (by_header.content, by_header.headers["content-type"]) == (
            by_query.content,
            by_query.headers["content-type"],
        )
    refused = api.get("/v1/results", headers={"Accept": "text/html"})
    assert refused.status_code == 406
    assert "text/csv" in refused.json()["detail"]
    assert api.get("/v1/results", params={"format": "csv"}, headers={"Accept": "text/html"}).status_code == 200


def test_csv_and_jsonl_have_the_same_results(api: httpx.Client, kept: list[StoredResult]) -> None:
    params = {"model": "qwen3-30b-a3b", "until": "2026-11-01"}
    table = api.get("/v1/results", params={**params, "format": "csv"})
    lines = list(csv.DictReader(io.StringIO(table.text)))
    assert list(lines[0]) == list(COLUMNS)
    assert [
        (one["id"].lstrip("'"), one["n_kv"], one["tg_tps"]) for one in lines if one["id"].lstrip("'") == kept[0].id
    ] == [
        (kept[0].id, "0", "30.0"),
        (kept[0].id, "4096", "25.0"),
    ]
    each = api.get("/v1/results", params={**params, "format": "jsonl"})
    in_table = [one["id"].lstrip("'") for one in lines]
    assert [json.loads(line)["id"] for line in each.text.splitlines()] == list(dict.fromkeys(in_table))


def hostile_texts(api: httpx.Client, result_id: str) -> dict[str, str]:
    params = {"model": "planted"}
    at = {**params, "depth": "16384", "trust": "self-reported"}
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "json": ("/v1/results", params),
        "jsonl": ("/v1/results", {**params, "format": "jsonl"}),
        "csv": ("/v1/results", {**params, "format": "csv"}),
        "board": ("/v1/leaderboard", at),
        "board text": ("/v1/leaderboard", {**at, "format": "text"}),
        "board markdown": ("/v1/leaderboard", {**at, "format": "markdown"}),
        "text": (f"/v1/results/{result_id}", {"format": "text"}),
        "markdown": (f"/v1/results/{result_id}", {"format": "markdown"}),
    }
    return {name: api.get(path, params=query).text for name, (path, query) in asked.items()}


def test_a_planted_name_does_nothing_in_any_form(
    shared_app: httpx.Client, shared_engine: Engine, tmp_path: Path
) -> None:
    values = dict.fromkeys(("variant", "build", "cpu", "gpus", "command", "remarks"), PLANTED)
    one = a_result([row(16384)], **values, model_slug="planted", model_name=PLANTED[:80], rig_slug="planted-rig")
    keep(shared_engine, one)
    said = hostile_texts(shared_app, one.id)
    for dump in dumps.write_dumps(shared_engine, tmp_path, A_DAY).dumps:
        said[dump.format + " dump"] = gzip.decompress((tmp_path / dump.name).read_bytes()).decode()
    for name, text in said.items():
        assert "onerror" in text, name
        assert not _CONTROL.search(text), name
    for cells in csv.reader(io.StringIO(said["csv"] + said["csv dump"])):
        assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in cells)
    for name in ("board markdown", "markdown"):
        outside = re.sub(r"```.*?```", "", said[name], flags=re.DOTALL)
        assert "@everyone" not in outside, name
        assert "<img" not in outside.replace("\\<", ""), name
        assert said[name].count("```") == 2, name


def test_a_dump_is_listed_and_sent_byte_for_byte(
    api: httpx.Client, kept: list[StoredResult], shared_engine: Engine, valkey: EmbeddedValkey, tmp_path: Path
) -> None:
    assert api.get("/v1/dumps/results-v1-2026-11-21.csv.gz").json()["type"].endswith("#dump-not-found")
    made = dumps.write_dumps(shared_engine, tmp_path / "dumps", A_DAY).dumps
    url = shared_engine.url.render_as_string(hide_password=False)
    with service(msgspec.structs.replace(settings_for(url, valkey), state_dir=tmp_path)) as client:
        listed = client.get("/v1/dumps").json()
        assert (listed["licence"], listed["schema_version"]) == ("CC-BY-4.0", 1)
        for one, known in zip(listed["dumps"], made, strict=True):
            sent = client.get(one["url"])
            assert hashlib.sha256(sent.content).hexdigest() == one["sha256"] == known.sha256
            assert sent.headers["content-type"] == "application/gzip"
            holds_to_http(client, one["url"], sent)
        with engine_with_tables(f"sqlite:///{tmp_path}/other.db") as other:
            found = import_results(Database(other), str(client.base_url), listed["key"])
            lines = gzip.decompress((tmp_path / "dumps" / made[0].name).read_bytes()).splitlines()
            assert found.added == sum(json.loads(line)["state"] == "shown" for line in lines) >= 2


def holds_to_http(client: httpx.Client, url: str, whole: httpx.Response) -> None:
    """Hold a file to RFC 9110, sections 13 and 14."""
    etag, content = whole.headers["etag"], whole.content
    assert "no-store" not in whole.headers["cache-control"]
    head = client.head(url)
    assert (head.headers["etag"], head.headers["content-length"]) == (etag, str(len(content)))

    def asked(**headers: str) -> httpx.Response:
        return client.get(url, headers={name.replace("_", "-"): value for name, value in headers.items()})

    assert asked(if_none_match=f'"x", W/{etag}').status_code == 304
    assert asked(if_none_match="*").status_code == 304
    assert asked(if_match=etag).status_code == 200
    other = asked(if_match='"other"')
    assert (other.status_code, other.json()["type"]) == (412, "/docs/problems#precondition-failed")
    assert (other.headers["content-type"], other.headers["etag"]) == ("application/problem+json", etag)
    ranges = {
        "bytes=0-9": content[:10],
        "bytes=10-": content[10:],
        "bytes=-7": content[-7:],
        "bytes=5-99999999": content[5:],
    }
    for asked_range, expected in ranges.items():
        part = asked(range=asked_range, if_range=etag)
        assert (part.status_code, part.content) == (206, expected)
        start = len(content) - 7 if asked_range == "bytes=-7" else int(asked_range[6:].split("-")[0])
        last = start + len(expected) - 1
        assert part.headers["content-range"] == f"bytes {start}-{last}/{len(content)}"
    beyond = asked(range="bytes=99999999-")
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(content)}")
    assert beyond.json()["type"] == "/docs/problems#range-not-satisfiable"
    assert asked(range="bytes=0-9", if_range='"other"').content == content
    assert asked(range="bytes=0-1,4-5").content == content
    assert asked(range="lines=0-9").content == content


def test_a_method_that_is_not_taken_is_answered_with_all_that_are(api: httpx.Client) -> None:
    for path in ("/v1/dumps", "/v1/leaderboard", "/metrics"):
        reply = api.delete(path)
        assert reply.status_code == 405
        assert {"GET", "HEAD"} <= {method.strip() for method in reply.headers["allow"].split(",")}
