"""Commands as people write them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.builds import BuildAsked
from service.engine.commands.changes import changed
from service.engine.commands.parse import ParsedCommand, parse
from service.engine.commands.reader import BenchTests
from service.engine.config import Engine, Flags, Override
from service.engine.errors import InvalidFlags
from service.flows.advice.command_model import repo_in_command
from tests.engine.commands.published import Published, published


def _flags(command: str, program: str = "llama-server") -> Flags:
    return parse(f"{program} -m m.gguf {command}", "ik_llama.cpp").flags


def _mainline(command: str, program: str = "llama-server") -> ParsedCommand:
    return parse(f"{program} -m m.gguf {command}", "llama.cpp")


@pytest.mark.parametrize("case", published(), ids=lambda case: case.ids[0])
def test_a_published_command_is_read(case: Published) -> None:
    parsed = parse(case.command, case.engine, program=case.tool)
    assert (parsed.engine, parsed.program, parsed.tool) == (case.engine, case.tool, "bench")
    assert not any(word.startswith("-") and word != "--warmup-batch" for word in parsed.unknown if " " not in word)


@pytest.mark.parametrize(
    ("words", "without", "unknown"),
    [
        ("-c 4096 -ub (see n_ubatch) -b 4096", "-c 4096 -b 4096", ("-ub (see n_ubatch)",)),
        ('-ts "24/24 (in GiB, both cards)"', "-ts 24/24", ("(in GiB, both cards)",)),
        ("-ts 24/24 (in GiB) -c 8192", "-ts 24/24 -c 8192", ("(in GiB)",)),
        ("-c ... -ngl 99", "-ngl 99", ("-c ...",)),
        (
            r'-ot "blk\.(7 layers, not published)\.ffn=CUDA0" -ot exps=CPU',
            "-ot exps=CPU",
            (r"-ot blk\.(7 layers, not published)\.ffn=CUDA0",),
        ),
        ("-ngl 99 -ot (ffn|attn)=CPU", "-ngl 99 -ot '(ffn|attn)=CPU'", ()),
    ],
)
def test_words_for_a_value_are_one_unknown_word(words: str, without: str, unknown: tuple[str, ...]) -> None:
    parsed = parse(f"llama-server -m m.gguf {words}", "ik_llama.cpp")
    assert parsed.flags == _flags(without)
    assert parsed.unknown == unknown


def test_a_long_command_from_a_thread() -> None:
    parsed = parse(
        r"""CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES="0,1" numactl -N 0 -m 0 ./build/bin/llama-server \
          --model /mnt/DeepSeek-R1-0528-IQ2_K_R4-00001-of-00005.gguf \
          --ctx-size $((160 * 1024)) -ctk q8_0 -mla 3 -fa \
          -amb 512 -fmoe \   # fused
          --n-gpu-layers 99 -ot "blk\.(3|4)\.ffn_.*=CUDA0" \
          --override-tensor 'blk\.(5|6)\.ffn_.*=CUDA1,exps=CPU' \
          --parallel 1 --threads 16 --temp 0.5 --host 127.0.0.1 2>&1 | tee -a log.txt""",
    )
    assert parsed.engine == "ik_llama.cpp"
    assert parsed.env == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert parsed.prefix == ("numactl", "-N", "0", "-m", "0")
    assert parsed.model_path == "/mnt/DeepSeek-R1-0528-IQ2_K_R4-00001-of-00005.gguf"
    assert parsed.flags == Flags(
        n_ctx=163840,
        cache_type_k="q8_0",
        mla=3,
        attn_max_batch=512,
        n_gpu_layers=99,
        overrides=(
            Override(r"blk\.(3|4)\.ffn_.*", "CUDA0"),
            Override(r"blk\.(5|6)\.ffn_.*", "CUDA1"),
            Override("exps", "CPU"),
        ),
        threads=16,
    )
    assert parsed.rest == ("--temp 0.5", "--host 127.0.0.1")
    assert parsed.old == ("bare -fa", "-fmoe")
    assert parsed.unknown == ()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("-fa on", "on"),
        ("-fa 1", "on"),
        ("-fa off", "off"),
        ("-fa 0", "off"),
        ("-fa AUTO", "auto"),
        ("-fa", "on"),
        ("-fa -c 8", "on"),
        ("--no-flash-attn", "off"),
        ("", "on"),
    ],
)
def test_flash_attention_in_every_spelling(command: str, expected: str) -> None:
    assert _flags(command).flash_attn == expected


def test_defaults_differ_between_engines() -> None:
    ik, mainline = parse("llama-server -m m.gguf", "ik_llama.cpp"), _mainline("")
    assert ik.flags == Flags(n_ctx=0)
    assert mainline.flags == Flags(n_ctx=0, flash_attn="auto", n_parallel=4, other=("-kvu",))
    assert (ik.fit, mainline.fit) == (False, True)


def test_explicit_slots_of_llama_cpp_are_not_one_pool() -> None:
    assert _mainline("-np 2").flags.n_parallel == 2
    assert _mainline("-np 2").flags.other == ()
    assert _mainline("-np -1").flags.other == ("-kvu",)


@pytest.mark.parametrize(
    ("command", "mmap", "mlock"),
    [
        ("--no-mmap", False, False),
        ("--mmap", True, False),
        ("--mlock", None, True),
        ("-lm auto", None, False),
        ("-lm none", False, False),
        ("-lm mmap", True, False),
        ("-lm mlock", False, True),
        ("--load-mode mmap+mlock", True, True),
    ],
)
def test_loading_in_old_and_new_spelling(command: str, mmap: bool | None, mlock: bool) -> None:
    flags = _mainline(command).flags
    assert (flags.mmap, flags.mlock) == (mmap, mlock)


def test_flags_that_today_s_build_lacks_are_named() -> None:
    assert _mainline("--no-mmap -fa").old == ("--no-mmap", "bare -fa")
    assert parse("llama-server -fmoe -ooae -mtp", "ik_llama.cpp").old == ("-fmoe", "-ooae", "-mtp")


def test_flags_of_the_other_engine_are_old_or_unknown_and_keep_their_values() -> None:
    parsed = _mainline("-amb 512 -muge -grt q8_0 --warmup-batch")
    assert parsed.old == ("-amb",)
    assert parsed.unknown == ("-muge", "-grt q8_0", "--warmup-batch")
    assert parsed.flags.other == ("-muge", "-grt q8_0", "-kvu")


def test_an_option_nobody_knows_keeps_the_value_that_seems_to_follow() -> None:
    assert _mainline("--frobnicate 7 --wobble -c 8 stray").unknown == ("--frobnicate 7", "--wobble", "stray")


def test_switches_take_a_number_where_llama_bench_wants_one() -> None:
    flags = _flags("-fmoe 0 -rtr 1 -nkvo 0 -mmp 0", "llama-bench")
    assert (flags.fused_moe, flags.runtime_repack, flags.no_kv_offload, flags.mmap) == (False, True, False, False)
    assert _flags("-rtr -c 8").runtime_repack is True
    assert _flags("-no-fmoe").fused_moe is False


@pytest.mark.parametrize(
    ("words", "flash", "n_old"),
    [("-fa 1", "on", 0), ("-fa 0", "off", 0), ("-fa off", "off", 0), ("-fa on", "off", 1), ("-fa -fmoe", "off", 1)],
)
def test_ik_s_llama_bench_takes_any_word_behind_fa_for_zero(words: str, flash: str, n_old: int) -> None:
    """string_split<bool> in its llama-bench.cpp; discussion 666 prints no column for -fa -fmoe."""
    parsed = parse(f"llama-bench -m m.gguf {words} -ub 768", "ik_llama.cpp", build=BuildAsked(date="2025-08-07"))
    assert (parsed.flags.flash_attn, parsed.flags.fused_moe, parsed.flags.n_ubatch) == (flash, False, 768)
    assert len(parsed.old) == n_old


def test_threads_of_generation_and_of_prompts_in_one_option() -> None:
    flags = parse("llama-bench -m m.gguf -tgb 6,18", "ik_llama.cpp").flags
    assert (flags.threads, flags.threads_batch) == (6, 18)


def test_llama_bench_places_the_model_where_it_is_given_a_margin() -> None:
    fitted, plain = (parse(f"llama-bench -m m.gguf {words}", "llama.cpp").fit for words in ("-fitt 2048", ""))
    assert fitted
    assert not plain


def test_no_offload_of_batches_in_both_engines() -> None:
    assert _flags("-op -1,0").op_offload is False
    assert _flags("-op 27,0,29,0").other == ("-op 27,0,29,0",)
    assert _mainline("--no-op-offload").flags.op_offload is False


@pytest.mark.parametrize("value", ["3,1", "3/1", "3.0,1"])
def test_shares_of_devices(value: str) -> None:
    assert _flags(f"-ts {value}").tensor_split == (3.0, 1.0)


@pytest.mark.parametrize(("value", "layers"), [("99", 99), ("all", 999), ("auto", 999), ("-1", 999), ("0", 0)])
def test_layers_by_number_or_name(value: str, layers: int) -> None:
    assert _mainline(f"-ngl {value}").flags.n_gpu_layers == layers


def test_llama_bench_takes_the_first_of_several_values_and_its_context_from_the_tests() -> None:
    parsed = _mainline(
        "-ub 512,1024 -t 8-32+8 -p 512,2048 -n 0 -pg 4096,128 -d 0,16384 -ot 'a=CPU;b=CUDA0,c=CPU'", "llama-bench"
    )
    assert parsed.flags.n_ubatch == 512
    assert parsed.flags.threads == 8
    assert parsed.flags.n_ctx == 4096 + 128 + 16384
    assert parsed.flags.overrides == (Override("a", "CPU"), Override("b", "CUDA0"))
    assert parsed.varied == ("-ub 512,1024", "-t 8-32+8", "-ot a=CPU;b=CUDA0,c=CPU")
    assert parsed.tests == BenchTests(prompts=(512, 2048), pairs=((4096, 128),), depths=(0, 16384))


def test_llama_bench_measures_512_and_128_tokens_unless_told() -> None:
    assert _mainline("", "llama-bench").tests == BenchTests(prompts=(512,), generations=(128,))
    assert _flags("", "llama-bench").attn_max_batch == 0


def test_llama_cpp_writes_cpu_layers_out_that_stand_before_a_rule() -> None:
    early = _mainline("-ncmoe 2 -ot exps=CUDA0").flags
    assert [rule.device for rule in early.overrides] == ["CPU", "CPU", "CUDA0"]
    assert early.n_cpu_moe == 0
    late = _mainline("-ot exps=CUDA0 -ncmoe 2").flags
    assert (late.n_cpu_moe, late.overrides) == (2, (Override("exps", "CUDA0"),))
    assert _flags("-ncmoe 2 -ot exps=CUDA0").n_cpu_moe == 2


def test_llama_cpp_reads_options_from_the_environment_and_the_command_wins() -> None:
    env = "LLAMA_ARG_CTX_SIZE=8192 LLAMA_ARG_UBATCH=64 LLAMA_ARG_KV_OFFLOAD=0 LLAMA_ARG_OVERRIDE_TENSOR=a=CPU"
    flags = parse(f"{env} LLAMA_ARG_KV_UNIFIED=1 llama-server -ub 1024 -ot b=CPU -np 2", "llama.cpp").flags
    assert (flags.n_ctx, flags.n_ubatch, flags.no_kv_offload, flags.other) == (8192, 1024, True, ("-kvu",))
    assert [rule.pattern for rule in flags.overrides] == ["a", "b"]
    assert parse("LLAMA_ARG_UBATCH=64 llama-bench -p 8", "llama.cpp").flags.n_ubatch == 512


@pytest.mark.parametrize("word", ["on", "enabled", "true", "1", "off", "disabled", "false", "0", "auto", "-1"])
def test_llama_cpp_takes_every_word_for_on_and_off_that_its_parser_does(word: str) -> None:
    meant = "auto" if word in ("auto", "-1") else "on" if word in ("on", "enabled", "true", "1") else "off"
    for command in (f"LLAMA_ARG_FLASH_ATTN={word} llama-server -c 8192", f"llama-server -fa {word} -c 8192"):
        parsed = parse(command, "llama.cpp")
        assert (parsed.flags.flash_attn, parsed.unknown, parsed.old) == (meant, (), ())
    then = parse(f"LLAMA_ARG_FLASH_ATTN={word} llama-server -c 8192", "llama.cpp", build="b6100")
    assert (then.flags.flash_attn, then.unknown) == ("on" if meant == "on" else "off", ())
    assert ("bare -fa" in then.old) == (meant == "on")


def test_a_variable_that_switches_off_is_the_option_s_opposite() -> None:
    env = "LLAMA_ARG_KV_OFFLOAD=disabled LLAMA_ARG_MMPROJ_OFFLOAD=false LLAMA_ARG_KV_UNIFIED=0 LLAMA_ARG_CPU_MOE=0"
    parsed = parse(f"{env} llama-server -c 8192", "llama.cpp")
    assert parsed.flags.no_kv_offload
    assert "--no-mmproj-offload" in parsed.used
    assert not {"-kvu", "-cmoe", "--cpu-moe"} & set(parsed.used)
    assert parsed.unknown == ()


def test_the_server_of_ik_llama_cpp_reads_variables_again_behind_its_options() -> None:
    env = "LLAMA_ARG_CTX_SIZE=65536 LLAMA_ARG_UBATCH=64 LLAMA_ARG_CACHE_TYPE_K=q8_0 LLAMA_ARG_MLOCK=true"
    flags = parse(f"{env} llama-server -c 8192", "ik_llama.cpp").flags
    assert (flags.n_ctx, flags.n_ubatch, flags.cache_type_k, flags.mlock) == (65536, 64, "q8_0", True)
    assert parse(f"{env} llama-cli -c 8192", "ik_llama.cpp").flags.n_ctx == 8192
    assert parse(f"{env} llama-bench -p 8", "ik_llama.cpp").flags.n_ubatch == 512
    assert parse(f"{env} llama-server -c 8192", "ik_llama.cpp", build="2025-10-01").flags.n_ctx == 8192
    assert parse(f"{env} llama-server", "ik_llama.cpp", build="2025-12-01").flags.cache_type_k == "f16"


@pytest.mark.parametrize(("word", "meant"), [("1", "on"), ("true", "on"), ("on", "off"), ("0", "off")])
def test_a_switch_variable_of_ik_llama_cpp_is_on_for_two_words_only(word: str, meant: str) -> None:
    parsed = parse(f"LLAMA_ARG_FLASH_ATTN={word} llama-server -c 8192", "ik_llama.cpp")
    assert (parsed.flags.flash_attn, parsed.unknown, parsed.old) == (meant, (), ())


@pytest.mark.parametrize("engine", ["llama.cpp", "ik_llama.cpp"])
def test_a_change_of_an_option_replaces_its_variable(engine: Engine) -> None:
    words = parse("LLAMA_ARG_CTX_SIZE=65536 LLAMA_ARG_THREADS=8 llama-server -ngl 99", engine).words
    longer, without = changed(words, "--ctx-size 8192"), changed(words, "leave out -c")
    assert longer is not None
    assert longer.line == "LLAMA_ARG_THREADS=8 llama-server -ngl 99 --ctx-size 8192"
    assert without is not None
    assert without.line == "LLAMA_ARG_THREADS=8 llama-server -ngl 99"


def test_a_windows_path_keeps_its_backslashes() -> None:
    parsed = parse(r"PS C:\ik\Release> .\llama-server.exe -m F:\llm\Qwen3-30B.gguf -c 4096", "ik_llama.cpp")
    assert parsed.model_path == r"F:\llm\Qwen3-30B.gguf"
    assert parsed.flags.n_ctx == 4096


def test_unquoted_patterns_lose_their_backslashes_as_in_bash() -> None:
    assert _flags(r"-ot blk\.1[4-9]\.ffn.*=CPU").overrides == (Override("blk.1[4-9].ffn.*", "CPU"),)
    assert _flags(r'-ot "blk\.1[4-9]\.ffn.*=CPU"').overrides == (Override(r"blk\.1[4-9]\.ffn.*", "CPU"),)


def test_adjacent_quotes_are_one_value() -> None:
    assert _flags('-ot "a=CPU","b=CUDA1"').overrides == (Override("a", "CPU"), Override("b", "CUDA1"))


def test_a_device_with_an_equals_sign_belongs_to_the_last_part() -> None:
    assert _flags("-ot 'exps=CPU=x'").overrides == (Override("exps", "CPU=x"),)


def test_the_command_after_a_change_of_folder_is_meant() -> None:
    parsed = parse("cd build && export A=1; B=2 ./bin/llama-server -c 8 > log 2>&1; echo -n done", "llama.cpp")
    assert (parsed.program, parsed.flags.n_ctx, parsed.unknown) == ("llama-server", 8, ())
    assert parsed.env == {"A": "1", "B": "2"}


def test_a_model_named_like_a_program_is_no_program() -> None:
    parsed = parse("-m /models/llama-server -c 8 -mla 3")
    assert (parsed.model_path, parsed.engine, parsed.program) == (
        "/models/llama-server",
        "ik_llama.cpp",
        "llama-server",
    )


@pytest.mark.parametrize(
    ("command", "engine", "program"),
    [
        ("-m a.gguf -p 512 -n 128 -mmp 0", "llama.cpp", "llama-bench"),  # which had it until 2026
        ("-m a.gguf -p 512 -n 128 -rtr 1", "ik_llama.cpp", "llama-bench"),
        ("llama-cli -m a.gguf -cnv --color", "llama.cpp", "llama-cli"),  # it had them before ik_llama.cpp was its fork
        ("llama-sweep-bench -c 8", "ik_llama.cpp", "llama-sweep-bench"),
        ("~/ik_llama.cpp/build/bin/llama-cli -c 8", "ik_llama.cpp", "llama-cli"),
        ("-m a.gguf -amb 512 -wb", "ik_llama.cpp", "llama-sweep-bench"),
        ("llama-server -lm none", "llama.cpp", "llama-server"),
        ("llama-server -m a.gguf -ngl 99 -ot exps=CPU --no-mmap --mlock", "llama.cpp", "llama-server"),
        ("-t 2,4,8", "llama.cpp", "llama-bench"),
    ],
)
def test_engine_and_program_are_guessed(command: str, engine: str, program: str) -> None:
    parsed = parse(command)
    assert (parsed.engine, parsed.program) == (engine, program)


@pytest.mark.parametrize(
    ("command", "build", "engine"),
    [
        ("llama-bench -mmp 0", "2025-09-16", "llama.cpp"),
        ("llama-bench -mmp 0", "b6486", "llama.cpp"),
        ("llama-server -ngl 99 -ncmoe 20", "b6000", "llama.cpp"),  # a number of both, of other days
        ("llama-server -ngl 99 -ot exps=CPU", "2025-03-20", "ik_llama.cpp"),  # llama.cpp has had it since 2025-04-02
        ("llama-server -ngl 99 -ot exps=CPU", "2025-04-10", "llama.cpp"),
        ("llama-bench -fmoe 1", "b3700", "ik_llama.cpp"),
        ("llama-server -ngl 99", "8337e4cd3", "ik_llama.cpp"),  # only it has this commit
    ],
)
def test_the_engine_is_guessed_from_the_options_of_the_stated_build(command: str, build: str, engine: str) -> None:
    parsed = parse(command, build=build)
    assert (parsed.engine, parsed.guessed) == (engine, True)
    assert not parse(command, "llama.cpp").guessed


@pytest.mark.parametrize(
    "command", ["-c $((n * 1024))", "--threads $(nproc --ignore=2)", "-t `cat n`", "-ot 'exps=CPU", "x" * 70_000]
)
def test_what_only_a_shell_could_read_is_an_error(command: str) -> None:
    with pytest.raises(InvalidFlags) as caught:
        parse(f"llama-server -m m.gguf {command}", "llama.cpp")
    assert caught.value.field == "command"


@pytest.mark.parametrize("threads", ["$(nproc)", "`nproc`", '"$(nproc --all)"'])
def test_nproc_is_what_minus_one_means(threads: str) -> None:
    assert parse(f"llama-server -m a.gguf -t {threads.strip(chr(34))}", "llama.cpp").flags.threads == -1


def test_what_only_a_shell_knows_of_another_command_is_none_of_this_one() -> None:
    parsed = parse("cmake --build build -j$(nproc --ignore=1) && ./build/bin/llama-server -m a.gguf -c 8")
    assert (parsed.program, parsed.flags.n_ctx) == ("llama-server", 8)


# As posted: llama.cpp issues 28251, 13698, 15952, 9492, 1162 of ik_llama.cpp, spiritbuun/buun-llama-cpp issue 59.
@pytest.mark.parametrize(
    "prompt",
    [
        "❯ ", "$ ", ">", "(venv) $ ", "user@host:~/llama.cpp$ ", "(base) [user@host ~]$ ", "root@pc2:~# ",
        "PS C:\\Users\\a b\\llama.cpp> ", "C:\\llama>", "[Me]\\Software\\llama.cpp>",
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["CUDA_VISIBLE_DEVICES=0 llama-server -m a.gguf", "bin/llama-bench -m a.gguf"])
def test_a_shells_prompt_is_no_part_of_the_command(prompt: str, command: str) -> None:
    parsed = parse(prompt + command)
    assert parsed.words.line == command
    assert parsed.unknown == ()


def test_a_path_of_windows_is_kept_behind_its_prompt() -> None:
    parsed = parse(r"C:\llama>.\build\bin\llama-server.exe -m models\a.gguf > out\log.txt")
    assert (parsed.words.program, parsed.model_path) == (r".\build\bin\llama-server.exe", r"models\a.gguf")


@pytest.mark.parametrize(
    "text",
    [
        "llama-server -m a.gguf -c 8 --api-key me@host.de$ -fa on",
        r"C:\llama\llama-server.exe -m a.gguf -c 8 2>log.txt",
        "$SERVER -m a.gguf -c 8",
    ],
)
def test_what_looks_like_a_prompt_inside_a_command_is_kept(text: str) -> None:
    assert (parse(text).flags.n_ctx, parse(text).model_path) == (8, "a.gguf")


# As posted in llama-swap issue 484: ik_llama.cpp's server beside llama.cpp's.
@pytest.mark.parametrize(
    ("name", "program", "engine"),
    [
        ("ik_llama-server", "llama-server", "ik_llama.cpp"),
        ("/opt/bin/llama-server-cuda", "llama-server", "llama.cpp"),
        ("llama-bench-b6000.exe", "llama-bench", "llama.cpp"),
    ],
)
def test_a_program_under_a_name_of_ones_own_is_known(name: str, program: str, engine: str) -> None:
    parsed = parse(f"cd /opt && {name} -m a.gguf -ngl 99 --no-mmap")
    assert (parsed.program, parsed.engine, parsed.unknown, parsed.words.program) == (program, engine, (), name)


def test_the_options_of_batched_bench_do_not_tell_the_engine() -> None:
    assert parse("llama-batched-bench -m a.gguf -c 8 -npp 512 -ntg 32 -npl 1,2 -lm none").engine == "llama.cpp"


# As posted in llama.cpp pull 16932.
def test_lines_before_a_command_are_no_part_of_it() -> None:
    parsed = parse("git pull\nbuild with latest version\nbuild/bin/llama-server -m a.gguf \\\n  --jinja -c 0")
    assert (parsed.words.before, parsed.words.program) == ((), "build/bin/llama-server")


def test_a_launcher_on_the_line_before_is_kept() -> None:
    assert parse("CUDA_VISIBLE_DEVICES=1\nnumactl --interleave=all\nllama-server -m a.gguf").words.before == (
        "CUDA_VISIBLE_DEVICES=1", "numactl", "--interleave=all",
    )  # fmt: skip


# The shape of a batch file of 2026: what it stops before and starts after is no part of the command.
def test_a_batch_file_with_blocks_and_other_programs_is_read() -> None:
    parsed = parse(
        '@echo off\nsetlocal enabledelayedexpansion\nset "MODEL=%~1"\n'
        'if "%MODEL%"=="" (\n    set "MODEL=D:\\m\\a b.gguf"\n)\n'
        "for /f \"tokens=5\" %%a in ('netstat -ano ^| findstr :8001') do (\n    taskkill /F /PID %%a >nul 2>&1\n)\n"
        'set NGL=35\nstart "llama.cpp GPU" /affinity 0x555 llama-server.exe ^\n  -m "!MODEL!" ^\n  -ngl %NGL% ^\n'
        '  --metrics\ntimeout /t 5 /nobreak >nul\nstart "AI Service" node dist/main.js\npause\n'
    )
    assert (parsed.program, parsed.model_path, parsed.flags.n_gpu_layers) == ("llama-server", "D:\\m\\a b.gguf", 35)
    assert parsed.unknown == ()


def test_a_unit_written_by_a_here_document_is_read() -> None:
    parsed = parse(
        "cat > a.service <<EOF\n[Service]\nExecStart=/bin/llama-server \\\\\n  -m a.gguf \\\\\n  -c 8\nEOF\n"
    )
    assert (parsed.flags.n_ctx, parsed.unknown) == (8, ())


# As posted in issue 749 of ik_llama.cpp, with the log behind the last word; in many it is on the next line.
@pytest.mark.parametrize(
    "printed",
    [
        "ggml_cuda_init: found 2 CUDA devices:\n  Device 0: NVIDIA GeForce RTX 4090, VMM: yes",
        "\nggml_cuda_init: found 1 CUDA devices:\n  Device 0: NVIDIA",
        '\nINFO [                    main] build info | tid="1" build=3871',
        "\n0.00.160.791 I cmn  common_param: verbosity = 3 (adjust with the `-lv N` CLI arg)",
        "\nerror: invalid argument: --mtp-head",
    ],
)
@pytest.mark.parametrize("end", ["--jinja", '-ot ".ffn_(up|down)_exps.=CPU"'])
def test_what_a_command_printed_is_no_part_of_it(end: str, printed: str) -> None:
    parsed = parse(f"llama-server -m a.gguf -ngl 99 {end}{printed}")
    assert (parsed.unknown, parsed.refused, parsed.old) == ((), (), ())
    assert parsed.words.line.startswith("llama-server -m a.gguf -ngl 99 ")


def test_a_line_of_ollamas_log_is_no_command() -> None:
    with pytest.raises(InvalidFlags):
        parse('level=INFO msg="starting llama server" cmd="/usr/bin/ollama runner --model a --ctx-size 8192"')


# As posted in discussions of containers: the values come from a file beside it.
def test_a_variable_that_is_set_elsewhere_is_named() -> None:
    parsed = parse('llama-server -m "$MODEL" -c "${CTX}" -ngl %NGL% -fa on', "llama.cpp")
    assert [wrong.option for wrong in parsed.refused] == ["-c", "-ngl"]
    assert all(wrong.detail.endswith("whose value is not in the text") for wrong in parsed.refused)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("-c lots", "-c"),
        ("-c", "-c"),
        ("-ctk q9_9", "-ctk"),
        ("-ts 1,x", "-ts"),
        ("-ts -1,2", "-ts"),
        ("-ot exps", "-ot"),
        ("-lm sometimes", "-lm"),
        ("-c " + "9" * 20, "-c"),
    ],
)
def test_a_value_that_no_engine_takes_is_kept_with_what_is_wrong(command: str, named: str) -> None:
    parsed = parse(f"llama-server -m m.gguf -ngl 7 {command}", "llama.cpp")
    assert [wrong.option for wrong in parsed.refused] == [named]
    assert parsed.flags.n_gpu_layers == 7


@pytest.mark.parametrize("text", ["", "   ", "hello there", "\x00\x01", "# -c 8"])
def test_what_is_no_command_is_an_error(text: str) -> None:
    with pytest.raises(InvalidFlags, match="no program and no option"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("ollama run hf.co/a/b:Q4_K_M", "Ollama"),
        ("OLLAMA_FLASH_ATTENTION=1 /usr/local/bin/ollama serve", "Ollama"),
        ("lms load a/b --gpu max --context-length 8192", "LM Studio"),
        ("vllm serve a/b --tensor-parallel-size 2", "vLLM"),
        ("python3 -m vllm.entrypoints.openai.api_server --model a/b", "vLLM"),
        ("python -m llama_cpp.server --model a.gguf --n_gpu_layers -1", "llama-cpp-python"),
        # github.com/sgl-project/sglang/issues/100; ktransformers doc/en/Docker.md
        ("python -m sglang.launch_server --model-path NousResearch/Llama-2-7b-chat-hf --port 30000", "SGLang"),
        ("python -m ktransformers.local_chat  --gguf_path a.gguf --model_path a/b --cpu_infer 33", "KTransformers"),
        ("python server.py --model a.gguf --loader llama.cpp --gpu-layers 99", "text-generation-webui"),
    ],
)
def test_a_command_of_another_program_is_named_and_not_read_as_llama_cpps(text: str, program: str) -> None:
    with pytest.raises(InvalidFlags, match=f"a command of {program}"):
        parse(text)


@pytest.mark.parametrize(
    "program", ["llama-completion", "llama-mtmd-cli", "llama-speculative-simple", "llama-diffusion-cli", "llama-tts"]
)
def test_the_engines_other_programs_are_known(program: str) -> None:
    parsed = parse(f"./build/bin/{program} -m /models/vllm/a.gguf -c 4096")
    assert (parsed.program, parsed.flags.n_ctx, parsed.unknown) == (program, 4096, ())


def test_the_embedding_program_reads_its_whole_context_in_one_micro_batch() -> None:
    flags = parse("llama-embedding -m a.gguf -c 8192 -ub 512 --pooling last").flags
    assert (flags.n_batch, flags.n_ubatch) == (8192, 8192)
    assert parse("llama-embedding -m a.gguf").flags.n_ubatch == 2048


@pytest.mark.parametrize(
    "text", ["llama-server -c $((", 'llama-server "', "llama-server $(", "llama-server '", "llama-server -c $((1*"]
)
def test_what_is_not_closed_is_an_error(text: str) -> None:
    with pytest.raises(InvalidFlags, match="not closed"):
        parse(text)


WORDS = "llama-server llama-bench -c -ot -fa -ts -p -pg -lm --numa -ctk -np -1 -ncmoe 8 a=CPU 1,2 - -- = (-c 8)"
PIECES = st.sampled_from([*WORDS.split(), *"()'\"\\`|;>#\n\u00a0", "$((", "$("])


@given(
    st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=20), st.sampled_from(["ik_llama.cpp", "llama.cpp", None])
)
def test_any_text_is_read_or_refused(pieces: list[str], engine: Engine | None) -> None:
    for text in (" ".join(pieces), "".join(pieces)):
        with contextlib.suppress(InvalidFlags):
            parse(text, engine)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("llama-server \\\n  -m a.gguf \\\n  # offload everything\n  -ngl 99", "comment `# offload everything`"),
        ("llama-server -m a.gguf \\ # all layers\n  -ngl 99", "comment `# all layers`"),
        ("llama-server -m a.gguf \\  \n  -ngl 99", "blanks after a backslash"),
        ("llama-server -m a.gguf\n  -ngl 99", "before the line of -ngl"),
        ("llama-server –m a.gguf -ngl 99", "`–m` has a typographic dash"),
        ("llama-server -m a.gguf -ot “exps=CPU”", "`“exps=CPU”` has a typographic quote"),
    ],
)
def test_what_a_shell_reads_otherwise_than_it_is_meant_is_said(text: str, said: str) -> None:
    parsed = parse(text)
    assert said in " ".join(parsed.repaired)
    assert parsed.model_path == "a.gguf"


@pytest.mark.parametrize(
    "text",
    [
        "# my server\nllama-server \\\n  -m a.gguf \\\n  -ngl 99",
        "llama-server -m a.gguf -ngl 99 # all layers",
        "llama-server.exe -m a.gguf `\n  -ngl 99",
        "set A=1\nllama-server -m a.gguf ^\n  -ngl 99",
        'ARGS=(\n  -m a.gguf\n  -ngl 99\n)\nllama-server "${ARGS[@]}"',
    ],
)
def test_a_text_that_a_shell_reads_as_meant_is_not_repaired(text: str) -> None:
    assert parse(text).repaired == ()


def test_a_variable_that_a_shell_is_to_replace_stays_one_in_the_line_that_is_given_back() -> None:
    words = parse("llama-server --model \"$model\" -ot 'exps=CPU' -m ${DIR}/a.gguf -ot '^output.weight$=CPU'").words
    assert words.line == ('llama-server --model "$model" -ot exps=CPU -m "${DIR}/a.gguf" -ot \'^output.weight$=CPU\'')


def test_a_path_of_windows_keeps_its_backslash_and_a_split_mode_tells_the_engine() -> None:
    parsed = parse(r'llama-server -m GLM-4.6\GLM-4.6-IQ4.gguf -ot "blk\.1\.=CPU" -sm graph -ngl 99')
    assert (parsed.model_path, parsed.engine) == (r"GLM-4.6\GLM-4.6-IQ4.gguf", "ik_llama.cpp")
    assert parse("llama-server -m a.gguf -sm tensor").engine == "llama.cpp"


# llama.cpp docs/multimodal.md (0c1e57098)
MULTIMODAL = """# simple usage with CLI
llama-mtmd-cli -hf ggml-org/gemma-3-4b-it-GGUF

# simple usage with server
llama-server -hf ggml-org/gemma-3-4b-it-GGUF

# using local file
llama-server -m gemma-3-4b-it-Q4_K_M.gguf --mmproj mmproj-gemma-3-4b-it-Q4_K_M.gguf

# no GPU offload
llama-server -hf ggml-org/gemma-3-4b-it-GGUF --no-mmproj-offload"""


@pytest.mark.parametrize(
    ("text", "model", "others"),
    [(MULTIMODAL.partition("# using")[2], "gemma-3-4b-it-Q4_K_M.gguf",
      ("llama-server -hf ggml-org/gemma-3-4b-it-GGUF --no-mmproj-offload",)),
     ("./llama-server -m a.gguf -c 4096\n./llama-server -m b.gguf", "a.gguf", ("./llama-server -m b.gguf",)),
     ("$ ./bin/llama-server -m a.gguf --no-mmap\n$ ./bin/llama-bench -m b.gguf", "a.gguf",
      ("./bin/llama-bench -m b.gguf",)),
     ("llama-server -m a.gguf &\nllama-server -m b.gguf &", "a.gguf", ("llama-server -m b.gguf",)),
     ("```\nnvidia-smi\n```\n```sh\nllama-server -m a.gguf\n```\nor\n```\nllama-server \\\n  -m b.gguf\n```",
      "a.gguf", ("llama-server -m b.gguf",)),
     ("pkill llama-server; llama-server -m a.gguf", "a.gguf", ()),
     ("llama-server --version\nllama-server -m a.gguf", "a.gguf", ())],
)  # fmt: skip
def test_of_several_commands_the_first_that_names_a_model_is_read_and_the_others_are_kept(
    text: str, model: str, others: tuple[str, ...]
) -> None:
    parsed = parse(text)
    assert (parsed.model_path, parsed.others, parsed.unknown) == (model, others, ())


# llama.cpp issues 23551, and "main segfaults at dequantize_row_q4_0" (`gdb main`, `(gdb) r -m …`)
@pytest.mark.parametrize(
    ("text", "program"),
    [("gdb --args /mnt/llama-b9292/llama-cli -m a.gguf -c 10000 --no-mmap\nGNU gdb (Ubuntu 12.1-0ubuntu1) 12.1\nType a",
      "llama-cli"),
     ("❯❯❯ gdb main\n(gdb) r -m a.gguf -c 10000\nStarting program: /home/sha0/main -m a.gguf\n[Thread", "main"),
     ("$ gdb -q ./bin/llama-cli\nReading symbols\n(gdb) b main\n(gdb) run -m a.gguf -c 10000", "llama-cli"),
     ("(lldb) run -m a.gguf -c 10000", "llama-server")],
)  # fmt: skip
def test_what_a_debugger_runs_is_a_command(text: str, program: str) -> None:
    parsed = parse(text)
    assert (parsed.program, parsed.model_path, parsed.flags.n_ctx, parsed.unknown) == (program, "a.gguf", 10000, ())


@pytest.mark.parametrize("command", ["rm -rf /", "ls -la", "make -j8", "git clone --recursive x"])
def test_a_command_without_any_option_of_the_engines_is_none_of_theirs(command: str) -> None:
    with pytest.raises(InvalidFlags, match="no program and no option"):
        parse(command)


@pytest.mark.parametrize("command", ["--ctx_size 8192", "my-server -ngl=99", "x --draft-max 4", "serve -fmoe"])
def test_one_option_of_an_engine_makes_a_command(command: str) -> None:
    assert parse(command).program == "llama-server"


@pytest.mark.parametrize("total", ["CTX * NP", "$CTX*$NP", "${CTX} * ${NP} + 0", "2 * CTX*2"])
def test_a_sum_of_variables_that_the_text_sets_is_known(total: str) -> None:
    parsed = parse(f'CTX=8192\nNP=4\nllama-server -m a.gguf -c $(({total})) -np "$NP"', "llama.cpp")
    assert (parsed.flags.n_ctx, parsed.flags.n_parallel, parsed.env) == (32768, 4, {})


def test_a_sum_of_what_the_text_does_not_set_is_asked_for() -> None:
    for command in ("CTX=8192 llama-server -c $((CTX * N))", "CTX=x; llama-server -c $((CTX * 2))"):
        with pytest.raises(InvalidFlags, match="only a shell knows what"):
            parse(command)


_IN_ARRAY = """ARGS=("$B" \\
  -m a.gguf \\
  --jinja \\
#  --temp 0.6 \\ # qwen3.6
  --temp 1.0)
"""


def test_a_remark_in_an_array_ends_nothing() -> None:
    parsed = parse(f'B=llama-server\n{_IN_ARRAY}"${{ARGS[@]}}"', "llama.cpp")
    assert (parsed.repaired, parsed.unknown, parsed.model_path) == ((), (), "a.gguf")
    assert parse("llama-server -m a.gguf \\\n# x\n -c 8").repaired


def test_an_option_that_sets_several_others_stands_for_them_and_later_ones_change_them() -> None:
    parsed = parse("llama-server --gpt-oss-120b-default -c 32768")
    flags = parsed.flags
    assert (flags.n_ctx, flags.n_ubatch, flags.n_batch, flags.n_parallel) == (32_768, 2_048, 32_768, 2)
    assert repo_in_command(parsed) == "ggml-org/gpt-oss-120b-GGUF"
    assert parsed.words.line == "llama-server --gpt-oss-120b-default -c 32768"
