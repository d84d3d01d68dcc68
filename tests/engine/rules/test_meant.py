"""What a command that cannot do what it says is told to do instead."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.check.run import check
from service.engine.commands.parse import parse
from service.engine.config import Engine
from service.engine.finding import Finding
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.hardware_text import parse_hardware
from service.engine.rules.all_rules import all_rules
from service.engine.rules.case import case_of
from service.engine.rules.proof import proven
from service.engine.rules.spelling import retired_flag
from tests.engine.rules.examples import DENSE_SMALL, GLM, LLAMA
from tests.models import build
from tests.rigs import ONE_3090_DESKTOP

PLAIN = "llama-server -m m.gguf -ngl 99 -c 8192"
LITTLE_RAM = Hardware(gpus=[Gpu(name="RTX 3090")], cpu=Cpu(model="Ryzen 9 5950X"), ram=Ram(total_gb=56))


def told(command: str, rule: str, model: tuple[str, str], rig: Hardware) -> list[Finding]:
    case = case_of(parse(command, LLAMA), build(*model), resolve(rig), command, "cuda")
    (wanted,) = [one for one in all_rules() if one.id == rule]
    return [finding for finding, _ in proven(case, wanted, all_rules())]


def found(command: str, rule: str, model: tuple[str, str] = DENSE_SMALL, rig: Hardware = ONE_3090_DESKTOP) -> Finding:
    return told(command, rule, model, rig)[0]


@pytest.mark.parametrize(
    ("written", "fix"),
    [
        ("--ngl 99", "-ngl 99; leave out --ngl"),
        ("-nlg 99", "-ngl 99; leave out -nlg"),
        ("-ctx-size 4096", "--ctx-size 4096; leave out -ctx-size"),
        ("--ctx 4096", "--ctx-size 4096; leave out --ctx"),
        ("--flash-atn on", "--flash-attn on; leave out --flash-atn"),
        ("--no-kv-ofload", "--no-kv-offload; leave out --no-kv-ofload"),
        ("-ngl=99", "-ngl 99"),
        ("--ctx-size=4096", "--ctx-size 4096"),
        ("--flash-atn", "-fa on; leave out --flash-atn"),
        ("--n-gpu-layer 50 -ngl 99", "leave out --n-gpu-layer"),
        ("--n-gpu-layer 50 -ngl=99", "leave out --n-gpu-layer"),
        ("-ngl 99 --n-gpu-layer 50", "--n-gpu-layers 50; leave out --n-gpu-layer"),
        ("--wibble 3", "leave out --wibble 3"),
        ("-xx", "leave out -xx"),
    ],
)
def test_a_mistyped_option_is_told_what_may_be_meant(written: str, fix: str) -> None:
    assert found(f"llama-server -m m.gguf -c 8192 {written}", "unknown-flag").fix == fix


@pytest.mark.parametrize("folder", ["", "./build/bin/"])
def test_a_mistyped_program_is_told_its_name(folder: str) -> None:
    one = found(f"{folder}lama-server -m m.gguf -c 8192 -ngl 99", "unknown-flag")
    assert "did you mean llama-server?" in one.message
    assert one.fix == "llama-server instead of lama-server"


@pytest.mark.parametrize(
    ("written", "number"), [("16k", "16384"), ("8,192", "8192"), ("8_192", "8192"), ("4K", "4096")]
)
def test_a_number_with_a_unit_or_separators_is_told_what_the_engine_reads_and_what_is_meant(
    written: str, number: str
) -> None:
    one = found(f"llama-server -m m.gguf -ngl 99 -c {written}", "value-not-understood")
    assert one.fix == f"-c {number}"
    assert f"the engine reads {written.partition(',')[0].rstrip('kK').partition('_')[0]}" in one.message


@pytest.mark.parametrize(
    ("written", "fix"),
    [
        ("--no-mmap", "-lm none; leave out --no-mmap"),
        ("--mlock", "-lm mmap+mlock; leave out --mlock"),
        ("--mlock --no-mmap", "-lm mlock; leave out --mlock and --no-mmap"),
    ],
)
def test_how_a_file_is_loaded_is_told_in_todays_one_option(written: str, fix: str) -> None:
    assert found(f"{PLAIN} {written}", "retired-flag").fix == fix


@pytest.mark.parametrize(
    ("engine", "written", "fix"),
    [
        ("llama.cpp", "-mmp 0", "-lm none; leave out -mmp"),
        ("llama.cpp", "--mmap 1", "-lm mmap; leave out --mmap"),
        ("ik_llama.cpp", "-ncmoe 4", "--n-cpu-moe instead of -ncmoe"),
        ("ik_llama.cpp", "--gpu-layers 99", "-ngl instead of --gpu-layers"),
    ],
)
def test_options_of_llama_bench_are_told_by_the_name_it_has(engine: Engine, written: str, fix: str) -> None:
    """tests/data/help: ik_llama.cpp's has --n-cpu-moe alone, llama.cpp's -lm for -mmp (pull 28334)."""
    command = f"llama-bench -m m.gguf {written} -p 512 -n 64"
    case = case_of(parse(command, engine), build("Qwen3-30B-A3B", "q4_k_m"), resolve(ONE_3090_DESKTOP), command, "cuda")
    assert fix in [finding.fix for finding, _ in proven(case, retired_flag, all_rules())]


@pytest.mark.parametrize("written", ["-ncmoe 20", "-cmoe", "--n-cpu-moe 8"])
def test_experts_in_ram_are_told_to_be_none_where_the_model_has_none(written: str) -> None:
    one = found(f"{PLAIN} {written}", "override-matches-nothing")
    assert one.fix == f"leave out {written.split()[0]}"


@pytest.mark.parametrize(
    ("placed", "begins"),
    [
        ("-ngl 99 -ot exps=CPU", "-ot 'blk"),
        ("-ngl 20 -ot exps=CPU", "-ngl 999; -ot 'blk"),
        ("-ngl 99 -cmoe", "-ncmoe "),
        ("-ngl 99 -ot exps=CPU -lm none", "-ot 'blk"),
    ],
)
def test_what_ram_has_no_room_for_goes_to_a_card_that_has(placed: str, begins: str) -> None:
    one = found(f"llama-server -m m.gguf -c 16384 -fit off {placed}", "ram-too-small", GLM, LITTLE_RAM)
    assert one.fix is not None
    assert one.fix.startswith(begins)
    assert one.gain is not None
    assert one.gain.startswith("fits: ")


def test_cards_together_take_what_one_of_them_has_no_room_for() -> None:
    rig = Hardware(gpus=[Gpu(name="RTX 3090", count=2)], cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=48))
    one = found("llama-server -m m.gguf -c 8192 -ngl 99 -ot exps=CPU", "ram-too-small", GLM, rig)
    assert one.fix is not None
    assert "=CUDA0'" in one.fix
    assert "=CUDA1'" in one.fix


def test_a_table_of_numbers_on_a_gpu_is_no_weight_that_it_cannot_multiply_by() -> None:
    command = "llama-server -m m.gguf -ngl 99 -c 8192 -ot exps=CPU"
    model = "DeepSeek-V4-Flash", "q8_0"
    assert "i32" in build(*model).types
    assert told(command, "type-without-gpu-kernel", model, LITTLE_RAM) == []


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("Gemma-3-12B", "the cache of a sliding window cannot be shifted; --swa-full would allow it, for "),
        ("Qwen3-Next-80B-A3B", "recurrent layers cannot leave out a part of what they have read"),
        ("DeepSeek-V4-Flash", "the server turns it off for deepseek4"),
        ("Step-3.5-Flash", "the server turns it off for step35"),
        ("Qwen3-VL-30B-A3B", "the server turns it off for models whose positions have several axes"),
    ],
)
def test_what_cannot_be_reused_is_said_with_the_reason(model: str, says: str) -> None:
    two = Hardware(gpus=[Gpu(name="RTX 3090")], cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=192))
    command = "llama-server -m m.gguf -ngl 99 -c 65536 -np 1 -ot exps=CPU --cache-reuse 256"
    one = found(command, "cache-reuse-without-effect", (model, "q4_K_M"), two)
    assert says in one.message
    assert one.message.endswith("what a prompt begins with is reused all the same")
    assert one.fix == "leave out --cache-reuse"


def test_a_chunk_is_reused_where_the_window_is_as_long_as_the_context() -> None:
    command = "llama-server -m m.gguf -ngl 99 -c 1024 -np 1 --cache-reuse 256"
    assert not told(command, "cache-reuse-without-effect", ("Gemma-3-12B", "q4_K_M"), ONE_3090_DESKTOP)


def test_layers_that_fit_leaves_in_ram_are_said_once_with_a_placement_that_keeps_room_for_the_desktop() -> None:
    model = ("Qwen3.5-35B-A3B", "q4_k_m")
    rig = Hardware(gpus=[Gpu(name="RTX 3090")], cpu=Cpu(model="Ryzen 9 5900X"), ram=Ram(total_gb=64))
    command = "llama-server -m m.gguf -c 262144 -np 4 -kvu -ctk q8_0 -ctv q8_0"
    assert not told(command, "layers-in-ram", model, rig)
    assert found(command, "fit-places-itself", model, rig).fix


def test_what_needs_full_windows_is_left_out_with_them_where_they_do_not_fit() -> None:
    command = "llama-server -m m.gguf -ngl 99 -ncmoe 28 -fit off -c 131072 -np 1 --swa-full"
    model = ("gpt-oss-120b", "exps=mxfp4,*=q8_0")
    assert found(command, "does-not-fit", model).fix == "leave out --swa-full"
    assert found(f"{command} --cache-reuse 256", "does-not-fit", model).fix == "leave out --swa-full and --cache-reuse"


def test_a_cache_in_ram_goes_to_the_card_as_q8_0_where_only_that_fits() -> None:
    rig = Hardware(gpus=[Gpu(name="RTX 3060")], cpu=Cpu(model="Core i5-10400F"), ram=Ram(total_gb=32))
    command = "llama-server -m m.gguf -c 131072 -np 1 -ngl 99 -fa on --n-cpu-moe 46"
    one = found(f"{command} -nkvo", "cache-in-ram", ("Qwen3-30B-A3B", "q4_K_M"), rig)
    assert one.message.startswith("-nkvo keeps the cache in RAM although it fits on the GPUs as q8_0: without it, ")
    assert one.fix == "-ctk q8_0 -ctv q8_0; leave out -nkvo"
    slots = found(f"{command} -nkvo -np 4", "cache-in-ram", ("Qwen3-30B-A3B", "q4_K_M"), rig)
    assert "after 16,384 tokens" in slots.message  # half of what a slot has
    assert slots.gain is not None
    assert "at 65,536" not in slots.gain
    assert not told(f"{command} -nkvo -c 262144", "cache-in-ram", ("Qwen3-30B-A3B", "q4_K_M"), rig)


@pytest.mark.parametrize(
    "option", ["-ctk $KV", "-fa ${FA}", "-fit %FIT%", "-sm $SM", "-lm $LM", "--numa $N", "-ts $TS", "-ot $OT", "-b $B"]
)
def test_a_value_in_a_variable_that_is_not_set_is_asked_for_whatever_the_option(option: str) -> None:
    """A unit whose `EnvironmentFile` is not in the text: nothing is known to be wrong with it."""
    parsed = parse(f"llama-server -m m.gguf -ngl 7 {option} -c 4096", LLAMA)
    assert [wrong.detail.endswith("whose value is not in the text") for wrong in parsed.refused] == [True]
    assert (parsed.unknown, parsed.old, parsed.flags.n_ctx, parsed.flags.n_gpu_layers) == ((), (), 4096, 7)


@pytest.mark.parametrize("day", [None, "2026-10-11"])
@pytest.mark.parametrize(
    "command",
    [
        "llama-completion -m m.gguf -p 'a prompt' -n 32 -no-cnv --simple-io",
        "llama-cli -m m.gguf -f prompt.txt --no-display-prompt --single-turn",
        "llama-perplexity -m m.gguf -f wiki.test.raw --no-ppl",
    ],
)
def test_options_of_the_engines_other_programs_are_known(command: str, day: str | None) -> None:
    report = check(command, LLAMA, build(*DENSE_SMALL), resolve(ONE_3090_DESKTOP), build=day)
    assert not {found.rule for found in report.findings} & {"unknown-flag", "newer-flag"}


def test_memory_that_a_gpu_shares_is_short_once() -> None:
    """It is said of the GPU; "0.8 GiB of RAM are needed, but there are 128.0" was said beside it."""
    rig, large = resolve(parse_hardware("Strix Halo 128GB")), build("Qwen3-235B-A22B", "q6_K")
    report = check("llama-server -m m.gguf -c 4096 -ngl 99 -lm none -fit off", LLAMA, large, rig)
    assert [one.rule for one in report.findings if one.rule in ("does-not-fit", "ram-too-small")] == ["does-not-fit"]
