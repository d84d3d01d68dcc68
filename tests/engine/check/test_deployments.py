"""What is said of commands that other machines and containers take a part in."""

from __future__ import annotations

import msgspec
import pytest

from service.engine.catalogue import resolve
from service.engine.check.run import check
from service.engine.commands.parse import parse
from service.engine.hardware_text import parse_hardware
from tests.models import build

QWEN3 = build("Qwen3-0.6B", "q8_0")
RIG = resolve(parse_hardware("RTX 3090, RTX 3060, Ryzen 9 7950X, 64GB DDR5-5600"))


@pytest.mark.parametrize(
    "command",
    [
        # github.com/ggml-org/llama.cpp/issues/11435
        "./llama-server -m m.gguf -c 8192 -ngl 999 --rpc localhost:50052,localhost:50053,192.168.0.21:50052",
        "LLAMA_ARG_RPC=192.168.0.21:50052 llama-server -m m.gguf -c 8192",
        # after github.com/ggml-org/llama.cpp/pull/11397
        "llama-server -m m.gguf --rpc 192.168.1.112:50050 --device 'RPC[192.168.1.112:50050],CUDA0,CUDA1' "
        "--tensor-split 0,31,31 --override-tensor 'blk\\.([3-8])\\.ffn_up.*=RPC[192.168.1.112:50050]'",
    ],
)
def test_nothing_is_promised_or_advised_with_rpc_servers(command: str) -> None:
    report = check(command, "llama.cpp", QWEN3, RIG)
    assert report.verdict.startswith("Cannot say with RPC servers, which are not computed; on this machine alone: fits")
    assert [(one.rule, one.severity) for one in report.findings] == [("rpc-not-supported", "error")]
    assert report.fixed is None


# github.com/ggml-org/llama.cpp/issues/2535
def test_an_option_and_its_value_in_one_word_end_the_program() -> None:
    report = check("llama-server '-m m.gguf' -fa on -c 4096 '--parallel 1'", "llama.cpp", QWEN3, RIG)
    assert report.verdict.startswith("Does not start with today's build: `-m m.gguf` is one word")
    wrong = [one for one in report.findings if one.rule == "unknown-flag"]
    assert [one.fix for one in wrong] == ["each word apart: -m m.gguf", "each word apart: --parallel 1"]
    assert report.fixed is not None
    assert report.fixed.startswith("llama-server -m m.gguf -fa on -c 4096 --parallel 1")


# github.com/mostlygeek/llama-swap/issues/108: `>` makes one line of these, and the first comment ends the command.
def test_options_behind_a_comment_in_a_folded_command_are_told() -> None:
    swap = """models:
  "Qwen3-4B-Q4":
    cmd: >
      ./llama-server
      -m /models/Qwen_Qwen3-4B-Q4_K_M.gguf
      --port 9005
      --n-gpu-layers 999 # Or your desired offload amount
      --split-mode layer # Enable multi-GPU (if compiled with support)
      --ctx-size 32000 # Your desired context size
      --cache-type-k q8_0 # <--- ADD/CHANGE THIS
    proxy: http://127.0.0.1:9005
"""
    report = check(swap, "llama.cpp", QWEN3, RIG)
    (found,) = [one for one in report.findings if one.rule == "not-as-pasted"]
    assert found.message.startswith("`# Or your desired offload amount` begins a comment: the options behind it")
    plain = "llama-server -m m.gguf -c 8192  # as told\n# -ngl 20 --mlock\n"
    said = [one.rule for one in check(plain, "llama.cpp", QWEN3, RIG).findings]
    assert "not-as-pasted" not in said


@pytest.mark.parametrize(
    ("build", "value", "mapped"),
    [
        ("2025-10-01", "0", None),  # only 1 and its like turned it off
        ("2025-10-01", "1", False),
        ("2026-03-01", "0", False),  # github.com/ggml-org/llama.cpp/pull/17919: "no matter the value"
        ("2026-03-01", "false", False),
        (None, "1", None),  # gone
    ],
)
def test_a_variable_that_turns_an_option_off_counts_with_any_value(
    build: str | None, value: str, mapped: bool | None
) -> None:
    parsed = parse(f"LLAMA_ARG_NO_MMAP={value} llama-server -m m.gguf", "llama.cpp", build=build)
    assert parsed.flags.mmap is mapped
    assert parse("LLAMA_ARG_MMAP=off llama-server -m m.gguf", "llama.cpp", build="2026-03-01").flags.mmap is False


# github.com/ggml-org/llama.cpp/pull/27380 is for such lists: the engine says nothing of a variable that it has no more.
def test_a_variable_that_the_build_no_longer_reads_is_told() -> None:
    command = "LLAMA_ARG_MLOCK=true LLAMA_ARG_FLASH_ATTN=true LLAMA_ARG_NO_MMAP=false llama-server -m m.gguf -c 4096"
    found = [one for one in check(command, "llama.cpp", QWEN3, RIG).findings if one.rule == "environment-not-counted"]
    assert [one.severity for one in found] == ["warning"]
    assert found[0].message.startswith("LLAMA_ARG_MLOCK, LLAMA_ARG_NO_MMAP: this build reads no such variables")
    old = check(command, "llama.cpp", QWEN3, RIG, build="2026-03-01")
    assert "environment-not-counted" not in [one.rule for one in old.findings]


@pytest.mark.parametrize(
    ("limit", "cores"),
    [
        ("CPUQuota=1000m", 1),  # as in documents of Kubernetes: `cpu: "1000m"`
        ("CPUQuota=8.0", 8),
        ("CPUQuota=250%", 2),
        ("AllowedCPUs=0-3,8", 5),
        ("CPUQuota=64", 16),
        ("CPUQuota=half", 16),
        ("taskset -c 0-7", 8),
        ("taskset -c0-3", 4),
        ("nice -n 5 taskset --cpu-list=0-7", 8),
        ("numactl -C 0-7", 8),
        ("ionice -c 2 -n 0", 16),
        ("AllowedCPUs=0-3,16-19", 4),  # the second threads of the same cores
        ("AllowedCPUs=16-31", 16),
    ],
)
def test_the_cpus_of_a_container_are_its_cores(limit: str, cores: int) -> None:
    command = "llama-server -m m.gguf -ngl 0 -c 4096"
    limited = check(f"{limit} {command}", "llama.cpp", QWEN3, RIG)
    alike = resolve(parse_hardware("RTX 3090, RTX 3060, Ryzen 9 7950X, 64GB DDR5-5600"))
    alike = msgspec.structs.replace(alike, physical_cores=cores)
    assert limited.speed == check(command, "llama.cpp", QWEN3, alike).speed
    said = [one.message for one in limited.findings if one.rule == "container-limits"]
    assert bool(said) == (cores < 16 or limit == "CPUQuota=half")


def test_the_cpus_of_compose_and_docker_are_read() -> None:
    service = (
        "services:\n  a:\n    image: x/llama.cpp:server-cuda\n    gpus: all\n    cpuset: 0-5\n    command: -m a.gguf\n"
    )
    assert parse(service).env["AllowedCPUs"] == "0-5"
    assert parse("docker run --cpuset-cpus 0,2 --cpus 4 x:server-cuda -m a.gguf").env["AllowedCPUs"] == "0,2"


def test_a_variable_without_its_value_is_told_where_the_command_has_no_options() -> None:
    text = "LLAMA_ARG_MODEL=/m/a.gguf LLAMA_ARG_FLASH_ATTN= llama-server"
    assert "retired-flag" in {one.rule for one in check(text, None, QWEN3, RIG).findings}
