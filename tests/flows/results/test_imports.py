"""Two services that take over each other's results: nothing lost, nothing twice, and nothing that was not signed."""

from __future__ import annotations

import base64
import gzip
import hashlib
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from nacl.signing import SigningKey
from sqlalchemy import Engine

from service.engine.advice import SpeedPoint
from service.engine.errors import InvalidInput
from service.engine.measured.roofline import Prediction
from service.flows.context import Context
from service.flows.results import dumps, imports
from service.flows.results.imports import Imported, import_results
from service.flows.results.read_results import list_results, read_result
from service.store.results import results, sources
from service.store.results.trust import writing
from service.wire.advice.advice import Advice
from service.wire.results.dumps import DumpedResult, DumpList
from service.wire.results.results import Result, ResultQuery
from tests.databases import engine_with_tables
from tests.flows.conftest import Clock
from tests.flows.results.test_others_results import advice, expected, people, said, send
from tests.speeds import point
from tests.stored_results import a_result, keep, row

__all__ = ["advice", "expected"]


class Other:
    """Another service with a database of its own, and what it publishes."""

    def __init__(self, context: Context, engine: Engine, folder: Path) -> None:
        self.context = Context(context.settings, engine, context.redis, context.hub, context.clock)
        self.folder = folder / "dumps"

    def publish(self) -> str:
        """Write tonight's dump, and return the key that it is signed with."""
        listed = dumps.write_dumps(self.context.engine, self.folder, self.context.clock())
        assert listed.key is not None
        return listed.key


@pytest.fixture
def other(context: Context, tmp_path: Path) -> Iterator[Other]:
    (tmp_path / "other").mkdir()
    with engine_with_tables(f"sqlite:///{tmp_path}/other/advisor.db") as engine:
        yield Other(context, engine, tmp_path / "other")


def here(context: Context) -> list[Result]:
    return list_results(context, ResultQuery()).results


def taken_over(context: Context, other: Other) -> Imported:
    return import_results(context, str(other.folder), other.publish())


def test_results_that_their_service_doubts_are_left_out_by_name(context: Context, other: Other) -> None:
    good, doubted = a_result([row(tg=20.0)]), a_result([row(tg=9.0)], state="quarantined", state_reason="too slow")
    keep(other.context.engine, good, doubted)
    assert taken_over(context, other) == Imported(1, 0, 0, [], ((doubted.id, "quarantined there: too slow"),))
    assert [one.id for one in here(context)] == [good.id]


def test_results_of_another_service_are_shown_as_its_own_words_once_however_often_they_are_imported(
    context: Context, other: Other
) -> None:
    theirs = [a_result([row(tg=20.0 + n)], tier="replicated" if n else "self-reported") for n in range(3)]
    keep(other.context.engine, *theirs)
    assert taken_over(context, other) == Imported(3, 0, 0, [])
    assert taken_over(context, other) == Imported(0, 0, 3, [])
    assert {one.id for one in here(context)} == {one.id for one in theirs}
    for one in here(context):
        assert (one.tier, one.source) == ("self-reported", str(other.folder))
        assert one.rows == read_result(other.context, one.id).rows


def test_what_was_imported_is_in_no_dump_so_that_it_never_comes_back(context: Context, other: Other) -> None:
    keep(other.context.engine, a_result())
    keep(context.engine, a_result([row(tg=31.0)]))
    taken_over(context, other)
    back = Other(context, context.engine, other.folder.parent / "back")
    back.folder.parent.mkdir()
    assert taken_over(other.context, back).added == 1
    assert len(here(context)) == len(here(other.context)) == 2
    assert taken_over(context, other) == Imported(0, 0, 1, [])


def test_a_measurement_that_was_sent_to_both_services_counts_once(context: Context, other: Other) -> None:
    rows = [row(tg=27.3, pp=811.0)]
    keep(context.engine, a_result(rows))
    keep(other.context.engine, a_result(rows), a_result([row(tg=14.9)]))
    assert taken_over(context, other)[:3] == (1, 0, 1)
    assert len(here(context)) == 2


def test_what_its_service_removed_is_removed_here_with_its_contents(context: Context, other: Other) -> None:
    gone, stays = a_result(command="llama-bench -m x.gguf", remarks="in my attic"), a_result([row(tg=9.0)])
    keep(other.context.engine, gone, stays, log="secret")
    taken_over(context, other)
    with writing(other.context.engine) as connection:
        results.change(connection, gone.id, state="hidden", state_reason="removed on request")
    assert taken_over(context, other) == Imported(0, 1, 1, [])
    assert [one.id for one in here(context)] == [stays.id]
    left = results.read(context.engine, gone.id)
    assert left is not None
    assert (left.state, left.command, left.remarks) == ("deleted", None, None)
    with writing(other.context.engine) as connection:
        results.change(connection, gone.id, state="shown", state_reason=None)
    assert taken_over(context, other).added == 1


def test_what_an_operator_hid_here_stays_hidden_and_what_its_service_corrected_is_corrected(
    context: Context, other: Other
) -> None:
    hidden, corrected = a_result(), a_result([row(tg=9.0)])
    keep(other.context.engine, hidden, corrected)
    taken_over(context, other)
    with writing(context.engine) as connection:
        results.change(connection, hidden.id, state="hidden", state_reason="an operator hid it")
    with writing(other.context.engine) as connection:
        results.change(connection, corrected.id, build="b7000")
    taken_over(context, other)
    assert [(one.id, one.build) for one in here(context)] == [(corrected.id, "b7000")]


def test_a_forged_changed_or_older_dump_is_refused_and_changes_nothing(
    context: Context, other: Other, clock: Clock, tmp_path: Path
) -> None:
    keep(other.context.engine, a_result())
    key = other.publish()
    before = tmp_path / "before"
    shutil.copytree(other.folder, before)

    def refused(match: str, folder: Path = other.folder, by: str = key) -> None:
        with pytest.raises(InvalidInput, match=match):
            import_results(context, str(folder), by)

    stranger = base64.b64encode(bytes(SigningKey.generate().verify_key)).decode()
    refused("not signed with this key: the service says", by=stranger)
    refused("not signed with this key", by="no key")
    refused("has no dumps.json", folder=tmp_path / "nowhere")
    listed = msgspec.json.decode((other.folder / "dumps.json").read_bytes(), type=DumpList)
    name = listed.dumps[0].name
    forged = gzip.compress(b"")
    (other.folder / name).write_bytes(forged)
    refused("not the file that was signed")
    changed = msgspec.structs.replace(listed.dumps[0], sha256=hashlib.sha256(forged).hexdigest())
    (other.folder / "dumps.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(listed, dumps=[changed])))
    refused("not signed with this key")
    assert here(context) == []
    assert sources.every(context.engine) == []
    clock.now += timedelta(days=1)
    assert taken_over(context, other).added == 1
    refused("made .* UTC, an imported one later", folder=before)


def test_lines_that_are_no_results_and_speeds_that_cannot_be_are_refused_by_name_and_the_others_kept(
    context: Context, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, nothing = a_result(), a_result([row(tg=9.0)])
    keep(other.context.engine, good, nothing)

    def with_nonsense(several: list[DumpedResult]) -> bytes:
        lines = [msgspec.to_builtins(one) for one in several]
        for line in lines:
            if line["id"] == nothing.id:
                line["hardware"] = {"gpus": [], "cpu": None, "ram": None}
        return msgspec.json.Encoder().encode_lines(lines) + b'{"id": "x"}\nno json\n'

    monkeypatch.setitem(dumps._LINES, "jsonl", with_nonsense)
    found = taken_over(context, other)
    assert (found.added, found.refused[0][0]) == (1, nothing.id)
    assert "neither a GPU nor a CPU" in found.refused[0][1]
    assert [name for name, _ in found.refused[1:]] == ["a line", "a line"]
    assert [one.id for one in here(context)] == [good.id]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"measured_at": "yesterday"}, "is no time with its zone"),
        ({"measured_at": "2026-11-01T12:00:00"}, "is no time with its zone"),
        ({"build": "b" * 201}, "such a value: build"),
        ({"remarks": "a\0b"}, "such a value: a NUL"),
        ({"owner": "o" * 61}, "such a value: source_owner"),
        ({"id": "../../etc"}, "its id is none"),
    ],
)
def test_what_no_database_takes_is_refused_alone(
    context: Context, other: Other, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], reason: str
) -> None:
    good, bad = a_result(), a_result([row(tg=9.0)])
    keep(other.context.engine, good, bad)

    def with_a_change(several: list[DumpedResult]) -> bytes:
        lines = [msgspec.to_builtins(one) for one in several]
        return msgspec.json.Encoder().encode_lines(
            [{**one, **(changed if one["id"] == bad.id else {})} for one in lines]
        )

    monkeypatch.setitem(dumps._LINES, "jsonl", with_a_change)
    found = taken_over(context, other)
    assert (found.added, len(found.refused)) == (1, 1)
    assert reason in found.refused[0][1]
    assert [one.id for one in here(context)] == [good.id]


def test_a_prediction_that_no_speed_can_be_held_against_is_left_out(context: Context, other: Other) -> None:
    none = Prediction(devices=[], speed=[point(0, 0.0, 20.0)], most_tg=1e4, most_pp=1e6)
    one = a_result(prediction=none)
    keep(other.context.engine, one)
    assert taken_over(context, other).added == 1
    kept = results.read(context.engine, one.id)
    assert kept is not None
    assert kept.prediction is None


def test_a_file_that_unpacks_without_end_is_refused(context: Context, other: Other) -> None:
    with pytest.raises(InvalidInput, match="longer lines"):
        list(imports._lines(gzip.compress(b"x" * (64 << 20))))


def test_its_owners_move_estimates_here_as_owners_and_leave_with_it(
    context: Context, clock: Clock, other: Other, advice: Advice, expected: list[SpeedPoint]
) -> None:
    before = said(context, advice)
    for owner in people(other.context, clock, ("ann", "ben", "cleo")):
        send(other.context, clock, owner, expected, 1.1)
    for owner in people(other.context, clock, ("new", "newer"), days=0):
        send(other.context, clock, owner, expected, 1.2)
    key = other.publish()
    assert import_results(context, str(other.folder), key).added == 5
    after = said(context, advice)
    assert after.why.startswith("5 results of 4 owners on cards like yours: TG +"), "new accounts are one owner"
    assert 1.01 < after.tg / before.tg < 1.1
    assert imports.forget(context, key) == 5
    assert said(context, advice) == before
    with pytest.raises(InvalidInput, match="nothing was imported under this key"):
        imports.forget(context, key)
