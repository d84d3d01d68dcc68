"""The owner and other programs come first: a run does not start alongside them, and ends when they come."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.workers.agent.scripted_gpus import GIB, ScriptedGpus, cuda, display, idle
from workers.agent.policy import Policy
from workers.agent.probe import GpuNow
from workers.agent.watch import Halt, Sampler, Watch

STRANGER = 1  # init is never below this program
NO_LIMITS = Policy()
UNKNOWN = 4_100_000  # no process has a number beyond pid_max's largest, 4,194,304; this one is free


@pytest.fixture
def child() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def watch(tmp_path: Path, *looks: GpuNow, policy: Policy = NO_LIMITS, hour: int = 12) -> Watch:
    gpus = ScriptedGpus(*([look] for look in looks)) if looks else ScriptedGpus(count=0)
    return Watch(gpus, [0], policy, tmp_path / "pause", lambda: datetime(2026, 11, 21, hour))


def why(halt: Halt | None) -> str | None:
    return f"{halt.kind}: {halt.why}" if halt else None


def test_an_idle_machine_is_free(tmp_path: Path) -> None:
    for at in (watch(tmp_path), watch(tmp_path, idle())):
        assert at.before() is None
        assert at.during() is None


def test_nothing_starts_while_a_cuda_program_is_on_a_card_whatever_it_holds(tmp_path: Path) -> None:
    for used in (0, None, 20 * GIB):
        at = watch(tmp_path, idle(processes=(cuda(STRANGER, used),)))
        assert why(at.before()) == "gave_way: another program uses GPU 0"
    assert watch(tmp_path, idle(processes=(cuda(UNKNOWN),))).before() is not None


def test_a_display_may_be_there_up_to_the_owners_share_of_the_card(tmp_path: Path) -> None:
    small = idle(used=1100 << 20, processes=(display(STRANGER, GIB),))
    assert watch(tmp_path, small).before() is None
    large = idle(used=1300 << 20, processes=(display(STRANGER, GIB),))
    assert why(watch(tmp_path, large).before()) == "gave_way: other programs hold 1300 MiB of GPU 0, over 5 %"
    assert watch(tmp_path, large, policy=Policy(foreign_mib_percent=10)).before() is None


def test_what_the_driver_holds_is_nobodys(tmp_path: Path) -> None:
    assert watch(tmp_path, idle(used=40 << 20), policy=Policy(foreign_mib_percent=0)).before() is None


def test_a_run_gives_way_to_a_cuda_program_that_begins(tmp_path: Path) -> None:
    at = watch(tmp_path, idle(), idle(), idle(processes=(cuda(STRANGER),)))
    assert at.before() is None
    assert at.during() is None
    assert why(at.during()) == "gave_way: another program began to use GPU 0"


def test_a_run_gives_way_to_a_game_but_not_to_the_display_that_was_there(tmp_path: Path) -> None:
    desktop = idle(used=GIB, processes=(display(STRANGER, GIB),))
    at = watch(tmp_path, desktop, idle(used=20 * GIB, processes=(display(STRANGER, GIB), cuda(os.getpid(), 19 * GIB))))
    assert at.before() is None
    assert at.during() is None
    game = watch(tmp_path, desktop, idle(processes=(display(STRANGER, 6 * GIB),)))
    assert game.before() is None
    assert why(game.during()) == "gave_way: other programs hold 6144 MiB of GPU 0, over 5 %"


def test_the_engine_itself_and_what_it_started_are_ours(tmp_path: Path, child: int) -> None:
    at = watch(tmp_path, idle(), idle(used=20 * GIB, processes=(cuda(child, 20 * GIB), cuda(os.getpid()))))
    assert at.before() is None
    assert at.during() is None


def test_in_a_container_a_number_that_is_not_known_here_may_be_the_engines_own(tmp_path: Path) -> None:
    at = watch(tmp_path, idle(), idle(processes=(cuda(UNKNOWN, 20 * GIB),)))
    assert at.before() is None
    assert at.during() is None


def test_the_owner_pauses_and_sets_hours(tmp_path: Path) -> None:
    policy = Policy(hours=("22:00-07:00",))
    assert watch(tmp_path, idle(), policy=policy, hour=23).before() is None
    assert why(watch(tmp_path, idle(), policy=policy, hour=12).during()) == (
        "gave_way: outside the hours of this host (22:00-07:00)"
    )
    (tmp_path / "pause").touch()
    assert why(watch(tmp_path, idle()).during()) == "gave_way: this host is paused by its owner"
    assert watch(tmp_path).before() is not None


def test_a_run_stops_at_the_owners_temperature_and_power(tmp_path: Path) -> None:
    hot = watch(tmp_path, idle(temperature=91))
    assert hot.before() is None
    assert why(hot.during()) == "stopped: GPU 0 has 91 °C, over the owner's 90"
    policy = Policy(max_watts=300)
    assert watch(tmp_path, idle(watts=299.9), policy=policy).during() is None
    assert why(watch(tmp_path, idle(watts=310.4), policy=policy).during()) == (
        "stopped: GPU 0 takes 310 W, over the owner's 300"
    )


def test_peaks_and_mean_power_are_what_a_run_took_beyond_what_was_there() -> None:
    looks = [[idle(used=GIB)], [idle(used=9 * GIB, watts=100.0)], [idle(used=3 * GIB, watts=300.0)]]
    with Sampler(ScriptedGpus(*looks), [0], period=0.001) as sampler:
        while len(sampler.latest) == 0 or sampler.latest[0].watts != 300:
            pass
        sampler._end.set()
    (use,) = sampler.uses([0], ["CUDA0"])
    assert (use.device, use.peak_mib) == ("CUDA0", 8 << 10)
    assert use.watts is not None
    assert 200 <= use.watts < 300


def test_a_machine_without_cards_has_nothing_to_sample() -> None:
    with Sampler(ScriptedGpus(count=0), [0]) as sampler:
        pass
    assert sampler.uses([0], ["CUDA0"]) == ()
