"""Dumps have every result that may be given away, once, and are as the list says."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from service.errors import DumpNotFound
from service.flows.results import dumps
from service.wire.results.results import Published
from tests.stored_results import a_result, keep, row

NIGHT = datetime(2026, 11, 21, 3, 30, tzinfo=UTC)
ELSEWHERE = Published(by="ubergarm", url="https://github.com/x/y/discussions/258", date="2025-03-14")


@pytest.fixture
def kept(engine: Engine) -> list[str]:
    """Ids of what may be given away: besides them something hidden, something deleted, and something published."""
    given = [a_result([row(0), row(4096)]), a_result(state="quarantined", state_reason="an outlier")]
    others = [a_result(state="hidden"), a_result(state="deleted"), a_result(origin="published", published=ELSEWHERE)]
    keep(engine, *given, *others, log="secret\n")
    return sorted(one.id for one in given)


def lines_of(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def test_a_dump_has_what_may_be_given_away_and_is_as_the_list_says(
    engine: Engine, kept: list[str], tmp_path: Path
) -> None:
    tmp_path = tmp_path / "dumps"
    listed = dumps.write_dumps(engine, tmp_path, NIGHT)
    assert [one.name for one in listed.dumps] == ["results-v1-2026-11-21.jsonl.gz", "results-v1-2026-11-21.csv.gz"]
    assert listed == dumps.list_dumps(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"dumps.json", *(one.name for one in listed.dumps)}
    for one in listed.dumps:
        packed = dumps.path_of(tmp_path, one.name)[0].read_bytes()
        assert (one.n_bytes, one.sha256, one.n_results) == (len(packed), hashlib.sha256(packed).hexdigest(), 2)
    each = [json.loads(line) for line in lines_of(tmp_path / listed.dumps[0].name)]
    assert sorted(one["id"] for one in each) == kept
    assert {one["licence"] for one in each} == {"CC-BY-4.0"}
    table = list(csv.DictReader(io.StringIO("\n".join(lines_of(tmp_path / listed.dumps[1].name)))))
    assert sorted({one["id"].removeprefix("'") for one in table}) == kept
    assert len(table) == 3


def test_the_same_results_make_the_same_bytes(engine: Engine, kept: list[str], tmp_path: Path) -> None:
    once, again = (dumps.write_dumps(engine, tmp_path / n, NIGHT + timedelta(days=int(n))).dumps for n in "12")
    assert [one.sha256 for one in once] == [one.sha256 for one in again]


def test_a_week_of_nights_is_kept(engine: Engine, tmp_path: Path) -> None:
    for night in range(9):
        listed = dumps.write_dumps(engine, tmp_path, NIGHT + timedelta(days=night))
    assert (len(listed.dumps), listed.dumps[0].name[11:21]) == (14, "2026-11-29")
    assert len(list(tmp_path.glob("*.gz"))) == 14
    for name in ("results-v1-2026-11-21.csv.gz", "dumps.json", "../advisor.db", ""):
        with pytest.raises(DumpNotFound):
            dumps.path_of(tmp_path, name)
