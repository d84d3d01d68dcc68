"""Each rule: commands that break it, and a command that does not."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from service.engine.catalogue import resolve
from service.engine.commands import parse
from service.engine.config import Engine
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.rules import RULES, Finding, case_of, findings
from tests.models import build
from tests.rigs import ONE_3090_DESKTOP, TWO_5090_TWO_4090

IK: Engine = "ik_llama.cpp"
LLAMA: Engine = "llama.cpp"
QWEN = ("Qwen3-235B-A22B", "q4_K_M")
SMALL_MOE = ("Qwen3-30B-A3B", "q4_K_M")
R1_R4 = ("DeepSeek-R1-0528", "ffn_down_exps=iq5_ks_r4,exps=iq4_ks_r4,*=q8_0")
R1 = ("DeepSeek-R1-0528", "q2_k")
GLM = ("GLM-4.5-Air", "q4_K_M")
LITTLE_RAM = Hardware(gpus=[Gpu(name="RTX 3090")], cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=64))
FOUR_3090 = Hardware(gpus=[Gpu(name="RTX 3090", count=4)], cpu=Cpu(model="EPYC 7713"), ram=Ram(total_gb=512))


class Example(NamedTuple):
    """A rule, a command that breaks it, one that does not, and where both are run."""

    rule: str
    broken: str
    sound: str
    engine: Engine = IK
    model: tuple[str, str] = QWEN
    hardware: Hardware = ONE_3090_DESKTOP
    build: str | None = None


GOOD_IK = "llama-server -m m.gguf -c 32768 -b 4096 -ub 2048 -ngl 99 -ot exps=CPU -t 16"
GOOD_LLAMA = "llama-server -m m.gguf -c 32768 -ub 2048 -ngl 99 -fa on -fit off -np 1 -ot exps=CPU -t 16"
OLD_IK = "llama-server -m m.gguf -c 32768 -b 4096 -ub 2048 -ngl 99 -ot exps=CPU -t 16"
ALL_ON_GPU = "llama-server -m m.gguf -c 8192 -ngl 99"
FOUR = "-c 8192 -ngl 99 -ot exps=CPU -ub 2048"

EXAMPLES = (
    Example("unknown-flag", f"{GOOD_IK} --make-it-fast", GOOD_IK),
    Example("unknown-flag", f"{GOOD_LLAMA} -muge", GOOD_LLAMA, LLAMA),
    Example("retired-flag", f"{GOOD_IK} -fmoe", GOOD_IK),
    Example("retired-flag", f"{GOOD_IK} -fa -v", f"{GOOD_IK} -fa on"),
    Example("retired-flag", f"{GOOD_LLAMA} --no-mmap", f"{GOOD_LLAMA} -lm none", LLAMA),
    Example("cache-type-unknown", f"{GOOD_LLAMA} -ctk q6_0", f"{GOOD_LLAMA} -ctk q8_0", LLAMA),
    Example("split-mode-unknown", f"{GOOD_IK} -sm row", f"{GOOD_IK} -sm layer"),
    Example("obsolete-op-numbers", f"{GOOD_IK} -op 26,0,27,0,29,0", f"{GOOD_IK} -op 28,0,31,0"),
    Example("not-counted", f"{GOOD_IK} -md draft.gguf", GOOD_IK),
    Example("not-counted", f"{GOOD_LLAMA} --mmproj mmproj.gguf", GOOD_LLAMA, LLAMA),
    Example("rpc-not-supported", f"{GOOD_LLAMA} --rpc 10.0.0.2:50052", GOOD_LLAMA, LLAMA),
    Example("no-next-token-layers", f"{GOOD_IK} --spec-type mtp:n_max=1", GOOD_IK),
    Example("no-next-token-layers", f"{GOOD_LLAMA} --spec-type draft-mtp", GOOD_LLAMA, LLAMA),
    Example("speculation-with-slots", f"{GOOD_IK} --spec-type mtp -np 2", f"{GOOD_IK} --spec-type mtp", IK, GLM),
    Example("speed-without-draft", f"{GOOD_IK} --spec-type mtp", GOOD_IK, IK, GLM),
    Example("context-unset", GOOD_IK.replace("-c 32768", ""), GOOD_IK),
    Example("several-values", "llama-bench -m m.gguf -ngl 99 -ub 512,1024", "llama-bench -m m.gguf -ngl 99 -ub 512"),
    Example("override-refused", f"{GOOD_IK} -ot 'blk.(=CPU'", GOOD_IK),
    Example("override-refused", f"{GOOD_IK} -ot attn=CUDA7", f"{GOOD_IK} -ot attn=CUDA0"),
    Example("override-refused", f"{GOOD_IK} -ot attn=CUDA_Host", GOOD_IK),
    Example("device-unknown", f"{GOOD_IK} -dev CUDA4", f"{GOOD_IK} -dev CUDA0"),
    Example("override-ignored", "llama-server -m m.gguf -ngl 0 -ot exps=CPU", GOOD_IK),
    Example("override-matches-nothing", f"{GOOD_IK} -ot 'blk.1.ffn_up_shexp=CPU'", f"{GOOD_IK} -ot output=CUDA0"),
    Example(
        "override-never-wins",
        f"{GOOD_IK} -ot 'blk\\.3\\.ffn_.*_exps=CUDA0'",
        GOOD_IK.replace("-ot", "-ot 'blk\\.3\\.ffn_.*_exps=CUDA0' -ot"),
    ),
    Example(
        "cannot-load", GOOD_LLAMA, GOOD_LLAMA.replace("llama-server", "llama-cli"), LLAMA, R1_R4, TWO_5090_TWO_4090
    ),
    Example(
        "up-gate-apart",
        GOOD_IK.replace("-ot", "-ot 'blk\\.[0-3]\\.ffn_up_exps=CUDA0' -ot"),
        GOOD_IK.replace("-ot", "-ot 'blk\\.[0-3]\\.ffn_(up|gate)_exps=CUDA0' -ot"),
    ),
    Example(
        "type-without-gpu-kernel",
        ALL_ON_GPU,
        f"{ALL_ON_GPU} -ot exps=CPU",
        model=("Qwen3-30B-A3B", "exps=q4_k_r4,*=q8_0"),
    ),
    Example("experts-left-on-gpu", ALL_ON_GPU, f"{ALL_ON_GPU} -ot exps=CPU"),
    Example("experts-in-ram-needlessly", f"{ALL_ON_GPU} -ot exps=CPU", ALL_ON_GPU, model=SMALL_MOE),
    Example("repacked-with-large-micro-batch", f"{GOOD_IK} -rtr", GOOD_IK),
    Example(
        "micro-batch-below-threshold",
        "llama-sweep-bench -c 32768 -ub 512 -ngl 99 -ot exps=CPU",
        "llama-sweep-bench -c 32768 -b 4096 -ub 4096 -ngl 99 -ot exps=CPU",
        model=R1,
        hardware=TWO_5090_TWO_4090,
    ),
    Example("batch-below-micro-batch", f"{GOOD_IK} -ub 8192", GOOD_IK),
    Example("batch-no-multiple", f"{GOOD_IK} -b 3000", GOOD_IK),
    Example("quantised-v-without-fa", f"{GOOD_IK} -fa off -ctv q8_0", f"{GOOD_IK} -fa off -ctk q8_0"),
    Example("cache-type-without-gpu-kernel", f"{GOOD_IK} -ctk q8_KV", f"{GOOD_IK} -ctk q8_0"),
    Example("mla-without-effect", f"{GOOD_IK} -mla 3", GOOD_IK),
    Example("amb-without-effect", f"{GOOD_IK} -amb 512", f"{GOOD_IK} -amb 512 -fa off"),
    Example("amb-too-small", f"{GOOD_IK} -amb 64", f"{GOOD_IK} -amb 512", model=R1, hardware=TWO_5090_TWO_4090),
    Example("v-type-without-effect", f"{GOOD_IK} -ctv q8_0", GOOD_IK, model=R1, hardware=TWO_5090_TWO_4090),
    Example("mla-off", f"{GOOD_IK} -mla 0", f"{GOOD_IK} -mla 3", model=R1, hardware=TWO_5090_TWO_4090),
    Example("does-not-fit", f"{GOOD_IK} -c 262144", GOOD_IK),
    Example("ram-too-small", GOOD_IK, ALL_ON_GPU, hardware=LITTLE_RAM),
    Example("fit-left-on", GOOD_LLAMA.replace("-fit off", ""), GOOD_LLAMA, LLAMA),
    Example("fit-places-itself", "llama-server -m m.gguf -c 4096", GOOD_LLAMA, LLAMA),
    Example("split-left-to-chance", FOUR, f"{FOUR} -ts 32,32,24,24", hardware=TWO_5090_TWO_4090),
    Example("split-left-to-chance", FOUR, f"CUDA_VISIBLE_DEVICES=0,1 {FOUR}", hardware=TWO_5090_TWO_4090),
    Example("shares-without-gpu", f"{GOOD_IK} -ts 1,1", f"{GOOD_IK} -ts 1"),
    Example("main-gpu-unknown", f"{GOOD_IK} -mg 3", f"{GOOD_IK} -mg 0"),
    Example(
        "none-with-several-gpus", f"{FOUR} -sm none", f"CUDA_VISIBLE_DEVICES=0 {FOUR} -sm none", hardware=FOUR_3090
    ),
    Example("graph-split-impossible", f"{GOOD_IK} -sm graph", GOOD_IK),
    Example(
        "graph-split-partial-experts",
        "-c 8192 -ngl 99 -ub 2048 -sm graph -ot ffn_down_exps=CPU",
        f"{FOUR} -sm graph",
        hardware=FOUR_3090,
    ),
    Example("split-mode-approximate", f"{FOUR} -sm graph", FOUR, hardware=FOUR_3090),
    Example("cpu-moe-by-share", f"{ALL_ON_GPU} -ncmoe 20", f"{ALL_ON_GPU} -cmoe", hardware=FOUR_3090),
    Example("too-many-threads", f"{GOOD_IK} -t 32", GOOD_IK),
    Example("odd-threads", f"{GOOD_IK} -t 15", GOOD_IK),
    Example("option-of-another-time", f"{OLD_IK} -no-fmoe", f"{OLD_IK} -fmoe", build="2025-05-11"),
    Example("option-of-another-time", f"{OLD_IK} -fa on", f"{OLD_IK} -fa", build="2025-05-11"),
    Example("option-of-another-time", f"{OLD_IK} -fa -v", OLD_IK, build="2025-11-01"),
    Example("option-gone-since", f"{OLD_IK} -fmoe", OLD_IK, build="2025-05-11"),
    Example("option-gone-since", f"{GOOD_LLAMA} --no-mmap", GOOD_LLAMA, LLAMA, build="2026-01-15"),
    Example(
        "latent-cache-types-differ", f"{GOOD_LLAMA} -ctk q8_0", f"{GOOD_LLAMA} -ctk q8_0 -ctv q8_0", LLAMA, model=R1
    ),
    Example("split-mode-refused", f"{GOOD_LLAMA} -sm row", GOOD_LLAMA, LLAMA, hardware=FOUR_3090),
    Example(
        "split-mode-refused", f"{GOOD_LLAMA} -sm tensor -fa off", f"{GOOD_LLAMA} -sm tensor", LLAMA, hardware=FOUR_3090
    ),
    Example(
        "older-build", f"{OLD_IK} -fa -mla 3 -amb 512", f"{OLD_IK} -fa -c 4096 -ub 512", build="2025-07-01", model=R1
    ),
    Example("copies-of-ram", OLD_IK, f"{ALL_ON_GPU} -fa", hardware=FOUR_3090, build="2025-07-01"),
    Example(
        "device-order-unknown",
        f"CUDA_DEVICE_ORDER=PCI_BUS_ID llama-server {FOUR}",
        f"llama-server {FOUR}",
        hardware=TWO_5090_TWO_4090,
    ),
)
# `cannot-load` is the model's, not the command's: its sound half is ik_llama.cpp, below.
PAIRS = [example for example in EXAMPLES if example.rule != "cannot-load"]


def found(example: Example, command: str) -> list[Finding]:
    case = case_of(
        parse(command, example.engine, build=example.build), build(*example.model), resolve(example.hardware), command,
        "cuda",
    )  # fmt: skip
    return findings(case)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e.rule}-{e.engine}")
def test_a_command_that_breaks_the_rule_is_told_so_with_a_source(example: Example) -> None:
    (finding, *_) = [f for f in found(example, example.broken) if f.rule == example.rule]
    assert finding.message
    assert finding.source
    assert finding.severity in ("error", "warning", "info")


@pytest.mark.parametrize("example", PAIRS, ids=lambda e: f"{e.rule}-{e.engine}")
def test_a_command_that_keeps_the_rule_is_not(example: Example) -> None:
    assert example.rule not in [f.rule for f in found(example, example.sound)]


def test_the_engine_that_can_load_the_types_is_not_told_that_it_cannot() -> None:
    example = Example("cannot-load", "", GOOD_IK, IK, R1_R4, TWO_5090_TWO_4090)
    assert "cannot-load" not in [f.rule for f in found(example, example.sound)]


def test_every_rule_has_an_example() -> None:
    broken = set()
    for example in EXAMPLES:
        case = case_of(
            parse(example.broken, example.engine, build=example.build), build(*example.model),
            resolve(example.hardware), example.broken, "cuda",
        )  # fmt: skip
        broken |= {rule.__name__ for rule in RULES if any(one.finding.rule == example.rule for one in rule(case))}
    assert broken == {rule.__name__ for rule in RULES}


def test_rules_that_change_nothing_are_told_together() -> None:
    command = f"{GOOD_IK} -ot 'blk\\.1\\.ffn_up_exps=CPU' -ot 'blk\\.2\\.ffn_up_exps=CPU'"
    (finding,) = [f for f in found(Example("", command, ""), command) if f.rule == "override-never-wins"]
    assert finding.severity == "info"
    assert "blk\\.1" in finding.message
    assert "blk\\.2" in finding.message


def test_hundreds_of_bad_patterns_are_not_all_tried() -> None:
    command = GOOD_IK + " -ot '(=CPU'" * 200
    refused = [f for f in found(Example("", command, ""), command) if f.rule == "override-refused"]
    assert len(refused) == 200
    assert "not read" in refused[-1].message


def test_good_commands_have_no_error_and_no_warning() -> None:
    for command, engine in ((GOOD_IK, IK), (GOOD_LLAMA, LLAMA)):
        example = Example("", command, command, engine, ("Qwen3-235B-A22B", "q2_k"))
        assert [f for f in found(example, command) if f.severity != "info"] == []


def test_errors_come_first_and_then_what_costs_most() -> None:
    command = f"{GOOD_IK} -ot foo=CPU -fmoe".replace("-ot", "-ot 'blk\\.[0-9]\\.ffn_up_exps=CUDA0' -ot", 1)
    rules = [f.rule for f in found(Example("", command, ""), command)]
    assert rules[:3] == ["retired-flag", "up-gate-apart", "override-matches-nothing"]


def test_what_does_not_fit_is_mended_by_the_change_it_names() -> None:
    command = "llama-server -m m.gguf -c 32768 -ngl 99 -fa on -np 1 -ot 'blk\\.([0-9]|1[0-9])\\.=CUDA0' -ot exps=CPU"
    example = Example("does-not-fit", command, "")
    (finding,) = [f for f in found(example, command) if f.rule == "does-not-fit"]
    assert finding.fix
    mended = command.replace("-ot", finding.fix.split(" before")[0] + " -ot", 1)
    assert "does-not-fit" not in [f.rule for f in found(example, mended)]


def test_a_dense_model_that_does_not_fit_is_told_how_many_layers_do() -> None:
    command = "llama-server -m m.gguf -c 32768 -ngl 99"
    example = Example("does-not-fit", command, "", model=("Llama-3.3-70B", "q4_K_M"))
    (finding,) = [f for f in found(example, command) if f.rule == "does-not-fit"]
    assert finding.fix
    assert finding.fix.startswith("-ngl ")
    assert "does-not-fit" not in [f.rule for f in found(example, command.replace("-ngl 99", finding.fix))]


def test_rules_for_a_device_list_in_another_order_go_to_the_device_they_name() -> None:
    command = f"{FOUR} -dev CUDA2,CUDA0 -ot output=CUDA2"
    case = case_of(parse(command, IK), build(*QWEN), resolve(TWO_5090_TWO_4090), command, "cuda")
    assert [d.name for d in case.devices] == ["CUDA2", "CUDA0"]
    assert [o.device for o in case.flags.overrides] == ["CPU", "CUDA0"]
    assert case.table[0].gpu == "NVIDIA GeForce RTX 4090"
