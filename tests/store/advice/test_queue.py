"""Fair queueing of advices: who is next, whatever others ask for, on both databases."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, select

from service.engine.hardware import Hardware
from service.store.advice import queue
from service.store.advice.advices import StoredAdvice, read
from service.store.advice.queue import SHORT_SECONDS, Added
from service.store.engines import make_engine
from service.store.migrations import migrate
from service.store.tables import advice as table
from service.store.tables import share
from service.wire.advice.advice import AdviceRequest
from tests.sampling import examples

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LONG = SHORT_SECONDS + 1
ANY = 1_000


@dataclass
class Line:
    """A queue with a clock that moves with each advice. Jobs are named after advices, as in the service."""

    engine: Engine
    numbers: count[int] = field(default_factory=count)

    def ask(self, payer: str, cost: float = 1.0, most: int = ANY) -> str:
        number = next(self.numbers)
        name = f"{payer}-{number}"
        assert queue.add(self.engine, advice(name, payer, cost, number), most, ANY) is Added.QUEUED
        return name

    def start(self, job: str = "job", long_at_once: int = 1) -> str | None:
        started = queue.start(self.engine, job, NOW, long_at_once)
        return started.id if started else None

    def serve(self, spent: float | None = None, long_at_once: int = 1) -> str | None:
        """Start the next one, and end it after `spent` CPU seconds: as long as was estimated, unless given."""
        row = queue.start(self.engine, f"job-{next(self.numbers)}", NOW, long_at_once)
        if row is None:
            return None
        took = row.cost or 0.0 if spent is None else spent
        queue.fail(self.engine, row.id, {"type": "advice-failed", "detail": ""}, took, NOW)
        return row.id

    def payers(self, n: int) -> list[str]:
        served = [self.serve() for _ in range(n)]
        return [name.partition("-")[0] for name in served if name]


def advice(name: str, payer: str, cost: float, number: int = 0) -> StoredAdvice:
    return StoredAdvice(
        id=name,
        request_key=name,
        state="queued",
        repo="a/b",
        request=AdviceRequest(repo="a/b", hardware=Hardware(gpus=[])),
        delete_key_hash="",
        created_at=NOW + timedelta(seconds=number),
        updated_at=NOW,
        payer=payer,
        cost=cost,
    )


@pytest.fixture
def line(engine: Engine) -> Line:
    return Line(engine)


def test_who_asks_once_does_not_wait_behind_all_of_one_client(line: Line) -> None:
    for _ in range(8):
        line.ask("hog")
    line.serve()
    line.ask("alice")
    line.ask("bob")
    assert set(line.payers(3)[:2]) == {"alice", "bob"}


def test_the_share_is_of_cpu_seconds_not_of_questions(line: Line) -> None:
    for _ in range(3):
        line.ask("dear", 4.0)
    for _ in range(12):
        line.ask("cheap", 1.0)
    first = Counter(line.payers(10))
    assert first == {"dear": 2, "cheap": 8}


def test_what_an_advice_really_took_is_charged(line: Line) -> None:
    line.ask("liar", 1.0)
    line.ask("liar", 1.0)
    line.ask("honest", 1.0)
    line.ask("honest", 1.0)
    line.serve(spent=10.0)
    assert line.payers(3) == ["honest", "honest", "liar"]


def test_nobody_saves_up_shares_while_away(line: Line) -> None:
    line.ask("away")
    line.serve()
    for _ in range(6):
        line.ask("busy")
    line.payers(3)
    for _ in range(3):
        line.ask("away")
    assert line.payers(4).count("busy") == 2


def test_a_client_has_so_many_open_and_no_more(line: Line) -> None:
    line.ask("one", most=2)
    line.ask("one", most=2)
    assert queue.add(line.engine, advice("one-third", "one", 1.0), 2, ANY) is Added.CLIENT_FULL
    line.serve()
    assert queue.add(line.engine, advice("one-third", "one", 1.0), 2, ANY) is Added.QUEUED


def test_all_together_have_so_many_open_and_no_more(line: Line) -> None:
    line.ask("one")
    assert queue.add(line.engine, advice("two-1", "two", 1.0), ANY, 1) is Added.ALL_FULL


def test_the_same_request_is_queued_once(line: Line) -> None:
    assert queue.add(line.engine, advice("same", "one", 1.0), ANY, ANY) is Added.QUEUED
    assert queue.add(line.engine, advice("same", "two", 1.0), ANY, ANY) is Added.SAME_IN_FLIGHT


def test_long_advices_leave_a_worker_to_the_others(line: Line) -> None:
    line.ask("hog", LONG)
    line.ask("second", LONG)
    running = line.start("a")
    assert line.start("b") is None
    short = line.ask("alice")
    assert line.start("b") == short
    queue.fail(line.engine, str(running), {}, LONG, NOW)
    assert str(line.start("a")).startswith("second")


def test_who_asks_for_the_same_brings_it_forward(line: Line) -> None:
    for _ in range(3):
        line.ask("hog", 10.0)
    popular = line.ask("hog", 1.0)
    line.serve(long_at_once=2)
    for _ in range(2):
        line.ask("other", 1.0)
    assert queue.share_with(line.engine, popular, "new")
    served = [line.serve(long_at_once=2) for _ in range(3)]
    assert popular in served
    assert not queue.share_with(line.engine, popular, "late")


def test_a_job_that_ended_in_the_middle_begins_its_own_advice_again(line: Line) -> None:
    line.ask("one")
    line.ask("two")
    running = line.start("a")
    assert line.start("b") != running
    assert line.start("a") == running
    again = read(line.engine, str(running))
    assert again is not None
    assert again.attempts == 2


def test_a_row_of_a_version_without_jobs_is_begun_again_by_the_job_named_after_it(line: Line) -> None:
    name = line.ask("one")
    line.start(name)
    assert queue.calls(line.engine) == [name]
    assert line.start(name) == name


def test_whose_it_was_is_forgotten_with_the_end(line: Line) -> None:
    name = line.ask("somebody")
    line.serve()
    row = read(line.engine, name)
    assert row is not None
    assert (row.payer, row.cost, row.job) == (None, None, None)
    queue.forget_settled(line.engine)
    with line.engine.connect() as connection:
        assert connection.execute(select(share)).all() == []


def test_who_is_ahead_of_the_clock_is_remembered_while_others_wait(line: Line) -> None:
    line.ask("hog", 4.0)
    line.ask("alice")
    line.ask("alice")
    line.serve()
    queue.forget_settled(line.engine)
    line.ask("hog", 4.0)
    assert line.payers(3) == ["alice", "alice", "hog"]


Ask = tuple[int, float]
asks = st.lists(st.tuples(st.integers(0, 3), st.sampled_from((0.5, 1.0, 4.0))) | st.none(), min_size=8, max_size=16)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Line]]:
    """What empties the queue for the next example."""
    engine = make_engine(f"sqlite:///{tmp_path_factory.mktemp('queue')}/queue.db")
    migrate(engine)

    def emptied() -> Line:
        with engine.begin() as connection:
            connection.execute(delete(table))
            connection.execute(delete(share))
        return Line(engine)

    yield emptied
    engine.dispose()


@examples(24)
@given(asks)
def test_no_client_with_work_is_passed_over_more_than_its_share_allows(
    empty: Callable[[], Line], steps: list[Ask | None]
) -> None:
    """While a client waits, each other one starts as many advices as the last one of the waiting client cost, and one.

    That is the bound of start-time fair queueing. So with n clients and advices that cost between c and C, nobody is
    passed over more than (n - 1) * (1 + C / c) times.
    """
    line, waiting, passed = empty(), dict[str, list[float]](), dict[str, Counter[str]]()
    for step in (*steps, *[None] * len(steps)):
        if step is not None:
            payer, cost = f"p{step[0]}", step[1]
            waiting.setdefault(payer, []).append(cost)
            passed.setdefault(payer, Counter())
            line.ask(payer, cost)
            continue
        served = line.serve(long_at_once=ANY)
        assert (served is None) == (not any(waiting.values())), "nothing was started though somebody waits"
        payer = str(served).partition("-")[0]
        if served is None:
            continue
        waiting[payer].pop(0)
        passed[payer] = Counter()
        for other in (name for name, costs in waiting.items() if costs and name != payer):
            passed[other][payer] += 1
            assert passed[other][payer] <= math.ceil(4.0 / 0.5) + 1


@examples(20)
@given(st.lists(st.sampled_from((0.5, 1.0, 4.0)), min_size=8, max_size=12))
def test_a_client_is_not_starved_by_new_ones_that_keep_coming(empty: Callable[[], Line], costs: list[float]) -> None:
    line, served = empty(), []
    for number in range(5):
        line.ask(f"early{number}", costs[number])
    line.ask("patient", 4.0)
    for number, cost in enumerate(costs):
        line.ask(f"new{number}", cost)
        served.append(str(line.serve(long_at_once=ANY)).partition("-")[0])
    assert "patient" in served[: 5 + 1]
