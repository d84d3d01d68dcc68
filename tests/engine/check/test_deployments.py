"""What is said of commands that other machines and containers take a part in."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.check.run import check
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
