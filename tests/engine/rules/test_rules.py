"""Each rule: commands that break it, and a command that does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

import service.engine.check
from scripts.rules_page import GUIDE, headings, rules_markdown, slug
from service.engine.catalogue import resolve
from service.engine.commands.parse import parse
from service.engine.config import ENGINES, Engine
from service.engine.finding import Finding
from service.engine.gguf.header import Header
from service.engine.hardware import Cpu, Hardware, Ram
from service.engine.hardware_text import parse_hardware
from service.engine.model import Model
from service.engine.rules.all_rules import all_rules, findings
from service.engine.rules.case import Case, case_of
from service.engine.rules.companion_headers import CompanionHeaders
from service.engine.rules.proof import proven
from tests.engine.rules.examples import (
    ALL_ON_GPU,
    DENSE,
    DENSE_SMALL,
    EXAMPLES,
    FOUR,
    GOOD_IK,
    GOOD_LLAMA,
    IK,
    LLAMA,
    QWEN,
    R1_R4,
    TWO_3090,
    Example,
)
from tests.models import build
from tests.projectors import gemma3_header
from tests.rigs import TWO_5090_TWO_4090

# What is wrong with the model, not with the command: their sound halves are below.
OF_THE_MODEL = ("cannot-load", "indexer-not-loaded", "latent-file-refused")
PAIRS = [example for example in EXAMPLES if example.rule not in OF_THE_MODEL]


def model_of(example: Example) -> Model:
    model = build(*example.model)
    if example.n_head_dim is None:
        return model
    heads = {"head_dim_k": example.n_head_dim, "head_dim_v": example.n_head_dim}
    return replace(model, layers=tuple(replace(layer, **heads) for layer in model.layers))


def case(example: Example, command: str) -> Case:
    draft = build(*example.draft) if example.draft else None
    kind = {"clip.projector_type": example.projector}
    images = Header(gemma3_header().metadata | kind, gemma3_header().tensors, 0) if example.projector else None
    headers = CompanionHeaders(draft=draft, projector=images)
    parsed = parse(command, example.engine, build=example.build)
    return case_of(parsed, model_of(example), resolve(example.hardware), command, "cuda", headers)


def found(example: Example, command: str) -> list[Finding]:
    return findings(case(example, command))


def told(example: Example, command: str) -> list[Finding]:
    """What the example's own rule says, its fix proven."""
    (rule,) = [one for one in all_rules() if one.id == example.rule]
    return [finding for finding, _ in proven(case(example, command), rule, all_rules())]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e.rule}-{e.engine}")
def test_a_command_that_breaks_the_rule_is_told_so_with_a_source(example: Example) -> None:
    (finding, *_) = told(example, example.broken)
    assert finding.message
    assert finding.source
    assert finding.severity in ("error", "warning", "info")


@pytest.mark.parametrize("example", PAIRS, ids=lambda e: f"{e.rule}-{e.engine}")
def test_a_command_that_keeps_the_rule_is_not(example: Example) -> None:
    assert told(example, example.sound) == []


def test_the_engine_that_can_load_the_types_is_not_told_that_it_cannot() -> None:
    example = Example("cannot-load", "", GOOD_IK, IK, R1_R4, TWO_5090_TWO_4090)
    assert "cannot-load" not in [f.rule for f in found(example, example.sound)]


def test_a_latent_file_with_attn_kv_b_is_not_refused_by_builds_before_pull_394() -> None:
    example = next(one for one in EXAMPLES if one.rule == "latent-file-refused")
    with_it = example._replace(model=("DeepSeek-R1-with-kv_b", "q2_k"))
    assert "latent-file-refused" not in [f.rule for f in found(with_it, with_it.broken)]


def test_a_file_of_minimax_m3_without_its_indexer_is_not_refused() -> None:
    example = next(one for one in EXAMPLES if one.rule == "indexer-not-loaded")
    without = example._replace(model=("MiniMax-M3-without-indexer", "q2_k"))
    assert "indexer-not-loaded" not in [f.rule for f in found(without, without.broken)]


@pytest.mark.parametrize(
    ("cpu", "build", "command"),
    [
        ("Ryzen 5 7500F", "b9174", ""),
        ("Ryzen Threadripper 7960X", "b9174", ""),
        ("Core i9-13900K", "b9174", ""),
        ("Ryzen 9 7950X", "2026-06-10", ""),
        ("Ryzen 9 7950X", None, ""),
        ("Ryzen 9 7950X", "b9174", " -dev ROCm0"),
        ("Ryzen 9 7950X", "b9174", " -sm none"),
    ],
)
def test_graphics_that_a_cpu_lacks_a_build_tells_from_cards_or_a_command_leaves_out_are_no_card(
    cpu: str, build: str | None, command: str
) -> None:
    (example,) = [one for one in EXAMPLES if one.rule == "integrated-graphics-as-card"]
    hardware = replace(example.hardware, cpu=Cpu(model=cpu))
    assert told(example._replace(hardware=hardware, build=build), example.broken + command) == []


def test_every_rule_has_an_example() -> None:
    assert {example.rule for example in EXAMPLES} == {one.id for one in all_rules()}


def test_no_two_rules_have_one_name() -> None:
    assert len({one.id for one in all_rules()}) == len(all_rules())


def test_every_rule_leads_to_a_paragraph_of_the_guide() -> None:
    anchors = {slug(title) for title in headings(GUIDE.read_text())}
    assert [one.id for one in all_rules() if one.paragraph not in anchors] == []


def test_the_page_of_the_rules_has_every_finding_that_a_check_makes() -> None:
    texts = [path.read_text() for path in Path(service.engine.check.__path__[0]).glob("*.py")]
    named = {name for text in texts for name in re.findall(r'rule="([a-z-]+)"', text)}
    assert {"log-differs", "logs-differ"} <= named
    assert named | {"slower-than-expected", "faster-than-expected"} <= set(headings(rules_markdown()))


def test_layers_on_a_slow_card_are_left_there_where_the_fast_one_would_not_keep_its_reserve() -> None:
    (example,) = [one for one in EXAMPLES if one.rule == "layers-on-slower-card"]
    model, rig = model_of(example), resolve(example.hardware)
    for reserve_mib, told in ((None, True), (16_384, False)):
        parsed = parse(example.broken, example.engine)
        asked = case_of(parsed, model, rig, example.broken, "cuda", reserve_mib=reserve_mib)
        assert ("layers-on-slower-card" in [f.rule for f in findings(asked)]) == told


def test_copying_is_no_loss_where_caches_in_ram_are_copied_too() -> None:
    example = next(one for one in EXAMPLES if one.rule == "copying-loses")
    asked = case(example, f"{GOOD_LLAMA} -c 131072".replace("-ngl 99", "-ngl 20"))
    alone = replace(asked.flags, op_offload=False)
    assert asked.gain(flags=alone)[0] > 1.1
    assert asked.gain(asked.flags.n_ctx, flags=alone)[0] < 1
    assert "copying-loses" not in [f.rule for f in findings(asked)]


def test_rules_that_change_nothing_are_told_together() -> None:
    command = f"{GOOD_IK} -ot 'blk\\.1\\.ffn_up_exps=CPU' -ot 'blk\\.2\\.ffn_up_exps=CPU'"
    (finding,) = [f for f in found(Example("", command, ""), command) if f.rule == "override-never-wins"]
    assert finding.severity == "info"
    assert "blk\\.1" in finding.message
    assert "blk\\.2" in finding.message


@pytest.mark.full
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


def test_what_does_not_fit_is_fixed_by_the_change_it_names() -> None:
    command = "llama-server -m m.gguf -c 32768 -ngl 99 -fa on -np 1 -ot 'blk\\.([0-9]|1[0-9])\\.=CUDA0' -ot exps=CPU"
    example = Example("does-not-fit", command, "")
    (finding,) = [f for f in found(example, command) if f.rule == "does-not-fit"]
    assert finding.fix
    fixed = command.replace("-ot", finding.fix.split(" before")[0] + " -ot", 1)
    assert "does-not-fit" not in [f.rule for f in found(example, fixed)]


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


@pytest.mark.parametrize(
    ("command", "engine", "hardware"),
    [
        ("-c 8192 -ngl 99 -sm tensor -ts 3,1 -fa on -fit off", LLAMA, TWO_3090),
        ("-c 8192 -ngl 99 -ts 3,1", IK, TWO_3090),
    ],
)
def test_one_full_card_next_to_an_emptier_one_is_fixed_by_other_shares(
    command: str, engine: Engine, hardware: Hardware
) -> None:
    example = Example("does-not-fit", command, "", engine, ("Qwen3-32B", "q8_0"), hardware)
    (fix,) = {f.fix for f in found(example, command) if f.rule == "does-not-fit"}
    assert fix
    assert "does-not-fit" not in [f.rule for f in found(example, command.replace("-ts 3,1", fix))]


@pytest.mark.parametrize("engine", ENGINES)
def test_too_few_experts_in_ram_are_fixed_by_the_least_number_that_fits(engine: Engine) -> None:
    command = "llama-server -m m.gguf -c 8192 -ngl 99 -np 1 -ncmoe 60"
    example = Example("does-not-fit", command, "", engine)
    (fix,) = [f.fix for f in found(example, command) if f.rule == "does-not-fit"]
    assert fix
    least = int(fix.removeprefix("-ncmoe "))
    for count, fits in ((least, True), (least - 1, False)):
        rules = [f.rule for f in found(example, command.replace("-ncmoe 60", f"-ncmoe {count}"))]
        assert ("does-not-fit" not in rules) is fits


@pytest.mark.full
def test_experts_in_ram_of_the_first_of_two_cards_are_mended_with_shares_that_leave_it_more_layers() -> None:
    """A larger -ncmoe alone needs 71: up to 47 it makes room on the first card only."""
    rig = parse_hardware("2x RTX 3090, Ryzen 9 5950X, 128GB DDR4-3200")
    example = Example("does-not-fit", "", "", LLAMA, ("Qwen3-235B-A22B", "q2_k"), rig)
    (finding,) = told(example, "llama-server -m m.gguf -ngl 99 -fa on -c 32768 -ncmoe 34")
    assert (finding.fix or "").startswith("-ncmoe 48; -ts 69,26")


def test_an_architecture_of_the_other_engine_is_named_with_it() -> None:
    example = Example("cannot-load", ALL_ON_GPU, "", IK, ("DeepSeek-V3.2", "q2_k"))
    (finding,) = [f for f in found(example, ALL_ON_GPU) if f.rule == "cannot-load"]
    assert "deepseek32" in finding.message
    assert finding.fix == "llama.cpp, which knows it"


@pytest.mark.parametrize(
    ("cpu", "rest", "severities"),
    [("v2", "-ncmoe 20", ["error"]), ("v2", "", ["warning"]), ("v3", "-ncmoe 20", [])],
)
def test_a_cpu_without_the_kernels_of_an_engine_may_look_up_embeddings_but_not_compute(
    cpu: str, rest: str, severities: list[str]
) -> None:
    """ik_llama.cpp stops with "Unsupported CPU" at the first product there."""
    rig = parse_hardware(f"RTX 3090, 2x Xeon E5-2680 {cpu}, 128GB DDR3-1600")
    example = Example("cannot-load", "", "", IK, ("Qwen3-30B-A3B", "q4_k_m"), rig)
    command = f"llama-server -m m.gguf -ngl 99 -fa on -c 8192 {rest}"
    assert [f.severity for f in found(example, command) if f.rule == "cannot-load"] == severities


def test_experts_that_would_fit_besides_are_named_and_do_fit() -> None:
    example = Example("room-for-experts", GOOD_IK, "", IK, ("Qwen3-235B-A22B", "q2_k"))
    (finding,) = [f for f in found(example, GOOD_IK) if f.rule == "room-for-experts"]
    assert finding.fix
    fixed = GOOD_IK.replace("-ot", finding.fix.removesuffix(" before the other rules") + " -ot", 1)
    assert {f.rule for f in found(example, fixed)} & {"does-not-fit", "room-for-experts"} == set()


def test_room_on_two_cards_is_filled_on_both() -> None:
    """ineersa's command (ggml-org/llama.cpp issue 15263), whose cards stay half empty; one filled leaves the other."""
    command = "llama-server -m m.gguf -c 65536 -b 4096 -ub 2048 -ot '.ffn_(up|down)_exps.=CPU' -fa on -ngl 999"
    example = Example("room-for-experts", command, "", LLAMA, ("gpt-oss-120b", "mxfp4"), TWO_3090)
    (finding,) = [f for f in found(example, command) if f.rule == "room-for-experts"]
    assert finding.fix
    assert all(card in finding.fix and card in finding.message for card in ("CUDA0", "CUDA1"))


def test_a_thread_for_each_efficiency_core_is_not_called_smt_alone() -> None:
    laptop = Hardware(gpus=[], cpu=Cpu(model="Core i7-12700K"), ram=Ram(total_gb=64))
    example = Example("too-many-threads", "llama-server -m m.gguf -c 8192 -t 12", "", LLAMA, DENSE_SMALL, laptop)
    (finding,) = [f for f in found(example, example.broken) if f.rule == "too-many-threads"]
    assert "8 performance cores: generation does not gain from SMT or efficiency cores" in finding.message


def test_fit_looks_at_the_one_card_that_sm_none_leaves() -> None:
    """What does not fit one of two cards goes to RAM, as the model has one device (llama.cpp src/llama.cpp)."""
    example = Example("fit-places-itself", "llama-server -m m.gguf -c 8192 -sm none", "", LLAMA, DENSE, TWO_3090)
    one = case(example, example.broken)
    assert all(row.fits for row in one.table)
    assert 0 < one.flags.n_gpu_layers < one.model.n_layer


def test_rows_that_are_gone_become_layers_where_experts_are_in_ram() -> None:
    # llmgarage.ai, gpt-oss-120b on two RTX 3090 (January 2026): --split-mode row with --n-cpu-moe 26
    command = "llama-server -m m.gguf -ngl 99 -sm row -ts 0.5,0.5 -mg 0 --n-cpu-moe 26 -c 38000"
    example = Example("split-mode-refused", command, "", LLAMA, ("gpt-oss-120b", "exps=mxfp4,*=q8_0"), TWO_3090)
    (finding,) = [f for f in found(example, command) if f.rule == "split-mode-refused"]
    assert finding.fix == "-sm layer"


# ik_llama.cpp 8337e4cd3 ggml-cuda/fattn-vec-f32.cu:111-166, iqk/iqk_flash_attn.cpp:121-149
@pytest.mark.parametrize(
    ("card", "model", "types", "says"),
    [
        ("Tesla P40", DENSE_SMALL, "-ctk q6_0 -ctv q6_0", "warning: only builds with -DGGML_CUDA_FA_ALL_QUANTS=ON"),
        ("Tesla P40", DENSE_SMALL, "-ctk q5_1 -ctv q4_1", "warning: only builds with -DGGML_CUDA_FA_ALL_QUANTS=ON"),
        ("Tesla P40", DENSE_SMALL, "-ctk q8_0 -ctv q6_0", None),
        ("Tesla P40", ("Gemma-3-12B", "q4_K_M"), "-ctk q4_0 -ctv q4_0", "warning: no build has a kernel"),
        ("Tesla P40", ("Gemma-3-12B", "q4_K_M"), "-ctk q5_1 -ctv q5_1", "error: no build has a kernel"),
        ("Tesla P40", ("Gemma-3-12B", "q4_K_M"), "-ctk q8_0 -ctv q8_0", None),
        ("V100 SXM2 32GB", DENSE_SMALL, "-ctk q6_0 -ctv q6_0", None),
        ("RTX 2080 Ti 22GB", DENSE_SMALL, "-ctk q5_1 -ctv q4_1", None),
    ],
)
def test_cards_before_volta_have_kernels_for_some_types_of_the_cache(
    card: str, model: tuple[str, str], types: str, says: str | None
) -> None:
    command = f"llama-server -m m.gguf -c 8192 -ngl 99 -fa on {types}"
    rig = resolve(parse_hardware(f"{card}, Xeon E5-2680 v4, 64GB"))
    asked = case_of(parse(command, IK), build(*model), rig, command, "cuda")
    told = [f"{f.severity}: {f.message}" for f in findings(asked) if f.rule == "cache-types-before-volta"]
    assert len(told) == (says is not None)
    assert not told or told[0].replace(f"{types}: on cards before Volta ", "").startswith(says or "")


def test_a_context_that_yarn_stretches_is_not_called_unused() -> None:
    example = next(e for e in EXAMPLES if e.rule == "context-beyond-training")
    for more, unused in (("", True), (" --rope-scaling yarn --rope-scale 2 --yarn-orig-ctx 40960", False)):
        (said,) = [f for f in found(example, example.broken + more) if f.rule == example.rule]
        assert ("uses no more than that per slot" in said.message) is unused


# common/arg.cpp:2400, 2420 of llama.cpp: not options of the server.
@pytest.mark.parametrize("option", ["--grp-attn-n 2", "-gan 2", "--prompt-cache x", "--show-timings"])
def test_an_option_of_other_programs_of_the_same_engine_is_named_as_theirs(option: str) -> None:
    example = Example("unknown-flag", f"{GOOD_LLAMA} {option}", GOOD_LLAMA, LLAMA)
    messages = [one.message for one in found(example, example.broken) if one.severity == "error"]
    assert [f"{option.split()[0]} is an option of other programs of llama.cpp" in one for one in messages] == [True]
    in_that = GOOD_LLAMA.replace("llama-server", "llama-completion")
    assert not [
        one for one in found(example, f"{in_that} {option}") if "option" in one.message and one.severity == "error"
    ]


@pytest.mark.parametrize("mode", ["graph", "row"])
def test_a_split_mode_whose_speed_has_a_formula_of_its_own_is_not_called_as_fast_as_layers(mode: str) -> None:
    example = next(one for one in EXAMPLES if one.rule == "split-mode-approximate")
    (finding,) = told(example, f"{FOUR} -sm {mode}")
    assert "its speed comes from a formula" in finding.message
