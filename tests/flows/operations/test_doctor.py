"""`advisor doctor`: each fault is found, said, and comes with its fix."""

from __future__ import annotations

import resource
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from rq import Worker
from sqlalchemy import Engine, text

from service import __version__
from service.errors import DatabaseUnavailable
from service.flows.context import Context
from service.flows.operations import doctor
from service.flows.operations.doctor import Diagnosis, diagnose
from service.hub import retry
from service.queue.enqueue import queue_on
from service.settings import Settings
from service.store.measuring import hosts
from tests.flows.conftest import Clock
from tests.hosts import PROBE, a_host

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
INSERT = """INSERT INTO advice
            (id, request_key, state, repo, request, attempts, delete_key_hash, created_at, updated_at)
            VALUES (:id, :id, 'queued', 'a/b', '{}', 0, '', :at, :at)"""


@pytest.fixture
def quiet(settings: Settings) -> Settings:
    """The settings of the tests, with a port on which nothing listens."""
    return msgspec.structs.replace(settings, port=9)


def found(settings: Settings, now: datetime = NOW) -> dict[str, Diagnosis]:
    return {one.part: one for one in diagnose(settings, now)}


@pytest.fixture
def worker(context: Context) -> Iterator[None]:
    one = Worker([queue_on(context.redis)], connection=context.redis, name=secrets.token_hex(4))
    one.register_birth()  # type: ignore[no-untyped-call]
    yield
    one.register_death()  # type: ignore[no-untyped-call]


def test_a_sound_installation_has_nothing_bad(worker: None, engine: Engine, quiet: Settings) -> None:
    states = {part: one.state for part, one in found(quiet).items()}
    assert states.pop("service") == "warning"
    assert set(states.values()) == {"good"}
    assert {"database", "work", "Redis", "workers", "Hub", "state folder", "address", "open files"} == set(states)


def test_every_fault_comes_with_its_fix(quiet: Settings) -> None:
    assert all(one.fix for one in found(quiet).values() if one.state != "good")


def test_no_database_is_made_by_asking(tmp_path: Path, quiet: Settings) -> None:
    new = msgspec.structs.replace(quiet, database_url=f"sqlite:///{tmp_path}/none.db")
    assert "no tables yet" in found(new)["database"].text
    assert not (tmp_path / "none.db").exists()


def test_tables_of_another_version_are_bad(engine: Engine, quiet: Settings) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    assert found(quiet)["database"].state == "bad"


def test_an_advice_that_nobody_computes_is_bad(engine: Engine, quiet: Settings, clock: Clock) -> None:
    with engine.begin() as connection:
        connection.execute(text(INSERT), {"id": secrets.token_urlsafe(16), "at": clock.now.isoformat(" ")})
    clock.pass_minutes(5)
    assert found(quiet, clock.now)["work"].state == "good"
    clock.pass_minutes(6)
    assert "longer than ten minutes: 1" in found(quiet, clock.now)["work"].text


def test_without_workers_nothing_would_be_computed(context: Context, quiet: Settings) -> None:
    assert (found(quiet)["workers"].state, found(quiet)["Redis"].state) == ("bad", "good")


def test_a_hub_that_does_not_answer_is_bad(quiet: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_FIRST_PAUSE", 0.0)
    gone = msgspec.structs.replace(quiet, hf_endpoint="http://127.0.0.1:9")
    assert found(gone)["Hub"].state == "bad"


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ({}, "good"),
        ({"host": "0.0.0.0"}, "warning"),
        ({"public_url": "http://advisor.example"}, "bad"),
        ({"public_url": "https://advisor.example"}, "good"),
        ({"slack_signing_secret": "s"}, "bad"),
    ],
)
def test_an_address_that_is_open_or_missing_is_told(quiet: Settings, values: dict[str, str], state: str) -> None:
    changed = msgspec.structs.replace(quiet, **values)
    assert found(changed)["address"].state == state


def test_a_state_folder_that_is_a_file_is_bad(quiet: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    changed = msgspec.structs.replace(quiet, state_dir=tmp_path / "file")
    assert found(changed)["state folder"].state == "bad"


def test_a_state_folder_that_others_may_read_is_told(quiet: Settings, tmp_path: Path) -> None:
    (tmp_path / "advisor.db").touch()
    tmp_path.chmod(0o755)
    assert found(quiet)["state folder"].fix == f"chmod 700 {tmp_path}"
    tmp_path.chmod(0o700)
    assert found(quiet)["state folder"].state == "good"


def test_a_sqlite_on_another_machines_disk_is_bad(
    quiet: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_MOUNTS", tmp_path / "mounts")
    (tmp_path / "mounts").write_text(f"disk / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")
    on_sqlite = msgspec.structs.replace(quiet, database_url=None)
    assert "is on nfs4" in found(on_sqlite)["state folder"].text


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ({"workers": 0, "redis_url": None}, "bad"),
        ({"public_url": "https://advisor.example"}, "warning"),
        ({"public_url": "https://advisor.example", "trusted_proxies": ("127.0.0.1/32",)}, None),
        ({"workers": 0}, None),
    ],
)
def test_settings_that_are_not_right_together_are_told(
    quiet: Settings, values: dict[str, str], state: str | None
) -> None:
    one = found(msgspec.structs.replace(quiet, **values)).get("settings")
    assert (one.state if one else None) == state


def test_too_few_open_files_are_told(quiet: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    assert "LimitNOFILE=4096" in (found(quiet)["open files"].fix or "")


def test_a_soft_limit_of_open_files_is_none_as_the_service_raises_it(
    quiet: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 524_288))
    assert found(quiet)["open files"].state == "good"


def test_hosts_with_another_version_of_the_agent_are_told(context: Context, quiet: Settings, clock: Clock) -> None:
    host = a_host(context)
    assert "hosts" not in found(quiet, clock.now)
    hosts.count_up(context.engine, host.id, 1 << 40, clock.now)
    assert (PROBE.agent, found(quiet, clock.now)["hosts"].state) == (__version__, "good")
    hosts.save_probe(context.engine, host.id, msgspec.structs.replace(PROBE, agent="0.0.9"), "k" * 64)
    assert found(quiet, clock.now)["hosts"].text == "1 seen in a day, with other versions: 1 of 0.0.9"
    clock.pass_minutes(25 * 60)
    assert "hosts" not in found(quiet, clock.now)


def test_a_service_for_strangers_that_names_nobody_is_warned_of(quiet: Settings) -> None:
    public = msgspec.structs.replace(quiet, public_url="https://advisor.example", trusted_proxies=("127.0.0.1/32",))
    assert found(public)["operator"].state == "warning"
    named = msgspec.structs.replace(public, operator="Ada", operator_contact="ada@example.org")
    assert "operator" not in found(named)
    assert "operator" not in found(quiet)


def test_a_folder_of_pages_without_one_is_warned_of(quiet: Settings, tmp_path: Path) -> None:
    for folder in (tmp_path / "missing", tmp_path):
        pages = found(msgspec.structs.replace(quiet, pages_dir=folder))["operator"]
        assert (pages.state, str(folder) in pages.text) == ("warning", True)
    (tmp_path / "terms.txt").write_text("ours")
    assert "operator" not in found(msgspec.structs.replace(quiet, pages_dir=tmp_path))


def test_a_damaged_database_and_one_that_is_not_there_have_fixes_of_their_own(quiet: Settings, tmp_path: Path) -> None:
    (tmp_path / "no.db").write_text("garbage" * 1000)
    damaged = found(msgspec.structs.replace(quiet, database_url=f"sqlite:///{tmp_path}/no.db"))["database"]
    assert (damaged.text, damaged.fix) == (
        "the database is damaged", "restore a backup with `advisor admin restore`",
    )  # fmt: skip
    gone = found(msgspec.structs.replace(quiet, database_url="postgresql://somebody:secret@127.0.0.1:1/x"))["database"]
    assert (gone.text, "127.0.0.1:1" in (gone.fix or ""), "secret" in (gone.fix or "")) == (
        "the database does not answer", True, False,
    )  # fmt: skip


def test_a_full_disk_of_the_database_is_not_taken_for_a_server_that_is_not_there(
    quiet: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(engine: Engine) -> bool:
        raise DatabaseUnavailable("there is no space left for the database")

    monkeypatch.setattr("service.store.operations.health.exists", full)
    said = found(quiet)["database"]
    assert (said.text, "is there free disk space" in (said.fix or "")) == (
        "there is no space left for the database",
        True,
    )
