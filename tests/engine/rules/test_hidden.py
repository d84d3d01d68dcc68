"""Cards that a command hides, where they would make it fit or faster."""

from __future__ import annotations

import re

import pytest

from service.engine.catalogue import resolve
from service.engine.check.run import check
from service.engine.commands.changes import ALL_FOR_THE_CONTAINER
from service.engine.finding import Finding
from service.engine.hardware_text import parse_hardware
from tests.models import build

GPT_OSS = build("gpt-oss-120b", "exps=mxfp4,*=q8_0")
DENSE = build("Llama-3.3-70B", "q4_K_M")
TWO_3090 = "2x RTX 3090, 7950X, 128GB"


def hidden(command: str, hardware: str = TWO_3090, dense: bool = False) -> list[Finding]:
    report = check(command, "llama.cpp", DENSE if dense else GPT_OSS, resolve(parse_hardware(hardware)))
    return [one for one in report.findings if one.rule == "card-hidden"]


def test_a_hidden_card_with_which_everything_fits_is_told_with_its_speed() -> None:
    command = "llama-server -m x.gguf --device CUDA0 -ngl 99 -c 16384"
    (found,) = hidden(command, "2x L40S, EPYC 9354, 384GB")
    assert (found.severity, found.message) == ("info", "NVIDIA L40S is hidden by --device CUDA0")
    assert found.fix == "leave out --device"
    assert re.fullmatch(r"fits: PP [\d,]+, TG 1[23]\d\.\d t/s", found.gain or "")
    assert hidden(command.replace("CUDA0", "CUDA0,CUDA1"), "2x L40S, EPYC 9354, 384GB") == []


@pytest.mark.parametrize("options", ["-ngl 99 -ncmoe 26", "-ngl 99"])
def test_experts_that_have_room_on_a_hidden_card_are_part_of_the_change(options: str) -> None:
    (found,) = hidden(f"CUDA_VISIBLE_DEVICES=1 llama-server -m x.gguf -c 16384 {options}")
    assert found.fix
    assert found.fix.startswith("CUDA_VISIBLE_DEVICES=1,0 before the command; -ot 'blk")
    assert "TG" in (found.gain or "")


def test_layers_in_ram_go_to_a_hidden_card() -> None:
    (found,) = hidden("llama-server -m x.gguf -c 8192 -ngl 20 -dev CUDA1 -ts 1", dense=True)
    assert found.fix == "leave out -dev; leave out -ts; -ngl 999"


@pytest.mark.parametrize(
    ("command", "hardware"),
    [
        ("CUDA_VISIBLE_DEVICES=0 llama-server -m x.gguf -c 8192 -ngl 99", "2x RTX PRO 6000, EPYC 9354, 384GB"),
        ("CUDA_VISIBLE_DEVICES= llama-server -m x.gguf -c 8192", TWO_3090),  # no GPU is wanted
        ("CUDA_VISIBLE_DEVICES=0,1 llama-server -m x.gguf -c 8192 -ngl 99 -cmoe", TWO_3090),
        ("docker run --gpus all ghcr.io/ggml-org/llama.cpp:server-cuda -m x.gguf -ngl 99 -cmoe", TWO_3090),
        ("docker run --gpus device=0 ghcr.io/ggml-org/llama.cpp:server-cuda -m x.gguf -ngl 99", "2x RTX PRO 6000"),
        ("llama-server -m x.gguf -c 8192 -ngl 99 -sm none", "2x RTX PRO 6000, EPYC 9354, 384GB"),
    ],
)
def test_nothing_is_said_where_no_card_is_hidden_or_one_gains_nothing(command: str, hardware: str) -> None:
    assert hidden(command, hardware) == []


@pytest.mark.parametrize(
    ("given", "hardware", "count", "shown"),
    [
        ("--gpus device=0", "2x L40S, EPYC 9354, 384GB", "", "0"),
        ("--gpus '\"device=0,1\"'", "4x RTX 3090, 7950X, 128GB", "2x ", "0,1"),
        ("--gpus 2", "4x RTX 3090, 7950X, 128GB", "2x ", "0,1"),
        ("--device nvidia.com/gpu=1", "2x L40S, EPYC 9354, 384GB", "", "1"),
    ],
)
def test_cards_that_a_container_is_not_given_are_hidden(given: str, hardware: str, count: str, shown: str) -> None:
    (found,) = hidden(f"docker run {given} ghcr.io/ggml-org/llama.cpp:server-cuda -m x.gguf -ngl 99", hardware)
    assert found.message.startswith(f"{count}NVIDIA ")
    assert found.message.endswith(f" hidden by the container, which is given GPU {shown}")
    assert found.fix == ALL_FOR_THE_CONTAINER
    assert (found.gain or "").startswith("fits: ")


def test_experts_go_to_a_card_that_a_container_is_not_given() -> None:
    (found,) = hidden("docker run --gpus device=0 ghcr.io/ggml-org/llama.cpp:server-cuda -m x.gguf -ngl 99 -cmoe")
    assert (found.fix or "").startswith(f"{ALL_FOR_THE_CONTAINER}; -ot 'blk")


@pytest.mark.parametrize(
    ("options", "by", "fix"),
    [
        ("-sm none", "-sm none", "-sm layer"),
        ("-sm none -mg 1", "-sm none", "-sm layer"),
        ("-sm none -dev CUDA1", "-dev CUDA1 and -sm none", "leave out -dev; -sm layer"),
    ],
)
def test_a_card_that_stays_idle_without_a_split_is_hidden(options: str, by: str, fix: str) -> None:
    (found,) = hidden(f"llama-server -m x.gguf -ngl 99 -c 16384 {options}", "2x L40S, EPYC 9354, 384GB")
    assert (found.message, found.fix) == (f"NVIDIA L40S is hidden by {by}", fix)
    assert (found.gain or "").startswith("fits: ")


def test_a_corrected_command_leaves_a_card_hidden() -> None:
    command = "CUDA_VISIBLE_DEVICES=0 llama-server -m x.gguf -c 16384 -ngl 99 -ncmoe 26"
    report = check(command, "llama.cpp", GPT_OSS, resolve(parse_hardware(TWO_3090)))
    assert report.fixed
    assert report.fixed.startswith("CUDA_VISIBLE_DEVICES=0 llama-server")


def test_room_for_copies_of_experts_is_made_by_moving_one_more_layer() -> None:
    report = check("llama-server -m x.gguf -c 16384 -ngl 99", "llama.cpp", GPT_OSS, resolve(parse_hardware(TWO_3090)))
    small = [one for one in report.findings if one.rule == "does-not-fit"]
    assert len(small) == 2
    assert all(one.fix and one.gain and one.fix.startswith("-ot 'blk") and "TG 5" in one.gain for one in small)
