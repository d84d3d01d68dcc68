"""The owner's limits of a day and of RAM: counted while a run goes on, kept across restarts, never begun again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from service.engine.run_flags import RunFlags
from tests.workers.agent.machines import make_machine
from tests.workers.agent.scripted_gpus import ScriptedGpus, idle
from tests.workers.agent.test_measure import Run, model, run
from workers.agent.errors import HostError
from workers.agent.policy import Policy
from workers.agent.preflight import Declined, prepare
from workers.agent.state import State
from workers.agent.usage import USAGE, UsageOfDay

__all__ = ["model", "run"]

NOON = datetime(2026, 11, 22, 12, 30, tzinfo=UTC)


@pytest.fixture
def state(tmp_path: Path) -> State:
    state = State(tmp_path / "usage")
    state.make()
    return state


def test_a_day_is_the_last_24_hours_and_outlasts_a_restart(state: State) -> None:
    UsageOfDay(state, lambda: NOON).add("gpu_seconds", 1)  # an agent that is killed before it is on the disk
    first = UsageOfDay(state, lambda: NOON)
    first.add("gpu_seconds", 3600)
    first.add("joules", 7.2e6)
    first.save()
    assert UsageOfDay(state, lambda: NOON + timedelta(hours=23)).total().gpu_seconds == 3600
    later = UsageOfDay(state, lambda: NOON + timedelta(hours=25))
    assert later.total().gpu_seconds == later.total().joules == 0


def test_what_was_used_by_a_clock_that_was_days_ahead_does_not_count_for_ever(state: State) -> None:
    ahead = UsageOfDay(state, lambda: NOON + timedelta(days=400))  # a board without a battery, before it knew the time
    ahead.add("gpu_seconds", 3600)
    ahead.save()
    assert UsageOfDay(state, lambda: NOON).total().gpu_seconds == 0
    assert UsageOfDay(state, lambda: NOON + timedelta(days=399, hours=6)).total().gpu_seconds == 3600  # hours off


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (Policy(), None),
        (Policy(max_gpu_hours_per_day=2), None),
        (Policy(max_gpu_hours_per_day=1), "its 1 GPU-hours for a day are used up"),
        (Policy(max_kwh_per_day=2), "its 2 kWh for a day are used up"),
        (Policy(max_kwh_per_day=2.1), None),
    ],
)
def test_gpu_hours_and_energy_are_held_to_the_owners_limits(state: State, policy: Policy, says: str | None) -> None:
    usage = UsageOfDay(state, lambda: NOON)
    usage.add("gpu_seconds", 3600)
    usage.add("joules", 7.2e6)
    assert usage.why_over(policy) == says


def test_what_was_noted_and_cannot_be_read_is_no_empty_day(state: State) -> None:
    state.write(USAGE, b"{")
    with pytest.raises(HostError, match=USAGE):
        UsageOfDay(state)


def test_a_run_gives_way_when_the_days_gpu_hours_are_used_and_is_counted(run: Run, state: State) -> None:
    cards = ScriptedGpus([idle(watts=300.0)])
    most = Policy(max_gpu_hours_per_day=0.2 / 3600)
    found = run("ok", policy=most, watched=cards, changed={"gpus": (0,)}, usage=UsageOfDay(state), delay=1)
    assert found.failure is not None
    assert (found.failure.kind, found.failure.transient) == ("gave_way", True)
    used = UsageOfDay(state).total()
    assert 0.2 <= used.gpu_seconds < 10
    assert 0 < used.joules <= 300 * (used.gpu_seconds + 1)


def test_a_run_ends_when_its_engine_holds_more_ram_than_the_owner_gives(run: Run) -> None:
    found = run("hang", policy=Policy(max_ram_gib=1e-3))
    assert found.failure is not None
    assert found.failure.kind == "stopped"
    assert "GiB of RAM, over the owner's 0.001" in found.failure.text


@pytest.mark.parametrize(
    ("flags", "refused"),
    [({"threads": 16}, False), ({"threads": 17}, True), ({"threads": 8, "threads_batch": 32}, True), ({}, True)],
)
def test_a_run_that_computes_with_more_threads_than_the_owner_gives_is_refused(
    flags: dict[str, Any], refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 64)  # what an engine takes that is told no number
    machine, document = make_machine(tmp_path)
    document = replace(document, flags=RunFlags(n_ctx=4096, n_ubatch=512, **flags))
    if not refused:
        assert prepare(document, machine, Policy(max_threads=16))
        return
    with pytest.raises(Declined, match="allows 16 threads"):
        prepare(document, machine, Policy(max_threads=16))
