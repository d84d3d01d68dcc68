"""Logs: a line an event, of names that are listed, with the ids that are known of what is done."""

from __future__ import annotations

import ast
import json
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from scripts.logs_page import FIELDS, MEANINGS
from service import logs
from service.logs import EventName, JsonLines, Log, Readable

ROOT = Path(__file__).parent.parent
log = Log("test")
_CALL = re.compile(r"\blog\s*\.\s*(debug|info|warning|error)\b")  # parsing every file takes seconds


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    """What a process writes that has configured its log."""
    root = logging.getLogger()
    before = root.handlers[:]
    logs.configure("worker", "info")
    yield lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    root.handlers[:] = before


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Every call of a logger of ours, and the file that it stands in."""
    for path in sorted([*(ROOT / "service").rglob("*.py"), *(ROOT / "workers").rglob("*.py")]):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if _CALL.search(text) else ():
            match node:
                case ast.Call(ast.Attribute(ast.Name("log"), "debug" | "info" | "warning" | "error")):
                    yield str(path.relative_to(ROOT)), node


def test_every_event_and_field_that_is_logged_is_listed() -> None:
    events, fields = set(), set()
    for path, call in calls():
        assert isinstance(call.args[0], ast.Constant), f"{path}:{call.lineno} makes up a name"
        events.add(call.args[0].value)
        fields |= {keyword.arg for keyword in call.keywords if keyword.arg}
    assert events == set(MEANINGS) - {"library"} == set(get_args(EventName)) - {"library"}
    assert fields <= set(FIELDS)


def test_an_event_is_one_json_object_a_line(written: Any) -> None:
    log.info("advice.ready", duration_ms=12, advice_id="a\nb", problem=None)
    log.debug("hub.asked_again")
    (line,) = written()
    assert (line["event"], line["level"], line["role"], line["duration_ms"]) == ("advice.ready", "info", "worker", 12)
    assert line["advice_id"] == "a\nb"
    assert "problem" not in line
    assert line["timestamp"].endswith("Z")
    assert set(line) <= set(FIELDS)


def test_what_is_known_of_a_request_stands_in_each_of_its_lines_and_in_no_other(written: Any) -> None:
    def elsewhere() -> None:
        log.info("advice.queued")

    with logs.bound(request_id="r-12345678", advice_id=None):
        logs.note(advice_id="x")
        log.info("advice.queued")
        stranger = threading.Thread(target=elsewhere)
        stranger.start()
        stranger.join()
        with logs.bound(run_id="y"):
            log.info("run.leased")
        assert logs.request_id() == "r-12345678"
    log.info("advice.queued")
    first, other, inner, after = written()
    assert (first["request_id"], first["advice_id"]) == ("r-12345678", "x")
    assert (inner["request_id"], inner["run_id"]) == ("r-12345678", "y")
    assert "request_id" not in other | after
    assert logs.request_id() is None


def test_libraries_write_the_same_lines_and_clients_of_http_no_addresses(written: Any) -> None:
    logging.getLogger("uvicorn.error").warning("it hangs: %d", 3)
    logging.getLogger("sqlalchemy.engine").info("SELECT secret")
    logging.getLogger("httpx").info("GET https://cdn/?signature=secret")
    (line,) = written()
    assert (line["event"], line["logger"], line["detail"]) == ("library", "uvicorn.error", "it hangs: 3")


def test_a_traceback_is_part_of_the_line_and_shows_no_values(written: Any) -> None:
    password = "hunter2"
    try:
        raise ValueError(len(password))
    except ValueError as error:
        log.error("request.failed", error)
    (line,) = written()
    assert "ValueError: 7" in line["exception"]
    assert "hunter2" not in line["exception"].replace('password = "hunter2"', "")


def test_a_person_sees_readable_lines_that_steer_no_terminal() -> None:
    record = logging.LogRecord("x", logging.WARNING, "", 0, "a\x1b[2Jb", None, None)
    line = Readable().format(record)
    assert "\x1b" not in line
    assert "warning library" in line
    assert "\n" not in line
    assert "\\u001b" in JsonLines("api").format(record)


def test_a_program_that_configured_nothing_still_says_what_happened(caplog: pytest.LogCaptureFixture) -> None:
    log.warning("redis.silent", error="TimeoutError", detail="it is gone")
    assert caplog.messages == ["redis.silent error=TimeoutError detail='it is gone'"]
