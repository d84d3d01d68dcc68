"""How a benchmark program ended, said in one sentence: recorded failures of both engines, some written after source."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.config import Engine
from service.engine.measured.classify import Failure, FailureKind, classify
from tests.engine_replay import failure, failures


def classified(one: dict[str, Any]) -> Failure:
    found = classify(one["exit_status"], one["signal"] or None, False, one["stdout"] + one["stderr"], one["engine"])
    assert found is not None
    return found


@pytest.mark.parametrize("one", failures(), ids=lambda one: one["id"])
def test_every_recorded_failure_is_recognised(one: dict[str, Any]) -> None:
    found = classified(one)
    assert (found.kind, found.transient, found.device, found.needed_mib) == (
        one["kind"], one["transient"], one["device"], one["needed_mib"],
    )  # fmt: skip


SENTENCES = {
    "ik-cuda-kv": "does not fit: needed 21,882 MiB more on CUDA0 for the cache",
    "llama-cuda-weights": "does not fit: needed 30,692 MiB more on CUDA0 for the weights, at least 6,587 MiB more than "
    "was free",
    "ik-cuda-compute": "does not fit: needed 9,624 MiB more on CUDA1 for compute buffers",
    "ik-cuda-pool": "does not fit: memory on CUDA1 ran out",
    "llama-ram-kv": "does not fit: needed 43,764 MiB more RAM for the cache",
    "ik-unknown-flag": "this build of ik_llama.cpp does not know -fmoe",
    "llama-bad-override": "this build of llama.cpp does not accept -ot as it was given",
    "llama-unknown-type": "llama.cpp does not know type 144 of tensor token_embd.weight: a quantisation of "
    "another engine or build",
    "ik-unknown-architecture": "this build of ik_llama.cpp does not know models of architecture qwenX",
    "ik-assert": "it crashed at common.cpp:4780: GGML_ASSERT(batch.seq_id[batch.n_tokens] && "
    '"llama_batch size exceeded") failed',
    "ik-graph-one-device": "ik_llama.cpp refused: It is not possible to use split mode 'graph' with less than 2 "
    "devices",
    "ik-cut-data": "the model's file is damaged, cut off or of another kind: tensor 'token_embd.weight' data is not "
    "within the file bounds",
    "ik-unknown-type": "ik_llama.cpp crashed in the model's header, as it does on a tensor type that it does not know",
    "llama-tensor-not-there": "the model's file is damaged, cut off or of another kind: tensor "
    "'blk.3.attn_k.weight' not found",
    "llama-quiet": "llama-bench could not create context and does not say why without -v",
    "illegal": "it used an instruction that this CPU lacks: it was built for another CPU",
}


@pytest.mark.parametrize("name", SENTENCES)
def test_the_sentence_says_what_was_wrong(name: str) -> None:
    assert classified(failure(name)).text == SENTENCES[name]


def test_what_ended_well_is_no_failure_unless_nothing_was_measured() -> None:
    assert classify(0, None, False, "", "llama.cpp", n_rows=4) is None
    found = classify(0, None, False, "", "llama.cpp")
    assert found is not None
    assert found.kind == "no_output"


def test_a_crash_after_rows_is_a_failure_all_the_same() -> None:
    found = classify(None, 11, False, "| 512 | 128 |", "ik_llama.cpp", n_rows=3)
    assert found is not None
    assert (found.kind, found.transient) == ("crashed", False)


def test_what_did_not_end_in_its_time_hung() -> None:
    found = classify(None, 9, True, "", "llama.cpp")
    assert found is not None
    assert (found.kind, found.text) == ("hung", "it printed no row within the time limit")


def test_a_program_that_was_killed_may_be_tried_again() -> None:
    killed = classify(None, 9, False, "", "llama.cpp")
    assert killed is not None
    assert (killed.kind, killed.transient) == ("crashed", True)


def test_a_wrapper_that_passes_on_a_signal_as_a_status_is_understood() -> None:
    assert classify(139, None, False, "", "llama.cpp") == classify(None, 11, False, "", "llama.cpp")


def test_a_buffer_that_was_tried_again_and_went_well_is_not_the_cause() -> None:
    tried = failure("ik-cuda-compute")["stderr"].partition("retrying")[0]
    went_well = "llama_init_from_model:      CUDA0 compute buffer size =   300.75 MiB\n"
    words = tried + "retrying without pipeline parallelism\n" + went_well + failure("ik-assert")["stderr"]
    found = classify(None, 6, False, words, "ik_llama.cpp")
    assert found is not None
    assert found.kind == "crashed"


def test_what_nobody_knows_is_told_in_its_own_words_without_control_characters() -> None:
    found = classify(3, None, False, "so\x1b[31m far\u202e so good\n\n", "llama.cpp")
    assert found is not None
    assert found.text == "it exited with status 3, and last printed: so [31m far so good"


def test_every_kind_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "measuring.md").read_text()
    assert [kind for kind in get_args(FailureKind) if f"`{kind}`" not in page] == []


ENGINES: tuple[Engine, ...] = ("ik_llama.cpp", "llama.cpp")
PIECES = st.sampled_from([line for one in failures() for line in one["stderr"].splitlines()]) | st.text()


@pytest.mark.full
@given(st.lists(PIECES, max_size=30), st.sampled_from(ENGINES), st.integers(0, 255), st.none() | st.integers(1, 64))
def test_whatever_was_printed_there_is_one_bounded_sentence(
    lines: list[str], engine: Engine, status: int, signal: int | None
) -> None:
    found = classify(None if signal else status, signal, False, "\n".join(lines), engine)
    assert found is not None
    assert 0 < len(found.text) <= 500
    assert found.text.isprintable()


@pytest.mark.parametrize(
    "line",
    ["error loading model: " + "tensor '" * 100, "failed to allocate " * 50, "a.cpp:1: " * 110, "x" * 990, " " * 990],
)
def test_hostile_lines_take_no_time(line: str) -> None:
    started = time.process_time()
    classify(1, None, False, f"{line}\n" * 5_000, "ik_llama.cpp")
    assert time.process_time() - started < 3
