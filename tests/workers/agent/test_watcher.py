"""The machine is described again where it may have changed, and its models are hashed while nothing runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from service.engine.hardware import Hardware
from tests.workers.agent.machines import make_machine
from tests.workers.agent.scripted_gpus import ScriptedGpus
from workers.agent import watcher
from workers.agent.local import Machine
from workers.agent.models import find_models
from workers.agent.policy import EnginePolicy, ModelPolicy, Policy
from workers.agent.watcher import Watcher


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Hardware | None]:
    """What hardware was known at each description; engines are those of a made machine."""
    known: list[Hardware | None] = []
    machine, _ = make_machine(tmp_path)

    def describe(policy: Policy, gpus: Any, hashes: Any, *, hardware: Hardware | None) -> Machine:
        known.append(hardware)
        return replace(machine, models=find_models(policy, hashes))

    monkeypatch.setattr(watcher, "describe", describe)
    monkeypatch.setattr(watcher, "FRESH_SECONDS", 0.0)
    return known


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    engines = EnginePolicy(folders=(str(tmp_path / "bin"),))
    return Policy(engines=engines, models=ModelPolicy(folders=(str(tmp_path / "models"),)))


@pytest.fixture
def ending() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def watched(tmp_path: Path, ending: threading.Event) -> Watcher:
    (tmp_path / "state").mkdir()
    return Watcher(tmp_path / "state", ScriptedGpus(count=0), ending)


def _until(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.01)
    return is_so()


def test_it_is_described_again_where_policy_or_program_changed(
    watched: Watcher, policy: Policy, described: list[Hardware | None], tmp_path: Path
) -> None:
    watched.rest(False)
    watched.look(policy)
    watched.look(policy)
    assert described == [None]
    watched.look(replace(policy, max_minutes=5))
    assert len(described) == 2
    assert described[1] is not None
    (tmp_path / "bin" / "llama-sweep-bench").write_text("#!/bin/true another\n")
    watched.look(replace(policy, max_minutes=5))
    assert len(described) == 3


def test_models_get_their_content_hash_in_time(
    watched: Watcher, policy: Policy, described: list[Hardware | None]
) -> None:
    assert _until(lambda: all(model.file.sha256 for model in watched.look(policy).models))
    assert [model.sha256 for model in watched.look(policy).probe.models] == [
        model.file.sha256 for model in watched.look(policy).models
    ]
    assert len(described) == 1


def test_nothing_is_hashed_while_a_run_has_the_machine(
    watched: Watcher, policy: Policy, described: list[Hardware | None]
) -> None:
    watched.rest(False)
    assert [model.file.sha256 for model in watched.look(policy).models] == [None, None]
    assert watched._thread is None
    watched.rest(True)
    watched.look(policy)
    assert watched._thread is not None


def test_a_pause_waits_between_blocks_and_the_end_does_not(watched: Watcher, ending: threading.Event) -> None:
    assert not watched._is_ending()
    watched.rest(False)
    threading.Timer(0.1, watched.rest, [True]).start()
    assert not watched._is_ending()
    watched.rest(False)
    ending.set()
    assert watched._is_ending()


def test_a_file_that_was_downloaded_is_known_by_its_content_at_once(
    watched: Watcher, policy: Policy, described: list[Hardware | None], tmp_path: Path
) -> None:
    watched.rest(False)
    first = watched.look(policy).models[0]
    watched.fetched({first.path: "5" * 64})
    assert watched.look(policy).models[0].file.sha256 == "5" * 64
