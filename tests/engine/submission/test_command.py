"""The command of a paste: as it was run, with what belongs to it, or refused with the line."""

from __future__ import annotations

import json
import re

import pytest

from service.engine.commands.parse import parse
from service.engine.errors import InvalidInput
from service.engine.submission.reading import read_paste
from tests.engine.submission.pastes import ALL, DATA, WRAPS, recorded

RUN = "./build/bin/llama-sweep-bench -m /models/Qwen3-0.6B-Q4_0.gguf -c 2048 -ngl 99 -ot exps=CPU"
TABLE = recorded("ik-sweep-table.stderr")


def flags_of(paste: str) -> object:
    command = read_paste(paste).command
    assert command is not None
    parsed = parse(command)
    assert parsed.unknown == ()
    return parsed.flags, parsed.model_path, parsed.env


@pytest.mark.parametrize(
    "prompt",
    [
        "$ ", "# ", "> ", "user@box:~/ik_llama.cpp$ ", "[me@rig build]$ ", "(base) me@rig:/srv$ ", "~/llama.cpp $ ",
        "PS C:\\llama> ", "❯ ", "Command: ", "> $ ", "root@7f3a:/app# ",
    ],
)  # fmt: skip
@pytest.mark.parametrize("behind", ["\n" + TABLE, "\n\n" + TABLE, ""])
def test_a_prompt_before_the_command_is_no_part_of_it(prompt: str, behind: str) -> None:
    assert flags_of(prompt + RUN + behind) == flags_of(RUN)


@pytest.mark.parametrize(
    "folded",
    [
        RUN.replace(" -", " \\\n  -"),
        RUN.replace(" -", " \\ \n  -"),
        RUN.replace(" -", "\n  -"),
        RUN.replace(" -", " `\n  -"),
        "> " + RUN.replace(" -", " \\\n> -"),
        "```bash\n" + RUN + "\n```\n",
        "`" + RUN + "`",
        RUN.replace("-c 2048", "-c \\\n 2048"),
        RUN.replace("-c 2048 ", "-c\n2048 "),
        RUN.replace(" ", "\u00a0"),
        RUN.replace("exps=CPU", "“exps=CPU”"),
    ],
)
def test_a_folded_or_quoted_command_is_the_same(folded: str) -> None:
    assert flags_of(folded + "\n" + TABLE) == flags_of(RUN)


def test_what_was_exported_before_it_belongs_to_it() -> None:
    paste = "export CUDA_VISIBLE_DEVICES=1,0\n$ " + RUN + "\n" + TABLE
    assert flags_of(paste) == flags_of("CUDA_VISIBLE_DEVICES=1,0 " + RUN)


def test_commands_that_run_no_model_are_passed_over() -> None:
    assert flags_of(f"$ cmake --build build -j\n$ {RUN}\n{TABLE}\n$ nvidia-smi -L\n") == flags_of(RUN)


def test_the_benchmark_counts_and_not_the_server_that_was_copied_too() -> None:
    server = RUN.replace("llama-sweep-bench", "llama-server") + " --port 9000"
    assert flags_of(f"{server}\n\n{RUN}\n{TABLE}") == flags_of(RUN)


@pytest.mark.parametrize(
    ("paste", "line"),
    [
        (f"{RUN}\n{TABLE}\n{RUN} -fa on\n", "lines 1"),
        (f"{RUN} -fa on -am\nb 512\n{TABLE}", "line 2"),  # cut in the middle of a word
        (f"{RUN} -ot\n'blk.1\n=CPU'\n{TABLE}", "line 2"),
        (RUN.replace("-ngl", "–ngl"), "line 1"),
        (RUN.replace("-ngl", "—ngl"), "line 1"),
    ],
)
def test_what_is_not_certain_is_refused_with_the_line(paste: str, line: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{line}"):
        read_paste(paste)


def test_every_published_command_is_found_before_its_output() -> None:
    cases = [json.loads(text) for text in (DATA / "published_commands.jsonl").read_text().splitlines()]
    whole = [one["command"] for one in cases if "llama-" in one["command"].partition(" -")[0]]
    assert len(whole) > 60
    for command in whole:
        found = read_paste(f"{command}\n{TABLE}").command
        assert found is not None
        assert parse(found).flags == parse(command).flags


@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("build: 8337e4cd3 (3987)", "8337e4cd3"),
        ("version: 3700 (dc82b1f2)", "dc82b1f2"),
        ("main: build = 3585 (f2fb15de)", "f2fb15de"),
        ("build: 6123 (0c1e57098) with cc (GCC) 13.2 for x86_64-linux-gnu", "0c1e57098"),
        ("the build: 12", None),
    ],
)
def test_the_build_is_read_where_a_program_prints_it(text: str, build: str | None) -> None:
    assert read_paste(f"{TABLE}\n{text}\n").build == build


def test_a_commit_in_json_that_is_none_is_no_build() -> None:
    lines = recorded("main-bench-json.stdout").replace('"build_commit": "0c1e570"', f'"build_commit": "{"x" * 300}"')
    assert read_paste(lines).build is None


def test_the_engine_names_the_cards_and_prose_does_not() -> None:
    cards = (
        "ggml_cuda_init: found 1 CUDA devices:\n  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes\n"
    )
    hardware = read_paste(cards + TABLE).hardware
    assert hardware is not None
    assert [gpu.name for gpu in hardware.gpus] == ["NVIDIA GeForce RTX 3090"]
    assert read_paste("better than my old RTX 3090!\n" + TABLE).hardware is None


def published_commands() -> list[str]:
    cases = (json.loads(text) for text in (DATA / "published_commands.jsonl").read_text().splitlines())
    return [one["command"] for one in cases if re.search(r"llama-\w+(?:-bench)?(?:\.exe)? ", one["command"])]


def right_or_refused(command: str, how: str, between: str) -> bool:
    """Return whether a mangled command was read; fails where it was read as another one that could be run."""
    try:
        found = read_paste(ALL[how](f"$ {command}{between}{TABLE[TABLE.find('|    PP') :]}")).command
        read = parse(found) if found else None
    except InvalidInput:
        return False
    if read is None or read.unknown or read.refused:
        return False  # a submission with it is refused
    wanted = parse(command)
    assert (read.flags, read.model_path) == (wanted.flags, wanted.model_path)
    return True


@pytest.mark.parametrize("how", ALL)
def test_a_mangled_command_is_read_right_or_refused(how: str) -> None:
    for command in (RUN, *published_commands()[::29]):
        assert right_or_refused(command, how, "\n") or how in (*WRAPS, "escaped")


@pytest.mark.full
@pytest.mark.parametrize("how", ALL)
def test_every_published_command_mangled_is_read_right_or_refused(how: str) -> None:
    read = [right_or_refused(command, how, between) for command in published_commands() for between in ("\n", "\n\n")]
    assert sum(read) > (0.9 if how not in (*WRAPS, "escaped") else 0.0) * len(read)
