"""Whatever goes wrong, the answer is a problem: its type has a heading, and it says the way out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

import service.hub.errors
import service.web.http.limits  # noqa: F401
from service.engine.errors import AdvisorError
from service.errors import describe
from service.flows.advice import advise
from service.hub.errors import HubRateLimited, RepoGated, RepoNotFound
from service.wire.problem import PROBLEM_TYPES, problem_of, stored_problem
from tests.web.world import READY_REPO

ROOT = Path(__file__).parents[3]
ASK: dict[str, Any] = {"repo": READY_REPO, "hardware": "RTX 3090"}


def assert_problem(reply: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    assert reply.status_code == status
    assert reply.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = reply.json()
    assert found["type"] == f"/docs/problems#{slug}"
    assert (found["status"], found["title"]) == (status, PROBLEM_TYPES[slug].title)
    assert found["detail"]
    return found


def subclasses(kind: type[AdvisorError]) -> list[type[AdvisorError]]:
    return [kind, *(c for child in kind.__subclasses__() for c in subclasses(child))]


def test_every_error_of_the_service_is_a_known_problem() -> None:
    """Those of the command line and of agents never cross the API; tests of them may be in the same process."""
    its_own = [
        c for c in subclasses(AdvisorError) if not c.__module__.startswith(("service.cli", "workers.", "tests."))
    ]
    assert [c.__name__ for c in its_own if c.problem not in PROBLEM_TYPES and not c.__name__.startswith("_")] == []


def test_the_docs_have_a_heading_for_each_problem_and_no_other() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "problems.md").read_text(), re.MULTILINE)
    assert headings == list(PROBLEM_TYPES)


def test_the_problem_page_has_an_anchor_for_each_type(client: httpx.Client) -> None:
    page = client.get("/docs/problems").text
    assert [slug for slug in PROBLEM_TYPES if f'id="{slug}"' not in page] == []


def test_a_stored_problem_comes_out_as_the_one_that_was_described() -> None:
    error = HubRateLimited("the Hub asks to wait 30 seconds", retry_after=30)
    gated = RepoGated("ask its author", field="repo", choices=("a/b",))
    for failure in (error, gated):
        assert stored_problem(describe(failure)) == problem_of(failure)
    assert stored_problem({"type": "of-another-version", "detail": "x"}).status == 500


def test_an_error_with_an_unknown_slug_is_internal() -> None:
    class Surprise(AdvisorError):
        problem = "no-such-slug"

    assert problem_of(Surprise("what")).status == 500
    Surprise.problem = "internal"


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({"repo": "a/b"}, "hardware", "`hardware` is missing"),
        ({**ASK, "harware": 1}, "harware", "unknown field"),
        ({**ASK, "hardware": {"gpus": [{"name": "x", "counts": 2}]}}, "hardware.gpus[0].counts", "unknown field"),
        ({**ASK, "hardware": {"gpus": [{"name": "x", "count": "2"}]}}, "hardware.gpus[0].count", "Expected `int`"),
        ({**ASK, "goal": {"prompt": -1}}, "goal.prompt", "this must be at least 1"),
        (
            {**ASK, "goal": {"preset": "speed"}},
            "goal.preset",
            "'speed' is not one of agent, batch, chat, fastest, long",
        ),
        ({**ASK, "goal": "fast"}, "goal", "quality; did you mean fastest?"),
        ({**ASK, "constraints": {"engines": [{"name": "vllm"}]}}, "constraints.engines[0].name", "vllm"),
        ({**ASK, "constraints": {"min_bpw": -1}}, "constraints.min_bpw", "this must be at least 0"),
        ({**ASK, "repo": ""}, "repo", "this must not be empty"),
    ],
)
def test_a_wrong_value_is_answered_with_its_path(
    client: httpx.Client, body: dict[str, Any], field: str, says: str
) -> None:
    found = assert_problem(client.post("/v1/advice", json=body), 422, "invalid-request")
    assert found["field"] == field
    assert says in found["detail"]


@pytest.mark.parametrize(
    ("path", "body", "choices"),
    [
        ("/v1/advice", {**ASK, "goal": {"preset": "speed"}}, {"chat", "agent", "long", "batch", "fastest", "quality"}),
        ("/v1/advice", {**ASK, "constraints": {"engines": [{"name": "vllm"}]}}, {"ik_llama.cpp", "llama.cpp"}),
        ("/v1/advice", {**ASK, "x": 1}, {"repo", "revision", "hardware", "goal", "constraints", "what_if"}),
        ("/v1/advice", {**ASK, "harware": 1}, {"hardware"}),
        ("/v1/advice", {**ASK, "gaol": "agent"}, {"goal"}),
        ("/v1/advice", {**ASK, "variant": "Q4_K_M"}, {"constraints.variants"}),
        ("/v1/advice", {**ASK, "goal": {"variants": []}}, {"constraints.variants"}),
        ("/v1/advice", {**ASK, "hardware": {"gpus": [], "gpu": 1}}, {"gpus"}),
        ("/v1/advice", {**ASK, "hardware": {"gpus": [], "x": 1}}, {"gpus", "cpu", "ram", "os", "notes", "backend"}),
        ("/v1/advice", {**ASK, "hardware": {"gpus": [], "cpu": {"cores": 8}}}, {"physical_cores"}),
        (
            "/v1/advice",
            {**ASK, "hardware": {"gpus": [], "cpu": {"x": 8}}},
            {"model", "sockets", "physical_cores", "numa_nodes"},
        ),
        ("/v1/hardware/parse", {"text": "RTX 3090", "os": "linux"}, {"text"}),
        ("/v1/check", {"command": "x", "hardware": "RTX 3090", "allocator": "metal"}, {"cuda", "lab"}),
        ("/v1/advice", {**ASK, "goal": {"prompt": -1}}, None),
    ],
)
def test_what_may_stand_there_is_listed(
    client: httpx.Client, path: str, body: dict[str, Any], choices: set[str] | None
) -> None:
    found = assert_problem(client.post(path, json=body), 422, "invalid-request")
    assert (set(found["choices"]) if choices else found.get("choices")) == choices


def test_the_nearest_of_what_may_stand_there_comes_first(client: httpx.Client) -> None:
    found = assert_problem(client.post("/v1/advice", json={**ASK, "goal": "fast"}), 422, "invalid-request")
    assert found["choices"] == ["fastest", "agent", "batch", "chat", "long", "quality"]
    wrong = assert_problem(client.get("/v1/leaderboard?sinc=2026-11-21"), 422, "invalid-request")
    assert wrong["choices"] == ["since"]


@pytest.mark.parametrize(
    ("path", "field", "says"),
    [
        ("/v1/leaderboard?limit=0", "limit", "this must be at least 1"),
        ("/v1/leaderboard?limit=many", "limit", "this must be a whole number, without separators"),
        ("/v1/leaderboard?since=yesterday", "since", "this must be written like 2026-11-21"),
        ("/v1/results?until=21.11.2026", "until", "this must be written like 2026-11-21"),
        ("/v1/advice/x?wait=31", "wait", "this must be at most 30"),
        ("/v1/advice/x?wait=soon", "wait", "this must be a whole number, without separators"),
    ],
)
def test_a_wrong_parameter_is_answered_in_words(client: httpx.Client, path: str, field: str, says: str) -> None:
    found = assert_problem(client.get(path), 422, "invalid-request")
    assert (found["field"], found["detail"]) == (field, says)


def test_a_format_of_an_advice_that_there_is_not_is_answered_with_those_that_there_are(client: httpx.Client) -> None:
    found = assert_problem(client.get("/v1/advice/x?detail=brief"), 422, "invalid-request")
    assert (found["field"], set(found["choices"])) == ("detail", {"short", "full", "card"})


@pytest.mark.parametrize(
    ("count", "uuids", "pci_order", "field"),
    [
        (1, ["GPU-a1", "GPU-b2"], [1], "uuids"),
        (2, ["GPU-a1"], [1, 2], "uuids"),
        (2, ["GPU-a1", "GPU-b2"], [1], "pci_order"),
    ],
)
def test_lists_that_name_more_or_fewer_cards_than_there_are_are_refused_by_their_field(
    client: httpx.Client, count: int, uuids: list[str], pci_order: list[int], field: str
) -> None:
    card = {"name": "RTX 3090", "count": count, "uuids": uuids, "pci_order": pci_order}
    found = assert_problem(
        client.post("/v1/advice", json={**ASK, "hardware": {"gpus": [card]}}), 422, "invalid-hardware"
    )
    assert found["field"] == f"hardware.gpus[0].{field}"


@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b'{"repo": "a/b",}', b"\xff\xfe"])
def test_what_is_no_json_is_400(client: httpx.Client, body: bytes) -> None:
    reply = client.post("/v1/advice", content=body, headers={"content-type": "application/json"})
    assert_problem(reply, 400, "malformed-json")


def test_json_that_is_not_utf_8_is_answered_with_the_byte_that_is_wrong(client: httpx.Client) -> None:
    reply = client.post(
        "/v1/hardware/parse", content=b'{"text": "RTX 3090 \xff"}', headers={"content-type": "application/json"}
    )
    assert assert_problem(reply, 400, "malformed-json")["detail"] == "JSON must be UTF-8: invalid character (byte 19)"


def test_a_byte_order_mark_before_json_is_passed_over(client: httpx.Client) -> None:
    reply = client.post(
        "/v1/hardware/parse", content=b'\xef\xbb\xbf{"text": "RTX 3090"}', headers={"content-type": "application/json"}
    )
    assert reply.status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_a_body_that_is_not_declared_as_json_is_415(client: httpx.Client, kind: str | None) -> None:
    headers = {"content-type": kind} if kind else {}
    assert_problem(client.post("/v1/advice", content=b"{}", headers=headers), 415, "unsupported-media-type")


def test_a_charset_after_the_content_type_is_fine(client: httpx.Client) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert client.post("/v1/hardware/parse", content=b'{"text": "RTX 3090"}', headers=headers).status_code == 200


def test_ten_megabytes_are_413(client: httpx.Client) -> None:
    found = assert_problem(client.post("/v1/advice", json={**ASK, "repo": "a" * 10_000_000}), 413, "body-too-large")
    assert "256 KiB" in found["detail"]


def test_a_check_may_bring_a_whole_log(client: httpx.Client) -> None:
    body = {"command": "llama-server -m m.gguf", "hardware": "RTX 3090", "log": 'a line of "log"\n' * 50_000}
    assert client.post("/v1/check", json=body).status_code != 413
    found = assert_problem(client.post("/v1/check", json={**body, "log": "a" * 3_000_000}), 413, "body-too-large")
    assert "2,048 KiB" in found["detail"]


def test_ten_megabytes_without_a_length_are_413_too(client: httpx.Client) -> None:
    chunks = (b"a" * 100_000 for _ in range(100))
    reply = client.post("/v1/advice", content=chunks, headers={"content-type": "application/json"})
    assert_problem(reply, 413, "body-too-large")


def test_an_unknown_path_is_404(client: httpx.Client) -> None:
    assert_problem(client.get("/v1/nothing"), 404, "not-found")


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v1/advice/some-id", "DELETE, GET, HEAD, OPTIONS"),
        ("/v1/results", "GET, HEAD, OPTIONS, POST"),
        ("/v1/check", "OPTIONS, POST"),
        ("/v1/advice/some-id/events", "GET, OPTIONS"),
    ],
)
def test_options_names_every_method_of_a_path(client: httpx.Client, path: str, methods: str) -> None:
    assert client.options(path).headers["allow"] == methods


@pytest.mark.parametrize(
    "query", ["wait=0&wait=30", "format=json&format=text", "format=null", "limit=5", "as_format=text"]
)
def test_a_parameter_that_is_unknown_given_twice_or_as_null_is_refused_by_name(
    client: httpx.Client, query: str
) -> None:
    reply = client.get(f"/v1/advice/some-id?{query}")
    assert_problem(reply, 422, "invalid-request")
    assert reply.json()["field"] == query.partition("=")[0]


def test_a_wrong_method_is_405_and_says_what_is_allowed(client: httpx.Client) -> None:
    reply = client.put("/v1/advice")
    assert assert_problem(reply, 405, "method-not-allowed")["detail"] == "/v1/advice does not accept PUT: it takes POST"
    assert "POST" in reply.headers["allow"]


def test_an_event_stream_takes_no_head_and_says_so(client: httpx.Client) -> None:
    reply = client.head("/v1/advice/some-id/events")
    assert (reply.status_code, reply.headers["allow"]) == (405, "GET, OPTIONS")


def test_an_unexpected_error_is_500_and_tells_nothing_of_the_inside(client: httpx.Client, broken: None) -> None:
    reply = client.post("/v1/advice", json=ASK)
    assert_problem(reply, 500, "internal")
    assert "secret" not in reply.text
    assert reply.headers["x-request-id"]


def test_a_wrong_query_parameter_is_422_with_its_name(client: httpx.Client) -> None:
    found = assert_problem(client.get("/v1/advice/x", params={"wait": 31}), 422, "invalid-request")
    assert found["field"] == "wait"
    found = assert_problem(client.get("/v1/advice/x", params={"format": "xml"}), 422, "invalid-request")
    assert found["field"] == "format"


def test_unknown_hardware_offers_the_nearest_names(client: httpx.Client) -> None:
    found = assert_problem(client.post("/v1/hardware/parse", json={"text": "RTX 3095"}), 422, "unknown-hardware")
    assert any("3090" in choice for choice in found["choices"])


@pytest.mark.parametrize("path", ["/v1/advice/..%2f..", "/v1/advice/%00", "/v1/advice/" + "a" * 5000, "/v1/advice/'--"])
def test_a_hostile_id_is_simply_not_found(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404


def test_a_format_that_does_not_exist_is_named_as_it_was_written(client: httpx.Client) -> None:
    assert assert_problem(client.get("/v1/advice/one?format=html"), 422, "invalid-request")["field"] == "format"


@pytest.mark.parametrize(("form", "kind"), [("text", "text/plain"), ("markdown", "text/markdown")])
def test_whoever_asks_for_text_is_told_in_sentences(client: httpx.Client, form: str, kind: str) -> None:
    for reply in (
        client.post("/v1/advice", json={**ASK, "hardware": "RTX 3090x9z"}, headers={"Accept": kind}),
        client.post(f"/v1/advice?format={form}", json={**ASK, "hardware": "RTX 3090x9z"}),
    ):
        assert (reply.status_code, reply.headers["content-type"].partition(";")[0]) == (422, kind)
        assert "Unknown GPU or CPU: no GPU `RTX 3090x9z`" in reply.text.replace("'", "`").replace("**", "")
        assert "did you mean: NVIDIA GeForce RTX 3090" in reply.text
        assert f"{client.base_url}/docs/problems#unknown-hardware" in reply.text


@pytest.mark.parametrize(
    ("detail", "said"), [("the Hub has no a/b", True), ("the Hub has no a/b; its search finds c/d", False)]
)
def test_a_suggestion_that_the_sentence_has_is_not_said_again(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, detail: str, said: bool
) -> None:
    def refuse(*_: object) -> None:
        raise RepoNotFound(detail, field="repo", choices=("c/d",))

    monkeypatch.setattr(advise, "request_advice", refuse)
    text = client.post("/v1/advice", json={**ASK, "repo": "a/b"}, headers={"Accept": "text/plain"}).text
    assert detail in text
    assert ("did you mean: c/d" in text) is said


def test_programs_browsers_and_curl_by_itself_are_answered_in_json(client: httpx.Client) -> None:
    for accept in ("*/*", "application/json", "text/html,*/*;q=0.8"):
        assert_problem(client.get("/v1/advice/none", headers={"Accept": accept}), 404, "advice-not-found")
    assert_problem(client.get("/v1/advice/none", headers={"Accept": "image/png"}), 406, "not-acceptable")


def test_a_client_that_accepts_problems_gets_them_and_results_in_json(client: httpx.Client) -> None:
    accepted = {"Accept": "application/problem+json"}
    assert_problem(client.get("/v1/advice/none", headers=accepted), 404, "advice-not-found")
    assert client.get("/v1/leaderboard", headers=accepted).headers["content-type"].startswith("application/json")
