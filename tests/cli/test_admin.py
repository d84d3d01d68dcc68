"""`advisor admin`, as an operator types it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from service.cli import main
from service.flows.accounts import list_tokens
from service.serve import sole_user
from service.settings import Settings
from service.store.migrations import migrated, newest
from tests.databases import write_tables
from tests.stored_results import a_result, keep, row


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADVISOR_STATE_DIR", str(tmp_path / "state"))
    write_tables(tmp_path / "state" / "advisor.db")
    assert main(["token", "create", "alice", "--scope", "submit"]) == 0
    return tmp_path / "state"


def accounts(state: Path) -> list[str]:
    with migrated(Settings(state_dir=state).database) as engine:
        return [token.name for token in list_tokens(engine)]


def test_a_restore_keeps_what_was_there_before(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admin", "backup", str(tmp_path / "kept")]) == 0
    assert main(["token", "create", "bob", "--scope", "submit"]) == 0
    assert main(["admin", "restore", str(tmp_path / "kept"), "--before", str(tmp_path / "before")]) == 0
    assert accounts(state) == ["alice"]
    assert main(["admin", "restore", str(tmp_path / "before")]) == 0
    assert accounts(state) == ["alice", "bob"]
    assert "what was there before is in" in capsys.readouterr().out


def test_a_restore_warns_that_what_was_revoked_after_the_backup_works_again(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["admin", "backup", str(tmp_path / "kept")]) == 0
    capsys.readouterr()
    assert main(["token", "list", "--json"]) == 0
    token = json.loads(capsys.readouterr().out)[0]["id"]
    assert main(["token", "revoke", token]) == 0
    assert main(["admin", "restore", str(tmp_path / "kept")]) == 0
    told = capsys.readouterr().out
    assert "revoked after the backup work again" in told
    assert "advisor token list" in told


def test_tables_are_brought_up_to_date_by_a_command_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ADVISOR_STATE_DIR", str(tmp_path))
    assert [main(["admin", "migrate"]), main(["admin", "migrate"])] == [0, 0]
    assert capsys.readouterr().out == f"tables of {newest()}, were none\ntables of {newest()}\n"


def test_an_import_counts_and_names_the_results_that_it_leaves_out(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    doubted = a_result([row(tg=9.0)], state="quarantined", state_reason="too slow")
    with migrated(Settings(state_dir=state).database) as engine:
        keep(engine, a_result(), doubted)
    assert main(["admin", "dump"]) == 0
    key = json.loads((state / "dumps" / "dumps.json").read_text())["key"]
    monkeypatch.setenv("ADVISOR_STATE_DIR", str(tmp_path / "mine"))
    capsys.readouterr()
    assert main(["admin", "sources", "--import", str(state / "dumps"), "--key", key]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 results added, 0 removed, 0 known before, 1 left out", f"left out {doubted.id}: quarantined there: too slow",
    ]  # fmt: skip


def test_results_of_another_service_are_imported_listed_and_forgotten(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with migrated(Settings(state_dir=state).database) as engine:
        keep(engine, a_result(), a_result([row(tg=9.0)]))
    assert main(["admin", "dump"]) == 0
    key = json.loads((state / "dumps" / "dumps.json").read_text())["key"]
    assert (state / "dumps.key").stat().st_mode & 0o077 == 0

    def said(*words: str) -> str:
        capsys.readouterr()
        assert main(["admin", "sources", *words]) == 0
        return capsys.readouterr().out

    monkeypatch.setenv("ADVISOR_STATE_DIR", str(tmp_path / "mine"))
    theirs = str(state / "dumps")
    assert said().startswith("nothing was imported")
    assert said("--import", theirs, "--key", key) == "2 results added, 0 removed, 0 known before\n"
    assert f"{theirs}  key {key}  dump of 20" in said()
    assert json.loads(said("--json"))[0]["key"] == key
    assert json.loads(said("--import", theirs, "--key", key, "--json"))["known"] == 2
    assert said("--forget", "--key", key) == "2 results removed\n"
    assert main(["admin", "sources", "--import", theirs]) == 2
    assert "--key is needed" in capsys.readouterr().err
    assert main(["admin", "sources", "--import", theirs, "--key", "A" * 43 + "="]) == 2
    assert main(["admin", "sources", "--import", "http://127.0.0.1:1", "--key", key]) == 2
    assert "does not answer as a service: Connection refused\n" in capsys.readouterr().err
    monkeypatch.setenv("ADVISOR_STATE_DIR", str(state))
    assert main(["admin", "sources", "--import", theirs, "--key", key]) == 2  # deleted results would come back
    assert "this service's own" in capsys.readouterr().err


def test_what_an_operator_did_is_said_as_json(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> Any:
        capsys.readouterr()
        assert main([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    kept = str(tmp_path / "kept")
    backup = said("admin", "backup", kept)
    assert backup == {"file": kept, "n_bytes": (tmp_path / "kept").stat().st_size}
    before = str(tmp_path / "before")
    assert said("admin", "restore", kept, "--before", before) == {"restored": kept, "before": before}
    assert said("admin", "migrate") == {"tables": newest(), "before": newest(), "newer": False}
    assert said("admin", "seed") == {"removed": None, "n_added": 202}
    removed = said("admin", "seed", "--remove", "disc258-ubergarm-1")
    assert said("admin", "seed", "--remove", removed["removed"]) == removed
    dumps = said("admin", "dump")
    assert [(Path(one["folder"]) / one["name"]).stat().st_size for one in dumps] == [one["n_bytes"] for one in dumps]
    (token,) = said("token", "list")
    assert said("token", "revoke", token["id"]) == {"revoked": token["id"]}


def test_nothing_is_restored_under_a_running_service(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["admin", "backup", str(tmp_path / "kept")]) == 0
    with sole_user(state):
        assert main(["admin", "restore", str(tmp_path / "kept")]) == 1
    assert "another `advisor serve` uses" in capsys.readouterr().err


def test_a_backup_that_cannot_be_written_says_why(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admin", "backup", "/nowhere/at/all"]) == 2
    assert "FILE: there is no folder /nowhere/at" in capsys.readouterr().err


@pytest.mark.full
def test_doctor_says_what_is_bad_by_its_exit_code(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("ADVISOR_PORT", "9")
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "BAD   Hub " in shown
    assert "-> check HF_ENDPOINT" in shown
    assert main(["doctor", "--json"]) == 1
    assert '"part": "Hub"' in capsys.readouterr().out


def test_an_operator_bans_an_account_on_the_machine_and_the_log_says_so(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["admin", "moderate", "ban", "alice"]) == 2
    assert "say whom or what, and why with --reason" in capsys.readouterr().err
    assert main(["admin", "moderate", "ban", "alice", "--reason", "made up figures"]) == 0
    assert main(["admin", "moderate", "audit"]) == 0
    assert "operator on the service's machine: ban alice: made up figures" in capsys.readouterr().out
    assert main(["token", "list"]) == 0
    assert "account banned" in capsys.readouterr().out
    assert main(["admin", "moderate", "reports", "--json"]) == 0
    assert capsys.readouterr().out.strip() == "[]"


def test_nothing_is_fitted_to_too_few_results_and_that_is_said(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--dry"]) == 1
    assert "0 results of 0 owners can be fitted" in capsys.readouterr().err


def test_published_results_are_added_once_and_one_goes_for_good(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for said in ("202 published results added", "0 published results added"):
        assert main(["admin", "seed"]) == 0
        assert capsys.readouterr().out.strip() == said
    assert main(["admin", "seed", "--remove", "disc258-ubergarm-1"]) == 0
    assert main(["admin", "seed", "--remove", "no-such"]) == 2
    assert main(["admin", "seed"]) == 0
    assert capsys.readouterr().out.strip().endswith("\n0 published results added")


def test_a_dump_is_written_and_parquet_says_what_it_needs(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["admin", "dump"]) == 0
    assert len(list((state / "dumps").glob("results-v1-*.gz"))) == 2
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["admin", "dump", "--parquet", str(tmp_path / "r.parquet")]) == 1
    assert "pip install '.[parquet]'" in capsys.readouterr().err
    assert not (tmp_path / "r.parquet").exists()


def test_purge_and_requeue_say_what_they_would_do(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admin", "purge", "--dry-run"]) == 0
    assert "advice           older than  365 days:        0 would be removed" in capsys.readouterr().out
    assert main(["admin", "requeue", "--failed", "24", "--dry-run"]) == 0
    assert capsys.readouterr().out == "would be queued: advice 0, runs 0\n"
    assert main(["admin", "requeue", "nonsense"]) == 2
    assert "may be tried again has the id nonsense" in capsys.readouterr().err
    assert main(["admin", "hosts"]) == 0
    assert capsys.readouterr().out == "there are none\n"


@pytest.mark.parametrize("hours", ["-1", "0", "nan", "inf", "soon"])
def test_work_that_failed_is_looked_for_in_hours_that_there_are(
    state: Path, hours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["admin", "requeue", f"--failed={hours}"])
    assert ended.value.code == 2
    assert f"'{hours}' is not a number of hours, such as 24" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["hosts"], ["moderate", "audit"], ["moderate", "reports"], ["moderate", "removals"]])
def test_an_empty_list_is_said_to_be_empty(state: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admin", *words]) == 0
    assert capsys.readouterr().out == "there are none\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["hide"], "advisor: SUBJECT: say whom or what, and why with --reason: this must not be empty"),
        (["hide", "x" * 22], "advisor: --reason: say whom or what, and why with --reason: this must have at least 3"),
    ],
)
def test_an_act_without_its_reason_is_refused_in_words(
    state: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["admin", "moderate", *words]) == 2
    assert says in capsys.readouterr().err


def test_a_wrong_setting_is_named_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ADVISOR_BOT_DENY", "discord:1,bob")
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err.startswith("advisor: ADVISOR_BOT_DENY has 'bob': this must be")
