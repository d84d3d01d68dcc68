"""One word, searched for in all logs, tells what became of a request: in the API, the worker, and on the host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.end_to_end.stack import GOAL, REPO, Stack, running, start_machines
from tests.end_to_end.test_validation import replayed
from tests.local_hub import LocalHub
from tests.waiting import wait_for

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]
ASKED, MEASURED = "somebody-asks-1", "somebody-measures-1"


def ask(stack: Stack, path: str, identity: str, body: object) -> Any:
    headers = {"Authorization": f"Bearer {stack.token}", "X-Request-ID": identity}
    reply = httpx.post(stack.url + path, json=body, headers=headers, timeout=60)
    assert reply.is_success, reply.text
    assert reply.headers["x-request-id"] == identity
    return reply.json()


def story(stack: Stack, word: str) -> list[dict[str, Any]]:
    """Return what all logs hold of `word`, in order of time: what `grep -h WORD *.log | sort` prints."""
    logs = stack.service.log + "".join(machine.program.log for machine in stack.machines)
    found = [json.loads(line) for line in logs.splitlines() if word in line and line.startswith("{")]
    return sorted(found, key=lambda line: str(line["timestamp"]))


def test_a_request_is_found_in_every_log_by_its_id(tmp_path: Path, hub: LocalHub, models: Path) -> None:
    with running(tmp_path, hub) as stack:
        start_machines(stack, replayed(tmp_path / "bin"), models, 1)
        hardware = stack.call("GET", "/v1/hosts")[0]["hardware"]
        body = {"repo": REPO, "hardware": hardware, "goal": GOAL}
        advice = ask(stack, "/v1/advice?wait=30", ASKED, body)
        assert advice["state"] == "ready"
        validation = ask(stack, f"/v1/advice/{advice['id']}/validations", MEASURED, {})

        def is_over() -> bool:
            runs = stack.call("GET", f"/v1/validations/{validation['id']}")["runs"]
            return all(run["state"] in ("succeeded", "failed") for run in runs)

        wait_for(is_over, "the runs do not end")
        wait_for(lambda: "run.ended" in {line["event"] for line in story(stack, MEASURED)}, "the host does not say so")
        asked, measured = story(stack, ASKED), story(stack, MEASURED)
        assert [(line["role"], line["event"]) for line in asked if line["event"] != "request"] == [
            ("api", "advice.queued"), ("worker", "advice.started"), ("worker", "advice.ready"),
        ]  # fmt: skip
        assert {line.get("advice_id") for line in asked} == {advice["id"]}
        told = {(line["role"], line["event"]) for line in measured}
        assert told >= {
            ("api", "validation.created"), ("api", "run.leased"), ("agent", "run.began"), ("agent", "run.ended"),
            ("api", "run.reported"), ("api", "request"),
        }  # fmt: skip
        paths = {line["path"] for line in measured if line["event"] == "request"}
        assert paths >= {"/v1/advice/{advice_id}/validations", "/v1/agent/runs/{run_id}/report"}
        run = next(line["run_id"] for line in measured if line["event"] == "run.ended")
        assert {"run.leased", "run.reported", "run.began"} <= {line["event"] for line in story(stack, run)}
        assert stack.token not in stack.service.log
