"""What operators do is done, written down, and stands; what readers report reaches them without names."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from service.engine.errors import InvalidInput
from service.errors import NotAuthenticated, ResultNotFound
from service.flows import accounts
from service.flows.context import Context
from service.flows.measuring.hosts import all_hosts
from service.flows.results import trust
from service.flows.results.moderation import BANNED, ON_THE_MACHINE, audit, moderate, open_reports, report_abuse
from service.store.results import results
from service.store.results.results import StoredResult
from service.store.results.trust import writing
from service.wire.results.moderation import AbuseReport, Action, Moderation
from tests.flows.conftest import Clock
from tests.flows.results.test_trust import BOUND, by, grow_old, kept
from tests.hosts import a_host, caller
from tests.stored_results import a_result, row


def do(context: Context, action: Action, subject: str, reason: str = "seen to be made up") -> None:
    moderate(context, "root", Moderation(action=action, subject=subject, reason=reason))


def one(context: Context, result_id: str) -> StoredResult:
    found = results.read(context.engine, result_id)
    assert found is not None
    return found


def test_a_result_is_hidden_and_shown_again_with_the_reason_and_each_act_is_written_down(
    context: Context, clock: Clock
) -> None:
    (result,) = kept(context, a_result(prediction=BOUND))
    do(context, "hide", result)
    assert (one(context, result).state, one(context, result).state_reason) == (
        "hidden",
        "an operator hid it: seen to be made up",
    )
    clock.pass_minutes(5)
    do(context, "show", result, "the thread has photos")
    assert (one(context, result).state, one(context, result).state_reason) == (
        "shown",
        "an operator looked at it: the thread has photos",
    )
    assert [(a.by, a.action, a.subject, a.at) for a in audit(context, result)] == [
        ("root", "show", result, "2026-11-21T12:05:00+00:00"),
        ("root", "hide", result, "2026-11-21T12:00:00+00:00"),
    ]


def test_a_result_that_is_deleted_while_an_operator_looks_at_it_stays_deleted(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    (result,) = kept(context, a_result(prediction=BOUND))

    def read(engine: Engine, result_id: str) -> StoredResult | None:
        found = store_read(engine, result_id)
        with writing(engine) as connection:
            results.change(connection, result_id, state="deleted", state_reason="deleted by its submitter")
        return found

    store_read = results.read
    with monkeypatch.context() as patched:
        patched.setattr(results, "read", read)
        with pytest.raises(InvalidInput, match="has deleted it"):
            do(context, "show", result)
    assert one(context, result).state == "deleted"


def test_a_ban_ends_tokens_and_results_and_lifting_it_judges_them_again(context: Context, clock: Clock) -> None:
    token = accounts.create_token(context.engine, "mallory", ["submit"], clock()).token
    account_id = accounts.caller_of(context.engine, token, clock()).account_id
    good, doubtful, hidden = kept(
        context,
        a_result(prediction=BOUND, account_id=account_id),
        a_result([row(0, 0.27), row(512, 13.3)], prediction=BOUND, account_id=account_id),
        a_result([row(0, 31.0)], prediction=BOUND, account_id=account_id),
    )
    do(context, "hide", hidden)
    do(context, "ban", "mallory")
    with pytest.raises(NotAuthenticated):
        accounts.caller_of(context.engine, token, clock())
    assert [one(context, name).state for name in (good, doubtful)] == ["hidden", "hidden"]
    assert one(context, good).state_reason == BANNED
    do(context, "unban", "mallory")
    assert [one(context, name).state for name in (good, doubtful, hidden)] == ["shown", "quarantined", "hidden"]


def test_nobody_locks_themselves_out(context: Context, clock: Clock) -> None:
    accounts.create_token(context.engine, "op", ["operator"], clock())
    itself = Moderation(action="ban", subject="op", reason="by mistake")
    with pytest.raises(InvalidInput, match="your own account"):
        moderate(context, "op", itself)
    assert moderate(context, ON_THE_MACHINE, itself).subject == "op"


def test_vouching_for_an_owner_makes_young_hosts_count_and_taking_it_back_ends_that(
    context: Context, clock: Clock
) -> None:
    host = a_host(context, "alice")
    (result,) = kept(context, by(host, clock))
    assert one(context, result).tier == "self-reported"
    do(context, "trust", "alice")
    assert (one(context, result).tier, one(context, result).state_reason) == ("agent-run", None)
    do(context, "distrust", "alice")
    assert (one(context, result).tier, one(context, result).state_reason) == ("self-reported", trust.NEW_HOST)


def test_a_ban_takes_back_what_the_account_replicated(context: Context, clock: Clock) -> None:
    a, b = a_host(context, "alice"), a_host(context, "mallory")
    grow_old(clock)
    first, _ = kept(context, by(a, clock), by(b, clock, 20.5))
    assert one(context, first).tier == "replicated"
    do(context, "ban", "mallory")
    assert one(context, first).tier == "self-reported"


@pytest.mark.parametrize(
    ("action", "subject", "what"),
    [("hide", "nothing", "no result"), ("ban", "nobody", "no account"), ("close", "nothing", "no open report")],
)
def test_what_is_not_there_is_said_by_name(context: Context, action: Action, subject: str, what: str) -> None:
    with pytest.raises(InvalidInput, match=what):
        do(context, action, subject)
    assert audit(context) == []


def test_a_report_reaches_operators_without_names_and_is_closed_once(context: Context, clock: Clock) -> None:
    reader = caller(context, "reader")
    (result,) = kept(context, a_result(prediction=BOUND, account_id=caller(context, "owner").account_id))
    said = AbuseReport(kind="private", text="it has /home/alice/x.gguf and alice@example.org in it\u202e")
    report_abuse(context, reader, result, said)
    clock.pass_minutes(1)
    kept_report = report_abuse(context, None, result, AbuseReport(kind="spam")).id
    first, second = open_reports(context)
    assert (first.kind, first.text, first.result) == ("private", "it has x.gguf and hidden in it", result)
    assert first.by not in (None, "reader")
    assert first.of not in (None, "owner")
    assert (second.by, second.id) == (None, kept_report)
    do(context, "close", kept_report)
    assert [report.id for report in open_reports(context)] == [first.id]
    with pytest.raises(InvalidInput, match="no open report"):
        do(context, "close", kept_report)


def test_what_is_hidden_or_not_there_cannot_be_reported(context: Context) -> None:
    (result,) = kept(context, a_result(prediction=BOUND))
    do(context, "hide", result)
    for name in (result, "nothing", "no/id"):
        with pytest.raises(ResultNotFound):
            report_abuse(context, None, name, AbuseReport(kind="other"))


def test_a_host_is_revoked_by_its_pseudonym_once(context: Context) -> None:
    host = a_host(context)
    do(context, "revoke", host.pseudonym, "it reports made-up figures")
    assert [(one.state, one.owner) for one in all_hosts(context)] == [("revoked", "alice")]
    assert [(a.action, a.subject) for a in audit(context)] == [("revoke", host.id)]
    with pytest.raises(InvalidInput, match="already been revoked"):
        do(context, "revoke", host.pseudonym)
