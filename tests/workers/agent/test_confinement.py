"""The agent fails closed: neither as root nor unconfined does an engine run, unless the policy says so."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from service.cli import main
from tests.workers.agent.fake_service import FakeService, enrolled
from workers.agent import run
from workers.agent.errors import Unsafe
from workers.agent.loop import require_safe
from workers.agent.policy import Policy
from workers.agent.process import Confinement, NotConfined, ProcessLimits, confinement, run_engine
from workers.agent.state import State

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="engines are run on Linux only")

CONFINED = Confinement(network="namespace", files="landlock")
_READ = """
import glob, os
for path in ["/etc/shadow", "/etc/gshadow", "/proc/1/environ", "/proc/kcore", *glob.glob("/root/.*"), *{devices}]:
    try:
        with open(path, "rb") as file: print(path, len(file.read(1)))
    except OSError: pass
print("tried")
"""

_NAMES = """
import threading
def write(path, text):
    try:
        with open(path, "w") as file: file.write(text)
    except OSError as error: return error.strerror
    with open(path) as file: return file.read().strip()
waits = threading.Event()
thread = threading.Thread(target=waits.wait)
thread.start()
print(write(f"/proc/self/task/{thread.native_id}/comm", "cuda-EvtHandlr"))
waits.set()
print(write("/proc/self/clear_refs", "1"))
print(write("/proc/sys/kernel/core_pattern", "core"))
"""


def _is_as_it_should_be(folder: Path) -> bool:
    return confinement(folder) == CONFINED


def test_an_engine_of_root_reads_no_passwords_no_disk_and_no_other_process(tmp_path: Path) -> None:
    if not _is_as_it_should_be(tmp_path):
        pytest.skip("this system offers no namespace or no Landlock: the agent refuses to run engines then")
    disks = [str(path) for path in Path("/dev").iterdir() if path.is_block_device()]
    code = _READ.format(devices=disks)
    limits = ProcessLimits(folder=tmp_path, seconds=20, readable=(Path(sys.base_prefix), Path(sys.prefix)))
    ended = run_engine((sys.executable, "-S", "-c", code), {}, limits, lambda _: None, lambda: None)
    assert ended.tail == b"tried\n"


def test_an_engine_of_root_has_no_privilege_left(tmp_path: Path) -> None:
    code = "print([line for line in open('/proc/self/status') if line.startswith(('CapPrm', 'CapEff', 'CapBnd'))])"
    limits = ProcessLimits(
        folder=tmp_path, seconds=20, readable=(Path(sys.base_prefix), Path(sys.prefix)), confined=False
    )
    ended = run_engine((sys.executable, "-S", "-c", code), {}, limits, lambda _: None, lambda: None)
    names = ("CapPrm", "CapEff", "CapBnd") if os.geteuid() == 0 else ("CapPrm", "CapEff")
    for name in names:
        assert f"{name}:\\t{0:016x}" in ended.tail.decode()


def test_a_confined_engine_names_its_threads_as_cuda_does_and_writes_nothing_else_of_proc(tmp_path: Path) -> None:
    if not _is_as_it_should_be(tmp_path):
        pytest.skip("this system offers no namespace or no Landlock: the agent refuses to run engines then")
    limits = ProcessLimits(folder=tmp_path, seconds=20, readable=(Path(sys.base_prefix), Path(sys.prefix)))
    ended = run_engine((sys.executable, "-S", "-c", _NAMES), {}, limits, lambda _: None, lambda: None)
    assert ended.tail == b"cuda-EvtHandlr\nPermission denied\nPermission denied\n"


def test_an_engine_that_nothing_would_confine_is_not_started(tmp_path: Path) -> None:
    limits = ProcessLimits(folder=tmp_path, seconds=20, network=())
    with pytest.raises(NotConfined, match="not kept from the network"):
        run_engine(("/usr/bin/touch", str(tmp_path / "ran")), {}, limits, lambda _: None, lambda: None)
    assert not (tmp_path / "ran").exists()
    allowed = ProcessLimits(folder=tmp_path, seconds=20, network=(), confined=False)
    run_engine(("/usr/bin/touch", str(tmp_path / "ran")), {}, allowed, lambda _: None, lambda: None)
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("policy", "uid", "held", "says"),
    [
        (Policy(), 0, CONFINED, "allow_root = true"),
        (Policy(allow_unconfined=True), 0, CONFINED, "allow_root = true"),
        (Policy(), 1000, Confinement(network="seccomp"), "from other files here"),
        (Policy(allow_root=True), 0, Confinement(files="landlock"), "from the network here"),
        (Policy(), 1000, Confinement(), "from the network and other files here"),
        (Policy(), 1000, CONFINED, None),
        (Policy(allow_root=True), 0, CONFINED, None),
        (Policy(allow_unconfined=True), 1000, Confinement(), None),
        (Policy(allow_root=True, allow_unconfined=True), 0, Confinement(), None),
    ],
)
def test_root_and_missing_confinement_are_each_allowed_by_name_or_refused(
    policy: Policy, uid: int, held: Confinement, says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    if says is None:
        require_safe(policy, Path("policy.toml"), held)
        return
    with pytest.raises(Unsafe, match=says):
        require_safe(policy, Path("policy.toml"), held)


@pytest.mark.parametrize(("uid", "held"), [(0, CONFINED), (1000, Confinement())])
def test_an_agent_that_would_be_unsafe_ends_before_it_asks_for_a_run(
    uid: int, held: Confinement, service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(run, "confinement", lambda folder: held)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    enrolled(service, State(tmp_path))
    (tmp_path / "policy.toml").write_text("")
    assert main(["host", "run", "--once", "--state-dir", str(tmp_path)]) == 78
    assert "allow_" in capsys.readouterr().err
    assert service.calls == []
