"""The version of the results grows with whatever changes what is said of them, and with the transaction only."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, Engine

from service.flows.context import utc_now
from service.store import accounts, versions
from service.store.results import board, moderation, results
from service.store.results.trust import writing
from tests.store.advice.test_advices import added, queued
from tests.stored_results import a_result, keep


def test_each_change_of_results_grows_it(engine: Engine) -> None:
    one, alice = a_result(), accounts.ensure(engine, "alice", ["quiet-heron-417"], utc_now())
    changes: dict[str, Callable[[Connection], object]] = {
        "hidden": lambda c: results.change(c, one.id, state="hidden"),
        "judged": lambda c: results.change(c, one.id, tier="replicated"),
        "added": lambda c: results.insert_missing(c, [a_result()]),
        "banned": lambda c: moderation.set_standing(c, alice.id, banned_at=utc_now()),
        "of a host that is shown no more": lambda c: board.keep_of(c, host_id="none"),
        "rebuilt": board.rebuild,
    }
    keep(engine, one)
    seen = [versions.of_results(engine)]
    for change in changes.values():
        with writing(engine) as connection:
            change(connection)
        seen.append(versions.of_results(engine))
    assert sorted(set(seen)) == seen


def test_a_change_that_is_taken_back_was_none(engine: Engine) -> None:
    before = versions.of_results(engine)
    with engine.connect() as connection:
        versions.count_change(connection)
        connection.rollback()
    assert versions.of_results(engine) == before


def test_an_advice_has_its_state_with_it(engine: Engine) -> None:
    assert versions.of_advice(engine, "one") is None
    added(engine, queued("one"))
    found = versions.of_advice(engine, "one")
    assert found is not None
    assert (found.state, found.version) == ("queued", f"{versions.of_results(engine)} None")
