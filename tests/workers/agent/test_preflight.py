"""Before a run everything is looked at again: the program's hash, the files' headers, the cards that are allowed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from service.wire.measuring.agent import RunDocument
from tests.workers.agent.machines import CARDS, SHARDS, look_again, make_machine
from workers.agent.local import Machine
from workers.agent.policy import EnginePolicy, Policy
from workers.agent.preflight import Declined, are_confirmed, cards_of, prepare


@pytest.fixture
def made(tmp_path: Path) -> tuple[Machine, RunDocument]:
    return make_machine(tmp_path)


def refusal(document: RunDocument, machine: Machine, policy: Policy | None = None) -> Any:
    with pytest.raises(Declined) as caught:
        prepare(document, machine, policy or Policy())
    return caught.value.failure


def test_a_run_gets_the_newest_build_its_files_in_order_and_its_cards(made: tuple[Machine, RunDocument]) -> None:
    machine, document = made
    prepared = prepare(document, machine, Policy())
    assert prepared.program == machine.engines[0]
    assert tuple(path.name for path in prepared.files) == SHARDS
    assert cards_of(document, machine.gpus, Policy()) == [CARDS[1], CARDS[0]]


def test_content_is_confirmed_only_where_its_hash_is_known(made: tuple[Machine, RunDocument]) -> None:
    machine, document = made
    assert not are_confirmed(document, machine.models)
    known = [
        replace(model, file=replace(model.file, sha256=file.sha256))
        for model, file in zip(machine.models, document.files, strict=True)
    ]
    assert are_confirmed(document, known)
    assert not are_confirmed(document, known[:1])


def test_a_build_that_the_run_was_not_made_for_is_missing(made: tuple[Machine, RunDocument]) -> None:
    machine, document = made
    assert refusal(replace(document, engine_builds=("0" * 64,)), machine).kind == "engine_missing"
    assert refusal(replace(document, engine="llama.cpp"), machine).kind == "engine_missing"


def test_a_program_that_was_exchanged_is_not_run(made: tuple[Machine, RunDocument]) -> None:
    machine, document = made
    machine.engines[0].path.write_text("#!/bin/sh\nrm -rf ~\n")
    failure = refusal(document, machine)
    assert (failure.kind, failure.transient) == ("engine_missing", True)
    machine.engines[0].path.unlink()
    assert refusal(document, machine).kind == "engine_missing"


def test_the_policy_has_the_last_word_over_builds_and_cards(made: tuple[Machine, RunDocument]) -> None:
    machine, document = made
    only_other = Policy(engines=EnginePolicy(sha256=("f" * 64,)))
    assert refusal(document, machine, only_other).kind == "refused_by_policy"
    assert "GPU 1" in refusal(document, machine, Policy(gpus=(0,))).text
    prepare(document, machine, Policy(gpus=(0, CARDS[1].uuid or "")))


@pytest.mark.parametrize("gpus", [(2,), (0, 0), (15, 1)])
def test_cards_that_are_not_there_are_refused(made: tuple[Machine, RunDocument], gpus: tuple[int, ...]) -> None:
    machine, document = made
    assert refusal(replace(document, gpus=gpus), machine).kind == "refused_by_policy"


def test_a_shard_that_is_missing_or_of_another_size_or_content_is_missing(made: tuple[Machine, RunDocument]) -> None:
    machine, document = made
    first, second = document.files
    for other in (replace(second, size=second.size + 1), replace(second, path="Q4/other.gguf")):
        assert refusal(replace(document, files=(first, other)), machine).kind == "model_missing"
    known = [replace(model, file=replace(model.file, sha256="0" * 64)) for model in machine.models]
    failure = refusal(document, replace(machine, models=tuple(known)))
    assert (failure.kind, failure.transient) == ("model_missing", False)
    assert "other files of that name are" in failure.text
    assert "other files" not in refusal(document, replace(machine, models=())).text


def test_shards_of_two_folders_are_no_model(made: tuple[Machine, RunDocument], tmp_path: Path) -> None:
    machine, document = made
    (tmp_path / "models" / "other").mkdir()
    shutil.move(tmp_path / "models" / "Q4" / SHARDS[1], tmp_path / "models" / "other" / SHARDS[1])
    assert refusal(document, look_again(machine, tmp_path)).kind == "model_missing"


def test_of_two_copies_the_confirmed_one_is_taken(made: tuple[Machine, RunDocument], tmp_path: Path) -> None:
    machine, document = made
    shutil.copytree(tmp_path / "models" / "Q4", tmp_path / "models" / "Z")
    machine = look_again(machine, tmp_path)
    contents = {file.path.rpartition("/")[2]: file.sha256 for file in document.files}
    models = tuple(
        replace(model, file=replace(model.file, sha256=contents[model.path.name])) if "Z" in model.path.parts else model
        for model in machine.models
    )
    assert all("Z" in path.parts for path in prepare(document, replace(machine, models=models), Policy()).files)


def test_a_file_whose_header_changed_is_not_opened_by_an_engine(
    made: tuple[Machine, RunDocument], tmp_path: Path
) -> None:
    machine, document = made
    path = tmp_path / "models" / "Q4" / SHARDS[1]
    path.write_bytes(b"GGUF" + b"\xff" * (path.stat().st_size - 4))
    failure = refusal(document, machine)
    assert (failure.kind, failure.transient) == ("model_missing", True)
