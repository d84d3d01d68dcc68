"""When two requests ask the same, and when they do not."""

from typing import Any

import msgspec
import pytest

from service.engine.errors import InvalidInput
from service.engine.goal import Constraints, GoalRequest
from service.engine.hardware import Gpu, Hardware
from service.flows.advice.requests import parse_request, request_key
from service.wire.advice.advice import AdviceRequest

SHA = "0123456789abcdef0123456789abcdef01234567"
BASE = AdviceRequest(repo="owner/name-GGUF", hardware="RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600")


def key(commit: str | None = None, /, **changes: Any) -> str:
    return request_key(parse_request(msgspec.structs.replace(BASE, **changes)), commit)


@pytest.mark.parametrize(
    "changes",
    [
        {"repo": "https://huggingface.co/owner/name-GGUF"},
        {"repo": "hf.co/owner/name-GGUF"},
        {"hardware": "Ryzen 9 7950X + 1x RTX 3090 + 128GB DDR5-5600"},
    ],
)
def test_the_same_in_other_words_has_the_same_key(changes: dict[str, Any]) -> None:
    assert key(**changes) == key()


@pytest.mark.parametrize(
    "changes",
    [
        {"repo": "owner/other-GGUF"},
        {"repo": "owner/name-GGUF:Q4_K_M"},
        {"repo": "https://huggingface.co/owner/name-GGUF/blob/main/x-Q4_K_M.gguf"},
        {"hardware": "RTX 4090, Ryzen 9 7950X, 128GB DDR5-5600"},
        {"hardware": Hardware(gpus=[])},
        {"goal": GoalRequest(preset="agent")},
        {"constraints": Constraints(max_bpw=5.0)},
        {"constraints": Constraints(current_command="llama-server -m x-Q4_K_M.gguf")},
        {"constraints": Constraints(current_command="llama-server -m x-Q4_K_M.gguf", current_engine="ik_llama.cpp")},
        {"revision": "dev"},
        {"what_if": ["+1 RTX 3090"]},
        {"constraints": Constraints(keep_flags=["-ub 512"])},
    ],
)
def test_anything_that_changes_the_answer_changes_the_key(changes: dict[str, Any]) -> None:
    assert key(**changes) != key()


def test_finished_advice_is_keyed_by_the_commit_whatever_the_branch_was_called() -> None:
    assert key(SHA, revision="dev") == key(SHA)
    assert key(SHA) != key(SHA.replace("0", "1"))


def test_an_understood_request_is_understood_the_same_again() -> None:
    once = parse_request(BASE)
    assert parse_request(once.canonical) == once
    assert parse_request(msgspec.convert(msgspec.to_builtins(once.canonical), AdviceRequest)) == once


def test_two_different_revisions_are_refused() -> None:
    url = "https://huggingface.co/owner/name-GGUF/tree/dev"
    assert parse_request(AdviceRequest(repo=url, hardware=Hardware(gpus=[Gpu(name="RTX 3090")]), revision="dev"))
    with pytest.raises(InvalidInput, match="leave one of them out") as raised:
        parse_request(AdviceRequest(repo=url, hardware=Hardware(gpus=[Gpu(name="RTX 3090")]), revision="main"))
    assert raised.value.field == "revision"


@pytest.mark.parametrize("revision", ["../..", "a b", "x" * 200])
def test_a_revision_that_cannot_be_is_refused(revision: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse_request(msgspec.structs.replace(BASE, revision=revision))
    assert raised.value.field == "revision"


def test_a_presets_name_is_the_same_goal_as_its_object() -> None:
    by_name = parse_request(msgspec.structs.replace(BASE, goal="agent"))
    assert by_name.goal == GoalRequest(preset="agent")
    assert by_name == parse_request(msgspec.structs.replace(BASE, goal=GoalRequest(preset="agent")))


def test_a_command_that_cannot_be_read_is_refused_before_anything_is_read() -> None:
    with pytest.raises(InvalidInput) as raised:
        key(constraints=Constraints(current_command="faster please"))
    assert raised.value.field == "constraints.current_command"


def test_a_command_in_use_is_kept_without_secrets_and_places() -> None:
    command = "HF_TOKEN=hf_abcdefghijklmnopqrst llama-server -m /home/alice/x-Q4_K_M.gguf --api-key s3cret -ngl 99"
    asked = msgspec.structs.replace(
        BASE,
        constraints=Constraints(current_command=command),
        hardware=Hardware(gpus=[Gpu(name="RTX 3090")], notes="alice@bigrig:~$ nvidia-smi"),
    )
    kept = msgspec.json.encode(parse_request(asked).canonical).decode()
    assert [secret for secret in ("alice", "bigrig", "s3cret", "hf_abc", "/home") if secret in kept] == []
    assert "x-Q4_K_M.gguf" in kept
    assert "-ngl 99" in kept


@pytest.mark.parametrize(
    "constraints",
    [
        Constraints(variants=["Q4_K_M\x00"]),
        Constraints(current_command="llama-server -m x.gguf --alias a\x00b"),
        Constraints(models_dir="C:\\models" + 500 * "\\" + "\x00"),
    ],
)
def test_a_text_with_a_nul_is_refused_before_a_database_meets_it(constraints: Constraints) -> None:
    with pytest.raises(InvalidInput, match="NUL"):
        key(constraints=constraints)


def test_a_backslash_before_u0000_is_no_nul() -> None:
    assert key(constraints=Constraints(models_dir=r"C:\u0000models"))
