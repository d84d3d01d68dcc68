"""Engines are run under limits, and nothing of them is left: programs here misbehave in every way that one could."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import psutil
import pytest

from tests.waiting import PATIENCE
from workers.agent import leftovers
from workers.agent.leftovers import MARK, end_leftovers
from workers.agent.process import CannotStart, Ended, Network, ProcessLimits, confinement, run_engine

PYTHON = (Path(sys.base_prefix), Path(sys.prefix))

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="engines are run on Linux only")


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path, nothing_left: None) -> Run:
    def run_code(
        code: str,
        *,
        seconds: float = 20,
        grace_seconds: float = 1,
        network: tuple[Network, ...] = ("namespace", "seccomp"),
        stop: Callable[[], str | None] = lambda: None,
        on_output: Callable[[bytes], None] = lambda _: None,
        output_bytes: int = 64 << 20,
        processes: int = 64,
    ) -> Ended:
        limits = ProcessLimits(
            folder=tmp_path,
            seconds=seconds,
            readable=PYTHON,
            grace_seconds=grace_seconds,
            network=network,
            output_bytes=output_bytes,
            processes=processes,
            record=tmp_path / "engine.json",
            confined=False,  # what it is like on a system without one of them is looked at too
        )
        ended = run_engine((sys.executable, "-S", "-c", code), {}, limits, on_output, stop)
        assert not limits.record.exists() if limits.record else True
        return ended

    return run_code


def test_output_of_both_streams_comes_in_whole_lines_and_its_end_is_kept(run: Run) -> None:
    seen: list[bytes] = []
    ended = run(
        "import sys\nfor n in range(300):\n print('row', n); sys.stdout.flush(); sys.stderr.write('log '); "
        "sys.stderr.write(f'{n}\\n'); sys.stderr.flush()\nsys.stdout.write('no end')\nsys.exit(3)",
        on_output=seen.append,
    )
    lines = b"".join(seen).splitlines()
    assert ended.exit_status == 3
    assert sorted(lines) == sorted([*(f"{w} {n}".encode() for w in ("row", "log") for n in range(300)), b"no end"])
    assert ended.tail == b"".join(seen)


def test_a_program_gets_its_environment_and_nothing_else(run: Run) -> None:
    ended = run(
        "import os, sys; print(sorted(os.environ)); print(sys.stdin.read())\n"
        "links = [f'/proc/self/fd/{n}' for n in range(3, 200)]\n"
        "print({os.readlink(link) for link in links if os.path.islink(link)})\nprint(os.getpid())"
    )
    names, stdin, descriptors, pid = ended.tail.decode().splitlines()
    assert set(eval(names)) - {"LC_CTYPE"} == {MARK}
    assert stdin == ""
    assert eval(descriptors) <= {f"/proc/{pid}/task"}  # where Landlock lets it name its threads


def test_an_abort_and_a_fault_are_told_apart_and_leave_no_core(run: Run, tmp_path: Path) -> None:
    assert run("import os; os.abort()").signal == signal.SIGABRT
    assert run("import ctypes; ctypes.string_at(0)").signal == signal.SIGSEGV
    assert not list(tmp_path.iterdir())


def test_a_hanging_program_is_ended_at_its_time(run: Run) -> None:
    ended = run("import time; print('loading', flush=True); time.sleep(100)", seconds=2)
    assert ended.timed_out
    assert ended.signal == signal.SIGTERM
    assert ended.tail == b"loading\n"


def test_one_that_ignores_being_asked_is_killed(run: Run) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('x', flush=True); time.sleep(100)"
    seen: list[bytes] = []
    ended = run(code, grace_seconds=0.2, on_output=seen.append, stop=lambda: "enough" if seen else None)
    assert ended.signal == signal.SIGKILL


def test_a_run_asks_twice_a_second_whether_to_stop_and_says_why_it_did(run: Run) -> None:
    asked: list[float] = []

    def stop() -> str | None:
        asked.append(time.monotonic())
        return "cancelled" if asked[-1] - asked[0] > 1 else None

    ended = run("import time; time.sleep(100)", stop=stop)
    assert ended.stopped_why == "cancelled"
    assert not ended.timed_out
    assert median(after - before for before, after in itertools.pairwise(asked)) < 0.5


def test_an_error_of_the_reader_ends_the_program(run: Run) -> None:
    def fail(_: bytes) -> None:
        raise RuntimeError("cannot read this")

    with pytest.raises(RuntimeError, match="cannot read this"):
        run("import time; print('x', flush=True); time.sleep(100)", on_output=fail)


def test_a_hundred_megabytes_without_a_line_end_cost_little(run: Run) -> None:
    taken: list[int] = []
    before = psutil.Process().memory_info().rss
    used = psutil.Process().cpu_times()
    code = "import os\nfor _ in range(1600): os.write(1, b'x' * 65536)"
    ended = run(code, on_output=lambda chunk: taken.append(len(chunk)))
    after = psutil.Process().cpu_times()
    assert ended.stopped_why == "it printed more than 64 MiB"
    assert sum(taken) <= 64 << 20
    assert max(taken) <= 128 << 10
    assert len(ended.tail) == 1 << 20
    assert psutil.Process().memory_info().rss - before < 32 << 20
    assert after.user + after.system - used.user - used.system < 3


def test_children_and_grandchildren_end_with_the_program(run: Run, tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        print(os.getpid(), flush=True)\n"
        "        time.sleep(100)\n"
        "    os._exit(0)\n"
        "time.sleep(0.3)\n"
    )
    ended = run(code)
    assert ended.exit_status == 0
    assert not psutil.pid_exists(int(ended.tail))


def test_a_program_that_starts_ever_more_is_ended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.agent.process._COUNT_SECONDS", 0.1)
    code = "import os, time\nfor n in range(200):\n    if os.fork() == 0: time.sleep(100)\ntime.sleep(100)"
    ended = run(code, processes=40)
    assert ended.stopped_why == "it started more than 40 processes"


def test_what_it_may_write_is_bounded_and_its_own_folder_only(run: Run, tmp_path: Path) -> None:
    code = "open('log', 'w').write('x')\ntry: open('{}', 'w')\nexcept OSError as error: print(error.strerror)"
    outside = tmp_path.parent / "outside"
    ended = run(code.format(outside))
    assert (tmp_path / "log").exists()
    if ended.confinement.files is None:
        pytest.skip("this kernel has no Landlock")
    assert ended.tail == b"Permission denied\n"
    assert not outside.exists()


def test_files_that_are_not_its_own_are_not_there_to_be_read(run: Run, tmp_path: Path) -> None:
    secret = tmp_path.parent / "secret"
    secret.write_text("key")
    ended = run(f"try: print(open({str(secret)!r}).read())\nexcept OSError as error: print(error.strerror)")
    if ended.confinement.files is None:
        pytest.skip("this kernel has no Landlock")
    assert ended.tail == b"Permission denied\n"


_CONNECT = (
    "import socket\n"
    "def told(family, to):\n"
    "    try: socket.socket(family).connect(to); return 'connected'\n"
    "    except OSError as error: return error.strerror\n"
    "print(told(socket.AF_INET, ('127.0.0.1', {port})))\n"
    "print(told(socket.AF_INET, ('192.0.2.1', 80)))\n"
)


@pytest.mark.parametrize("way", ["namespace", "seccomp"])
def test_the_network_is_not_there(run: Run, way: Network) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = _CONNECT.format(port=server.getsockname()[1])
        assert run(code, network=()).tail.startswith(b"connected\n")
        ended = run(code, network=(way,))
    if ended.confinement.network is None:
        pytest.skip(f"this system does not let a program have {way}")
    told = {
        "namespace": b"Connection refused\nNetwork is unreachable\n",
        "seccomp": 2 * b"Address family not supported by protocol\n",
    }
    assert ended.tail == told[way]


def test_loopback_of_its_own_is_there_for_a_program_that_talks_to_itself(run: Run) -> None:
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()); print(1)"
    )
    ended = run(code, network=("namespace",))
    if ended.confinement.network is None:
        pytest.skip("this system does not let a program have a network of its own")
    assert ended.tail == b"1\n"


def test_threads_files_and_cores_are_limited_by_the_system_too(run: Run) -> None:
    code = (
        "import resource as r; print([r.getrlimit(getattr(r, 'RLIMIT_' + n))[0] for n in ('NPROC', 'FSIZE', 'CORE')])"
    )
    ended = run(code)
    if ended.confinement.network != "namespace":
        pytest.skip("threads are counted for the whole user where there is no namespace")
    assert ended.tail == b"[4096, 1073741824, 0]\n"


def test_the_engine_is_the_first_to_go_when_memory_runs_out(run: Run) -> None:
    assert run("print(open('/proc/self/oom_score_adj').read())").tail.strip() == b"1000"


def test_a_setuid_program_gains_nothing(run: Run) -> None:
    ended = run("print(open('/proc/self/status').read())")
    assert b"NoNewPrivs:\t1" in ended.tail


def test_what_does_not_start_is_an_error_of_its_own(tmp_path: Path, nothing_left: None) -> None:
    limits = ProcessLimits(folder=tmp_path, seconds=5, confined=False)
    with pytest.raises(CannotStart, match="No such file"):
        run_engine((str(tmp_path / "llama-bench"),), {}, limits, lambda _: None, lambda: None)
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    with pytest.raises(CannotStart, match="Exec format error"):
        run_engine((str(tmp_path / "text"),), {}, limits, lambda _: None, lambda: None)


def test_what_is_in_force_is_found_by_trying(tmp_path: Path, nothing_left: None) -> None:
    found = confinement(tmp_path)
    assert found.network in ("namespace", "seccomp", None)
    assert found.files in ("landlock", None)


_AGENT = """
import sys
from pathlib import Path
from workers.agent.process import ProcessLimits, run_engine
folder = Path(sys.argv[1])
python = (Path({base!r}), Path({prefix!r}))
limits = ProcessLimits(folder=folder, seconds=100, readable=python, record=folder / "engine.json", confined=False)
code = "import os, time; os.fork(); print(os.getpid(), flush=True); time.sleep(100)"
show = lambda chunk: print(chunk.decode(), flush=True)
run_engine((sys.executable, "-S", "-c", code), {{}}, limits, show, lambda: None)
"""


def _agent(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    code = _AGENT.format(base=sys.base_prefix, prefix=sys.prefix)
    agent = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True)
    assert agent.stdout
    found: list[int] = []
    while len(found) < 2:
        found += map(int, agent.stdout.readline().split())
    return agent, found


def _ends(pid: int) -> bool:
    until = time.monotonic() + PATIENCE
    while psutil.pid_exists(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not psutil.pid_exists(pid)


def test_the_engine_ends_with_an_agent_that_is_killed(tmp_path: Path, nothing_left: None) -> None:
    agent, engines = _agent(tmp_path)
    agent.kill()
    agent.communicate()
    assert all(map(_ends, engines))


def test_what_a_killed_agent_and_guard_left_is_ended_by_the_next_start(
    tmp_path: Path, nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_GRACE_SECONDS", 0.3)
    agent, engines = _agent(tmp_path)
    guard = psutil.Process(agent.pid).children()[0]
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    try:
        guard.suspend()  # it cannot do what it is there for
        agent.kill()
        agent.communicate()
        assert all(psutil.pid_exists(pid) for pid in engines)
        assert end_leftovers(tmp_path / "engine.json") == 3
        assert all(map(_ends, engines))
        assert stranger.poll() is None
        assert not (tmp_path / "engine.json").exists()
    finally:
        stranger.kill()
        stranger.wait()


def test_a_guard_that_is_killed_takes_the_run_with_it(run: Run) -> None:
    def stop() -> None:
        for child in psutil.Process().children():
            if "guard.py" in " ".join(child.cmdline()):  # others' servers are children of this process too
                child.kill()

    code = (
        "import os, time\nif os.fork() == 0: os.setsid()\nwhile True: print(os.getpid(), flush=True); time.sleep(0.01)"
    )
    ended = run(code, stop=stop)
    assert (ended.exit_status, ended.signal, ended.stopped_why, ended.timed_out) == (None, None, None, False)
    assert all(map(_ends, set(map(int, ended.tail.split()))))


def test_a_number_that_another_process_has_now_is_left_alone(tmp_path: Path) -> None:
    record = tmp_path / "engine.json"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    record.write_text(f'{{"pid": {os.getpid()}, "started": 1, "boot": "{boot}", "mark": "{"0" * 32}"}}')
    assert end_leftovers(record) == 0
    assert not record.exists()


def test_a_note_that_cannot_be_read_ends_nothing(tmp_path: Path) -> None:
    record = tmp_path / "engine.json"
    assert end_leftovers(record) == 0
    record.write_text("no note")
    assert end_leftovers(record) == 0
