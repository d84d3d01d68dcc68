"""Requests to remove a result: kept until an operator decides, and then the result and its copies go."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from service.engine.errors import InvalidInput
from service.errors import ResultNotFound
from service.flows.context import Context
from service.flows.results import dumps
from service.flows.results.moderation import REMOVED, ask_removal, audit, moderate, open_requests, quarantined
from service.store.operations import health, jobs
from service.store.results import results
from service.wire.results.moderation import Action, Moderation, RemovalRequest
from tests.flows.conftest import Clock
from tests.stored_results import a_result, keep, row

ASKED = RemovalRequest(text="my name is in the remarks", contact="me@example.org")


@pytest.fixture
def results_kept(context: Context) -> list[str]:
    several = [a_result([row(0, tg, 480.0)], remarks="by Eve", command="llama-bench") for tg in (20.0, 21.0)]
    keep(context.engine, *several)
    return [one.id for one in several]


def act(context: Context, action: Action, subject: str) -> None:
    moderate(context, "an operator", Moderation(action=action, subject=subject, reason="as was asked"))


def dumped(folder: Path) -> str:
    return "".join(gzip.open(path, "rt").read() for path in folder.glob("*.gz"))


def test_a_removed_result_is_erased_and_the_dumps_that_have_it_go(
    context: Context, clock: Clock, results_kept: list[str], tmp_path: Path
) -> None:
    gone, stays = results_kept
    dumps.write_dumps(context.engine, tmp_path, clock())
    assert gone in dumped(tmp_path)
    clock.pass_minutes(24 * 60)
    asked = ask_removal(context, None, gone, ASKED)
    (listed,) = open_requests(context)
    assert (listed.id, listed.result, listed.text, listed.contact) == (asked.id, gone, ASKED.text, ASKED.contact)
    jobs.ensure(context.engine, {"dumps": clock()})
    jobs.claim(context.engine, "dumps", "x", clock(), clock())
    clock.pass_minutes(1)
    act(context, "remove", gone)
    assert jobs.states(context.engine)["dumps"].due_at == clock()
    assert not open_requests(context)
    erased = results.read(context.engine, gone)
    assert erased
    assert (erased.state, erased.state_reason, erased.remarks, erased.command) == ("deleted", REMOVED, None, None)
    dumps.write_dumps(context.engine, tmp_path, clock())
    assert gone not in dumped(tmp_path)
    assert stays in dumped(tmp_path)
    assert len(list(tmp_path.glob("*.gz"))) == 2
    assert [(one.action, one.subject, one.by) for one in audit(context)] == [("remove", gone, "an operator")]


def test_a_refused_request_changes_nothing_but_itself(context: Context, results_kept: list[str]) -> None:
    asked = ask_removal(context, None, results_kept[0], ASKED)
    act(context, "refuse", asked.id)
    assert not open_requests(context)
    left = results.read(context.engine, results_kept[0])
    assert left
    assert left.state == "shown"
    with pytest.raises(InvalidInput, match="no open request"):
        act(context, "refuse", asked.id)


def test_how_to_answer_is_forgotten_once_it_is_decided(context: Context, results_kept: list[str]) -> None:
    ask_removal(context, None, results_kept[0], ASKED)
    act(context, "remove", results_kept[0])
    with context.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT contact, removed FROM removal_request").all() == [(None, True)]


def test_a_result_is_removed_once_and_one_that_is_gone_cannot_be_asked_for(
    context: Context, results_kept: list[str]
) -> None:
    act(context, "remove", results_kept[0])
    with pytest.raises(InvalidInput, match="deleted before"):
        act(context, "remove", results_kept[0])
    for nothing in (results_kept[0], "x" * 22, "no id"):
        with pytest.raises(ResultNotFound):
            ask_removal(context, None, nothing, ASKED)


def test_a_hidden_result_can_still_be_asked_for(context: Context, results_kept: list[str]) -> None:
    act(context, "hide", results_kept[0])
    ask_removal(context, None, results_kept[0], ASKED)
    assert [one.result_state for one in open_requests(context)] == ["hidden"]


def test_monitors_see_how_long_a_request_waits(context: Context, clock: Clock, results_kept: list[str]) -> None:
    ask_removal(context, None, results_kept[0], ASKED)
    clock.pass_minutes(90)
    backlog = health.backlog(context.engine, clock(), clock())
    assert (backlog.removal_requests, backlog.oldest_removal_request_seconds) == (1, 5400.0)


def test_operators_see_what_is_in_quarantine(context: Context) -> None:
    doubted = a_result([row(0, 20.0, 480.0)], state="quarantined", state_reason="half as fast as four others")
    keep(context.engine, doubted)
    assert [(one.id, one.reason) for one in quarantined(context)] == [(doubted.id, "half as fast as four others")]
