"""`POST /v1/check`: what is asked and answered, and what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.web.http.test_problems import assert_problem
from tests.web.world import READY_REPO, World

ASKED = {
    "command": "llama-server -m m.gguf -c 8192 -ngl 99 -fa -ot exps=CPU",
    "repo": f"{READY_REPO}:Q8_0",
    "hardware": "RTX 3090, 128GB",
}


def test_the_answer_has_memory_speed_and_findings(client: httpx.Client) -> None:
    reply = client.post("/v1/check", json=ASKED)
    assert reply.status_code == 200
    answer = reply.json()
    assert [d["device"] for d in answer["memory"]["devices"]] == ["CUDA0", "CPU"]
    parts = {"weights_mib", "kv_mib", "compute_mib", "output_mib", "overhead_mib", "total_mib", "total_low_mib",
             "total_high_mib", "capacity_mib", "fits", "basis"}  # fmt: skip
    assert parts <= set(answer["memory"]["devices"][0])
    assert {"n_kv", "pp_tps", "pp_low", "pp_high", "tg_tps", "tg_low", "tg_high"} <= set(answer["speed"][0])
    assert all(set(f) == {"rule", "severity", "message", "fix", "gain", "source"} for f in answer["findings"])
    assert "retired-flag" in [f["rule"] for f in answer["findings"]]


def test_curl_gets_text_on_one_screen(client: httpx.Client) -> None:
    reply = client.post("/v1/check", json=ASKED, headers={"Accept": "text/plain"})
    assert reply.headers["content-type"].startswith("text/plain")
    lines = reply.text.splitlines()
    assert lines[0].startswith("Does not start with today's build: -fa now needs a value")
    assert "--detail full" not in reply.text  # which only the command line has
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    full = client.post("/v1/check?detail=full", json=ASKED, headers={"Accept": "text/plain"}).text
    assert "source: " in full


def test_markdown_is_the_verdict_and_a_block(client: httpx.Client) -> None:
    text = client.post("/v1/check?format=markdown", json=ASKED).text
    assert text.startswith("**Does not start")
    assert text.rstrip().endswith("```")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"command": ""}, "command"),
        ({"hardware": None}, "hardware"),
        ({"depths": [-1]}, "depths[0]"),
        ({"measured": [{"n_kv": 0, "tg_tps": 0}]}, "measured[0].tg_tps"),
        ({"measured": [{"tps": 1}]}, "measured[0].tps"),
        ({"engine": "vllm"}, "engine"),
        ({"allocator": "malloc"}, "allocator"),
        ({"build": ""}, "build"),
        ({"build": {"day": "2025-05-11"}}, "build.day"),
        ({"built": "b1234"}, "built"),
    ],
)
def test_a_wrong_field_is_named(client: httpx.Client, change: dict[str, Any], field: str) -> None:
    problem = assert_problem(client.post("/v1/check", json=ASKED | change), 422, "invalid-request")
    assert problem["field"] == field


def test_a_command_that_cannot_be_read_is_a_problem(client: httpx.Client) -> None:
    assert_problem(client.post("/v1/check", json=ASKED | {"command": "nonsense"}), 422, "invalid-flags")


def test_many_checks_at_once_are_all_answered(client: httpx.Client, world: World) -> None:
    world.hub.may_end.clear()
    with ThreadPoolExecutor(8) as pool:
        pending = [pool.submit(client.post, "/v1/check", json=ASKED) for _ in range(8)]
        assert world.hub.reading.acquire(timeout=60)
        world.hub.may_end.set()
        assert [reply.result().status_code for reply in pending] == [200] * 8
