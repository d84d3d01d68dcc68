"""What submitters change of their results, and what of them can be seen afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from service.engine.errors import InvalidInput
from service.errors import NotAllowed, ResultNotFound, WrongKey
from service.flows.accounts import Caller, caller_of, create_token
from service.flows.context import Context
from service.flows.results.moderation import moderate
from service.flows.results.parse_submission import parse_submission
from service.flows.results.read_results import read_result
from service.flows.results.submissions import correct, delete, history, submit
from service.store.results import results
from service.store.tables import result_change
from service.wire.results.moderation import Moderation
from service.wire.results.submissions import Correction
from tests.flows.results.submitted import COMMAND, LISTED, submission, sweep


def account(context: Context, name: str, *scopes: str) -> Caller:
    now = context.clock()
    return caller_of(context.engine, create_token(context.engine, name, scopes or ("submit",), now).token, now)


def test_its_submitter_corrects_hardware_build_and_remarks_and_what_it_was_is_kept(context: Context) -> None:
    ann = account(context, "ann")
    kept = submit(context, ann, submission(remarks="fast"))
    before = results.read(context.engine, kept.id)
    asked = Correction(hardware="RTX 4090, Ryzen 9 7950X, 64GB DDR5-5600", build="8337e4cd3", remarks="")
    after = correct(context, ann, None, kept.id, asked)
    assert (after.rig.name, after.build, after.remarks) == ("RTX 4090", "8337e4cd3", None)
    row = results.read(context.engine, kept.id)
    assert row is not None
    assert before is not None
    assert row.rows == before.rows
    assert row.cell != before.cell
    assert row.prediction is not None
    assert before.prediction is not None
    assert row.prediction.speed[0].tg_tps > before.prediction.speed[0].tg_tps
    (change,) = history(context, kept.id)
    assert change.what == "hardware, build, remarks changed"
    assert change.before["remarks"] == "fast"
    assert change.before["hardware"].startswith("NVIDIA GeForce RTX 3090")


def test_the_key_given_at_sending_opens_it_and_nothing_else_does(context: Context) -> None:
    kept = submit(context, None, submission())
    for caller, key, error in (
        (None, None, WrongKey),
        (None, "x" * 32, WrongKey),
        (account(context, "bob"), None, NotAllowed),
        (account(context, "eve", "validate"), None, NotAllowed),
    ):
        with pytest.raises(error):
            correct(context, caller, key, kept.id, Correction(remarks="mine"))
        with pytest.raises(error):
            delete(context, caller, key, kept.id)
    assert correct(context, None, kept.edit_key, kept.id, Correction(remarks="mine")).remarks == "mine"


def test_deleting_what_an_operator_hid_does_not_let_it_be_sent_again(context: Context) -> None:
    kept = submit(context, None, submission())
    moderate(context, "root", Moderation(action="hide", subject=kept.id, reason="made up"))
    delete(context, None, kept.edit_key, kept.id)
    again = submit(context, None, submission())
    assert (again.id, again.is_new, again.state) == (kept.id, False, "deleted")


def test_a_correction_brings_nothing_back_that_was_deleted_or_hidden_meanwhile(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = submit(context, None, submission())

    def slowly(*arguments: Any) -> Any:
        delete(context, None, kept.edit_key, kept.id)
        return parse_submission(*arguments)

    monkeypatch.setattr("service.flows.results.submissions.parse_submission", slowly)
    with pytest.raises(InvalidInput, match="meanwhile"):
        correct(context, None, kept.edit_key, kept.id, Correction(hardware="RTX 4090, Ryzen 9 7950X, 64GB DDR5-5600"))
    with pytest.raises(ResultNotFound):
        read_result(context, kept.id)


def test_a_text_that_no_database_keeps_is_refused(context: Context) -> None:
    kept = submit(context, None, submission())
    with pytest.raises(InvalidInput, match="NUL"):
        correct(context, None, kept.edit_key, kept.id, Correction(remarks="a\0b"))


def test_a_correction_to_nothing_new_makes_no_history(context: Context) -> None:
    ann = account(context, "ann")
    kept = submit(context, ann, submission(remarks="fast"))
    correct(context, ann, None, kept.id, Correction(remarks="fast"))
    assert history(context, kept.id) == []


def test_hardware_that_cannot_have_done_it_or_lacks_a_listed_card_is_refused(context: Context) -> None:
    kept = submit(context, None, submission(text=f"$ {COMMAND}\n{LISTED}\n{sweep()}"))
    with pytest.raises(InvalidInput, match="lists 1x"):
        correct(context, None, kept.edit_key, kept.id, Correction(hardware="RTX 4090, 64GB"))
    other = submit(context, None, submission(text=f"$ {COMMAND}\n\n{sweep(tg=260)}"))
    with pytest.raises(InvalidInput, match="is impossible"):
        correct(context, None, other.edit_key, other.id, Correction(hardware="no GPU, Ryzen 9 7950X, 64GB DDR5-5600"))


def test_a_deleted_result_is_gone_with_all_that_was_written_in_it(context: Context) -> None:
    kept = submit(context, None, submission(remarks="private words"), "key")
    correct(context, None, kept.edit_key, kept.id, Correction(remarks="other words"))
    delete(context, None, kept.edit_key, kept.id)
    with pytest.raises(ResultNotFound):
        read_result(context, kept.id)
    row = results.read(context.engine, kept.id)
    assert row is not None
    assert (row.state, row.command, row.remarks, results.read_log(context.engine, row.id)) == (
        "deleted",
        None,
        None,
        "",
    )
    with context.engine.connect() as connection:
        changes = connection.execute(select(result_change)).all()
    assert [(change.what, change.before) for change in changes] == [("deleted", {})]
    with pytest.raises(ResultNotFound):
        delete(context, None, kept.edit_key, kept.id)
    again = submit(context, None, submission(), "key")
    assert (again.is_new, again.id == kept.id) == (True, False)
