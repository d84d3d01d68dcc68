"""`POST /v1/check`: what is asked and answered, and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from redis import Redis

from service.engine.catalogue import resolve
from service.engine.check import check
from service.engine.errors import InvalidFlags
from service.queue.embedded import EmbeddedValkey
from service.web.services import READS
from service.wire.check import Checked, CheckRequest
from tests.models import build
from tests.rigs import ONE_3090_DESKTOP
from tests.web.conftest import TheTestsFlows
from tests.web.memory_flows import MemoryFlows
from tests.web.test_problems import assert_problem

ASKED = {
    "command": "llama-server -m m.gguf -c 8192 -ngl 99 -fa -ot exps=CPU",
    "repo": "a/b-GGUF:Q4_K_M",
    "hardware": "RTX 3090, 128GB",
}


class CheckingFlows(MemoryFlows):
    """Checks with the engine, of one model. `inside` counts the checks that have begun."""

    def __init__(self, redis: Redis, redis_url: str) -> None:
        super().__init__(redis, redis_url)
        self.inside = threading.Semaphore(0)

    def check(self, request: CheckRequest, admit_new_repo: Callable[[], None]) -> Checked:
        if request.command == "nonsense":
            raise InvalidFlags("the command has no program and no option of llama.cpp", field="command")
        self.inside.release()
        self.may_end.wait(10)
        report = check(request.command, request.engine, build("Qwen3-30B-A3B", "q4_K_M"), resolve(ONE_3090_DESKTOP))
        known = {name: getattr(report, name) for name in report.__struct_fields__}
        return Checked(repo="a/b-GGUF", revision="c" * 40, variant="Q4_K_M", **known)


@pytest.fixture
def checking(server: httpx.Client, redis: Redis, valkey: EmbeddedValkey, shared: TheTestsFlows) -> CheckingFlows:
    shared.current = flows = CheckingFlows(redis, valkey.url)
    return flows


def test_the_answer_has_memory_speed_and_findings(server: httpx.Client, checking: CheckingFlows) -> None:
    reply = server.post("/v1/check", json=ASKED)
    assert reply.status_code == 200
    answer = reply.json()
    assert [d["device"] for d in answer["memory"]["devices"]] == ["CUDA0", "CPU"]
    parts = {"weights_mib", "kv_mib", "compute_mib", "output_mib", "overhead_mib", "total_mib", "total_low_mib",
             "total_high_mib", "capacity_mib", "fits", "basis"}  # fmt: skip
    assert parts <= set(answer["memory"]["devices"][0])
    assert {"n_kv", "pp_tps", "pp_low", "pp_high", "tg_tps", "tg_low", "tg_high"} <= set(answer["speed"][0])
    assert all(set(f) == {"rule", "severity", "message", "fix", "source"} for f in answer["findings"])
    assert "retired-flag" in [f["rule"] for f in answer["findings"]]


def test_curl_gets_text_on_one_screen(server: httpx.Client, checking: CheckingFlows) -> None:
    reply = server.post("/v1/check", json=ASKED, headers={"Accept": "text/plain"})
    assert reply.headers["content-type"].startswith("text/plain")
    lines = reply.text.splitlines()
    assert lines[0].startswith("Fits: TG about ")
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    full = server.post("/v1/check?detail=full", json=ASKED, headers={"Accept": "text/plain"}).text
    assert "source: " in full


def test_markdown_is_the_verdict_and_a_block(server: httpx.Client, checking: CheckingFlows) -> None:
    text = server.post("/v1/check?format=markdown", json=ASKED).text
    assert text.startswith("**Fits")
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
def test_a_wrong_field_is_named(
    server: httpx.Client, checking: CheckingFlows, change: dict[str, Any], field: str
) -> None:
    problem = assert_problem(server.post("/v1/check", json=ASKED | change), 422, "invalid-request")
    assert problem["field"] == field


def test_a_command_that_cannot_be_read_is_a_problem(server: httpx.Client, checking: CheckingFlows) -> None:
    assert_problem(server.post("/v1/check", json=ASKED | {"command": "nonsense"}), 422, "invalid-flags")


def test_more_checks_at_once_than_a_process_takes_are_sent_away(server: httpx.Client, checking: CheckingFlows) -> None:
    checking.may_end.clear()
    replies: list[httpx.Response] = []
    askers = [
        threading.Thread(target=lambda: replies.append(server.post("/v1/check", json=ASKED))) for _ in range(READS)
    ]
    for thread in askers:
        thread.start()
    assert all(checking.inside.acquire(timeout=60) for _ in askers)
    assert_problem(server.post("/v1/check", json=ASKED), 503, "service-unavailable")
    checking.may_end.set()
    for thread in askers:
        thread.join(30)
    assert [reply.status_code for reply in replies] == [200] * READS
