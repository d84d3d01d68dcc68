"""The command in one piece, with what was found corrected."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.check.run import check
from service.engine.commands.shell import fold
from service.engine.config import Engine
from service.engine.hardware_text import parse_hardware
from tests.models import build
from tests.rigs import ONE_3090_DESKTOP

AIR = build("GLM-4.5-Air", "q4_K_M")
GPT_OSS = build("gpt-oss-120b", "exps=mxfp4,*=q8_0")
RIG = resolve(ONE_3090_DESKTOP)
PUBLISHED = (  # after github.com/ikawrakow/ik_llama.cpp/pull/668, August 2025
    "CUDA_VISIBLE_DEVICES=0 ./build/bin/llama-server --model GLM-4.5-Air-IQ4_KSS.gguf -fa -fmoe -rtr -amb 512 "
    "-ctk q8_0 -ctv q8_0 -ngl 99 -ot 'blk\\.(1[0-9]|[2-4][0-9])\\.ffn_.*=CPU' -c 32768 --threads 16 --parallel 1"
)


@pytest.mark.parametrize(
    "command",
    [
        PUBLISHED,
        "llama-server -m m.gguf -ngl 99 -c 8192 --n-gpu-layer 99 --flash-atn",
        "llama-server -m m.gguf -c 8192 -nlg 99",
        "llama-server -m m.gguf -c 32768 -fa -fmoe -ctk q8_0 -ngl 99 -ot exps=CPU",
        "llama-server -m m.gguf -c 16k -ngl 99 -ot exps=CPU",
        "llama-server -m m.gguf -c 16384 -ngl 99 -ot 'blk\\.[0-9]{1,2}\\.ffn_.*_exps=CPU,output=CUDA0'",
        "llama-server -m m.gguf -c 16384 -ngl 99 -ot 'blk.(1,2).ffn_.*_exps=CPU'",
    ],
)
def test_the_fixed_command_starts_and_fits_where_the_one_asked_about_does_not(command: str) -> None:
    before = check(command, None, AIR, RIG)
    assert not before.verdict.startswith("Fits")
    assert before.fixed is not None
    after = check(before.fixed, before.engine, AIR, RIG)
    assert after.verdict.startswith("Fits: TG about ")
    assert [f for f in after.findings if f.severity == "error"] == []


@pytest.mark.parametrize(
    ("command", "hardware"),
    [
        ("llama-server -m m.gguf -ncmoe 36 -ngl 999 -c 0 -fa on", "RTX 3090, 14900K, 96GB DDR5-6800"),
        ("llama-server -m m.gguf -sm row -ncmoe 26 -ngl 99 -fa on", "2x RTX 3090, 5800X, 64GB DDR4"),
        ("llama-server -m m.gguf -ngl 99 -c 32768 -fa on", "RTX 4090, 7950X, 96GB DDR5-6000"),
        ("llama-server -m m.gguf -ngl 20 -c 32768 -fa", "RTX 3060, 5800X, 64GB DDR4-3200"),
    ],
)
def test_the_figures_of_the_corrected_command_are_those_of_its_own_check(command: str, hardware: str) -> None:
    rig = resolve(parse_hardware(hardware))
    before = check(command, "llama.cpp", GPT_OSS, rig)
    assert before.fixed is not None
    figures, after = before.fixed_figures, check(before.fixed, "llama.cpp", GPT_OSS, rig)
    assert figures is not None
    assert figures.fits
    assert (figures.memory, figures.speed) == (after.memory, after.speed)
    assert after.verdict.startswith("Fits: TG about ")
    assert [f for f in after.findings if f.severity == "error"] == []
    assert f"{figures.speed[0].tg_tps:,.1f}" in before.verdict
    if before.fits:
        assert figures.speed[0].tg_tps >= before.speed[0].tg_tps
        assert figures.speed[0].pp_tps >= before.speed[0].pp_tps


def test_the_first_sentence_rounds_a_speed_as_the_table_does() -> None:
    rig = resolve(parse_hardware("RTX 3090, 14900K, 96GB DDR5-6800"))
    report = check("llama-server -m m.gguf -ncmoe 36 -ngl 999 -c 0 -fa on", "llama.cpp", GPT_OSS, rig)
    at = report.speed[0]
    assert f"TG about {at.tg_tps:,.1f} t/s ({at.tg_low:,.1f} to {at.tg_high:,.1f}) with" in report.verdict


def test_a_fix_gives_way_to_one_that_has_room_beside_those_before_it() -> None:
    """What is proposed for a command alone takes room that a larger micro-batch needs."""
    rig = resolve(parse_hardware("RTX 3090, 14900K, 96GB DDR5-6800"))
    report = check("llama-server -m m.gguf -ncmoe 36 -ngl 999 -c 0 -fa on", "llama.cpp", GPT_OSS, rig, reserve_mib=1000)
    (alone,) = [f.fix for f in report.findings if f.rule == "room-for-experts"]
    assert alone == "-ncmoe 27"
    assert report.fixed is not None
    assert report.fixed_figures is not None
    assert "-ub 4096" in report.fixed
    assert report.fixed.endswith("-ncmoe 28")
    assert report.fixed_figures.memory.devices[0].free_mib >= 1000


def test_where_no_change_makes_it_fit_there_is_no_corrected_command() -> None:
    rig = resolve(parse_hardware("RTX 3060, i5-12400F, 16GB DDR4"))
    report = check("llama-server -m m.gguf -ngl 99 -c 32768 --no-mmap -fa", "llama.cpp", GPT_OSS, rig)
    assert not report.fits
    assert [f.fix for f in report.findings if f.rule == "does-not-fit"] == [None]
    assert "-fa on" in [f.fix for f in report.findings]
    assert (report.fixed, report.fixed_figures) == (None, None)


def test_what_is_computed_for_this_machine_alone_corrects_no_command_of_several() -> None:
    found = check("llama-server -m m.gguf -c 8192 -ngl 99 --rpc 192.168.1.20:50052 -fa", "llama.cpp", AIR, RIG)
    assert {"rpc-not-supported", "retired-flag"} <= {one.rule for one in found.findings}
    assert found.fixed is None


@pytest.mark.parametrize(
    ("engine", "written", "now"),
    [
        ("ik_llama.cpp", "-lm none", "--no-mmap"),
        ("ik_llama.cpp", "-fit off", ""),
        ("ik_llama.cpp", "--no-op-offload", "-op -1,0"),
        ("ik_llama.cpp", "--override-tensors exps=CPU", "-ot exps=CPU"),
        ("llama.cpp", "-tgb 16", "-tb 16"),
        ("llama.cpp", "-no-fa", "-fa off"),
    ],
)
def test_what_the_other_engine_or_an_older_build_calls_otherwise_is_written_as_today_s_does(
    engine: Engine, written: str, now: str
) -> None:
    fixed = check(f"llama-server -m m.gguf -c 8192 -ngl 99 -ncmoe 46 {written}", engine, AIR, RIG).fixed
    assert fixed is not None
    assert written.split()[0] not in fixed.split()
    assert now in fixed
    assert check(fixed, engine, AIR, RIG).verdict.startswith("Fits: ")


def test_where_the_program_would_still_end_there_is_no_corrected_command() -> None:
    report = check("llama-server -m m.gguf -c 8192 -ngl 99 -ot exps=CPU -dev CUDA7 -fmoe", "llama.cpp", AIR, RIG)
    assert report.verdict.startswith("Does not start")
    assert report.fixed is None


def test_a_fix_that_another_one_spoils_is_left_out() -> None:
    fixed = check(PUBLISHED, None, AIR, RIG).fixed
    assert fixed is not None
    assert "-rtr" in fixed
    assert "-ub" not in fixed  # with which experts that -rtr repacked would be computed on the CPU


def test_a_command_as_a_page_printed_it_is_given_as_it_is_typed() -> None:
    small = build("Qwen3-14B", "q4_K_M")
    typed = "llama-server -m m.gguf -ngl 99 -c 8192"
    assert check("llama-server –m m.gguf —ngl 99 -c 8192", "llama.cpp", small, RIG).fixed == typed
    assert check(typed, "llama.cpp", small, RIG).fixed is None


def test_a_program_that_has_another_name_today_is_called_by_it() -> None:
    report = check("./main -m m.gguf -ngl 99 -c 4096", "llama.cpp", build("Qwen3-14B", "q4_K_M"), RIG)
    assert report.verdict.startswith("Does not start with today's build: llama.cpp has no program main")
    assert report.fixed == "./llama-cli -m m.gguf -ngl 99 -c 4096"


# As posted in llama.cpp pull 15952.
def test_a_line_of_windows_is_corrected_as_cmd_and_powershell_read_it() -> None:
    posted = r"PS C:\Users\a\llama.cpp> .\build\bin\llama-server.exe -m 'J:\llm models\m.gguf' -ts 1,2 -c 8192 -ngl 99"
    fixed = check(f"{posted} --flash-atn on", "llama.cpp", build("Qwen3-14B", "q4_K_M"), RIG).fixed
    start, path = r".\build\bin\llama-server.exe -m", r'"J:\llm models\m.gguf"'
    assert fixed is not None
    assert fixed.startswith(f"{start} {path} ")
    assert "\\\n" not in fold(fixed)
    assert " --flash-attn on" in fixed


# As posted in pull 22673, for today's build: the number is a temperature, the kind of drafting ik_llama.cpp's.
def test_options_that_were_renamed_keep_their_values() -> None:
    posted = "llama-server -m m.gguf -c 8192 -t 0.6 --spec-type mtp --draft-min 2 --draft-max 48"
    fixed = check(posted, "llama.cpp", build("GLM-4.5-Air", "q2_k"), RIG).fixed
    assert fixed is not None
    words = "--temp 0.6", "--spec-type draft-mtp", "--spec-draft-n-min 2", "--spec-draft-n-max 48"
    assert all(word in fixed for word in words)
    assert "-t 0.6" not in fixed.replace("--temp", "")


@pytest.mark.parametrize(
    "command",
    [
        "docker run --gpus all -v models x:server-cuda -m m.gguf -fa -c 8192",  # as a bot keeps `-v /models:/models`
        "-m m.gguf -fa -c 8192",
        "$env:A = 'b'\nllama-server -m m.gguf -fa -c 8192",
    ],
)
def test_a_form_that_a_line_would_not_replace_has_no_fixed_line(command: str) -> None:
    report = check(command, "llama.cpp", AIR, RIG)
    assert [f for f in report.findings if f.severity == "error"]
    assert report.fixed is None


CUDA_IMAGE = "ghcr.io/ggml-org/llama.cpp:server-cuda"


@pytest.mark.parametrize(
    ("start", "corrected"),
    [
        (f"docker run --gpus all -v ~/m:/m {CUDA_IMAGE}", f"docker run --gpus all -v ~/m:/m {CUDA_IMAGE}"),
        (f"docker run --rm {CUDA_IMAGE}", f"docker run --rm --gpus all {CUDA_IMAGE}"),
        ("sudo podman run --gpus all -e A=b x:full-cuda -s", "sudo podman run --gpus all -e A=b x:full-cuda -s"),
        ("docker run --gpus all x llama-server", "docker run --gpus all x llama-server"),
    ],
)
def test_the_corrected_command_starts_the_same_container(start: str, corrected: str) -> None:
    report = check(f"{start} -m /m/a.gguf -fa -c 8192 -ngl 99 -ot exps=CPU", "llama.cpp", AIR, RIG)
    assert report.fixed is not None
    assert report.fixed.startswith(f"{corrected} -")
    assert all(words in report.fixed for words in ("-m /m/a.gguf -c 8192 -ngl 99 -ot exps=CPU", " -fa on"))


def test_a_variable_that_a_fix_replaces_is_not_given_to_the_container() -> None:
    start = f"docker run --gpus all -e LLAMA_ARG_N_CPU_MOE=9 -e HF_TOKEN=x {CUDA_IMAGE}"
    report = check(f"{start} -m m.gguf -c 8192", "llama.cpp", AIR, resolve(parse_hardware("RTX 3060, 128GB")))
    assert report.fixed is not None
    assert report.fixed.startswith(f"docker run --gpus all -e HF_TOKEN=x {CUDA_IMAGE} -m m.gguf -c 8192 ")


def test_a_fix_may_hide_a_card() -> None:
    rig = resolve(parse_hardware("2x RTX 3090, Ryzen 9 7950X, 128GB"))
    report = check("llama-server -m m.gguf -c 8192 -ngl 99 -sm none -ot exps=CPU", "ik_llama.cpp", AIR, rig)
    assert report.fixed is not None
    assert report.fixed.startswith("CUDA_VISIBLE_DEVICES=0 llama-server ")
    assert "-sm" not in report.fixed


def test_the_fix_that_makes_a_command_fit_is_in_the_corrected_one() -> None:
    command = r".\llama-server.exe -m gpt-oss-20b-mxfp4.gguf -ngl 99 -c 32768 -fa --no-mmap --jinja"
    rig = resolve(parse_hardware("RTX 4070 12GB, i5-13600K, 32GB DDR5-6000, Windows 11"))
    report = check(command, "llama.cpp", build("gpt-oss-20b", "exps=mxfp4,*=q8_0"), rig)
    assert not all(device.fits for device in report.memory.devices)
    assert report.fixed_figures is not None
    assert all(device.fits for device in report.fixed_figures.memory.devices)
