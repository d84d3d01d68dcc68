"""`advisor token`, as an operator types it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from service.cli import main
from service.errors import NotAuthenticated
from service.flows.accounts import caller_of
from service.flows.context import utc_now
from service.settings import Settings
from service.store.migrations import migrated
from service.store.results import results
from tests.stored_results import a_result, keep


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADVISOR_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def created(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["token", "create", *arguments]) == 0
    return capsys.readouterr().out.strip()


def test_a_token_is_printed_once_and_alone(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = created(capsys, "alice", "--scope", "validate,host", "--scope", "submit")
    assert re.fullmatch(r"adv_[\w-]{43}", token)
    with migrated(Settings(state_dir=state).database) as engine:
        caller = caller_of(engine, token, utc_now())
    assert (caller.name, caller.scopes) == ("alice", ("validate", "host", "submit"))
    assert main(["token", "list"]) == 0
    shown = capsys.readouterr().out
    assert token not in shown
    assert re.search(
        r"^[0-9a-f]{16} +alice +validate,host,submit +20\d\d-\d\d-\d\d +20\d\d-\d\d-\d\d +good$", shown, re.M
    )
    kept = b"".join(path.read_bytes() for path in state.rglob("*") if path.is_file())
    assert b"alice" in kept
    assert token.encode() not in kept


def test_a_token_as_json_has_its_id_by_which_it_is_revoked(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = json.loads(created(capsys, "alice", "--scope", "submit", "--json"))
    assert re.fullmatch(r"adv_[\w-]{43}", made["token"])
    assert main(["token", "revoke", made["id"]]) == 0
    assert main(["token", "list", "--json"]) == 0
    assert [one["revoked_at"] is not None for one in json.loads(capsys.readouterr().out)] == [True]


def test_a_revoked_token_is_not_good_any_more(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = [created(capsys, "alice", "--scope", "host") for _ in range(2)]
    main(["token", "list", "--json"])
    listed = json.loads(capsys.readouterr().out)
    assert main(["token", "revoke", listed[0]["id"]]) == 0
    with migrated(Settings(state_dir=state).database) as engine:
        with pytest.raises(NotAuthenticated):
            caller_of(engine, tokens[0], utc_now())
        assert caller_of(engine, tokens[1], utc_now()).name == "alice"
    assert main(["token", "revoke", listed[0]["id"]]) == 2
    assert "no valid token" in capsys.readouterr().err


def test_an_account_is_forgotten_with_its_tokens_and_its_results_stay_without_a_name(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = created(capsys, "alice", "--scope", "submit")
    other = created(capsys, "bob", "--scope", "submit")
    with migrated(Settings(state_dir=state).database) as engine:
        sent = a_result(account_id=caller_of(engine, token, utc_now()).account_id)
        keep(engine, sent)
        assert main(["token", "forget", "alice"]) == 0
        with pytest.raises(NotAuthenticated):
            caller_of(engine, token, utc_now())
        assert caller_of(engine, other, utc_now()).name == "bob"
        kept = results.read(engine, sent.id)
    assert kept is not None
    assert kept.account_id is None
    assert main(["token", "forget", "alice"]) == 2
    assert "no account has this name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["alice", "--scope", "admin"], "submit, validate, host, operator"),
        (["alice", "--scope", ""], "submit, validate, host, operator"),
        (["a name", "--scope", "host"], "not an account name"),
        (["x" * 121, "--scope", "host"], "not an account name"),
    ],
)
def test_what_cannot_be_is_said(
    state: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert main(["token", "create", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_scope_must_be_named(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["token", "create", "alice"])
    assert "--scope" in capsys.readouterr().err
