"""Published results: on the board from the first day, marked as their authors', gone for good when one asks for it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine

from scripts import seed as written
from service.engine.calibration import shipped
from service.engine.errors import InvalidInput
from service.flows.context import Context
from service.flows.results import imports
from service.flows.results.accuracy import accuracy
from service.flows.results.leaderboard import leaderboard as board_of
from service.store.results import leaderboard, listed_results, results
from service.store.viewers import ANYBODY
from service.wire.plain_text import as_text
from service.wire.results.board import BoardQuery
from service.wire.results.board_text import board_lines
from service.wire.results.results import ResultQuery

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ONE = "disc258-ubergarm-1"


def test_the_file_is_what_the_script_writes_of_one_run() -> None:
    line = written.SOURCE.read_text().splitlines()[0]
    first = next(imports.published_results())
    assert written.published(json.loads(line)) == first
    assert (first.id, first.published.by, first.build) == (ONE, "ubergarm", "f2fb15de (3596)")
    assert first.published.url == "https://github.com/ikawrakow/ik_llama.cpp/discussions/258"


def test_every_published_result_is_there_once_with_its_author_thread_and_date(engine: Engine) -> None:
    assert imports.import_published(engine, NOW) == 202
    assert imports.import_published(engine, NOW + timedelta(days=1)) == 0
    kept = [found.result for found in listed_results.page(engine, ResultQuery(origin="published"), None, 300)]
    assert len(kept) == 202
    assert all(one.published and one.published.url.startswith("https://github.com/") for one in kept)
    assert {(one.tier, one.state, one.flags, one.cell, one.account_id) for one in kept} == {
        ("self-reported", "shown", None, None, None)
    }
    first = results.read(engine, imports.id_of(ONE))
    assert first is not None
    assert (first.model_slug, first.gpus, first.cpu) == ("deepseek-r1-671b", "RTX A6000", "Threadripper PRO 7965WX")
    assert leaderboard.page(engine, BoardQuery(q="deepseek 5090"), None, 5)


def test_predictions_of_published_results_are_of_the_calibration_that_is_shipped() -> None:
    predicted, ids = imports.predictions(), {one.id for one in imports.published_results()}
    assert len(predicted) > 150
    assert predicted.keys() <= ids
    assert {one.calibration for one in predicted.values()} == {shipped().version}, "python -m bench.published"
    assert {at.basis for one in predicted.values() for at in one.speed} == {"calibrated without its author and machine"}


@pytest.mark.full
def test_a_new_service_says_how_good_its_predictions_of_published_results_are(context: Context) -> None:
    imports.import_published(context.engine, NOW)
    found = accuracy(context)
    assert found.n_results == found.n_published == len(imports.predictions())
    by = {(line.figure, line.of, line.name): line for line in found.lines}
    assert 0.05 < by["tg", "all", "all"].median_error < 0.2
    assert by["tg", "backend", "CUDA"].n_results > 50
    assert by["pp", "cards", "RTX 3090"].n_results >= 3
    assert by["tg", "cards", "others"].n_results > 0
    assert by["tg", "family", "deepseek2"].n_results > 5
    assert by["tg", "placement", "one GPU + CPU"].n_results > 10
    assert {case.figure for case in found.worst} == {"tg", "pp"}


def test_predictions_of_published_results_move_no_answer(context: Context) -> None:
    imports.import_published(context.engine, NOW)
    slugs = {found.result.rig_slug for found in listed_results.page(context.engine, ResultQuery(), None, 300)}
    ever = NOW - timedelta(days=3_650)
    for slug in slugs:
        assert results.near(context.engine, None, slug, ANYBODY) == []
        assert all(one.flags is None for _, one in results.on_cards(context.engine, slug, ANYBODY, ever, NOW))


def test_what_its_author_wants_removed_does_not_come_back(engine: Engine) -> None:
    imports.import_published(engine, NOW)
    removed = imports.remove_published(engine, ONE)
    assert imports.import_published(engine, NOW) == 0
    assert listed_results.read(engine, removed, ANYBODY) is None
    gone = results.read(engine, removed)
    assert gone is not None
    assert (gone.state, gone.command) == ("deleted", None)
    for name in ("no-such", removed[:-1]):
        with pytest.raises(InvalidInput):
            imports.remove_published(engine, name)


def test_text_tells_what_was_published_from_what_was_sent_here(context: Context) -> None:
    imports.import_published(context.engine, NOW)
    lines = as_text(board_lines(board_of(context, BoardQuery()))).splitlines()
    rows = [line for line in lines[2:] if " | " in line]
    assert rows
    assert all("| published elsewhere" in row or row.endswith("…") for row in rows)
