"""`advisor mcp`: messages on standard input, answers on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import IO, Any

import pytest

from service.cli import main
from service.cli import mcp as verb

pytestmark = pytest.mark.timeout(60)
HARDWARE = {"name": "hardware", "arguments": {"text": "RTX 3090, 64GB"}}


@contextmanager
def pipes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[IO[str], IO[str]]]:
    """Make standard input and output pipes; yields what a client writes to, and what it reads from."""
    monkeypatch.setenv("ADVISOR_STATE_DIR", str(tmp_path))
    (stdin, asked), (answered, stdout) = os.pipe(), os.pipe()
    with os.fdopen(stdin) as one, os.fdopen(stdout, "w") as two, os.fdopen(asked, "w") as to, os.fdopen(answered) as of:
        monkeypatch.setattr(sys, "stdin", one)
        monkeypatch.setattr(sys, "stdout", two)
        yield to, of


def send(to: IO[str], identity: int, method: str, params: dict[str, Any] | None = None) -> None:
    to.write(json.dumps({"jsonrpc": "2.0", "id": identity, "method": method, "params": params or {}}) + "\n")
    to.flush()


def test_a_ping_and_a_quick_call_are_answered_while_an_advice_is_computed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    is_computed = Event()
    monkeypatch.setitem(verb._RUN, "inspect", lambda *_: str(is_computed.wait(30)))
    with pipes(monkeypatch, tmp_path) as (asked, answered), ThreadPoolExecutor() as pool:
        ended = pool.submit(main, ["mcp"])
        send(asked, 1, "tools/call", {"name": "inspect", "arguments": {"repo": "a/b"}})
        send(asked, 2, "ping")
        send(asked, 3, "tools/call", HARDWARE)
        assert [json.loads(answered.readline())["id"] for _ in range(2)] == [2, 3]
        is_computed.set()
        assert json.loads(answered.readline())["id"] == 1
        asked.close()
        assert ended.result(30) == 0


def test_calls_are_answered_after_the_last_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pipes(monkeypatch, tmp_path) as (asked, answered):
        for identity in range(9):
            send(asked, identity, "tools/call", HARDWARE)
        asked.close()
        assert main(["mcp"]) == 0
        sys.stdout.close()
        replies = [json.loads(line) for line in answered]
    assert {reply["id"] for reply in replies} == set(range(9))
    assert all("RTX 3090" in reply["result"]["content"][0]["text"] for reply in replies)


def test_an_id_that_is_used_twice_is_answered_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    is_computed = Event()
    monkeypatch.setitem(verb._RUN, "advise", lambda *_: str(is_computed.wait(30)))
    arguments = {"repo": "a/b", "hardware": "RTX 3090"}
    with pipes(monkeypatch, tmp_path) as (asked, answered), ThreadPoolExecutor() as pool:
        ended = pool.submit(main, ["mcp"])
        for _ in range(2):
            send(asked, 1, "tools/call", {"name": "advise", "arguments": arguments})
        is_computed.set()
        assert [json.loads(answered.readline())["id"] for _ in range(2)] == [1, 1]
        asked.close()
        assert ended.result(30) == 0


def test_a_client_hears_how_far_an_advice_is_and_nothing_of_one_that_it_cancelled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    is_cancelled, steps = Event(), []

    def advise(asked: object, settings: object, show: verb.Show) -> str:
        steps.append(asked)
        show(0.5, "placing configs")
        if len(steps) == 1:
            is_cancelled.wait(30)
            show(0.75, "placing configs")
            raise AssertionError("it went on")
        return "done"

    monkeypatch.setitem(verb._RUN, "advise", advise)
    arguments = {"repo": "a/b", "hardware": "RTX 3090"}
    with pipes(monkeypatch, tmp_path) as (asked, answered), ThreadPoolExecutor() as pool:
        ended = pool.submit(main, ["mcp"])
        for identity in (1, 2, 3):
            meta = {"progressToken": f"t{identity}"}
            send(asked, identity, "tools/call", {"name": "advise", "arguments": arguments, "_meta": meta})
        told = [json.loads(answered.readline())["params"] for _ in range(2)]
        assert [(one["progressToken"], one["progress"]) for one in told] == [("t1", 0), ("t1", 0.5)]
        for identity in (1, 2, 7):  # one that runs, one that waits, one that is not there
            params = {"requestId": identity}
            print(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}), file=asked)
        asked.flush()
        send(asked, 4, "ping")
        assert json.loads(answered.readline())["id"] == 4
        is_cancelled.set()
        rest = [json.loads(answered.readline()) for _ in range(3)]
        assert [one.get("id") or one["params"]["progressToken"] for one in rest] == ["t3", "t3", 3]
        assert len(steps) == 2
        asked.close()
        assert ended.result(30) == 0
