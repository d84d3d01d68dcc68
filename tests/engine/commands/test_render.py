"""A rendered command: today's spelling, options that exist, and the same Flags when it is read again."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.commands.parse import parse
from service.engine.commands.render import render
from service.engine.commands.shell import fold
from service.engine.commands.tables import AFFECTING, OPTIONS, RETIRED, TESTS, known_options, newer_options
from service.engine.config import ENGINES, Engine, Flags, Override, Tool
from service.engine.engines import engine_spec
from service.engine.errors import InvalidFlags
from tests.engine.commands.strategies import flags_for

HELP = Path(__file__).parents[2] / "data" / "help"
BUILDS = {"ik_llama.cpp": "8337e4cd3", "llama.cpp": "0c1e57098"}
CASES: list[tuple[Engine, Tool]] = [(engine, tool) for engine in ENGINES for tool in ("server", "bench")]

R1 = Flags(
    n_ctx=32768,
    n_batch=4096,
    n_ubatch=4096,
    overrides=(Override(r"blk\.[3-5]\.ffn_(up|gate|down|gate_up)_exps", "CUDA0"), Override("exps", "CPU")),
    mla=3,
    attn_max_batch=512,
    threads=56,
    mmap=False,
    jinja=True,
)
QWEN = msgspec.structs.replace(R1, mla=None, attn_max_batch=None, cache_type_k="q8_0", cache_type_v="q8_0")


def _help_words(engine: Engine, program: str) -> set[str]:
    """Words of the recorded `--help`. ik_llama.cpp's programs share one list, of which llama-sweep-bench prints all."""
    recorded = "llama-sweep-bench" if engine == "ik_llama.cpp" and program == "llama-server" else program
    text = (HELP / f"{engine}-{BUILDS[engine]}-{recorded}.txt").read_text()
    return {word.strip(",") for word in text.split() if word.startswith("-")} | _not_in_help(engine, program)


def _not_in_help(engine: Engine, program: str) -> set[str]:
    """Options that an engine's source reads and its help leaves out."""
    source = "llama-bench.cpp" if program == "llama-bench" else "common.cpp"
    lines = (HELP / f"{engine}-{BUILDS[engine]}-not-in-help.txt").read_text().splitlines()
    return {line.split()[0] for line in lines if source in line}


def _option_words(command: str) -> list[str]:
    words = shlex.split(command)
    return [word for word in words if word.startswith("-") and not word.lstrip("-")[:1].isdigit()]


def test_ik_llama_cpp_server_line_of_deepseek() -> None:
    assert render("ik_llama.cpp", "server", R1, model_path="/models/R1.gguf", env={"CUDA_VISIBLE_DEVICES": "1,0"}) == (
        "CUDA_VISIBLE_DEVICES=1,0 llama-server -m /models/R1.gguf -c 32768 -b 4096 -ub 4096 -ngl 999 -fa on "
        r"-mla 3 -amb 512 -ot 'blk\.[3-5]\.ffn_(up|gate|down|gate_up)_exps=CUDA0' -ot 'exps=CPU' "
        "-t 56 --no-mmap --jinja"
    )


def test_llama_cpp_server_line_says_no_to_fit_and_names_its_slots() -> None:
    assert render("llama.cpp", "server", QWEN, model_path="q.gguf", alias="qwen", host="0.0.0.0", port=8080) == (
        "llama-server -m q.gguf --alias qwen -c 32768 -b 4096 -ub 4096 -ngl 999 -fit off -fa on -ctk q8_0 -ctv q8_0 "
        r"-ot 'blk\.[3-5]\.ffn_(up|gate|down|gate_up)_exps=CUDA0,exps=CPU' -np 1 -t 56 -lm none --jinja "
        "--host 0.0.0.0 --port 8080"
    )


def test_llama_bench_takes_rules_split_by_semicolons_and_reaches_the_context() -> None:
    flags = msgspec.structs.replace(QWEN, tensor_split=(3.0, 1.0), no_kv_offload=True, op_offload=False)
    command = render("llama.cpp", "bench", flags, model_path="q.gguf")
    assert "-p 4096 -n 64 -d 0,14336,28672" in command
    assert r"-ot 'blk\.[3-5]\.ffn_(up|gate|down|gate_up)_exps=CUDA0;exps=CPU'" in command
    assert "-ts 3/1" in command
    assert "-nkvo 1" in command
    assert "-nopo 1" in command
    assert "--jinja" not in command


def test_sweep_bench_has_neither_templates_nor_an_address() -> None:
    command = render("ik_llama.cpp", "bench", R1, model_path="R1.gguf", host="0.0.0.0", alias="R1")
    assert command.startswith("llama-sweep-bench -m R1.gguf -c 32768 ")
    assert not {"--jinja", "--host", "--alias", "-np"}.intersection(command.split())


@pytest.mark.parametrize(("engine", "tool"), CASES)
def test_every_option_of_a_rendered_command_is_in_the_recorded_help(engine: Engine, tool: Tool) -> None:
    known = _help_words(engine, engine_spec(engine).programs[tool])

    @given(flags_for(engine, tool))
    def check(flags: Flags) -> None:
        command = render(engine, tool, flags, model_path="m.gguf", host="::", port=1, alias="a")
        assert set(_option_words(command)) <= known

    check()


@pytest.mark.parametrize(("engine", "tool"), CASES)
def test_a_rendered_command_parses_to_the_same_flags(engine: Engine, tool: Tool) -> None:
    @given(flags_for(engine, tool))
    def check(flags: Flags) -> None:
        command = render(
            engine, tool, flags, model_path="~/a b/m.gguf", env={"A": "1 2"}, prefix=("numactl", "-N", "0")
        )
        for text in (command, fold(command)):
            parsed = parse(text, engine)
            assert parsed.flags == flags
            assert parsed.model_path == "~/a b/m.gguf"
            assert (parsed.tool, parsed.env, parsed.prefix) == (tool, {"A": "1 2"}, ("numactl", "-N", "0"))
            assert (parsed.unknown, parsed.old, parsed.fit) == ((), (), False)

    check()


PROGRAMS_OF_ALL: list[tuple[Engine, str]] = [
    ("ik_llama.cpp", "llama-server"),
    ("ik_llama.cpp", "llama-sweep-bench"),
    ("ik_llama.cpp", "llama-bench"),
    ("llama.cpp", "llama-server"),
    ("llama.cpp", "llama-bench"),
]


@pytest.mark.parametrize(("engine", "program"), PROGRAMS_OF_ALL)
def test_the_known_options_are_those_of_the_recorded_help(engine: Engine, program: str) -> None:
    known, recorded = set(known_options(engine, program)), _help_words(engine, program)
    assert known <= recorded
    with_field = {name for option in (*OPTIONS, *TESTS) for name in option.names} | AFFECTING
    # ik_llama.cpp's llama-bench reads --merge-up-gate-exps where its help says this (llama-bench.cpp:813).
    only_in_help = {"--merge-up-gate-experts"} if program == "llama-bench" else set()
    assert (recorded & with_field) - known <= only_in_help


def test_what_an_engine_has_no_option_for_is_an_error() -> None:
    with pytest.raises(InvalidFlags, match=r"llama\.cpp has no option for mla = 3"):
        render("llama.cpp", "server", R1, model_path="m.gguf")


@pytest.mark.parametrize("pattern", ["a,b", "a=b", "a;b"])
def test_a_rule_that_would_be_split_is_an_error(pattern: str) -> None:
    with pytest.raises(InvalidFlags):
        render("llama.cpp", "server", Flags(overrides=(Override(pattern, "CPU"),)), model_path="m.gguf")


@pytest.mark.parametrize(("tool", "kind"), [("server", "q6_0"), ("bench", "f32")])
def test_a_cache_type_that_the_program_lacks_is_an_error(tool: Tool, kind: str) -> None:
    with pytest.raises(InvalidFlags, match=kind) as caught:
        render("llama.cpp", tool, Flags(cache_type_k=kind), model_path="m.gguf")
    assert "q8_0" in caught.value.choices


def test_llama_bench_needs_a_context() -> None:
    with pytest.raises(InvalidFlags) as caught:
        render("llama.cpp", "bench", Flags(n_ctx=0), model_path="m.gguf")
    assert caught.value.field == "flags.n_ctx"


@given(st.sampled_from(CASES).flatmap(lambda case: st.tuples(st.just(case), flags_for(*case))))
def test_folded_lines_are_narrow_and_hold_the_same_words(case: tuple[tuple[Engine, Tool], Flags]) -> None:
    (engine, tool), flags = case
    command = render(engine, tool, flags, model_path="/m/model.gguf")
    folded = fold(command, 100)
    assert shlex.split(folded.replace("\\\n", " ")) == shlex.split(command)
    lines = folded.split("\n")
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert all(len(line) <= 100 or len(_option_words(line.rstrip("\\"))) <= 2 for line in lines[1:])


@pytest.mark.parametrize("name", sorted(AFFECTING))
def test_an_option_kept_apart_exists_in_some_program_or_did_or_is_newer(name: str) -> None:
    newer = any(name in newer_options(engine, "llama-server") for engine in ENGINES)
    there = any(name in known_options(*program) for program in PROGRAMS_OF_ALL)
    assert name in RETIRED or name == "-ctxcp" or newer or there
