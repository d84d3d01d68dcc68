"""Temporary folders are gone with the process that made them, or with the next one."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from service.scratch import PREFIX, own_scratch, remove_left


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_temporary_folders_lie_in_one_that_is_removed(tmp_path: Path) -> None:
    with own_scratch(tmp_path / "record") as folder:
        assert Path(tempfile.mkdtemp()).parent == folder
        assert folder.stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == []


def test_the_next_agent_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    left = Path(tempfile.mkdtemp(prefix=PREFIX))
    (left / "engine").mkdir()
    (tmp_path / "record").write_text(str(left))
    with own_scratch(tmp_path / "record"):
        assert not left.exists()


@pytest.mark.parametrize("name", ["models", f"{PREFIX}link", f"{PREFIX}file"])
def test_nothing_else_is_ever_removed(tmp_path: Path, name: str) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "models")
    (tmp_path / f"{PREFIX}file").write_text("")
    (tmp_path / "record").write_text(str(tmp_path / name))
    remove_left(tmp_path / "record")
    assert (tmp_path / name).exists()
    assert (tmp_path / "models").exists()
