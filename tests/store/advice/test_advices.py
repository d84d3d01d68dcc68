"""Rows of `advice`: one in flight a request, the first to finish wins, every instant in UTC."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from sqlalchemy import Engine

from service.engine.advice import AdviceBody, Versions
from service.engine.goal import GoalRequest, resolve_goal
from service.engine.hardware import Gpu, Hardware
from service.store.advice import advices, queue
from service.store.advice.advices import StoredAdvice
from service.wire.advice.advice import AdviceRequest

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HARDWARE = Hardware(gpus=[Gpu(name="NVIDIA GeForce RTX 3090")])
BODY = AdviceBody(
    headline="Yes",
    hardware=HARDWARE,
    assumed=[],
    goal=resolve_goal(GoalRequest(), 32_768),
    configs=[],
    refused=[],
    considered=412,
    versions=Versions("1", "2", "3", {"llama.cpp": "b1"}),
)


def queued(advice_id: str, request_key: str = "r", created_at: datetime = NOON) -> StoredAdvice:
    return StoredAdvice(
        id=advice_id,
        request_key=request_key,
        state="queued",
        repo="owner/name",
        request=AdviceRequest(repo="owner/name", hardware=HARDWARE),
        delete_key_hash="h",
        created_at=created_at,
        updated_at=created_at,
    )


def added(engine: Engine, row: StoredAdvice) -> bool:
    return queue.add(engine, row, 1_000, 1_000) is queue.Added.QUEUED


def test_a_row_is_read_as_it_was_written(engine: Engine) -> None:
    assert added(engine, queued("a"))
    assert advices.read(engine, "a") == queued("a")
    assert advices.read(engine, "b") is None


def test_identical_requests_in_flight_share_one_row(engine: Engine) -> None:
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda n: added(engine, queued(f"a{n}")), range(24)))
    assert done.count(True) == 1
    found = advices.in_flight(engine, "r")
    assert found is not None
    assert found.id == f"a{done.index(True)}"


def test_a_finished_row_makes_way_for_a_new_one(engine: Engine) -> None:
    added(engine, queued("a"))
    queue.fail(engine, "a", {"type": "hub-unavailable"}, 0.0, NOON)
    assert added(engine, queued("b"))
    failed = advices.read(engine, "a")
    assert failed is not None
    assert (failed.state, failed.problem) == ("failed", {"type": "hub-unavailable"})


def test_the_first_to_finish_wins(engine: Engine) -> None:
    added(engine, queued("a"))
    queue.start(engine, "a", NOON, 1)
    assert queue.finish(engine, "a", BODY, 0.0, NOON)
    assert not queue.finish(engine, "a", msgspec.structs.replace(BODY, headline="No"), 0.0, NOON)
    assert not queue.fail(engine, "a", {"type": "late"}, 0.0, NOON)
    row = advices.read(engine, "a")
    assert row is not None
    assert (row.state, row.body, row.problem) == ("ready", BODY, None)


def test_starting_counts_the_attempts_until_there_is_nothing_left_to_do(engine: Engine) -> None:
    added(engine, queued("a"))
    attempts = [row.attempts for row in (queue.start(engine, "a", NOON, 1), queue.start(engine, "a", NOON, 1)) if row]
    assert attempts == [1, 2]
    queue.finish(engine, "a", BODY, 0.0, NOON)
    assert queue.start(engine, "a", NOON, 1) is None
    assert queue.start(engine, "unknown", NOON, 1) is None


def test_the_newest_finished_row_answers_for_its_key(engine: Engine) -> None:
    for hour, name in enumerate(("old", "new", "running")):
        added(engine, queued(name, request_key=name, created_at=NOON + timedelta(hours=hour)))
        advices.pin(engine, name, "sha", "k")
    queue.finish(engine, "old", BODY, 0.0, NOON)
    queue.finish(engine, "new", BODY, 0.0, NOON)
    assert advices.ready_under(engine, "k") == "new"


def test_unfinished_rows_are_those_queued_or_running_oldest_first(engine: Engine) -> None:
    for hour, name in enumerate(("first", "ready", "failed", "second")):
        added(engine, queued(name, request_key=name, created_at=NOON + timedelta(hours=hour)))
    queue.finish(engine, "ready", BODY, 0.0, NOON)
    queue.fail(engine, "failed", {}, 0.0, NOON)
    assert queue.calls(engine) == ["first", "second"]
    queue.start(engine, "second", NOON, 1)
    assert queue.calls(engine) == ["second", "second-again"]


def test_a_deleted_row_is_gone_and_its_worker_stores_nothing(engine: Engine) -> None:
    added(engine, queued("a"))
    assert advices.remove(engine, "a")
    assert not advices.remove(engine, "a")
    assert not queue.finish(engine, "a", BODY, 0.0, NOON)
    assert advices.read(engine, "a") is None


def test_instants_are_kept_in_utc_whatever_zone_they_come_in(engine: Engine) -> None:
    tokyo = timezone(timedelta(hours=9))
    added(engine, queued("a", created_at=NOON.astimezone(tokyo)))
    row = advices.read(engine, "a")
    assert row is not None
    assert row.created_at == NOON
    assert row.created_at.utcoffset() == timedelta(0)


def test_a_time_without_a_zone_is_refused(engine: Engine) -> None:
    with pytest.raises(Exception, match="not an instant"):
        added(engine, queued("a", created_at=NOON.replace(tzinfo=None)))


def test_progress_longer_than_its_column_is_cut(engine: Engine) -> None:
    added(engine, queued("a"))
    advices.note_progress(engine, "a", "x" * 1000, NOON)
    row = advices.read(engine, "a")
    assert row is not None
    assert row.progress == "x" * 200
