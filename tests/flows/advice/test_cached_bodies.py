"""Bodies of advices: compressed, dropped when nobody reads them again, and computed again when somebody does."""

from __future__ import annotations

import msgspec
import pytest
from sqlalchemy import insert, select, update

from service.flows.advice.advise import advice_version, compute_advice, read_advice, request_advice
from service.flows.advice.fair_queue import account_payer
from service.flows.context import Context
from service.flows.operations.retention import purge
from service.store.advice import advices, queue
from service.store.tables import advice as table
from tests.flows.advice.test_advise import CountingAdvise, ask, computed
from tests.flows.conftest import Clock
from tests.store.advice.test_advices import BODY, added, queued

DAY = 24 * 60


@pytest.fixture
def advise() -> CountingAdvise:
    return CountingAdvise()


def dropped(context: Context) -> int:
    return next(one.rows for one in purge(context, context.settings) if one.kind == "bodies of advice")


def test_a_body_that_nobody_read_again_is_dropped_and_computed_again_when_asked_for(
    context: Context, advise: CountingAdvise, clock: Clock
) -> None:
    first = computed(context, ask(), advise)
    clock.pass_minutes(31 * DAY)
    assert dropped(context) == 1
    assert advice_version(context, first.id) is None, "an answer that was kept would be shown"
    waiting = read_advice(context, first.id)
    assert (waiting.state, waiting.configs, waiting.hardware) == ("queued", [], first.hardware)
    assert read_advice(context, first.id).state == "queued"
    compute_advice(context, first.id, advise)
    assert read_advice(context, first.id) == first
    assert advise.calls == 2


def test_an_answer_of_another_version_than_the_first_says_so(
    context: Context, advise: CountingAdvise, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = computed(context, ask(), advise)
    clock.pass_minutes(31 * DAY)
    dropped(context)
    read_advice(context, first.id)

    def newer(*arguments: object, **named: object) -> object:
        body = advise(*arguments, **named)  # type: ignore[arg-type]
        return msgspec.structs.replace(body, versions=msgspec.structs.replace(body.versions, engine_model="9999"))

    compute_advice(context, first.id, newer)  # type: ignore[arg-type]
    again = read_advice(context, first.id).computed_again
    assert again is not None
    assert "engine model 9999" in again
    assert first.versions is not None
    assert f"the first answer, with {first.versions.engine_model}" in again


def test_what_is_read_now_and_then_is_kept(context: Context, advise: CountingAdvise, clock: Clock) -> None:
    first = computed(context, ask(), advise)
    for _ in range(3):
        clock.pass_minutes(20 * DAY)
        assert read_advice(context, first.id) == first
        assert dropped(context) == 0


def test_a_read_is_noted_once_a_day(context: Context, advise: CountingAdvise, clock: Clock) -> None:
    first = computed(context, ask(), advise)
    made = clock.now
    clock.pass_minutes(60)
    read_advice(context, first.id)
    with context.engine.connect() as connection:
        assert connection.scalar(select(table.c.read_on)) == made


def test_what_was_asked_for_with_an_account_is_kept(context: Context, advise: CountingAdvise, clock: Clock) -> None:
    payer = account_payer("someone", "192.0.2.1", trusted=False)
    asked = request_advice(context, ask(), payer=payer).advice
    compute_advice(context, asked.id, advise)
    clock.pass_minutes(100 * DAY)
    assert dropped(context) == 0


def test_asked_again_a_dropped_advice_is_computed_under_a_new_row(
    context: Context, advise: CountingAdvise, clock: Clock
) -> None:
    first = computed(context, ask(), advise)
    clock.pass_minutes(31 * DAY)
    dropped(context)
    assert request_advice(context, ask()).advice.id != first.id
    assert read_advice(context, first.id).state == "queued", "its request is in flight under the other row"


def test_bodies_are_compressed_and_those_of_older_versions_are_read(context: Context) -> None:
    added(context.engine, queued("a" * 22))
    queue.start(context.engine, "job", context.clock(), 1)
    queue.finish(context.engine, "a" * 22, BODY, 0.0, context.clock())
    old = msgspec.structs.asdict(queued("b" * 22, "other")) | {"state": "ready", "body": BODY}
    with context.engine.begin() as connection:
        connection.execute(insert(table).values(old))
        connection.execute(update(table).where(table.c.id == "b" * 22).values(first_versions=None))
        packed = connection.execute(select(table.c.packed, table.c.body).order_by(table.c.id)).all()
    assert packed[0].body is None
    assert packed[0].packed[:1] == b"\x78", "zlib"
    assert packed[1].packed is None
    for name in ("a" * 22, "b" * 22):
        row = advices.read(context.engine, name)
        assert row is not None
        assert row.body == BODY
