"""Whatever is wrong with the database or its folder: a sentence and an exit code, never a stack; and private files."""

from __future__ import annotations

import ctypes
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import event, text

from service.cli import main
from service.errors import DatabaseUnavailable
from service.flows.accounts import create_token, list_tokens
from service.flows.context import utc_now
from service.settings import Settings
from service.store.engines import make_engine
from service.store.migrations import migrated
from tests.local_hub import LocalHub

_PAGE = 4096


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder whose database has some pages of accounts."""
    folder = tmp_path_factory.mktemp("sound")
    with migrated(Settings(state_dir=folder).database) as engine:
        for number in range(40):
            create_token(engine, f"account-{number}", ["submit"], utc_now())
    return folder


@pytest.fixture(scope="module")
def hub() -> Iterator[LocalHub]:
    """A hub that answers: `doctor` asks one that does not again, for seconds."""
    with LocalHub() as hub:
        yield hub


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, hub: LocalHub) -> Iterator[Path]:
    """A folder that every user may enter, as pytest's own is not; the state folder of commands is in it."""
    for name in ("DATABASE_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        monkeypatch.setenv("ADVISOR_STATE_DIR", f"{name}/state")
        monkeypatch.setenv("ADVISOR_PORT", "0")
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield Path(name)


@pytest.fixture
def state(folder: Path, sound: Path) -> Path:
    """The state folder, sound."""
    shutil.copytree(sound, folder / "state")
    return folder / "state"


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilitySet(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


# Linux: <linux/capability.h>. Version 3 has two sets of 32 bits.
_VERSION_3 = 0x20080522
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1 << 1, 1 << 2


@contextmanager
def unprivileged() -> Iterator[None]:
    """Take from root, in this thread, the right to read and write against the modes of files.

    Another user would not do: nobody may read a checkout in a folder that only root may enter.
    """
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = _CapabilityHeader(_VERSION_3, 0), (_CapabilitySet * 2)()
    assert libc.capget(ctypes.byref(header), sets) == 0
    before = sets[0].effective
    try:
        sets[0].effective = before & ~(_DAC_OVERRIDE | _DAC_READ_SEARCH)
        assert libc.capset(ctypes.byref(header), sets) == 0
        yield
    finally:
        sets[0].effective = before
        assert libc.capset(ctypes.byref(header), sets) == 0


def overwrite_header(state: Path) -> None:
    with (state / "advisor.db").open("r+b") as file:
        file.write(b"\xa5" * _PAGE)


def overwrite_pages(state: Path) -> None:
    """All pages but the first, which says what the file is."""
    with (state / "advisor.db").open("r+b") as file:
        n_bytes = file.seek(0, os.SEEK_END)
        file.seek(_PAGE)
        file.write(b"\xa5" * (n_bytes - _PAGE))


def truncate(state: Path) -> None:
    os.truncate(state / "advisor.db", 3 * _PAGE)


DAMAGE = [overwrite_header, overwrite_pages, truncate]
COMMANDS = [
    ["serve"], ["doctor"], ["token", "list"], ["admin", "migrate"], ["admin", "backup", "kept"],
    ["admin", "moderate", "reports"], ["admin", "jobs"],
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_damaged_database_is_said_so_by_every_command(
    state: Path, words: list[str], damage: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(state.parent)
    damage(state)  # type: ignore[operator]
    capsys.readouterr()
    assert main(words) == 1
    said = capsys.readouterr()
    assert "database is damaged" in said.err or "it is damaged" in said.out or "database is damaged" in said.out
    assert "Traceback" not in said.err
    assert not (state.parent / "kept").exists()


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_database_is_kept_aside_where_a_backup_takes_its_place(
    state: Path, damage: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["admin", "backup", str(tmp_path / "kept")]) == 0
    damage(state)  # type: ignore[operator]
    broken = (state / "advisor.db").read_bytes()
    assert main(["admin", "restore", str(tmp_path / "kept"), "--before", str(tmp_path / "before")]) == 0
    with migrated(Settings(state_dir=state).database) as engine:
        assert len(list_tokens(engine)) == 40
    assert (tmp_path / "before").read_bytes() == broken


@pytest.mark.parametrize("words", [["serve"], ["token", "list"], ["admin", "migrate"], ["doctor"]])
def test_a_state_folder_that_cannot_be_made_is_said_so(
    folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder.chmod(0o555)
    with unprivileged():
        assert main(words) == 1
    said = capsys.readouterr()
    assert "cannot be written" in said.out + said.err or "cannot be opened" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("words", [["serve"], ["token", "create", "x", "--scope", "submit"], ["doctor"]])
def test_a_database_that_may_be_read_but_not_written_is_said_so(
    state: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (state / "advisor.db").chmod(0o444)
    state.chmod(0o555)
    with unprivileged():
        assert main(words) == 1
    said = capsys.readouterr()
    assert "cannot be written" in said.err + said.out
    assert "Traceback" not in said.err


@pytest.mark.parametrize("words", [["serve"], ["token", "list"], ["doctor"], ["admin", "backup", "/tmp/kept"]])
def test_a_database_that_may_not_be_read_is_said_so(
    state: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    state.chmod(0o000)
    with unprivileged():
        assert main(words) in (1, 2)
    said = capsys.readouterr()
    assert "cannot be" in said.err + said.out or "Permission denied" in said.err
    assert "Traceback" not in said.err


def test_a_full_disk_is_said_so(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path}/advisor.db")
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count=10"))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE filled (x BLOB)"))
        with pytest.raises(DatabaseUnavailable, match="no space left"):
            connection.execute(text("INSERT INTO filled VALUES (zeroblob(1000000))"))
    engine.dispose()


def test_a_backup_that_cannot_be_written_is_said_so(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admin", "backup", "/proc/kept"]) == 2
    assert "cannot write /proc/kept" in capsys.readouterr().err


def test_what_is_not_a_folder_is_said_so(
    tmp_path: Path, hub: LocalHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ADVISOR_STATE_DIR", str(tmp_path / "file"))
    monkeypatch.setenv("ADVISOR_PORT", "0")
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    for name in ("DATABASE_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    assert main(["serve"]) == 1
    assert f"the state folder {tmp_path}/file cannot be written" in capsys.readouterr().err
    assert main(["doctor"]) == 1
    assert main(["admin", "migrate"]) == 1


def test_a_postgresql_that_is_down_is_said_so(
    tmp_path: Path, hub: LocalHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ADVISOR_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("DATABASE_URL", f"postgresql://nobody@/none?host={tmp_path}")
    monkeypatch.setenv("ADVISOR_PORT", "0")
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    for words in (["serve"], ["doctor"], ["admin", "migrate"], ["admin", "backup", str(tmp_path / "kept")]):
        assert main(words) == 1
    said = capsys.readouterr()
    assert said.err.count("advisor: DATABASE_URL: the database does not answer") == 2
    assert "Traceback" not in said.err
    assert not (tmp_path / "kept").exists()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_database_log_and_backups_are_for_their_owner_alone(state: Path, tmp_path: Path) -> None:
    with migrated(Settings(state_dir=state).database) as engine, engine.connect() as connection:
        connection.execute(text("SELECT 1 FROM account"))
        assert {path.name: mode(path) for path in state.iterdir()} == dict.fromkeys(
            ("advisor.db", "advisor.db-wal", "advisor.db-shm"), 0o600
        )
    assert mode(state) == 0o700
    assert main(["admin", "backup", str(tmp_path / "kept")]) == 0
    assert main(["admin", "restore", str(tmp_path / "kept"), "--before", str(tmp_path / "before")]) == 0
    assert [mode(path) for path in (tmp_path / "kept", tmp_path / "before", state / "advisor.db")] == [0o600] * 3


def test_a_database_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    file = tmp_path / "advisor.db"
    with closing(sqlite3.connect(file)) as old:
        old.execute("CREATE TABLE x (y)")
    file.chmod(0o644)
    engine = make_engine(f"sqlite:///{file}")
    with engine.connect() as connection:
        connection.execute(text("SELECT * FROM x"))
    engine.dispose()
    assert mode(file) == 0o600
