"""What a check answers: memory to the byte of the lab, speeds, findings, and measured next to expected."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from service.engine.catalogue import resolve
from service.engine.check.report import CheckReport
from service.engine.check.run import check
from service.engine.config import ENGINES, Engine
from service.engine.errors import InvalidFlags, InvalidInput
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.hardware_text import parse_hardware
from service.engine.logs.requests import MeasuredSpeed
from tests.memory_lab import FILES
from tests.models import build
from tests.rigs import ONE_3090_DESKTOP, TWO_5090_TWO_4090, TWO_EPYC_NO_GPU

LOGS = Path(__file__).parents[2] / "data" / "engine_logs"
QWEN = build("Qwen3-235B-A22B", "q4_K_M")
COMMAND = "llama-server -m m.gguf -c 32768 -b 4096 -ub 2048 -ngl 99 -ot exps=CPU"


def of_3090(command: str = COMMAND, engine: Engine | None = "ik_llama.cpp", **more: Any) -> CheckReport:
    return check(command, engine, QWEN, resolve(ONE_3090_DESKTOP), **more)


def lab_records(engine: Engine, every: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in FILES[engine].read_text().splitlines()[::every]]


def lab_check(record: dict[str, Any], free_gib: float | None = None) -> CheckReport:
    program = {"ik_llama.cpp": "llama-sweep-bench", "llama.cpp": "llama-fit-params"}[record["engine"]]
    free = record["free_mib_per_gpu"] / 1024 if free_gib is None else free_gib
    gpus = [Gpu(name="RTX 3090", count=record["gpus"], free_gib=free)] if record["gpus"] else []
    rig = resolve(Hardware(gpus=gpus, ram=Ram(total_gb=1024)))
    model = build(record["model"], record["mix"])
    return check(f"{program} -m m.gguf {shlex.join(record['args'])}", record["engine"], model, rig, allocator="lab")


def test_the_speed_of_a_model_that_writes_nothing_is_that_of_reading() -> None:
    command = "llama-server -m m.gguf --embedding -ngl 99"
    report = check(command, None, build("Qwen3-Embedding-0.6B", "q8_0"), resolve(ONE_3090_DESKTOP))
    assert report.verdict.startswith("Fits: PP about ")
    assert "TG" not in report.verdict


@pytest.mark.parametrize("engine", ENGINES)
def test_the_lab_s_commands_get_the_lab_s_figures(engine: Engine) -> None:
    wrong = []
    for record in lab_records(engine, 120):
        rows = {d.device: d for d in lab_check(record).memory.devices}
        for name, parts in record["measured"]["devices"].items():
            row = rows["CPU" if name == "Host" else name]
            for part, measured in parts.items():
                computed = getattr(row, part)
                exact = (
                    abs(computed - measured) <= 0.0151
                    if engine == "ik_llama.cpp"
                    else int(computed + 0.005) == measured
                )
                wrong += [] if exact else [(record["id"], name, part, computed, measured)]
    assert not wrong


def test_a_command_that_fits_says_so_with_its_speed() -> None:
    report = check(COMMAND, None, build("Qwen3-235B-A22B", "q2_k"), resolve(ONE_3090_DESKTOP))
    assert report.fits
    assert report.verdict.startswith("Fits: TG about ")
    assert [d.device for d in report.memory.devices] == ["CUDA0", "CPU"]
    assert report.memory.devices[0].gpu == "NVIDIA GeForce RTX 3090"
    assert [s.n_kv for s in report.speed] == [0, 4096, 16384]
    assert all(s.tg_low < s.tg_tps < s.tg_high for s in report.speed)


def test_everything_is_computed_where_it_does_not_fit_and_where_it_would_be_refused() -> None:
    report = of_3090("llama-server -c 131072 -ngl 99 -fmoe -sm row -mg 5 -ot 'a(=CPU' -dev CUDA0,CUDA9 -ctk q8_KV")
    assert not report.fits
    assert report.verdict.startswith("Does not fit: ")
    assert report.memory.devices[0].total_mib > report.memory.devices[0].capacity_mib
    assert report.speed[0].tg_tps > 0
    rules = {f.rule for f in report.findings}
    assert {"retired-flag", "split-mode-unknown", "main-gpu-unknown", "override-refused", "device-unknown"} <= rules


def test_what_llama_cpp_places_itself_is_computed_as_it_does() -> None:
    rig = resolve(ONE_3090_DESKTOP)
    left = check("llama-server -m m.gguf -c 8192", "llama.cpp", QWEN, rig)
    assert left.verdict.startswith("Fits: ")
    assert [f for f in left.findings if f.severity == "error"] == []
    assert "fit-places-itself" in [f.rule for f in left.findings]
    for stated in ("-ngl 999", "-ot blk.0.=CPU", "-ts 1", "-fit off"):
        assert check(f"llama-server -m m.gguf -c 8192 {stated}", "llama.cpp", QWEN, rig).verdict.startswith(
            "Does not fit"
        )


def test_the_capacity_is_what_is_free_on_the_card() -> None:
    rig = resolve(Hardware(gpus=[Gpu(name="RTX 3090", free_gib=20)], ram=Ram(total_gb=256)))
    assert check(COMMAND, "ik_llama.cpp", QWEN, rig).memory.devices[0].capacity_mib == 20 * 1024


def test_a_machine_without_gpus_has_one_row() -> None:
    report = check("llama-server -c 4096 -t 64", "ik_llama.cpp", QWEN, resolve(TWO_EPYC_NO_GPU))
    assert [d.device for d in report.memory.devices] == ["CPU"]
    assert report.fits


def test_hidden_cards_are_no_devices() -> None:
    rig = resolve(TWO_5090_TWO_4090)
    report = check(f"CUDA_VISIBLE_DEVICES=2 {COMMAND}", "ik_llama.cpp", QWEN, rig)
    assert [(d.device, d.gpu) for d in report.memory.devices[:-1]] == [("CUDA0", "NVIDIA GeForce RTX 4090")]


def test_the_depths_asked_for_are_answered() -> None:
    assert [s.n_kv for s in of_3090(depths=[8192, 0]).speed] == [0, 8192]
    with pytest.raises(InvalidInput, match="depths"):
        of_3090(depths=[-1])


@pytest.mark.parametrize(
    ("engine", "slots", "depths"),
    [
        ("llama.cpp", "-np 8", [0, 4_096]),
        ("llama.cpp", "-np 8 -kvu", [0, 4_096, 16_384]),
        ("llama.cpp", "", [0, 4_096, 16_384]),
        ("ik_llama.cpp", "-np 8", [0, 4_096]),
    ],
)
def test_speeds_end_where_the_context_of_a_slot_ends(engine: Engine, slots: str, depths: list[int]) -> None:
    report = of_3090(f"llama-server -m m.gguf -c 65536 -ngl 99 -ot exps=CPU {slots}", engine)
    assert [s.n_kv for s in report.speed] == depths
    shared = [finding.message for finding in report.findings if finding.rule == "context-shared"]
    tells = "each of 8 slots gets 8,192 of the 65,536 tokens of -c: no request can have more"
    assert shared == ([tells] if len(depths) == 2 else [])


def test_what_a_slot_gets_beyond_the_trained_context_is_said_once() -> None:
    small = build("Qwen3-14B", "q4_K_M")  # trained for 40,960 tokens
    report = check("llama-server -c 131072 -np 2 -ngl 99", "llama.cpp", small, resolve(TWO_5090_TWO_4090))
    rules = [finding.rule for finding in report.findings]
    assert "context-beyond-training" in rules
    assert "context-shared" not in rules


def test_a_command_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InvalidFlags):
        of_3090("what do I run?")


def test_a_measured_speed_stands_next_to_the_expected_one() -> None:
    report = of_3090(measured=[MeasuredSpeed(n_kv=0, tg_tps=0.4)])
    (compared,) = report.compared
    assert compared.verdict == "below"
    assert compared.text.startswith("TG at 0 tokens: 0.4 t/s measured, ")
    assert "slower-than-expected" in [f.rule for f in report.findings]


def test_findings_are_ordered_by_the_phase_that_is_too_slow() -> None:
    command = "llama-server -c 32768 -ub 512 -b 256 -ngl 99 -ot 'blk\\.[0-1]\\.ffn_up_exps=CUDA0' -ot exps=CPU"
    of_pp = of_3090(command, measured=[MeasuredSpeed(n_kv=0, pp_tps=0.1)])
    of_tg = of_3090(command, measured=[MeasuredSpeed(n_kv=0, tg_tps=0.1)])

    def first(report: CheckReport) -> str:
        costly = ("batch-below-micro-batch", "up-gate-apart", "micro-batch-below-threshold")
        return next(f.rule for f in report.findings if f.rule in costly)

    assert first(of_tg) == "up-gate-apart"
    assert first(of_pp) != "up-gate-apart"


def test_a_short_prompt_is_compared_with_a_micro_batch_of_its_length() -> None:
    short, whole = of_3090(
        measured=[MeasuredSpeed(pp_tps=50, n_prompt=64), MeasuredSpeed(pp_tps=50, n_prompt=4096)]
    ).compared
    assert short.expected < whole.expected


def test_buffers_of_a_log_equal_what_is_computed_for_the_run_it_is_of() -> None:
    model, rig = build("Qwen3-0.6B", "q4_0"), resolve(Hardware(gpus=[], ram=Ram(total_gb=16)))
    log = (LOGS / "ik-sweep-table.stderr").read_text()
    report = check("llama-sweep-bench -m m.gguf -c 2048 -t 2", "ik_llama.cpp", model, rig, log=log)
    memory = [c for c in report.compared if c.what not in ("pp", "tg")]
    assert {c.what for c in memory} == {"weights", "kv", "compute", "output", "graph_splits", "offloaded"}
    # Weights aside: this run mapped its file, where a tied head is the embedding's bytes once more (319.96 MiB in all);
    # the memory model counts it twice, as ik_llama.cpp does where it allocates (the lab's Gemma 3).
    assert [c.text for c in memory if c.verdict != "within" and c.what != "weights"] == []
    other = check("llama-sweep-bench -m m.gguf -c 4096 -t 2", "ik_llama.cpp", model, rig, log=log)
    assert "log-differs" in [f.rule for f in other.findings]


def test_a_pattern_that_never_ends_is_a_finding() -> None:
    report = of_3090("llama-server -c 4096 -ngl 99 -ot '(.*)*(.*)*(.*)*x=CPU' -ot exps=CPU")
    assert report.memory.devices
    assert {f.rule for f in report.findings} & {"override-refused", "override-matches-nothing"}


@pytest.mark.parametrize(
    ("engine", "day", "basis"),
    [
        ("ik_llama.cpp", None, "measured"),
        ("ik_llama.cpp", "2025-07-01", "source only"),
        ("ik_llama.cpp", "2025-02-01", "approximate"),
        ("llama.cpp", "2026-01-01", "source only"),
    ],
)
def test_the_figures_of_an_older_build_are_never_called_measured(engine: Engine, day: str | None, basis: str) -> None:
    assert {row.basis for row in of_3090(engine=engine, build=day).memory.devices} == {basis}


@pytest.mark.parametrize(
    ("machine", "options", "layers"),
    [
        ("M3 Ultra 256GB", "", "999"),
        ("M3 Ultra 256GB", "-ngl 10", "10"),
        ("2x RTX 3090, 7950X, 128GB", "", "0"),
    ],
)
def test_metal_offloads_all_layers_in_builds_that_otherwise_offload_none(
    machine: str, options: str, layers: str
) -> None:
    model, rig = build("Qwen3-30B-A3B", "q4_K_M"), resolve(parse_hardware(machine))
    report = check(f"llama-server -m a.gguf -c 4096 {options}", "llama.cpp", model, rig, build="2025-08-20")
    (found,) = [flag for flag in report.flags if flag.option == "-ngl"]
    assert (found.value, found.source) == (layers, "given" if options else "default")
    in_ram = report.memory.devices[-1].weights_mib > 1000
    assert in_ram == (layers != "999")


def test_a_log_of_another_model_is_said_to_be_one_and_not_compared() -> None:
    report = of_3090(log=(LOGS / "ik-sweep-table.stderr").read_text())
    assert [f.rule for f in report.findings if "log" in f.rule] == ["log-of-another-model"]
    assert report.compared == []


@pytest.mark.parametrize(("limit", "fits", "of"), [("8g", False, 8192), ("24g", True, 24576), ("1t", True, None)])
def test_the_ram_of_a_command_is_that_of_its_container(limit: str, fits: bool, of: int | None) -> None:
    image = "ghcr.io/ggml-org/llama.cpp:server-cuda"
    options = "-m m.gguf -c 8192 -ngl 99 --n-cpu-moe 40 --load-mode none"
    model, rig = build("Qwen3-30B-A3B", "q4_K_M"), resolve(parse_hardware("RTX 3090, 7950X, 64GB"))
    report = check(f"docker run --gpus all -m {limit} {image} {options}", "llama.cpp", model, rig)
    assert report.fits == fits
    assert report.memory.devices[-1].capacity_mib == (of or 65536)
    assert ("container-limits" in {found.rule for found in report.findings}) == (of is not None)
    assert fits or "on CPU" in report.verdict


def test_the_build_of_an_image_s_tag_is_named_as_assumed() -> None:
    image = "ghcr.io/ggml-org/llama.cpp:server-cuda-b6100"
    report = of_3090(f"docker run --gpus all {image} -m m.gguf -c 4096 -fa", "llama.cpp")
    assert "retired-flag" not in {found.rule for found in report.findings}
    (assumed,) = [one for one in report.assumed if one.field == "build"]
    assert (assumed.value[:5], assumed.why) == ("b6100", "the program's folder or image names it")


_REQUEST = """prompt eval time =     184.43 ms /   142 tokens (    1.30 ms per token,   769.93 tokens per second)
       eval time =  469503.36 ms / 35716 tokens (   13.15 ms per token,    76.07 tokens per second)
"""
_ACCEPTED = "draft acceptance = 0.74482 (24673 accepted / 33126 generated)"


@pytest.mark.parametrize(
    ("options", "log", "why"),
    [
        ("", _REQUEST, None),
        ("", _REQUEST + _ACCEPTED, "1 request is not compared: tokens were drafted"),
        ("--spec-type draft-mtp", _REQUEST, "requests are not compared: the command drafts"),
        ("--spec-type ngram-simple", _REQUEST, "requests are not compared: the command drafts"),
        ("-md draft.gguf", _REQUEST, "requests are not compared: the command drafts"),
        ("--spec-type draft-mtp", _REQUEST + _ACCEPTED, "1 request is not compared: tokens were drafted"),
    ],
)
def test_requests_with_drafted_tokens_are_told_and_not_compared(options: str, log: str, why: str | None) -> None:
    report = of_3090(f"llama-server -c 65536 -ngl 99 {options}", engine="llama.cpp", log=log)
    told = [found.message for found in report.findings if found.rule == "log-request-unused"]
    assert [one.startswith(why or "") for one in told] == ([True] if why else [])
    assert bool(report.compared) == (why is None)


def test_the_engine_is_taken_from_the_log() -> None:
    log = (LOGS / "ik-sweep-table.stderr").read_text()
    report = check("llama-server -c 2048", None, build("Qwen3-0.6B", "q8_0"), resolve(ONE_3090_DESKTOP), log=log)
    assert report.engine == "ik_llama.cpp"


IK_TYPES = build("GLM-4.5-Air", "exps=iq4_kss,*=q8_0")


def test_a_command_that_names_no_engine_is_of_the_one_that_can_load_the_model_and_that_is_said() -> None:
    rig = resolve(ONE_3090_DESKTOP)
    guessed = check("llama-server -m m.gguf -ngl 99 -ncmoe 40 -c 8192", None, IK_TYPES, rig)
    assert (guessed.engine, guessed.fits) == ("ik_llama.cpp", True)
    assert (guessed.assumed[0].field, guessed.assumed[0].value) == ("engine", "ik_llama.cpp")
    assert not [one for one in guessed.findings if one.rule == "cannot-load"]


@pytest.mark.parametrize("machine", ["Strix Halo 128GB", "2x RX 7900 XTX, 7950X, 128GB", "M3 Ultra 256GB"])
@pytest.mark.parametrize("day", [None, "b6486", "2025-09-16"])
def test_a_guessed_engine_runs_on_the_gpus_and_is_said_to_be_guessed(machine: str, day: str | None) -> None:
    model, rig = build("Qwen3-30B-A3B", "q4_K_M"), resolve(parse_hardware(machine))
    report = check("llama-bench -ngl 99 -mmp 0 -m X.gguf", None, model, rig, build=day)
    assert report.engine == "llama.cpp"
    assert "guessed" in next(one.why for one in report.assumed if one.field == "engine")
    assert not [one for one in report.findings if one.rule == "cannot-load"]


def test_an_engine_that_had_the_options_first_is_not_guessed_for_gpus_that_it_cannot_use() -> None:
    model, rig = build("Qwen3-30B-A3B", "q4_K_M"), resolve(parse_hardware("RX 7900 XTX, 7950X, 128GB"))
    report = check("llama-server -m X.gguf -ngl 99 -ot exps=CPU", None, model, rig, build="2025-03-20")
    assert report.engine == "llama.cpp"
    of_nvidia = check("llama-server -m X.gguf -ngl 99 -fmoe", None, model, rig)
    assert of_nvidia.engine == "ik_llama.cpp"
    assert of_nvidia.verdict.startswith("Does not run: ik_llama.cpp offloads only to NVIDIA cards")


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        ("~/llama.cpp/build/bin/llama-server -m m.gguf -ngl 99 -ncmoe 40 -c 8192", None),
        ("llama-server -m m.gguf -ngl 99 -ncmoe 40 -c 8192 -lm none", None),
        ("llama-server -m m.gguf -ngl 99 -ncmoe 40 -c 8192", "llama.cpp"),
    ],
)
def test_an_engine_that_cannot_load_the_model_is_the_first_thing_said(command: str, engine: Engine | None) -> None:
    report = check(command, engine, IK_TYPES, resolve(ONE_3090_DESKTOP))
    assert report.engine == "llama.cpp"
    assert report.verdict.startswith("Does not run: llama.cpp cannot load the tensor types IQ4_KSS")


@pytest.mark.parametrize(("kept", "said"), [(2, "leaves 3 layers in RAM"), (0, "leaves 1 layer in RAM")])
def test_the_layers_that_a_number_leaves_in_ram_are_counted_as_the_engine_counts(kept: int, said: str) -> None:
    model = build("Qwen3-14B", "q4_K_M")
    command = f"llama-server -m m.gguf -ngl {model.n_layer - kept} -c 4096 -fit off"
    report = check(command, "llama.cpp", model, resolve(ONE_3090_DESKTOP))
    (found,) = [one for one in report.findings if one.rule == "layers-in-ram"]
    assert said in found.message


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ("--n-gpu-layer 99", "no option --n-gpu-layer"),
        ("-fa -ngl 99", "-fa now needs a value"),
        ("-ngl 99 -ctk q9_0", "q9_0"),
    ],
)
def test_a_command_that_its_program_refuses_is_not_said_to_fit(options: str, refused: str) -> None:
    small = build("Qwen3-30B-A3B", "q4_K_M")
    report = check(f"llama-server -m m.gguf -fit off -c 8192 {options}", "llama.cpp", small, resolve(ONE_3090_DESKTOP))
    assert report.verdict.startswith("Does not start with today's build: ")
    assert refused in report.verdict
    assert "Corrected, it fits: TG about " in report.verdict


@pytest.mark.parametrize(
    ("command", "engine", "why"),
    [
        ("-fa off -ctv q8_0", "llama.cpp", "-ctv q8_0 needs flash attention, which is off"),
        ("--spec-type draft-mtp", "llama.cpp", "--spec-type needs next-token layers (MTP), but the file has none"),
        ("--fit -ot exps=CPU", "ik_llama.cpp", "--fit with -ot, -cmoe or -ncmoe"),
    ],
)
def test_a_command_that_ends_while_the_model_loads_is_not_said_to_fit(command: str, engine: Engine, why: str) -> None:
    small = build("Qwen3-30B-A3B", "q4_K_M")
    report = check(f"llama-server -m m.gguf -c 8192 -ngl 99 {command}", engine, small, resolve(ONE_3090_DESKTOP))
    assert report.verdict.startswith(f"Does not start with today's build: {why}. Corrected, it fits: TG about ")


# As posted in issue 749 of ik_llama.cpp: up in RAM and gate on the cards.
def test_a_fix_may_cost_a_little_of_one_phase_for_many_times_the_other() -> None:
    rig = resolve(Hardware(gpus=[Gpu(name="RTX 4090", count=2)], cpu=Cpu(model="EPYC 7713"), ram=Ram(total_gb=128)))
    command = "llama-server -m m.gguf -c 128000 -fa -fmoe -ctk q4_0 -ctv q4_0 -ub 4096 -b 4096 -ngl 99 -t 30"
    rule = "-ot '.ffn_(up|down)_exps.=CPU'"
    report = check(f"{command} {rule}", "ik_llama.cpp", build("GLM-4.5-Air", "iq4_kss"), rig, build="d10d90ae")
    (found,) = [one for one in report.findings if one.rule == "up-gate-apart"]
    assert found.fix is not None
    assert "not proposed" not in found.message


# As posted in llama.cpp issue 20129.
def test_prompts_without_a_limit_are_limited_in_the_options_own_spelling() -> None:
    command = "llama-server -m m.gguf -ngl 99 -c 8192 --cache-ram -1"
    report = check(command, "llama.cpp", build("Qwen3-14B", "q4_K_M"), resolve(ONE_3090_DESKTOP))
    (found,) = [one for one in report.findings if one.rule == "ram-grows"]
    assert "may take RAM without a limit: prompts (-cram)" in found.message
    assert report.fixed is not None
    assert report.fixed.endswith("-c 8192 --cache-ram 8192")


@pytest.mark.full
def test_more_rules_than_are_read_here_do_not_keep_the_engine_from_starting() -> None:
    """A rule for each expert tensor, as tools write them: 282 of Qwen3-235B."""
    rules = " ".join(rf"-ot 'blk\.{i}\.ffn_{part}_exps=CPU'" for i in range(94) for part in ("up", "gate", "down"))
    model = build("Qwen3-235B-A22B", "q2_k")
    report = check(f"llama-server -m m.gguf -ngl 99 -c 8192 {rules}", "llama.cpp", model, resolve(ONE_3090_DESKTOP))
    full = check(f"llama-server -m m.gguf -ngl 99 -c 131072 {rules}", "llama.cpp", model, resolve(ONE_3090_DESKTOP))
    assert not [one for one in (report, full) if "Does not start" in one.verdict]
    (found,) = [one for one in report.findings if one.rule == "override-refused"]
    assert (found.severity, found.message) == ("warning", "282 -ot rules: the figures are for the first 256")


def test_an_adapter_is_said_not_to_be_counted() -> None:
    command = "llama-server -m m.gguf -ngl 99 -c 8192 --lora adapter.gguf"
    report = check(command, "llama.cpp", build("Qwen3-14B", "q4_K_M"), resolve(ONE_3090_DESKTOP))
    assert "Fits, apart from what is not counted" in report.verdict


@pytest.mark.parametrize("context", ["", "-c 65536"])
def test_where_attention_takes_what_is_missing_flash_attention_is_the_one_fix(context: str) -> None:
    rig = resolve(parse_hardware("Arc A770 16GB, SYCL, Ryzen 7 5800X, 64GB"))
    command = f"llama-server -m m.gguf -fa 0 -ngl 999 {context}"
    report = check(command, "llama.cpp", build("gpt-oss-20b", "exps=mxfp4,*=q8_0"), rig, build="b7195")
    assert [(one.rule, one.fix) for one in report.findings if one.severity == "error"] == [("does-not-fit", "-fa on")]
    assert report.fixed is not None
    assert report.fixed_figures is not None
    assert report.fixed_figures.fits


# As posted in llama.cpp issue 22774: the machine stopped at some 50,000 tokens.
def test_what_a_server_allocates_is_weighed_against_what_the_gpu_leaves_of_shared_memory() -> None:
    rig = resolve(parse_hardware("AI Max+ 395, 128GB, vulkan, amdgpu.gttsize=115200"))
    command = "llama-server -m m.gguf -c 262144 -ngl 999 -fa on -lm none"
    report = check(command, "llama.cpp", build("Gemma-4-31B", "q8_0"), rig)
    (found,) = [one for one in report.findings if one.rule == "ram-grows"]
    assert found.severity == "warning"
    assert found.fix is not None
    assert report.fixed is not None
    again = check(report.fixed, "llama.cpp", build("Gemma-4-31B", "q8_0"), rig)
    assert [one for one in again.findings if one.severity != "info"] == []


# As posted in llama.cpp issue 20509, where the server was killed for its memory.
def test_prompts_that_an_older_server_keeps_are_counted() -> None:
    rig = resolve(Hardware(gpus=[Gpu(name="RTX 3090")], cpu=Cpu(model="Core i5-6600K"), ram=Ram(total_gb=12)))
    command = "llama-server -m m.gguf -ngl all -np 1 --cache-ram 8192 -fa on -c 40000"
    for date, kept in (("2026-02-01", " 8 checkpoints"), ("2026-03-17", " 32 checkpoints")):  # "12 of 32" in its log
        report = check(command, "llama.cpp", build("Gemma-4-31B", "q4_K_M"), rig, build=date)
        (found,) = [one for one in report.findings if one.rule == "ram-grows"]
        assert kept in found.message
    before = check(
        command.replace("--cache-ram 8192", ""), "llama.cpp", build("Gemma-4-31B", "q4_K_M"), rig, build="2025-09-01"
    )
    assert all(one.rule != "ram-grows" for one in before.findings)


def test_a_number_that_the_engine_reads_otherwise_is_computed_as_it_is_meant() -> None:
    small = build("Qwen3-30B-A3B", "q4_K_M")
    report = check("llama-server -m m.gguf -fit off -ngl 99 -c 8k", "llama.cpp", small, resolve(ONE_3090_DESKTOP))
    assert report.verdict.startswith(
        "Runs, but not as meant: -c 8k: a whole number must follow, and the engine reads 8"
    )
    meant = check("llama-server -m m.gguf -fit off -ngl 99 -c 8192", "llama.cpp", small, resolve(ONE_3090_DESKTOP))
    assert report.memory == meant.memory
    too_long = check("llama-server -m m.gguf -fit off -ngl 99 -c 128k", "llama.cpp", small, resolve(ONE_3090_DESKTOP))
    assert too_long.verdict.startswith("Does not fit")


def test_a_number_too_large_for_the_engine_ends_it() -> None:
    small = build("Qwen3-30B-A3B", "q4_K_M")
    report = check("llama-server -m m.gguf -ngl 99 -c 3000000000", "llama.cpp", small, resolve(ONE_3090_DESKTOP))
    assert report.verdict.startswith("Does not start with today's build: -c 3000000000: the number is too large")


def test_a_container_without_a_gpu_is_checked_on_the_cpu() -> None:
    image = "ghcr.io/ggml-org/llama.cpp"
    options = "-m m.gguf -ngl 99 -c 4096"
    small = build("Qwen3-14B", "q4_K_M")
    for command in (f"docker run {image}:server-cuda", f"docker run --gpus all {image}:server-b9000"):
        report = check(f"{command} {options}", "llama.cpp", small, resolve(ONE_3090_DESKTOP))
        assert [row.device for row in report.memory.devices] == ["CPU"]
        assert "no-gpu-in-container" in [f.rule for f in report.findings]
    shown = check(
        f"docker run --runtime nvidia {image}:server-cuda {options}", "llama.cpp", small, resolve(ONE_3090_DESKTOP)
    )
    assert [row.device for row in shown.memory.devices] == ["CUDA0", "CPU"]


def test_which_of_several_commands_was_checked_is_said_with_how_the_others_begin() -> None:
    report = of_3090(f"{COMMAND}\n./llama-server -m {'b' * 90}.gguf")
    (told,) = [one for one in report.assumed if one.field == "command"]
    assert COMMAND.startswith(told.value.rstrip("…"))
    assert told.why.startswith(
        "the first of 2 commands in the text; neither checked nor counted: `./llama-server -m bb"
    )
    assert all(one.field != "command" for one in of_3090(COMMAND).assumed)


@pytest.mark.parametrize(("build_date", "is_known"), [("2025-12-20", False), ("2026-05-01", True)])
def test_a_split_mode_that_is_younger_than_the_build_is_an_error(build_date: str, is_known: bool) -> None:
    rig = resolve(parse_hardware("2x RTX 3090, 5950X, 64GB DDR4-3600"))
    command = "llama-server -m x.gguf -ngl 99 -fa on -sm tensor -c 8192"
    report = check(command, "llama.cpp", build("Llama-3.3-70B", "iq4_xs"), rig, build=build_date)
    assert ("split-mode-unknown" in {finding.rule for finding in report.findings}) == (not is_known)


# Of a build that lists both: llama.cpp pull 22673. A margin of 1,024 MiB is left of what it calls free.
@pytest.mark.parametrize(
    ("card", "most"),
    [
        (
            "Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes, VRAM: 24080 MiB (23605 MiB free)",
            22_581,
        ),
        ("RTX 4090", 22_581),
        ("RTX 4090 20 GiB free", 19_456),
    ],
)
def test_fit_fills_what_the_engine_finds_free_and_not_what_nvidia_smi_shows(card: str, most: int) -> None:
    rig = resolve(parse_hardware(f"{card}\ni9-13900K, 64GB DDR5-5600"))
    command = "llama-server -m m.gguf -c 131072 -np 1 -fit on"
    on_card = check(command, "llama.cpp", build("Qwen3.5-35B-A3B", "q6_k"), rig).memory.devices[0]
    own = on_card.weights_mib + on_card.kv_mib + on_card.compute_mib
    assert most - 1_024 < own <= most


# llama.cpp pull 14939 (4 August 2025), ik_llama.cpp pull 668 (7 August)
@pytest.mark.parametrize(
    ("engine", "build_date", "loads"),
    [
        ("llama.cpp", "2025-06-01", False),
        ("llama.cpp", "2025-08-08", True),
        ("ik_llama.cpp", "2025-07-20", False),
        ("ik_llama.cpp", "2025-08-07", True),
    ],
)
def test_a_build_from_before_the_architecture_does_not_load_the_model(
    engine: Engine, build_date: str, loads: bool
) -> None:
    rig = resolve(parse_hardware("RTX 4090, Ryzen 9 7950X, 128GB DDR5-5600"))
    report = check(
        "llama-server -m x.gguf -ngl 99 -c 8192", engine, build("GLM-4.5-Air", "q4_K_M"), rig, build=build_date
    )
    refused = [finding for finding in report.findings if finding.rule == "cannot-load"]
    assert bool(refused) != loads
    assert loads or "or newer do" in refused[0].message


def test_types_that_no_build_loads_are_not_answered_with_a_newer_build() -> None:
    rig = resolve(parse_hardware("RTX 4090, Ryzen 9 7950X, 128GB DDR5-5600"))
    report = check("llama-server -m x.gguf -ngl 99 -c 8192", "llama.cpp", build("GLM-4.5-Air", "iq4_ks"), rig)
    (refused,) = [finding for finding in report.findings if finding.rule == "cannot-load"]
    assert "cannot load the tensor types" in refused.message
    assert refused.fix is None
