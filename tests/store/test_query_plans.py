"""No question of the board or of results reads a whole table: what its plan says, on both databases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from service.store.measuring import runs
from service.store.results import comparisons, leaderboard, listed_results
from service.store.viewers import Viewer
from service.wire.results.board import PROVEN, BoardQuery
from service.wire.results.results import ResultQuery
from tests.databases import BOTH, empty_database, engine_with_tables
from tests.stored_results import A_DAY, a_result, keep, row

SINCE = A_DAY - timedelta(days=30)
AFTER = (20.0, "x" * 22)
QUESTIONS: dict[str, Callable[[Engine], object]] = {
    "the board": lambda e: leaderboard.page(e, BoardQuery(), None, 25),
    "its next page": lambda e: leaderboard.page(e, BoardQuery(), AFTER, 25),
    "by PP": lambda e: leaderboard.page(e, BoardQuery(depth=4096, sort="pp"), AFTER, 25),
    "newest": lambda e: leaderboard.page(e, BoardQuery(sort="newest"), (A_DAY, "x"), 25),
    "bits": lambda e: leaderboard.page(e, BoardQuery(sort="bits"), AFTER, 25),
    "model": lambda e: leaderboard.page(e, BoardQuery(model="qwen3-30b-a3b"), None, 25),
    "arch": lambda e: leaderboard.page(e, BoardQuery(arch="qwen3moe"), None, 25),
    "variant": lambda e: leaderboard.page(e, BoardQuery(variant="Q4_K_M"), None, 25),
    "rig": lambda e: leaderboard.page(e, BoardQuery(rig="2x-rtx-3090", engine="llama.cpp"), None, 25),
    "memory": lambda e: leaderboard.page(e, BoardQuery(vram=48, ram=128, platform="desktop"), None, 25),
    "trust, date": lambda e: leaderboard.page(e, BoardQuery(trust="replicated"), None, 25, SINCE),
    "words": lambda e: leaderboard.page(e, BoardQuery(q="qwen3 3090"), None, 25),
    "variants of a model": lambda e: leaderboard.summed(e, "variant", 0, model="qwen3-30b-a3b"),
    "models of a rig": lambda e: leaderboard.summed(e, "model", 0, rig="2x-rtx-3090"),
    "depths": lambda e: leaderboard.depths_of(e, PROVEN, model="qwen3-30b-a3b"),
    "similar": lambda e: leaderboard.similar(e, "x" * 22),
    "a result": lambda e: listed_results.read(e, "x" * 22, Viewer("x" * 22)),
    "results": lambda e: listed_results.page(e, ResultQuery(), None, 50),
    "their next page": lambda e: listed_results.page(e, ResultQuery(), (A_DAY, "x"), 50),
    "of a model": lambda e: listed_results.page(e, ResultQuery(model="qwen3-30b-a3b"), None, 50, SINCE),
    "of a rig": lambda e: listed_results.page(e, ResultQuery(rig="2x-rtx-3090", engine="llama.cpp"), None, 50),
    "of a tier": lambda e: listed_results.page(e, ResultQuery(tier="replicated"), None, 50),
    "of an origin": lambda e: listed_results.page(e, ResultQuery(origin="published"), None, 50),
    "of a repo": lambda e: listed_results.page(e, ResultQuery(repo="a/b"), None, 50),
    "of somebody": lambda e: listed_results.page(e, ResultQuery(contributor="quiet-heron-417"), None, 50),
    "of a host": lambda e: listed_results.page(e, ResultQuery(host="quiet-heron-417"), None, 50),
    "for dumps": lambda e: listed_results.after_id(e, "", 500, A_DAY),
    "hosts that wait": lambda e: runs.waiting_for(e, ["x" * 22, "y" * 22], A_DAY),
    "hosts that ask": lambda e: runs.concerned(e, ["x" * 22, "y" * 22], A_DAY),
    "what logs say": lambda e: comparisons.of_architecture(e, "qwen3", A_DAY),
    "by tier": lambda e: leaderboard.by_tier(e, "x" * 22),
}
_LARGE = ("board", "other", "result", "result_speed", "run", "run_host", "host")


@contextmanager
def asked(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """What is asked of the database within the block."""
    found: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        if statement.startswith("SELECT"):
            found.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    yield found
    event.remove(engine, "before_cursor_execute", note)


def plan_of(engine: Engine, statement: str, parameters: Any) -> str:
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            return "\n".join(str(one[-1]) for one in rows)
        connection.execute(text("SET LOCAL enable_seqscan = off"))  # a small table is read whole if that is allowed
        return "\n".join(one[0] for one in connection.exec_driver_sql(f"EXPLAIN {statement}", parameters))


def whole_tables(plan: str) -> list[str]:
    """The large tables that a plan reads from end to end, in no order of an index."""
    found = re.findall(r"SCAN (\w+)(?! USING)", plan) + re.findall(r"Seq Scan on \w+(?: (\w+))?", plan)
    return [name for name in found if name in _LARGE]


@pytest.fixture(scope="module", params=BOTH)
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine_with_tables(empty_database(request, tmp_path_factory.mktemp("plans"))) as made:
        keep(made, *(a_result([row(0, 10.0 + i), row(4096, 9.0 + i)], variant=f"Q{i}") for i in range(5)))
        yield made


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_reads_no_table_from_end_to_end(filled: Engine, question: str) -> None:
    with asked(filled) as statements:
        QUESTIONS[question](filled)
    assert statements
    for statement, parameters in statements:
        plan = plan_of(filled, statement, parameters)
        assert whole_tables(plan) == [], plan
